"""Data for the laws: sizes, samplers, and rows that attackers would choose."""

from __future__ import annotations

import numpy as np

from tf_privrob import data

CLASSES, BATCH_SIZE, ROWS = 3, 4, 12
# n of the plan, and rows without the canary: neighbours with one more and with
# one fewer, where the batch size divides n, n - 1 or n + 1.
SIZES = ((12, 11), (12, 12), (11, 11), (13, 12))
FLAT, IMAGE = (6,), (6, 6, 1)
VALUE_RANGE = (0.0, 1.0)
PHYSICAL = {"poisson": 2, "shuffle": 3, "full_batch": 4}


def arrays(shape, count=ROWS, seed=0):
  """Rows in the value range and their labels."""
  rng = np.random.default_rng(seed)
  x = rng.random((count, *shape), "float32")
  return x, rng.integers(0, CLASSES, count)


def planned(kind: str, num_examples: int) -> data.Sampler:
  """The sampler that a method plans for so many examples."""
  rows = PHYSICAL[kind]
  if kind == "poisson":
    return data.PoissonSampler.from_batch_size(num_examples, BATCH_SIZE, rows)
  if kind == "shuffle":
    return data.ShuffleSampler(num_examples, BATCH_SIZE, rows)
  return data.FullBatchSampler(num_examples, rows)


def canaries(x, y) -> dict[str, tuple[np.ndarray, int]]:
  """Rows that an attacker would choose as the one example more, by name."""
  shape, (low, high) = x.shape[1:], VALUE_RANGE
  ordinary, label = (part[0] for part in arrays(shape, 1, 1))
  other = (label + 1) % CLASSES
  signs = np.where(np.arange(ordinary.size) % 2, 1.0, -1.0).reshape(shape)
  rows = {
    "ordinary": (ordinary, label),
    "another label": (ordinary, other),
    "duplicate": (x[0], y[0]),
    "duplicate with a wrong label": (x[0], (y[0] + 1) % CLASSES),
    "low": (np.full(shape, low), label),
    "high": (np.full(shape, high), label),
    "subnormal": (np.full(shape, 1e-41), label),
    "tiny": (np.full(shape, 1e-19), label),
    "huge": (np.full(shape, 1e30), label),
    "huge, with signs": (1e30 * signs, other),
    "not a number": (np.where(signs > 0, np.nan, ordinary), label),
    "infinite": (np.where(signs > 0, np.inf, ordinary), label),
  }
  return {
    name: (row.astype("float32"), int(label))
    for name, (row, label) in rows.items()
  }
