"""Class counts under Gaussian noise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple
from typing import Union

import numpy as np
import tensorflow as tf

from tf_privrob import randomness
from tf_privrob.certify import ahead
from tf_privrob.certify import rounding
from tf_privrob.certify.smoothing import grid
from tf_privrob.models import precision

BLOCK = 25  # draws that share one key: part of what a seed means
SELECTION, ESTIMATION, PREDICTION = 0, 1, 2
_BATCH = {"CPU": 200, "GPU": 2_000}


def default_batch_size() -> int:
  """Noisy inputs of a forward pass that keep the device busy."""
  gpu = tf.config.list_physical_devices("GPU")
  return _BATCH["GPU" if gpu else "CPU"]


class Tally(NamedTuple):
  """Votes of one input over a range of draws."""

  row: int
  counts: np.ndarray
  undecided: int
  seconds: float


Seed = Union[None, int, Sequence[int], randomness.Key]


def is_repeated(seed: Seed) -> bool:
  """Whether anybody can make the draws of a seed once more."""
  return seed is not None and not isinstance(seed, randomness.Key)


def seed_key(seed: Seed) -> randomness.Key:
  """The key of a seed of one or two ints; a new one for None."""
  if not is_repeated(seed):
    return randomness.Key.of(None) if seed is None else seed
  words = np.atleast_1d(np.asarray(seed))
  if words.ndim > 1 or len(words) > 2 or words.dtype.kind not in "iu":
    raise ValueError(
      f"Expected seed={seed!r} to be None, for draws from the operating system,"
      " or an int or two ints, for draws that are repeated."
    )
  return randomness.Key.of(0).child("certificates", *words.tolist())


class NoisyVotes:
  """Counts argmax votes of x_i + N(0, stddev^2 I), on a grid, over draws.

  Draw j of input i is a function of (seed, i, stage, j) and of the input alone:
  noise comes in blocks of `BLOCK` draws with a key each, and one physical batch
  mixes the blocks of several inputs. Memory is that of a few batches whatever
  the number of draws; the graph is traced once. Noise is not clipped to any
  value range: the certificate needs the whole Gaussian. A draw whose two
  largest logits are so close that the place in a batch might turn them votes
  for no class, so that votes are a lower bound wherever a copy stands.

  Args:
    logits_fn: A function from [batch, ...] to [batch, num_classes].
    noise: What is drawn; see `grid`.
    num_classes: Number of classes.
    batch_size: Noisy inputs a forward pass, rounded up to whole blocks.
    group: Most inputs that one call of `count` may have.
    seed: None, int, two ints or a key.
  """

  def __init__(
    self,
    logits_fn: Callable[[tf.Tensor], tf.Tensor],
    noise: grid.GridNoise,
    num_classes: int,
    batch_size: int,
    group: int,
    seed: Seed,
  ):
    self._logits_fn = logits_fn
    self.noise = noise
    self.num_classes = num_classes
    self._blocks = math.ceil(batch_size / BLOCK)  # blocks in a batch
    self.group = group
    self._key = seed_key(seed)
    batch = [self._blocks * BLOCK, *noise.shape]
    self._classify = tf.function(
      self._classes, autograph=False, input_signature=[tf.TensorSpec(batch)]
    ).get_concrete_function()

  def count(
    self,
    images: np.ndarray,
    indices: Sequence[int],
    rows: Sequence[int],
    stage: int,
    first: int,
    last: int,
  ) -> Iterator[Tally]:
    """Votes over draws [first, last) of a stage, row by row.

    Args:
      images: At most `group` inputs.
      indices: Their positions in the data set, which choose their noise.
      rows: Which of `images` to count for, in increasing order.
      stage: SELECTION, ESTIMATION or PREDICTION: draws never overlap.
      first: First draw, a multiple of BLOCK.
      last: One beyond the last draw.

    Yields:
      One tally per row, as soon as its last draw was counted.
    """
    blocks = range(first // BLOCK, math.ceil(last / BLOCK))
    units = [(row, block) for row in rows for block in blocks]
    batches = [
      units[start : start + self._blocks]
      for start in range(0, len(units), self._blocks)
    ]
    counts = np.zeros([self.group, self.num_classes + 2], np.int64)
    seconds = np.zeros(self.group)
    finished, done = 0, 0
    started = time.perf_counter()

    def classified(batch):
      copies = self._noisy(images, indices, stage, batch)
      with precision.as_written():
        return self._classify(copies).numpy()

    for batch, classes in zip(batches, ahead.results(classified, batches)):
      classes = classes.reshape(self._blocks, BLOCK)
      spent = time.perf_counter() - started
      for (row, block), found in zip(batch, classes):
        counted = found[: last - block * BLOCK]
        counts[row] += np.bincount(counted, minlength=counts.shape[1])
        seconds[row] += spent / len(batch)
      done += len(batch)
      complete = done // len(blocks)
      for row in rows[finished:complete]:
        self._check(counts[row], indices[row])
        found = counts[row, :-2], int(counts[row, -1])
        yield Tally(row, *found, float(seconds[row]))
      finished = complete
      started = time.perf_counter()

  def _noisy(self, images, indices, stage: int, units) -> tf.Tensor:
    """Noisy copies for one batch; a short one is filled with zeros."""
    copies = np.zeros([self._blocks, BLOCK, *self.noise.shape], np.float32)
    for place, (row, block) in enumerate(units):
      key = self._key.child(indices[row], stage, block)
      copies[place] = self.noise.draw(images[row], key, BLOCK)
    return tf.constant(copies.reshape(-1, *self.noise.shape))

  def _classes(self, copies) -> tf.Tensor:
    """The class of each copy; then NaN, then what rounding could turn."""
    logits = self._logits_fn(copies)
    classes = tf.where(
      rounding.decided(logits),
      tf.argmax(logits, axis=1, output_type=tf.int32),
      self.num_classes + 1,
    )
    broken = tf.reduce_any(tf.math.is_nan(logits), axis=1)
    return tf.where(broken, self.num_classes, classes)

  def _check(self, counts: np.ndarray, index: int) -> None:
    if counts[-2]:
      raise ValueError(
        f"Expected finite logits, received NaN for {counts[-2]} of"
        f" {counts.sum()} noisy copies of input {index}. A vote cannot be"
        " counted; repair the model before certifying it."
      )
