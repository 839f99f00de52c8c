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
from tf_privrob.certify import certifier
from tf_privrob.certify import gate
from tf_privrob.certify import score_bounds
from tf_privrob.certify import votes

BLOCK = votes.BLOCK
POSITIONS = ("input", "hidden")
DISTRIBUTIONS = ("laplace", "gaussian")
_FIRST_STREAM = 4  # 0 to 3 are the stages of Gaussian smoothing
_BATCH = {"CPU": 200, "GPU": 2_000}


class NoisyModel(Protocol):
  """What a model must offer to be certified with noise inside it.

  Noise drawn once for training is part of the model; the arguments are fresh
  draws on top. To be certified into a file by `certify.run` the model must
  also be callable on a batch of inputs, which gives its logits.

  Attributes:
    input_noise_shape: shape of one example's noise at the input x.
    hidden_noise_shape: the same at the first hidden affine layer h.
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


class Pass(NamedTuple):
  """One forward pass with fresh noise at one place only.

  Attributes:
    position: "input" or "hidden".
    scale: of the noise: b of Lap(b), or a standard deviation; one number, or
      one a coordinate, of the noise's shape.
    distribution: "laplace" or "gaussian".
  """

  position: str
  scale: float | np.ndarray
  distribution: str = "laplace"

  def draw_block(self, seed: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """`BLOCK` draws: a function of the seed alone."""
    return self._sized(
      laplace_block if self.distribution == "laplace" else gaussian_block,
      seed,
      shape,
    )

  def draw(self, seed: tf.Tensor, count, shape: Sequence[int]) -> tf.Tensor:
    """`count` draws of the same law, for a search that no vote depends on."""

    def some(seed, shape, scale):
      if self.distribution == "laplace":
        law = mechanisms.LaplaceMechanism(l1_sensitivity=scale, dp_epsilon=1.0)
        return law.sample([count, *shape], seed)
      return tf.random.stateless_normal([count, *shape], seed, stddev=scale)

    return self._sized(some, seed, shape)

  def _sized(self, law, seed, shape) -> tf.Tensor:
    """`law` at unit scale times the scales of the coordinates, if they vary."""
    if not np.ndim(self.scale):
      return law(seed, shape, self.scale)
    return law(seed, shape, 1.0) * np.reshape(self.scale, shape).astype(
      np.float32
    )


def check_model(model: Any, x: Any) -> tuple[np.ndarray, int]:
  """Returns the inputs as float32 and the number of classes."""
  names = ("input_noise_shape", "hidden_noise_shape", "logits_with_noise")
  missing = [name for name in names if not hasattr(model, name)]
  if missing:
    raise ValueError(
      f"Expected a model with {', '.join(names)}, received"
      f" {type(model).__name__} without {', '.join(missing)}. Fresh noise must"
      " reach the inside of the model: see certify.NoisyModel."
    )
  x = certifier.check_inputs(model, x)
  return x, certifier.num_classes_of(
    lambda batch: model.logits_with_noise(batch, None, None), x, None
  )


def laplace_block(seed: tf.Tensor, shape: Sequence[int], scale: float):
  """`BLOCK` draws of Lap(scale) a coordinate: a function of the seed alone."""
  noise = mechanisms.LaplaceMechanism(l1_sensitivity=scale, dp_epsilon=1.0)
  return noise.sample([BLOCK, *shape], seed)


gaussian_block = votes.noise_block  # the same for N(0, stddev^2)


class NoisyScores:
  """Draws the scores prod_s softmax(logits with fresh noise in pass s only).

  With one pass it is the score of one noise layer; with several it is Eq. 14
  of DPAL. Draw j of input i is a function of (seed, i, stage, position, j)
  alone: noise comes in blocks of `BLOCK` draws with a seed each. A physical
  batch holds draws of one input only, always in the same places, so that not
  even rounding depends on the other inputs or on their order; on `batch_size`
  it depends as far as the model's own rounding does. Memory is that of one
  batch whatever the number of draws. The noise is never clipped.

  Args:
    model: see `NoisyModel`.
    num_classes: K.
    passes: where and how much noise is drawn.
    batch_size: most noisy inputs a forward pass, up to whole blocks; None
      chooses by device.
    seed: int or two ints.
  """

  def __init__(
    self,
    model: NoisyModel,
    num_classes: int,
    passes: Sequence[Pass],
    batch_size: int | None,
    seed: int | Sequence[int],
  ):
    self._model = model
    self._num_classes = num_classes
    self._passes = tuple(passes)
    if batch_size is None:
      gpu = tf.config.list_physical_devices("GPU")
      batch_size = _BATCH["GPU" if gpu else "CPU"]
    self._most_blocks = math.ceil(batch_size / BLOCK)
    self._key = votes.seed_key(seed)
    self._batch = tf.function(self._graph, autograph=False)
    self._joint_batch = tf.function(self._joint_graph, autograph=False)

  def pass_gate(
    self, door: gate.Gate, x: np.ndarray, num_draws: int, remedy: str
  ) -> None:
    """Lets the model pass, with noise in it, at the size of its batches."""
    each, _ = self._blocks(num_draws)
    rng = np.random.default_rng(0)
    inputs = x[np.arange(BLOCK * each) % len(x)]
    for item in self._passes:
      noise = item.scale * rng.standard_normal(
        [len(inputs), *self._shape(item)]
      )
      door.rows(
        lambda x, noise, item=item: self._logits(item, x, noise),
        [inputs, noise.astype(np.float32)],
        remedy,
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
      x: inputs.
      indices: their positions in the data set, which choose their noise.
      stage: votes.SELECTION or votes.ESTIMATION: draws never overlap.
      num_draws: draws an input.
    """
    each, batches = self._blocks(num_draws)
    for image, index in zip(x, indices):
      started = time.perf_counter()
      sums = 0
      for first in range(0, batches * each, each):
        blocks = np.arange(first, first + each)
        parts = self._batch(
          tf.constant(image),
          tf.constant(np.clip(num_draws - blocks * BLOCK, 0, BLOCK), tf.int32),
          tf.constant(self._seeds(index, stage, blocks)),
        )
        sums += parts.numpy()
      seconds = time.perf_counter() - started
      yield _scores(sums, num_draws, index, seconds)

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
      images = tf.constant(x[start : start + size])
      group = np.asarray(indices[start : start + size])
      started = time.perf_counter()
      sums = 0
      for block in range(math.ceil(num_draws / BLOCK)):
        parts = self._joint_batch(
          images,
          tf.constant(min(BLOCK, num_draws - block * BLOCK)),
          tf.constant(self._seeds(group, stage, block)),
        )
        sums += parts.numpy()
      seconds = (time.perf_counter() - started) / len(group)
      for row, index in enumerate(group):
        yield _scores(sums[:, row], num_draws, int(index), seconds)

  def _seeds(self, indices, stage: int, blocks) -> np.ndarray:
    """One seed a pass and (index, block), [passes, ..., 2]."""
    streams = [
      _FIRST_STREAM + 2 * stage + POSITIONS.index(item.position)
      for item in self._passes
    ]
    return np.stack(
      [
        votes.noise_seeds(self._key, indices, stream, blocks)
        for stream in streams
      ]
    )

  def _graph(self, image, valid, seeds) -> tf.Tensor:
    """Sums over the counted draws of one input, [4, K]."""
    draws = BLOCK * valid.shape[0]
    noises = [
      tf.concat(
        [
          item.draw_block(seeds[number, block], self._shape(item))
          for block in range(valid.shape[0])
        ],
        axis=0,
      )
      for number, item in enumerate(self._passes)
    ]
    parts = self._parts(tf.repeat(image[None], draws, axis=0), noises)
    counted = tf.reshape(tf.sequence_mask(valid, BLOCK), [draws, 1])
    return tf.reduce_sum(tf.where(counted, parts, 0.0), axis=1)

  def _joint_graph(self, images, valid, seeds) -> tf.Tensor:
    """Sums over the first draws of one block for each input, [4, B, K]."""
    noises = []
    for number, item in enumerate(self._passes):
      noise = tf.map_fn(
        lambda seed, item=item: item.draw_block(seed, self._shape(item)),
        seeds[number],
        fn_output_signature=tf.float32,
      )
      order = [1, 0, *range(2, noise.shape.rank)]
      noises.append(tf.transpose(noise, order)[:valid])  # draws first
    parts = tf.map_fn(
      lambda draw: self._parts(images, draw),
      tuple(noises),
      fn_output_signature=tf.float64,
    )
    return tf.reduce_sum(parts, axis=0)

  def _shape(self, item: Pass) -> tuple[int, ...]:
    hidden = item.position == "hidden"
    model = self._model
    return tuple(
      model.hidden_noise_shape if hidden else model.input_noise_shape
    )

  def _logits(self, item: Pass, inputs, noise) -> tf.Tensor:
    hidden = item.position == "hidden"
    return self._model.logits_with_noise(
      inputs, None if hidden else noise, noise if hidden else None
    )

  def _parts(self, inputs: tf.Tensor, noises: Sequence[tf.Tensor]) -> tf.Tensor:
    """Scores, their squares, votes and failures of each row, [4, B, K]."""
    log_scores = 0.0
    for item, noise in zip(self._passes, noises):
      logits = self._logits(item, inputs, noise)
      log_scores += tf.nn.log_softmax(tf.cast(logits, tf.float64))
    scores = tf.clip_by_value(tf.exp(log_scores), 0.0, 1.0)
    ballots = tf.one_hot(
      tf.argmax(log_scores, axis=1), self._num_classes, dtype=tf.float64
    )
    broken = tf.cast(~tf.math.is_finite(scores), tf.float64)
    return tf.stack([scores, scores**2, ballots, broken])


def _scores(
  sums: np.ndarray, num_draws: int, index: int, seconds: float
) -> score_bounds.Scores:
  total, squares, counts, broken = sums
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
  )
