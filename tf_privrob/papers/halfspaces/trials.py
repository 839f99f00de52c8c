"""Many independent halfspaces at once, for experiments.

One tensor program trains all trials, classes, margins and noise scales of the
DP Batch Perceptron together. Trials and classes have batches and noise of
their own. The margins and noise scales of one trial and class share the batch
and, up to its scale, the noise: each of them has the law of `Halfspaces`, and
they are compared under the same chance; publish one of them, not several.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import data
from tf_privrob import progress as progress_line
from tf_privrob import validate
from tf_privrob.papers.halfspaces import perceptron as halfspace

_BLOCK_ROWS = 16  # examples of a halfspace that are looked ahead for
_MEMORY = 2**24  # numbers gathered at a time
COMPOSITIONS = ("independent_batches", "shared_batch", "kesler")


@dataclasses.dataclass(frozen=True)
class Trials:
  """Independent runs of the DP Batch Perceptron.

  Attributes:
    num_classes: K.
    batch_size: Expected size of a Poisson batch.
    margins: Values of gamma'.
    stddevs: Standard deviations of the noise of a step; 0 is without noise.
    trials: Independent runs of each.
    composition: "independent_batches" (also of the paper's literal reading,
      which differs in the noise), "shared_batch" or "kesler".
    epochs: Passes over the data, on average.
    seed: Seed of batches and noise.
  """

  num_classes: int
  batch_size: int
  margins: Sequence[float]
  stddevs: Sequence[float]
  trials: int = 20
  composition: str = "independent_batches"
  epochs: float = 1.0
  seed: int = 0

  def __post_init__(self):
    validate.positive_int(
      num_classes=self.num_classes,
      batch_size=self.batch_size,
      trials=self.trials,
    )
    validate.positive(epochs=self.epochs)
    validate.non_negative_int(seed=self.seed)
    validate.numbers(validate.positive, margins=self.margins)
    validate.numbers(validate.non_negative, stddevs=self.stddevs)
    validate.one_of(COMPOSITIONS, composition=self.composition)

  def steps(self, num_examples: int) -> int:
    """T, of each halfspace."""
    return max(1, round(self.epochs * num_examples / self.batch_size))

  def train(
    self, features: np.ndarray, labels: np.ndarray, progress: bool = False
  ) -> np.ndarray:
    """Weights [trials, margins, stddevs, d, K], float32.

    Args:
      features: [n, d], of norm at most 1.
      labels: [n], in 0 .. K - 1.
      progress: Prints a line with an ETA.
    """
    features = np.ascontiguousarray(features, np.float32)
    labels = np.asarray(labels)
    validate.labels(self.num_classes, len(features), labels=labels)
    validate.batch_size(self.batch_size, len(features))
    largest = np.linalg.norm(features, axis=1).max()
    if largest > 1 + 1e-5:
      raise ValueError(
        f"Expected features of norm at most 1, received {largest:.4g}. Divide"
        " each row by its norm."
      )
    program = _Program(self, features, labels)
    line = None
    if progress:
      line = progress_line.Progress(program.num_blocks, "blocks")
    return program.run(line)


class _Program:
  """The rows of all runs, cut into blocks of steps, and the weights."""

  def __init__(self, trials: Trials, features, labels):
    self._trials = trials
    self._features = tf.constant(features)
    self._labels = labels
    pairs = [(m, s) for m in trials.margins for s in trials.stddevs]
    self._margins = tf.constant([m for m, _ in pairs], tf.float32)
    self._stddevs = tf.constant([s for _, s in pairs], tf.float32)
    self._kesler = trials.composition == "kesler"
    self._steps = trials.steps(len(features))
    self._block = 1
    if not self._kesler:
      self._block = max(1, min(_BLOCK_ROWS // trials.batch_size, self._steps))
    rows = (trials.batch_size + 6 * math.sqrt(trials.batch_size)) * self._block
    width = features.shape[1] * rows
    self._runs = 1 if self._kesler else trials.num_classes
    most = max(1, int(_MEMORY / (width * self._runs)))
    count = -(-trials.trials // most)  # parts of about the same size
    self._parts = np.array_split(np.arange(trials.trials), count)
    self.num_blocks = len(self._parts) * -(-self._steps // self._block)
    self._function = self._compiled(features.shape[1])

  def _compiled(self, dimension: int):
    """The program, traced once: groups and rows of a block are not static."""
    classes, pairs = self._trials.num_classes, len(self._margins)
    many = tf.TensorSpec([None, None], tf.int32)
    if self._kesler:
      return tf.function(
        self._kesler_block,
        input_signature=[
          tf.TensorSpec([None, pairs, dimension, classes]),
          *[many] * 3,
          tf.TensorSpec([None, dimension, classes]),
        ],
      )
    return tf.function(
      self._binary_block,
      input_signature=[
        tf.TensorSpec([None, dimension, pairs]),
        tf.TensorSpec([None, dimension]),
        many,
        tf.TensorSpec([None, None]),
        many,
        tf.TensorSpec([None, self._block, dimension]),
      ],
    )

  def run(self, line) -> np.ndarray:
    found = [self._train(part, line) for part in self._parts]
    weights = np.concatenate(found)  # [trials, d, K, pairs]
    size = len(self._trials.margins), len(self._trials.stddevs)
    weights = weights.reshape(*weights.shape[:3], *size)
    return np.moveaxis(weights, (1, 2), (3, 4))

  def _train(self, part: np.ndarray, line) -> np.ndarray:
    classes, dimension = self._trials.num_classes, self._features.shape[1]
    pairs = len(self._margins)
    if self._kesler:
      state = (tf.zeros([len(part), pairs, dimension, classes]),)
    else:
      groups = len(part) * classes
      state = (
        tf.zeros([groups, dimension, pairs]),
        tf.zeros([groups, dimension]),
      )
    for block in _ahead(self._blocks(part)):
      state = self._function(*state, *map(tf.constant, block))
      if line:
        line.update(1)
    if self._kesler:
      return tf.transpose(state[0], [0, 2, 3, 1]).numpy()
    weights = state[0] + state[1][..., None] * self._stddevs
    shape = [len(part), classes, dimension, pairs]
    return tf.transpose(tf.reshape(weights, shape), [0, 2, 1, 3]).numpy()

  # Batches and noise, ahead of the program.

  def _blocks(self, part: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Rows [G, m], signs or labels, steps [G, m] and noise of each block."""
    trials, count = self._trials, len(self._labels)
    prob = trials.batch_size / count
    shared = trials.composition == "shared_batch"
    draws = []
    for trial in part:
      for run in range(self._runs):
        if shared and run:
          draws.append(draws[-1])
          continue
        rng = np.random.default_rng([trials.seed, int(trial), run, 0])
        draws.append(data.poisson_rows(count, prob, self._steps, rng))
    edges = np.arange(0, self._steps + self._block, self._block)
    cuts = [np.searchsorted(steps, edges) for steps, _ in draws]
    rngs = [
      np.random.default_rng([trials.seed, int(trial), 0, 1]) for trial in part
    ]
    for index in range(len(edges) - 1):
      spans = [(cut[index], cut[index + 1]) for cut in cuts]
      width = max(1, max(end - start for start, end in spans))
      rows = np.zeros((len(draws), width), np.int32)
      steps = np.full((len(draws), width), -1, np.int32)
      for group, (start, end) in enumerate(spans):
        rows[group, : end - start] = draws[group][1][start:end]
        steps[group, : end - start] = draws[group][0][start:end] - edges[index]
      noise = self._noise(rngs)
      if not self._kesler:  # the last block may have fewer steps
        noise[:, self._steps - edges[index] :] = 0
      yield rows, self._targets(rows, steps), steps, noise

  def _targets(self, rows: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Y = 1 or -1 of each row, 0 for padding; or the class, -1 for padding."""
    found = self._labels[rows]
    if self._kesler:
      return np.where(steps >= 0, found, -1).astype(np.int32)
    own = np.arange(len(rows)) % self._trials.num_classes
    signs = np.where(found == own[:, None], 1, -1)
    return np.where(steps >= 0, signs, 0).astype(np.float32)

  def _noise(self, rngs: Sequence[np.random.Generator]) -> np.ndarray:
    """Unit normal numbers: [G, block, d], or [G, d, K] of Kesler's weights."""
    dimension, classes = self._features.shape[1], self._trials.num_classes
    if self._kesler:
      shape = (dimension, classes)
      return np.stack([rng.standard_normal(shape, np.float32) for rng in rngs])
    shape = (classes, self._block, dimension)
    return np.concatenate(
      [rng.standard_normal(shape, np.float32) for rng in rngs]
    )

  # The program.

  def _kesler_block(self, weights, rows, labels, steps, noise):
    """One step; weights [G, pairs, d, K]."""
    del steps
    features = tf.gather(self._features, rows)[:, None]
    one_hot = tf.one_hot(labels, self._trials.num_classes)[:, None]
    update, _ = halfspace.kesler(
      features, one_hot, weights, self._margins[:, None]
    )
    scale = self._stddevs[:, None, None]
    return (weights + update + scale * noise[:, None],)

  def _binary_block(self, signal, drift, rows, signs, steps, noise):
    """Several steps of one-versus-rest, exactly, with few large products.

    The weights of a pair (margin, s) are w = U + s g: U [G, d, pairs] sums the
    examples and g [G, d] the noise, which the pairs share. Scores and norms
    within the block follow from products with U and g as they were at its
    start, and from inner products among the block's examples X and noise N.
    """
    x, scale = tf.gather(self._features, rows), self._stddevs
    signs = signs[..., None]
    by_signal = tf.matmul(x, signal)  # <x, U>, kept up to date
    by_drift = tf.linalg.matvec(x, drift)  # <x, g>, likewise
    uu = tf.reduce_sum(signal**2, axis=1)
    ug = tf.linalg.matvec(signal, drift, transpose_a=True)
    gg = tf.reduce_sum(drift**2, axis=1, keepdims=True)
    many = self._block > 1
    if many:
      inner, cross = _products(x, x), _products(x, noise)
      noise_signal = tf.matmul(noise, signal)
      noise_drift = tf.linalg.matvec(noise, drift)
      noises = _products(noise, noise)
    added = tf.zeros_like(by_signal)
    for step in range(self._block):
      square = uu + 2 * scale * ug + scale**2 * gg
      bound = self._margins * tf.sqrt(tf.maximum(square, 0.0))
      scores = by_signal + scale * by_drift[..., None]
      violated = signs * scores <= bound[:, None]
      now = tf.where(violated & (steps[..., None] == step), signs, 0.0)
      added += now
      if not many:
        break
      moved = tf.matmul(inner, now)
      uu += tf.reduce_sum(now * (2 * by_signal + moved), axis=1)
      ug += tf.reduce_sum(now * by_drift[..., None], axis=1)
      by_signal += moved
      ug += noise_signal[:, step] + tf.linalg.matvec(
        added, cross[:, :, step], transpose_a=True
      )
      before = noise_drift[:, step] + tf.reduce_sum(noises[:, :step, step], 1)
      gg += (2 * before + noises[:, step, step])[:, None]
      by_drift += cross[:, :, step]
    signal += tf.matmul(x, added, transpose_a=True)
    return signal, drift + tf.reduce_sum(noise, axis=1)


def _products(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
  return tf.matmul(left, right, transpose_b=True)


def _ahead(items: Iterator) -> Iterator:
  """The same items, the next one made while this one is used."""
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    waiting = pool.submit(next, items, None)
    while (item := waiting.result()) is not None:
      waiting = pool.submit(next, items, None)
      yield item
