"""Tries to make one example's gradient depend on the others, before training.

`isolation` knows networks; a loss function is the caller's, and can only be
tried. Rows of a synthetic batch are replaced by others, the ends of the range
among them, and whatever belongs to a row that was kept must stay as it was: at
the weights as they are and at random ones, which hide nothing behind a zero.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

# Of a row; and of the largest row, since a saturated one is all rounding.
_TOLERANCE, _OF_LARGEST = 1e-4, 1e-6
_MIXES = (
  "Expected a loss in which each example stands alone, but what belongs to"
  " example {} of {} depends on others, or was attributed to others, so"
  " clipping would not bound one example's influence. Usual causes: a layer or"
  " a loss that mixes the batch (batch statistics, a mean over it), a weight"
  " used outside its own layer, copies joined by tf.concat, not tf.repeat, or"
  " random numbers that do not follow the seed."
)
_KINDS = ("random", "low", "high", "zeros")
_LARGE = 32  # rows; few replacements, since what is compared grows with them


@contextlib.contextmanager
def random_weights(
  variables: Sequence[tf.Variable], size: float
) -> Iterator[None]:
  """Weights of `size` times the usual; afterwards the old ones, to the bit."""
  rng = np.random.default_rng(0)
  before = [variable.numpy() for variable in variables]
  try:
    for variable in variables:
      scale = size / math.sqrt(max(1, math.prod(variable.shape[:-1])))
      variable.assign(scale * rng.normal(size=variable.shape))
    yield
  finally:
    for variable, value in zip(variables, before):
      variable.assign(value)


def replacements(
  batch: Sequence[tf.Tensor], size: int
) -> Iterator[tuple[list[np.ndarray], np.ndarray]]:
  """Batches of `size` rows, and which of them are as in the first batch.

  For every two rows there is a batch that keeps the one and replaces the other,
  except in large batches, of which only halves and single rows are kept.
  """
  rng = np.random.default_rng(1)
  batch = [tensor.numpy() for tensor in batch]
  first = [_rows(rng, tensor, size, "random") for tensor in batch]
  rows = np.arange(size)
  yield first, np.full(size, True)
  large = size > _LARGE
  for kind in _KINDS[: 2 if large else None]:
    every_pair = kind == "random" and not large
    bits = (size - 1).bit_length() if every_pair else 1
    halves = [
      (rows >> bit) & 1 == side for bit in range(bits) for side in (0, 1)
    ]
    for kept in [*halves, rows == 0, rows == size - 1]:
      others = [_rows(rng, tensor, size, kind) for tensor in batch]
      yield [_mixed(kept, a, b) for a, b in zip(first, others)], kept


def random_rows(batch: Sequence[tf.Tensor], count: int) -> list[np.ndarray]:
  """That many rows within the ranges of the batch.

  Half of them are random throughout; what hides behind a threshold may show in
  the others, which are random within the lower or the upper tenth, or constant.
  """
  rng = np.random.default_rng(2)
  return [_varied(rng, tensor.numpy(), count) for tensor in batch]


def _varied(rng, tensor: np.ndarray, count: int) -> np.ndarray:
  found = _rows(rng, tensor, count, "random")
  if tensor.dtype.kind != "f":
    return found
  low, high = tensor.min(), tensor.max()
  for row in range(count // 2, count):
    number = row - count // 2
    share = (0.1, 0.1, 0.0)[number % 3]
    start = (0.0, 1.0 - share, 1.0, 0.5)[number % 4] * (high - low)
    width = share * (high - low) * rng.random(found.shape[1:])
    found[row] = np.clip(low + start + width, low, high)
  return found


def _mixed(kept: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
  return np.where(kept.reshape([-1] + [1] * (a.ndim - 1)), a, b)


def _rows(rng, tensor: np.ndarray, size: int, kind: str) -> np.ndarray:
  """Rows within the range of the tensor's values."""
  shape = (size, *tensor.shape[1:])
  if tensor.dtype.kind not in "fiu":
    return tensor[rng.integers(0, len(tensor), size)]
  low, high = tensor.min(), tensor.max()
  if kind != "random":
    value = {"low": low, "high": high, "zeros": 0}[kind]
    return np.full(shape, value, tensor.dtype)
  if tensor.dtype.kind == "f":
    high = high if high > low else low + 1
    return rng.uniform(low, high, shape).astype(tensor.dtype)
  return rng.integers(min(low, 0), high + 1, shape).astype(tensor.dtype)


def replace_rows(tried, variables, batch, seed, size: int) -> None:
  """Raises if replaced rows change what belongs to others.

  Args:
    tried: `tried(batch, seed)` returns tensors whose first axis is that of the
      rows, a sum of gradients, and the same sum by its definition.
    variables: whose values are tried as they are and at random.
    batch: see `replacements`.
    seed: of every pass.
    size: rows of the batches.
  """
  _replace_rows(tried, batch, seed, size)
  for spread in (1.0, 4.0):
    with random_weights(variables, spread):
      _replace_rows(tried, batch, seed, size)


def _replace_rows(tried, batch, seed, size: int) -> None:
  before = None
  for rows, kept in replacements(batch, size):
    found, total, expected = tried(tuple(map(tf.constant, rows)), seed)
    before = found if before is None else before
    changed = _changed_row(before, found, kept)
    if changed is not None or not _is_close(total, expected):
      raise ValueError(_MIXES.format(changed or 0, size))


def replace_others(compiled, batch, seed, size: int) -> None:
  """Raises if the sum over the first row alone changes with the others.

  Args:
    compiled: `compiled(batch, mask, seed)` returns a `ClippedSum`.
    batch: see `replacements`.
    seed: of every pass.
    size: rows of the batches.
  """
  mask, before = tf.one_hot(0, size), None
  for rows, kept in replacements(batch, size):
    if kept[0]:
      found = compiled(tuple(map(tf.constant, rows)), mask, seed).gradients
      before = found if before is None else before
      if not _is_close(found, before):
        raise ValueError(_MIXES.format(0, size))


def _changed_row(
  before: Sequence[tf.Tensor], after: Sequence[tf.Tensor], kept: np.ndarray
) -> int | None:
  """The first row that was kept and yet is another; tensors are [rows, ...]."""
  for one, other in zip(before, after):
    a, b = (np.reshape(t, [len(kept), -1]).astype("f8") for t in (one, other))
    with np.errstate(invalid="ignore"):
      distance = np.linalg.norm(np.where(a == b, 0, a - b), axis=1)
    lengths = np.linalg.norm(np.where(np.isfinite(a), a, 0), axis=1)
    allowed = _TOLERANCE * lengths + _OF_LARGEST * lengths.max() + 1e-20
    neither = ~np.isfinite(a).all(axis=1) & ~np.isfinite(b).all(axis=1)
    changed = kept & ~neither & ~(distance <= allowed)
    if changed.any():
      return int(np.argmax(changed))
  return None


def _is_close(
  found: Sequence[tf.Tensor], expected: Sequence[tf.Tensor]
) -> bool:
  """Whether both are the same to one part in a thousand, or not finite."""
  length = float(tf.linalg.global_norm(expected))
  distance = tf.linalg.global_norm([f - e for f, e in zip(found, expected)])
  # Rows may cancel each other: what is left is then rounding.
  return not math.isfinite(length) or float(distance) <= 1e-3 * length + 1e-6
