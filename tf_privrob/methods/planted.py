"""Canary gradients that take part in a training, for an audit of all of it.

A canary is a row of its own: it is drawn by the training's sampler with the
probability of every example, its gradient is clipped, added up, made noisy and
applied by what all gradients go through. Only where a real row has the gradient
of its loss, a canary has ten clip norms in one coordinate of the weights, which
no other canary has. Whether it is in the training at all is a fair coin.

What the auditor sees of canary i in step t is what the step applied in its
coordinate, less what the real rows added to it, which the adversary of
differential privacy knows, in units of the clip norm:

    x_ti = b_ti + z n_ti,

b_ti whether it was in the batch, n_ti standard noise. Where the training does
what is accounted, the n_ti are independent, since no two canaries share a
coordinate, and x_i is the pair of worlds that the accountant composes.
`privacy.audit_planted` makes a lower bound of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import data
from tf_privrob import gradients
from tf_privrob.data import batching
from tf_privrob.gradients import factors as factors_lib

_LENGTHS = 10.0  # clip norms that a canary's gradient is long


class Planted:
  """Canaries of one training, and what was seen of them.

  Args:
    count: of canaries, at most the number of trainable weights.
    seed: of coins and coordinates. They must stay unknown to what is audited.

  Attributes:
    included: the coins, [count].
    groups: which variable each canary is in; None before the training.
  """

  def __init__(self, count: int, seed: int):
    self.count = count
    rng = np.random.default_rng([11, seed])
    self.included = rng.random(count) < 0.5
    self.groups: np.ndarray | None = None
    self._seed = int(rng.integers(2**31))
    self._rows: dict[int, np.ndarray] = {}

  def begin(self) -> None:
    """Forgets what was seen while a step was rehearsed."""
    self._rows.clear()

  @property
  def nonprivate_seen(self) -> np.ndarray:
    """x, [steps, canaries], of the steps that were taken.

    With the weights it tells the exact sums: no budget covers it.
    """
    return np.stack([self._rows[step] for step in sorted(self._rows)])

  def sampler(self, sampler: data.Sampler) -> data.Sampler:
    """The sampler with canaries among those that it draws from."""
    if type(sampler) is data.PoissonSampler:
      return PlantedSampler(**vars(sampler), canaries=self)
    if type(sampler) is data.FullBatchSampler:
      return PlantedSampler(
        sampler.num_examples, 1.0, sampler.physical_batch_size, canaries=self
      )
    raise ValueError(
      "Expected Poisson or full batches, in which a canary comes and goes"
      f" alone, received sampler {sampler.kind!r}."
    )

  def join(self, clipped) -> Joined:
    """Clipped gradients in which the canaries take part."""
    if not isinstance(clipped, gradients.ClippedGradients):
      raise ValueError(
        "Expected one clipped gradient an example, received"
        f" {type(clipped).__name__}, for which canaries are not known."
      )
    return Joined(self, clipped)

  def places(self, variables: Sequence[tf.Variable]) -> np.ndarray:
    """Coordinates of the canaries among all weights, one after the other."""
    size = sum(int(np.prod(v.shape)) for v in variables)
    if self.count > size:
      raise ValueError(
        f"Expected num_canaries={self.count} <= {size}, the number of trainable"
        " weights: each canary has a coordinate of its own."
      )
    order = np.random.default_rng(self._seed).permutation(size)
    return order[: self.count]

  def keep(self, step: np.ndarray, row: np.ndarray) -> None:
    """Notes what was seen in a step; of a step that is repeated, the last."""
    self._rows[int(step)] = np.array(row, np.float64)


@dataclasses.dataclass(frozen=True)
class PlantedSampler(data.PoissonSampler):
  """Poisson batches with canaries, which stand in chunks of their own.

  n, q and the divisor q n are those of the real examples. Labels from
  `first_label` on say which canary a row is.

  Attributes:
    canaries: who they are.
  """

  canaries: Planted

  first_label = 2**20  # beyond all classes

  @property
  def slots(self) -> int:
    """The real examples, then the canaries."""
    return self.num_examples + self.canaries.count

  def indices(self, key, step: int) -> np.ndarray:
    """Without the canaries whose coin kept them out."""
    drawn = super().indices(key, step)
    real = np.ones(self.num_examples, bool)
    return drawn[np.concatenate([real, self.canaries.included])[drawn]]

  def element(self, x, y, rows) -> tuple[np.ndarray, ...]:
    """The chunks of real rows, then at least one of canaries."""
    real = rows[rows < self.num_examples]
    numbers = rows[len(real) :] - self.num_examples
    own = super().element(x, y, real)
    blank = np.zeros((1, *x.shape[1:]), x.dtype)
    images, _, mask = batching.gather_chunks(
      blank,
      np.zeros(1, y.dtype),
      np.zeros(len(numbers), int),
      self.physical_batch_size,
    )
    labels = np.zeros(mask.size, y.dtype)
    labels[: len(numbers)] = numbers
    labels = self.first_label + labels.reshape(mask.shape)
    return tuple(
      np.concatenate(pair) for pair in zip(own, (images, labels, mask))
    )


class Joined:
  """Clipped gradients of real rows and of canaries, and what is seen of these.

  It stands where `ClippedGradients` stood and is that but for `over_chunks`.
  """

  def __init__(self, canaries: Planted, clipped):
    self._canaries, self._real = canaries, clipped
    self._places = canaries.places(clipped.variables)
    sizes = [int(np.prod(v.shape)) for v in clipped.variables]
    ends = np.cumsum([0, *sizes])
    owner = np.searchsorted(ends, self._places, side="right") - 1
    canaries.groups = owner
    self._owner = tf.constant(owner, tf.int64)
    self._inside = tf.constant(self._places - ends[owner], tf.int64)
    self._planted = clipped.planting(self._plant)
    self._others = tf.Variable(
      tf.zeros([canaries.count], tf.float64), trainable=False
    )

  def __getattr__(self, name: str):
    return getattr(self._real, name)

  def over_chunks(self, chunks, mask, seed=None) -> gradients.ClippedSum:
    """The sum over all rows; counts and metrics are those of the real ones."""
    labels = chunks[-1]
    is_real = labels[:, 0] < PlantedSampler.first_label
    real = tf.reduce_sum(tf.cast(is_real, tf.int32))
    found = self._real.over_chunks(
      tuple(part[:real] for part in chunks), mask[:real], seed
    )
    planted = self._planted.over_chunks(
      tuple(part[real:] for part in chunks), mask[real:], seed
    )
    self._others.assign(tf.cast(self._at(found.gradients), tf.float64))
    return found._replace(
      gradients=[a + b for a, b in zip(found.gradients, planted.gradients)]
    )

  def note(self, step, applied, batch_size: float, public) -> None:
    """Keeps what a step shows of the canaries.

    Args:
      step: its number.
      applied: what the optimizer is given.
      batch_size: the accounted divisor.
      public: gradients of regularisers in it, which no data decide.
    """
    own = self._at([a - tf.cast(p, a.dtype) for a, p in zip(applied, public)])
    seen = batch_size * tf.cast(own, tf.float64) - self._others
    tf.numpy_function(
      self._canaries.keep, [step, seen / self._real.l2_clip_norm], []
    )

  def _at(self, tensors) -> tf.Tensor:
    flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)
    return tf.gather(flat, self._places)

  def _plant(self, found, labels) -> list[factors_lib.Factor]:
    """Factors of which each row is long in the coordinate of its canary."""
    numbers = labels - PlantedSampler.first_label
    owner = tf.gather(self._owner, numbers)
    inside = tf.gather(self._inside, numbers)
    length = _LENGTHS * self._real.l2_clip_norm
    return [
      _one_coordinate(
        factor, inside, length * tf.cast(owner == place, tf.float32)
      )
      for place, factor in enumerate(found)
    ]


def _one_coordinate(factor, inside, lengths) -> factors_lib.Factor:
  """A factor of the same form with one number a row, at `inside`."""
  if isinstance(factor, factors_lib.OuterProduct):
    rows, columns = factor.inputs.shape[-1], factor.deltas.shape[-1]
    first = tf.one_hot([0], factor.inputs.shape[1])[:, :, None]  # position 0
    inputs = tf.one_hot(inside // columns, rows)[:, None, :] * first
    deltas = tf.one_hot(inside % columns, columns) * lengths[:, None]
    return factor.made_of(inputs, deltas[:, None, :] * first)
  shape = factor.gradients.shape
  size = int(np.prod(shape[1:]))
  flat = tf.one_hot(inside, size) * lengths[:, None]
  return factor.made_of(tf.reshape(flat, shape))
