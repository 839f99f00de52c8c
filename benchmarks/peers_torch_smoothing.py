"""The usual PyTorch smoothing loop, as a process that answers requests.

Run by `benchmarks.smoothing` with an interpreter that has PyTorch. Each line
on standard input is a JSON request; each line on standard output the answer.
It imports nothing of this project.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from torch import nn


def tutorial_cnn() -> nn.Module:
  """TF Privacy's tutorial network."""
  return nn.Sequential(
    nn.Conv2d(1, 16, 8, stride=2, padding=3),
    nn.ReLU(),
    nn.MaxPool2d(2, stride=1),
    nn.Conv2d(16, 32, 4, stride=2),
    nn.ReLU(),
    nn.MaxPool2d(2, stride=1),
    nn.Flatten(),
    nn.Linear(512, 32),
    nn.ReLU(),
    nn.Linear(32, 10),
  )


def two_conv_cnn() -> nn.Module:
  """Two 3x3 convolutions with pooling, the usual MNIST network."""
  return nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(64 * 7 * 7, 128),
    nn.ReLU(),
    nn.Linear(128, 10),
  )


def count_votes(network, image, draws, batch_size, stddev) -> torch.Tensor:
  """Class counts of one image under noise, batch after batch."""
  counts = torch.zeros(10, dtype=torch.long)
  while draws > 0:
    size = min(batch_size, draws)
    draws -= size
    copies = image.repeat(size, 1, 1, 1)
    noisy = copies + torch.randn_like(copies) * stddev
    classes = network(noisy).argmax(dim=1)
    counts += torch.bincount(classes, minlength=10)
  return counts


@torch.no_grad()
def measure(network, images, selection, estimation, batch_size) -> float:
  """Seconds for the counting of `images` images, one after the other."""
  data = torch.rand(images, 1, 28, 28)
  count_votes(network, data[0], batch_size, batch_size, 0.25)  # warm up
  started = time.perf_counter()
  for image in data:
    candidate = count_votes(network, image, selection, batch_size, 0.25)
    counts = count_votes(network, image, estimation, batch_size, 0.25)
    counts[candidate.argmax()].item()
  return time.perf_counter() - started


def main() -> None:
  """Answers until standard input ends."""
  networks = {"tutorial": tutorial_cnn, "two_conv": two_conv_cnn}
  networks = {name: make().train(False) for name, make in networks.items()}
  for line in sys.stdin:
    request = json.loads(line)
    torch.set_num_threads(request.pop("threads"))
    network = networks[request.pop("network")]
    seconds = measure(network, **request)
    answer = {"seconds": seconds, "torch": torch.__version__}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
  main()
