"""Scores under fresh noise inside a model, one pass a noise layer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Protocol

import numpy as np
import tensorflow as tf

from tf_privrob import mechanisms
from tf_privrob.certify import ahead
from tf_privrob.certify import alone
from tf_privrob.certify import certifier
from tf_privrob.certify import gate
from tf_privrob.certify import rounding
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.certify.smoothing import grid
from tf_privrob.certify.smoothing import votes
from tf_privrob.models import precision

BLOCK = votes.BLOCK
POSITIONS = ("input", "hidden")
_PREPARED = 32  # inputs whose hidden values are kept


class NoisyModel(Protocol):
  """What a model must offer to be certified with noise inside it.

  Noise drawn once for training is part of the model; what is certified is
  fresh noise on top. To be certified into a file by `certify.run` the model
  must also be callable on a batch of inputs, which gives its logits.

  Attributes:
    input_noise_shape: Shape of one example's noise at the input x.
    hidden_noise_shape: The same at the first hidden affine layer h.
  """

  input_noise_shape: tuple[int, ...]
  hidden_noise_shape: tuple[int, ...]

  def logits_with_noise(
    self,
    x: tf.Tensor,
    input_noise: tf.Tensor | None,
    hidden_noise: tf.Tensor | None,
  ) -> tf.Tensor:
    """Logits [B, K] in inference mode; None adds nothing at that place."""

  def hidden_values(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns h of each input, float64, and how far it may be off.

    An infinite error says that nobody knows, and that nothing can be proven.
    """

  def logits_from_hidden(self, hidden: tf.Tensor) -> tf.Tensor:
    """Logits [B, K] in inference mode from h with its fresh noise."""

  # A class of this library may have `noisy_parts`: the Keras models that all of
  # these run, beside functions of the library that act row by row. Any other
  # one is shown one row at a time (`certify.alone`).


class Pass(NamedTuple):
  """One forward pass with fresh noise at one place only.

  Attributes:
    position: "input" or "hidden".
    scale: Scale of the noise: b of Lap(b), or a standard deviation; one number,
      or one per coordinate, of the noise's shape.
    distribution: "laplace" or "gaussian".
  """

  position: str
  scale: float | np.ndarray
  distribution: str = "laplace"

  def on_grid(self, model: NoisyModel) -> grid.GridNoise:
    """The noise that votes are counted under."""
    hidden = self.position == "hidden"
    shape = model.hidden_noise_shape if hidden else model.input_noise_shape
    return grid.GridNoise(self.distribution, self.scale, tuple(shape))

  def draw(self, seed: tf.Tensor, count, shape: Sequence[int]) -> tf.Tensor:
    """`count` draws of the same law, for a search that no vote depends on."""
    scale = np.asarray(self.scale, np.float32)
    if self.distribution == "laplace":
      law = mechanisms.LaplaceMechanism(l1_sensitivity=1.0, dp_epsilon=1.0)
      return scale * law.sample([count, *shape], seed)
    return scale * tf.random.stateless_normal([count, *shape], seed)


def _require(model: Any, *names: str) -> None:
  missing = [name for name in names if not hasattr(model, name)]
  if missing:
    raise ValueError(
      f"Expected a model with {', '.join(names)}, received"
      f" {type(model).__name__} without {', '.join(missing)}. Fresh noise must"
      " reach the inside of the model: see certify.NoisyModel."
    )


def check_model(model: Any, x: Any) -> tuple[np.ndarray, int]:
  """Returns the inputs as float32 and the number of classes."""
  _require(
    model, "input_noise_shape", "hidden_noise_shape", "logits_with_noise"
  )
  x = certifier.check_inputs(model, x)
  return x, certifier.num_classes_of(
    lambda batch: model.logits_with_noise(batch, None, None), x, None
  )


class _Work(NamedTuple):
  """One batch of draws of one input."""

  index: int
  values: Sequence[np.ndarray]
  slack: float
  first: int


