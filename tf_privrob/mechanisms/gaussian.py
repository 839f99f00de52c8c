"""The Gaussian mechanism, with the classic and the analytic calibration."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from scipy import optimize
from scipy import special

from tf_privrob import validate
from tf_privrob.mechanisms import mechanism

if TYPE_CHECKING:
  import dp_accounting


def gaussian_dp_delta(noise_multiplier: float, dp_epsilon: float) -> float:
  """The exact dp_delta of one Gaussian release (Balle and Wang 2018, Thm. 8).

  With m = 1 / noise_multiplier and t = dp_epsilon / m - m / 2,

    dp_delta = Phi(-t) - exp(dp_epsilon) Phi(-t - m).

  Args:
    noise_multiplier: Standard deviation over l2 sensitivity.
    dp_epsilon: The privacy parameter, >= 0.
  """
  validate.positive(noise_multiplier=noise_multiplier)
  validate.non_negative(dp_epsilon=dp_epsilon)
  return float(gaussian_profile(1.0 / noise_multiplier, dp_epsilon))


def gaussian_profile(shift: float, dp_epsilon: np.ndarray) -> np.ndarray:
  """The dp_delta of N(shift, 1) against N(0, 1) at each dp_epsilon.

  It is that of `gaussian_dp_delta`, m = shift. Since exp(dp_epsilon) phi(t + m)
  = phi(t), the second term is phi(t) R(t + m) with the Mills ratio R(x) =
  Phi(-x) / phi(x), which neither overflows nor cancels.
  """
  validate.positive(shift=shift)
  t = np.asarray(dp_epsilon, np.float64) / shift - shift / 2

  def mills(x):
    return math.sqrt(math.pi / 2) * special.erfcx(x / math.sqrt(2))

  density = np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
  # Where t > 0 the two terms have a common factor, so that less cancels.
  near = special.ndtr(-t) - density * mills(t + shift)
  far = density * (mills(np.maximum(t, 0)) - mills(np.maximum(t, 0) + shift))
  return np.maximum(np.where(t > 0, far, near), 0.0)


def gaussian_dp_epsilon(noise_multiplier: float, dp_delta: float) -> float:
  """The exact dp_epsilon of one Gaussian release: inverts the function above.

  Args:
    noise_multiplier: Standard deviation over l2 sensitivity.
    dp_delta: The allowed failure mass, in (0, 1).

  Returns:
    The smallest dp_epsilon to about 1e-12, rounded up so that it holds.
  """
  validate.open_probability(dp_delta=dp_delta)
  if gaussian_dp_delta(noise_multiplier, 0.0) <= dp_delta:
    return 0.0
  # rho-zCDP with rho = m^2 / 2 bounds it from above (Bun and Steinke 2016).
  rho = 0.5 / noise_multiplier**2
  high = rho + 2 * math.sqrt(rho * math.log(1 / dp_delta))
  root = optimize.brentq(
    lambda x: gaussian_dp_delta(noise_multiplier, x) - dp_delta,
    0.0,
    high,
    xtol=1e-13 * (1 + high),
    rtol=1e-14,
  )
  step = 1e-13 * (1 + root)
  while gaussian_dp_delta(noise_multiplier, root) > dp_delta:
    root, step = root + step, 2 * step
  return root


class ByNoiseMultiplier(mechanism.Mechanism):
  """A mechanism that costs what one Gaussian of its noise multiplier does."""

  def uniforms_needed(self, size: mechanism.Size) -> mechanism.Size:
    """One per value, in pairs."""
    return (size + 1) // 2 * 2

  def event(self) -> dp_accounting.DpEvent:
    """`GaussianDpEvent` of this noise multiplier."""
    import dp_accounting

    return dp_accounting.GaussianDpEvent(self.noise_multiplier)

  def dp_epsilon_at(self, dp_delta: float) -> float:
    """The exact cost of one use (Balle and Wang 2018)."""
    return gaussian_dp_epsilon(self.noise_multiplier, dp_delta)


@dataclasses.dataclass(frozen=True)
class GaussianMechanism(ByNoiseMultiplier):
  """Adds N(0, stddev^2) to every coordinate.

  Guarantee: for a query whose l2 norm changes by at most `l2_sensitivity`
  between neighbours (under the relation for which that holds, add-or-remove-one
  by default), one use is (dp_epsilon, dp_delta)-differentially private exactly
  when dp_delta >= `gaussian_dp_delta(noise_multiplier, dp_epsilon)`; Balle and
  Wang 2018, Theorem 8. The law is rotation invariant, so a vector costs the
  same as a scalar. No finite dp_epsilon holds at dp_delta = 0.

  Floating point: see `Mechanism`. `tf.random.stateless_normal` never exceeds
  5.68 standard deviations, in float64 too, which alone costs about 1e-6 of
  dp_delta a release at noise_multiplier 1; `from_uniform` makes the radius
  of 53-bit uniforms and reaches 8.5.

  Attributes:
    l2_sensitivity: Largest l2 change of the query between neighbours.
    stddev: Standard deviation of the noise, per coordinate.
  """

  l2_sensitivity: float
  stddev: float

  def __post_init__(self):
    validate.positive(l2_sensitivity=self.l2_sensitivity, stddev=self.stddev)

  @classmethod
  def classic(
    cls, l2_sensitivity: float, dp_epsilon: float, dp_delta: float
  ) -> GaussianMechanism:
    """Calibrates by sqrt(2 log(1.25 / dp_delta)) / dp_epsilon.

    Dwork and Roth 2014, Theorem A.1, proven for dp_epsilon < 1 only. The
    analytic calibration needs less noise everywhere.
    """
    validate.positive(l2_sensitivity=l2_sensitivity, dp_epsilon=dp_epsilon)
    validate.open_probability(dp_delta=dp_delta)
    if dp_epsilon >= 1:
      raise ValueError(
        f"Expected dp_epsilon={dp_epsilon!r} < 1: the classic calibration is"
        " not private beyond. Use GaussianMechanism.analytic, which is exact"
        " for every dp_epsilon."
      )
    multiplier = math.sqrt(2 * math.log(1.25 / dp_delta)) / dp_epsilon
    return cls(l2_sensitivity, l2_sensitivity * multiplier)

  @classmethod
  def analytic(
    cls, l2_sensitivity: float, dp_epsilon: float, dp_delta: float
  ) -> GaussianMechanism:
    """Calibrates exactly: the smallest noise for (dp_epsilon, dp_delta)."""
    validate.positive(l2_sensitivity=l2_sensitivity, dp_epsilon=dp_epsilon)
    validate.open_probability(dp_delta=dp_delta)

    def excess(log_multiplier: float) -> float:
      return gaussian_dp_delta(math.exp(log_multiplier), dp_epsilon) - dp_delta

    low = high = 0.0
    while excess(low) <= 0:
      low -= 1.0
    while excess(high) > 0:
      high += 1.0
    root = optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-14)
    step = 1e-14
    while excess(root) > 0:
      root, step = root + step, 2 * step
    return cls(l2_sensitivity, l2_sensitivity * math.exp(root))

  @property
  def scale(self) -> float:
    """The scale of the law, its standard deviation."""
    return self.stddev

  @property
  def noise_multiplier(self) -> float:
    """The standard deviation over the sensitivity."""
    return self.stddev / self.l2_sensitivity

  def from_uniform(
    self,
    uniform: mechanism.Uniform,
    shape: mechanism.Shape,
    dtype: tf.DType = tf.float32,
  ) -> tf.Tensor:
    """Noise by Box and Muller 1958: two uniforms make a pair of values."""
    work = mechanism.working_dtype(dtype)
    shape = tf.cast(shape, tf.int32)
    size = tf.reduce_prod(shape)
    uniform = tf.reshape(mechanism.as_uniforms(uniform), [2, (size + 1) // 2])
    radius = tf.cast(tf.sqrt(-2.0 * tf.math.log1p(-uniform[0])), work)
    angle = tf.cast((2 * math.pi) * uniform[1], work)
    pair = [radius * tf.cos(angle), radius * tf.sin(angle)]
    flat = self.stddev * tf.concat(pair, axis=0)[:size]
    return tf.cast(tf.reshape(flat, shape), dtype)
