"""Class counts under Gaussian noise, inside one graph of static shape."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

BLOCK = 25  # draws that share one seed: part of what a seed means
SELECTION, ESTIMATION, PREDICTION = 0, 1, 2
_BATCHES_PER_CALL = 16  # between two calls Python sees Ctrl-C


class Tally(NamedTuple):
  """Votes of one input over a range of draws."""

  row: int
  counts: np.ndarray
  seconds: float


def seed_key(seed: int | Sequence[int]) -> int:
  """A 64-bit key for a seed of one or two ints."""
  words = np.atleast_1d(np.asarray(seed))
  if words.ndim > 1 or len(words) > 2 or words.dtype.kind not in "iu":
    raise ValueError(f"Expected seed={seed!r} to be an int or two ints.")
  digest = hashlib.blake2b(repr(words.tolist()).encode(), digest_size=8)
  return int.from_bytes(digest.digest(), "little", signed=True)


def noise_seeds(
  key: int, indices: np.ndarray, stage: int, blocks: np.ndarray
) -> np.ndarray:
  """One [2] int64 seed a block, injective in (index, stage, block)."""
  indices = np.asarray(indices, np.int64)
  places = (indices << 32) + (stage << 28) + np.asarray(blocks, np.int64)
  return np.stack([np.full_like(places, key), places], axis=-1)


def noise_block(seed: tf.Tensor, shape: Sequence[int], stddev: float):
  """`BLOCK` Gaussian draws: a function of the seed alone, on any device."""
  return tf.random.stateless_normal(
    [BLOCK, *shape], seed, stddev=stddev, alg="philox"
  )


class NoisyVotes:
  """Counts argmax votes of x_i + N(0, stddev^2 I) over (input, draw) pairs.

  Draw j of input i is a function of (seed, i, stage, j) alone: noise comes in
  blocks of `BLOCK` draws with a seed each, and one physical batch mixes the
  blocks of several inputs. Memory is that of one batch whatever the number of
  draws; the graph is traced once. Noise is not clipped to any value range:
  the certificate needs the whole Gaussian.

  Args:
    logits_fn: from [batch, ...] to [batch, num_classes].
    shape: shape of one input.
    num_classes: number of classes.
    stddev: standard deviation of the noise.
    batch_size: noisy inputs a forward pass, rounded up to whole blocks.
    group: most inputs that one call of `count` may have.
    seed: int or two ints.
  """

  def __init__(
    self,
    logits_fn: Callable[[tf.Tensor], tf.Tensor],
    shape: Sequence[int],
    num_classes: int,
    stddev: float,
    batch_size: int,
    group: int,
    seed: int | Sequence[int],
  ):
    self._logits_fn = logits_fn
    self._shape = tuple(shape)
    self.num_classes = num_classes
    self._stddev = stddev
    self._blocks = math.ceil(batch_size / BLOCK)  # blocks in a batch
    self.group = group
    self._key = seed_key(seed)
    self._count = tf.function(
      self._graph,
      autograph=False,
      input_signature=[
        tf.TensorSpec([group, *self._shape], tf.float32),
        tf.TensorSpec([None, self._blocks], tf.int32),
        tf.TensorSpec([None, self._blocks], tf.int32),
        tf.TensorSpec([None, self._blocks, 2], tf.int64),
      ],
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
      images: at most `group` inputs.
      indices: their positions in the data set, which choose their noise.
      rows: which of `images` to count for, in increasing order.
      stage: SELECTION, ESTIMATION or PREDICTION: draws never overlap.
      first: first draw, a multiple of BLOCK.
      last: one beyond the last draw.

    Yields:
      One tally a row, as soon as its last draw was counted.
    """
    first_block = first // BLOCK
    each = math.ceil(last / BLOCK) - first_block  # blocks of one row
    total = each * len(rows)
    size = self._blocks * _BATCHES_PER_CALL
    counts = np.zeros([self.group, self.num_classes + 1], np.int64)
    seconds = np.zeros(self.group)
    padding = np.repeat(images[-1:], self.group - len(images), axis=0)
    images = tf.constant(np.concatenate([images, padding]))
    finished = 0
    for start in range(0, total, size):
      units = np.arange(start, min(start + size, total))
      unit_rows = np.asarray(rows)[units // each]
      unit_blocks = first_block + units % each
      seeds = noise_seeds(
        self._key, np.asarray(indices)[unit_rows], stage, unit_blocks
      )
      started = time.perf_counter()
      valid = np.minimum(BLOCK, last - unit_blocks * BLOCK)
      counts += self._run(images, unit_rows, valid, seeds)
      spent = time.perf_counter() - started
      np.add.at(seconds, unit_rows, spent / len(units))
      complete = (units[-1] + 1) // each
      for row in rows[finished:complete]:
        self._check(counts[row], indices[row])
        yield Tally(row, counts[row, :-1], float(seconds[row]))
      finished = complete

  def _run(self, images, rows, valid, seeds) -> np.ndarray:
    """One call of the graph; the last batch is filled with uncounted units."""
    steps = math.ceil(len(rows) / self._blocks)
    missing = steps * self._blocks - len(rows)
    rows, valid, seeds = (
      np.concatenate([part, np.zeros([missing, *part.shape[1:]], part.dtype)])
      for part in (rows, valid, seeds)
    )
    return self._count(
      images,
      tf.constant(rows.reshape(steps, -1), tf.int32),
      tf.constant(valid.reshape(steps, -1), tf.int32),
      tf.constant(seeds.reshape(steps, -1, 2)),
    ).numpy()

  def _graph(self, images, rows, valid, seeds) -> tf.Tensor:
    columns = self.num_classes + 1  # the last one counts NaN
    cells = self.group * columns

    def step(number, counts):
      classes = self._classify(images, rows[number], seeds[number])
      cell = rows[number][:, None] * columns + classes
      weight = tf.sequence_mask(valid[number], BLOCK, tf.int32)
      return number + 1, counts + tf.math.unsorted_segment_sum(
        tf.reshape(weight, [-1]), tf.reshape(cell, [-1]), cells
      )

    _, counts = tf.while_loop(
      lambda number, _: number < tf.shape(rows)[0],
      step,
      [tf.constant(0), tf.zeros([cells], tf.int32)],
      parallel_iterations=2,  # draws the next noise beside this forward pass
    )
    return tf.reshape(counts, [self.group, columns])

  def _classify(self, images, rows, seeds) -> tf.Tensor:
    """Classes of one batch, [blocks, BLOCK]."""
    noise = tf.stack(
      [
        noise_block(seeds[block], self._shape, self._stddev)
        for block in range(self._blocks)
      ]
    )
    noisy = tf.gather(images, rows)[:, None] + noise
    logits = self._logits_fn(
      tf.reshape(noisy, [self._blocks * BLOCK, *self._shape])
    )
    classes = tf.where(
      tf.reduce_any(tf.math.is_nan(logits), axis=1),
      self.num_classes,
      tf.argmax(logits, axis=1, output_type=tf.int32),
    )
    return tf.reshape(classes, [self._blocks, BLOCK])

  def _check(self, counts: np.ndarray, index: int) -> None:
    if counts[-1]:
      raise ValueError(
        f"Expected finite logits, received NaN for {counts[-1]} of"
        f" {counts.sum()} noisy copies of input {index}. A vote cannot be"
        " counted; repair the model before certifying it."
      )
