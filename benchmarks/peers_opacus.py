"""One step of Opacus' ghost clipping; runs in the peers' environment."""

import argparse
import json
import resource
import time
import warnings

import torch
from torch import nn


class _SamePad(nn.Module):
  """Zero padding as TensorFlow's SAME does it, which may be lopsided."""

  def __init__(self, before, after):
    super().__init__()
    self.pads = (before, after, before, after)

  def forward(self, x):
    return nn.functional.pad(x, self.pads)


def _network(name):
  if name == "tutorial":
    return nn.Sequential(
      _SamePad(3, 3),
      nn.Conv2d(1, 16, 8, 2),
      nn.ReLU(),
      nn.MaxPool2d(2, 1),
      nn.Conv2d(16, 32, 4, 2),
      nn.ReLU(),
      nn.MaxPool2d(2, 1),
      nn.Flatten(),
      nn.Linear(512, 32),
      nn.ReLU(),
      nn.Linear(32, 10),
    )
  channels, side = (1, 7) if name == "conv4" else (3, 8)
  return nn.Sequential(
    nn.Conv2d(channels, 16, 3, padding=1),
    nn.ReLU(),
    _SamePad(0, 1),
    nn.Conv2d(16, 16, 3, 2),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    _SamePad(0, 1),
    nn.Conv2d(32, 32, 3, 2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * side * side, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
  )


def main():
  """Times the step and prints one line of JSON."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--networks")
  parser.add_argument("--batch_size", type=int)
  parser.add_argument("--seconds", type=float)
  flags = parser.parse_args()
  warnings.filterwarnings("ignore")
  import opacus

  torch.set_num_threads(2)
  torch.manual_seed(0)
  channels, size = (3, 32) if flags.networks == "cifar" else (1, 28)
  x = torch.rand(flags.batch_size, channels, size, size)
  y = torch.randint(0, 10, (flags.batch_size,))
  model = _network(flags.networks)
  loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(x, y), batch_size=flags.batch_size
  )
  model, optimizer, criterion, _ = opacus.PrivacyEngine().make_private(
    module=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    criterion=nn.CrossEntropyLoss(),
    data_loader=loader,
    noise_multiplier=1.1,
    max_grad_norm=1.0,
    poisson_sampling=False,
    grad_sample_mode="ghost",
  )

  def step():
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()

  for _ in range(3):
    step()
  times, end = [], time.perf_counter() + flags.seconds
  while time.perf_counter() < end or len(times) < 5:
    start = time.perf_counter()
    step()
    times.append(time.perf_counter() - start)
  result = {
    "examples_per_second": flags.batch_size / sorted(times)[len(times) // 2],
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
  }
  print(json.dumps(result))


if __name__ == "__main__":
  main()
