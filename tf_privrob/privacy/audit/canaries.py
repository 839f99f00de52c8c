"""Canaries: records that a training cannot help remembering.

All are arrays of the data set's shape and range, so that they go through the
real training code. `own_direction` picks those whose gradients have a part that
no other record's has: an adversary that looks along it sees the canary alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

import numpy as np

from tf_privrob import validate

KINDS = ("blank", "mislabelled", "out_of_distribution", "own_direction")


def blank(
  count: int,
  shape: Sequence[int],
  value_range: tuple[float, float],
  num_classes: int,
  seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
  """Inputs of the lowest value, with random labels."""
  rng = np.random.default_rng([1, seed])
  x = np.full((count, *shape), value_range[0], np.float32)
  return x, rng.integers(0, num_classes, count)


def mislabelled(
  x: np.ndarray, y: np.ndarray, count: int, num_classes: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Records of the data set with a wrong label, and their rows.

  The rows must leave the training set, or each canary has a twin in it.
  """
  if count > len(x):
    raise ValueError(
      f"Expected count={count} <= {len(x)}, the number of records."
    )
  if num_classes < 2:
    raise ValueError(f"Expected num_classes={num_classes} >= 2.")
  rng = np.random.default_rng([2, seed])
  rows = rng.choice(len(x), count, replace=False)
  shift = rng.integers(1, num_classes, count)
  return x[rows], (y[rows] + shift) % num_classes, rows


def out_of_distribution(
  count: int,
  shape: Sequence[int],
  value_range: tuple[float, float],
  num_classes: int,
  seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
  """Every value at one of both ends of the range by chance, random labels."""
  validate.value_range(value_range)
  rng = np.random.default_rng([3, seed])
  ends = rng.integers(0, 2, (count, *shape))
  x = np.where(ends, value_range[1], value_range[0]).astype(np.float32)
  return x, rng.integers(0, num_classes, count)


def own_direction(
  candidates: tuple[np.ndarray, np.ndarray],
  others: tuple[np.ndarray, np.ndarray],
  gradients_of: Callable[[np.ndarray, np.ndarray], np.ndarray],
  count: int = 1,
) -> np.ndarray:
  """Rows of the candidates whose gradients stand out most (white-box).

  A candidate's part of its own is |g - P g|, P the projection onto the span of
  the others' gradients and of those chosen before it.

  Args:
    candidates: Inputs and labels.
    others: Inputs and labels of records that take part in the training.
    gradients_of: Clipped gradients [n, parameters] of inputs and labels.
    count: How many are chosen.

  Returns:
    Rows of the candidates, the best first.
  """
  validate.positive_int(count=count)
  if count > len(candidates[0]):
    raise ValueError(
      f"Expected count={count} <= {len(candidates[0])}, the candidates."
    )
  left = np.array(gradients_of(*candidates), np.float64)
  others = np.asarray(gradients_of(*others), np.float64)
  _, sizes, directions = np.linalg.svd(others, full_matrices=False)
  directions = directions[sizes > 1e-6 * max(sizes.max(), 1e-30)]
  left -= left @ directions.T @ directions
  chosen = []
  for _ in range(count):
    norms = np.linalg.norm(left, axis=1)
    norms[chosen] = -1
    best = int(np.argmax(norms))
    chosen.append(best)
    if norms[best] > 0:
      unit = left[best] / norms[best]
      left = left - np.outer(left @ unit, unit)
  return np.array(chosen)