class NoisyScores:
  """Draws the scores prod_s softmax(logits with fresh noise in pass s only).

  With one pass it is the score of one noise layer; with several it is Eq. 14
  of DPAL. Draw j of input i is a function of (seed, i, stage, position, j) and
  of the input alone: noise comes in blocks of `BLOCK` draws with a key each,
  on a grid (`grid`). A physical batch holds draws of one input only, always in
  the same places, so that not even rounding depends on the other inputs or on
  their order; on `batch_size` it depends as far as the model's own rounding
  does. Memory is that of two batches whatever the number of draws. The noise is
  never clipped.

  Args:
    model: The model with its noise; see `NoisyModel`.
    num_classes: K.
    passes: Where and how much noise is drawn.
    batch_size: Most noisy inputs a forward pass, up to whole blocks; None
      chooses by device.
    seed: None, int, two ints or a key.
    together: Company may have a part in scores, for `stream_together`.
  """

  def __init__(
    self,
    model: NoisyModel,
    num_classes: int,
    passes: Sequence[Pass],
    batch_size: int | None,
    seed: votes.Seed,
    together: bool = False,
  ):
    self._model = model
    self._num_classes = num_classes
    self._passes = tuple(passes)
    self._noises = [item.on_grid(model) for item in self._passes]
    if any(item.position == "hidden" for item in self._passes):
      _require(model, "hidden_values", "logits_from_hidden")
    size = batch_size or votes.default_batch_size()
    self._most_blocks = math.ceil(size / BLOCK)
    self._key = votes.seed_key(seed)
    self._mixing = alone.not_row_wise(model, noise=True)
    if together:
      self._mixing = None
    self._logits = {
      item.position: alone.each(self._logits_behind(item), self._mixing)
      for item in self._passes
    }
    self._batch = tf.function(self._sums, autograph=False)
    self._joint_batch = tf.function(self._parts, autograph=False)

  def pass_gate(
    self, door: gate.Gate, x: np.ndarray, num_draws: int, remedy: str
  ) -> None:
    """Lets the model pass, with noise in it, at the size of its batches."""
    each, _ = self._blocks(num_draws)
    rows = np.arange(BLOCK * each)
    x = x[:_PREPARED]
    inputs = x[rows % len(x)]
    for item, (values, _) in zip(self._passes, self._values(x)):
      values = values[rows % len(values)]
      drawn = np.random.default_rng(0).standard_normal(values.shape)
      noise = (item.scale * drawn).astype(np.float32)
      noisy = (values + noise).astype(np.float32)
      self._logits[item.position] = door.rows(
        self._logits_behind(item), [noisy], remedy, noise=True
      )
      if item.position == "hidden":  # and on the way to it
        door.rows(
          lambda x, noise: self._model.logits_with_noise(x, None, noise),
          [inputs, noise],
          remedy,
          noise=True,
        )

  def _blocks(self, num_draws: int) -> tuple[int, int]:
    """Blocks of a batch, which are static, and batches of an input."""
    total = math.ceil(num_draws / BLOCK)
    batches = math.ceil(total / self._most_blocks)
    return math.ceil(total / batches), batches

  def stream(
    self, x: np.ndarray, indices: Sequence[int], stage: int, num_draws: int
  ) -> Iterator[score_bounds.Scores]:
    """Yields the scores of one input after the other.

    Args:
      x: Inputs.
      indices: Their positions in the data set, which choose their noise.
      stage: `votes.SELECTION` or `votes.ESTIMATION`: draws never overlap.
      num_draws: Draws an input.
    """
    each, batches = self._blocks(num_draws)
    firsts = range(0, batches * each, each)

    def scored(work):
      blocks = range(work.first, work.first + each)
      copies = self._copies(work.values, work.index, stage, blocks)
      draws = BLOCK * (work.first + np.arange(each))[:, np.newaxis]
      counted = (draws + np.arange(BLOCK)).ravel() < num_draws
      with precision.as_written():
        return work, self._batch(copies, tf.constant(counted)).numpy()

    sums, started = 0, time.perf_counter()
    for work, parts in ahead.results(scored, self._work(x, indices, firsts)):
      sums += parts
      if work.first == firsts[-1]:
        seconds = time.perf_counter() - started
        yield _scores(sums, num_draws, work.index, seconds, work.slack)
        sums, started = 0, time.perf_counter()

  def stream_together(
    self, x: np.ndarray, indices: Sequence[int], stage: int, num_draws: int
  ) -> Iterator[score_bounds.Scores]:
    """The same draws, but a forward pass holds one draw of many inputs.

    For networks that standardise by batch statistics, which see noisy copies
    of one input as a data set of their own. An input's scores then depend on
    which inputs are beside it. `batch_size` inputs go together, and memory is
    that of `BLOCK` times their noise.
    """
    size = self._most_blocks * BLOCK
    for start in range(0, len(x), size):
      group = indices[start : start + size]
      values = self._values(x[start : start + size])
      started = time.perf_counter()
      sums = 0
      for block in range(math.ceil(num_draws / BLOCK)):
        copies = [
          self._copies(
            [value[row] for value, _ in values], index, stage, [block]
          )
          for row, index in enumerate(group)
        ]
        joint = [np.stack(parts, axis=1) for parts in zip(*copies)]
        for draw in range(min(BLOCK, num_draws - block * BLOCK)):
          with precision.as_written():
            parts = self._joint_batch(
              [tf.constant(each[draw]) for each in joint]
            )
          sums += parts.numpy()
      seconds = (time.perf_counter() - started) / len(group)
      for row, index in enumerate(group):
        slack = self._slack(values, row)
        yield _scores(sums[:, row], num_draws, index, seconds, slack)

  def _work(self, x, indices, firsts) -> Iterator[_Work]:
    """One item for each batch of each input."""
    for start in range(0, len(x), _PREPARED):
      values = self._values(x[start : start + _PREPARED])
      for row, index in enumerate(indices[start : start + _PREPARED]):
        own = [value[row] for value, _ in values]
        slack = self._slack(values, row)
        for first in firsts:
          yield _Work(index, own, slack, first)

  def _values(self, x) -> list[tuple[np.ndarray, np.ndarray]]:
    """What each pass adds noise to, and how far it may be off."""
    return [
      self._hidden_values(x)
      if item.position == "hidden"
      else (x, np.zeros_like(x))
      for item in self._passes
    ]

  def _hidden_values(self, x) -> tuple[np.ndarray, np.ndarray]:
    """H of each input, alone where company might have a part in it."""
    if self._mixing is None:
      return self._model.hidden_values(x)
    found = [self._model.hidden_values(x[n : n + 1]) for n in range(len(x))]
    return tuple(np.concatenate(parts) for parts in zip(*found))

  def _slack(self, values, row: int) -> float:
    return sum(
      noise.slack(value[row], error[row])
      for noise, (value, error) in zip(self._noises, values)
    )

  def _copies(self, values, index, stage, blocks) -> list[np.ndarray]:
    """Noisy copies of one input for each pass, [draws, ...]."""
    return [
      np.concatenate(
        [
          noise.draw(
            value, self._key.child(item.position, index, stage, block), BLOCK
          )
          for block in blocks
        ]
      )
      for item, noise, value in zip(self._passes, self._noises, values)
    ]

  def _sums(self, copies, counted) -> tf.Tensor:
    """Sums over the counted draws of one input, [5, K]."""
    parts = self._parts(copies)
    return tf.reduce_sum(tf.where(counted[:, tf.newaxis], parts, 0.0), axis=1)

  def _logits_behind(self, item: Pass) -> alone.Rows:
    """From what the noise of this pass was added to, to logits."""
    if item.position == "hidden":
      return self._model.logits_from_hidden
    return lambda noisy: self._model.logits_with_noise(noisy, None, None)

  def _parts(self, copies: Sequence[tf.Tensor]) -> tf.Tensor:
    """What `_scores` reads, of each row, [5, B, K]."""
    log_scores, off = 0.0, 0.0
    for item, noisy in zip(self._passes, copies):
      logits = self._logits[item.position](noisy)
      largest = tf.reduce_max(tf.abs(tf.cast(logits, tf.float64)), axis=1)
      off += 2 * rounding.by_place(logits.dtype.as_numpy_dtype) * largest
      log_scores += tf.nn.log_softmax(tf.cast(logits, tf.float64))
    scores = tf.clip_by_value(tf.exp(log_scores), 0.0, 1.0)
    first, second = tf.unstack(tf.math.top_k(log_scores, 2).values, axis=1)
    ballots = tf.one_hot(
      tf.where(first - second > off, tf.argmax(log_scores, axis=1), -1),
      self._num_classes,
      dtype=tf.float64,
    )
    broken = tf.cast(~tf.math.is_finite(scores), tf.float64)
    # A softmax changes by no more than its logits do.
    off = tf.broadcast_to(off[:, tf.newaxis], tf.shape(scores))
    return tf.stack([scores, scores**2, ballots, broken, off])


def _scores(
  sums: np.ndarray, num_draws: int, index: int, seconds: float, slack: float
) -> score_bounds.Scores:
  """Reads sums of scores, their squares, votes, failures, rounding, [5, K]."""
  total, squares, counts, broken, off = sums
  if broken.any():
    raise ValueError(
      f"Expected finite logits, received NaN or infinity for {broken.max():.0f}"
      f" of {num_draws} noisy copies of input {index}. Repair the model before"
      " certifying it."
    )
  spread = np.maximum(squares - total**2 / num_draws, 0.0)
  return score_bounds.Scores(
    num_draws,
    total / num_draws,
    spread / max(num_draws - 1, 1),
    np.rint(counts).astype(np.int64),
    seconds,
    slack,
    off.max() / num_draws,
  )
