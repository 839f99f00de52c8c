"""The Laplace mechanism."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.mechanisms import mechanism

if TYPE_CHECKING:
  import dp_accounting


@dataclasses.dataclass(frozen=True)
class LaplaceMechanism(mechanism.Mechanism):
  """Adds Lap(l1_sensitivity / dp_epsilon) to every coordinate.

  Guarantee: dp_epsilon-differential privacy for a query whose l1 norm changes
  by at most `l1_sensitivity` between neighbours, under the relation for which
  that holds (add-or-remove-one by default); Dwork et al. 2006, Theorem 3.6 of
  Dwork and Roth 2014. At dp_delta > 0 one use costs exactly
  dp_epsilon + 2 log(1 - dp_delta): the hockey-stick divergence of two Laplace
  laws at distance dp_epsilon scales is 1 - exp((x - dp_epsilon) / 2) at x.

  A vector query costs no more than a scalar one of the same l1 sensitivity:
  walking from one neighbour to the other along one coordinate after another
  composes trade-off functions as group privacy does, and for a shift family of
  log-concave laws in one dimension that composition is the one-step shift. So
  `event()`, which accountants read as a scalar, covers vectors too.

  The sensitivity must be finite and known before the data is seen. Floating
  point: see `Mechanism`.

  Attributes:
    l1_sensitivity: Largest l1 change of the query between neighbours.
    dp_epsilon: The privacy parameter of one use.
  """

  l1_sensitivity: float
  dp_epsilon: float

  def __post_init__(self):
    validate.positive(
      l1_sensitivity=self.l1_sensitivity, dp_epsilon=self.dp_epsilon
    )

  @property
  def scale(self) -> float:
    """The scale b of the density exp(-|z| / b) / (2 b)."""
    return self.l1_sensitivity / self.dp_epsilon

  @property
  def stddev(self) -> float:
    """The standard deviation of one coordinate, sqrt(2) scale."""
    return math.sqrt(2.0) * self.scale

  @property
  def noise_multiplier(self) -> float:
    """The scale over the sensitivity, 1 / dp_epsilon."""
    return 1.0 / self.dp_epsilon

  def uniforms_needed(self, size: mechanism.Size) -> mechanism.Size:
    """Two per value."""
    return 2 * size

  def from_uniform(
    self,
    uniform: mechanism.Uniform,
    shape: mechanism.Shape,
    dtype: tf.DType = tf.float32,
  ) -> tf.Tensor:
    """Noise as a difference of two exponentials.

    Both come from 53-bit uniforms, so that the tail reaches 36 scales (32-bit
    ones would stop at 16) and values near zero keep their precision.
    """
    mechanism.working_dtype(dtype)
    shape = tf.concat([[2], tf.cast(shape, tf.int32)], axis=0)
    uniform = tf.reshape(mechanism.as_uniforms(uniform), shape)
    exponential = -tf.math.log1p(-uniform)
    return tf.cast(self.scale * (exponential[0] - exponential[1]), dtype)

  def event(self) -> dp_accounting.DpEvent:
    """`LaplaceDpEvent` of this noise multiplier."""
    import dp_accounting

    return dp_accounting.LaplaceDpEvent(self.noise_multiplier)

  def dp_epsilon_at(self, dp_delta: float = 0.0) -> float:
    """The exact cost of one use; `dp_epsilon` itself at dp_delta = 0."""
    if dp_delta:
      validate.open_probability(dp_delta=dp_delta)
    return max(0.0, self.dp_epsilon + 2.0 * math.log1p(-dp_delta))
