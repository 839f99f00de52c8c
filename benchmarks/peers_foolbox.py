"""PGD by foolbox on PyTorch, in a process of its own.

`benchmarks/attacks.py` starts it with the interpreter of the peers' virtual
environment and alternates with it, line by line: every line on standard input
is one run, answered by its seconds. Needs torch and foolbox, not TensorFlow.

Arguments: an .npz with inputs and weights, a file for the examples, and a JSON
text with threads, network, attack_eps, step_size and steps.
"""

from __future__ import annotations

import json
import sys
import time

import foolbox
import numpy as np
import torch


class ConvNet(torch.nn.Module):
  """The network of benchmarks/attacks.py, with its weights."""

  def __init__(self, network: str, arrays):
    super().__init__()
    kernels = [arrays["kernel0"], arrays["kernel1"]]
    self.pooled = network == "pooled"
    stride, padding = (1, 0) if self.pooled else (2, 1)
    self.convs = torch.nn.ModuleList()
    for index, kernel in enumerate(kernels):
      size, _, inputs, outputs = kernel.shape
      conv = torch.nn.Conv2d(inputs, outputs, size, stride, padding)
      conv.weight.data = torch.tensor(kernel.transpose(3, 2, 0, 1).copy())
      conv.bias.data = torch.tensor(arrays[f"bias{index}"])
      self.convs.append(conv)
    kernel = arrays["kernel2"]
    self.dense = torch.nn.Linear(*kernel.shape)
    self.dense.weight.data = torch.tensor(kernel.T.copy())
    self.dense.bias.data = torch.tensor(arrays["bias2"])

  def forward(self, x):
    """Returns logits; features are flattened in TensorFlow's order."""
    for conv in self.convs:
      x = torch.relu(conv(x))
      if self.pooled:
        x = torch.nn.functional.max_pool2d(x, 2)
    return self.dense(x.permute(0, 2, 3, 1).flatten(1))


def main(inputs: str, outputs: str, options: str) -> None:
  """Runs the attack once for every line on standard input."""
  options = json.loads(options)
  torch.set_num_threads(options["threads"])
  with np.load(inputs) as arrays:
    model = ConvNet(options["network"], arrays).train(False)
    x = torch.tensor(arrays["x"].transpose(0, 3, 1, 2).copy())
    y = torch.tensor(arrays["y"])
  for parameter in model.parameters():
    parameter.requires_grad_(False)
  attacked = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
  attack = foolbox.attacks.LinfPGD(
    abs_stepsize=options["step_size"],
    steps=options["steps"],
    random_start=False,
  )
  versions = {"torch": torch.__version__, "foolbox": foolbox.__version__}
  print(json.dumps(versions), flush=True)
  for _ in sys.stdin:
    begin = time.perf_counter()
    x_adv = attack.run(attacked, x, y, epsilon=options["attack_eps"])
    seconds = time.perf_counter() - begin
    np.save(outputs, x_adv.numpy().transpose(0, 2, 3, 1))
    print(seconds, flush=True)


if __name__ == "__main__":
  main(*sys.argv[1:])
