"""The heterogeneous Gaussian mechanism: more noise here, less there."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.mechanisms import gaussian
from tf_privrob.mechanisms import mechanism

_LARGEST_DP_DELTA = math.sqrt(2 / math.pi)
_SUM_TOLERANCE = 1e-4  # of float32 arithmetic over many coordinates


def extended_stddev(
  sensitivity: float, dp_epsilon: float, dp_delta: float
) -> float:
  """The "extended" Gaussian calibration, for every dp_epsilon > 0.

    stddev = sensitivity (sqrt(s) + sqrt(s + dp_epsilon)) / (sqrt(2) dp_epsilon)

  with s = ln(sqrt(2 / pi) / dp_delta) (Phan et al. 2019, Theorem 1, as in the
  released SecureSGD code).

  It holds. Proof: with m = sensitivity / stddev the release is (dp_epsilon,
  Phi(-t) - exp(dp_epsilon) Phi(-t - m))-DP at t = dp_epsilon / m - m / 2 (Balle
  and Wang 2018). The formula gives dp_epsilon / m = (sqrt(s + dp_epsilon) +
  sqrt(s)) / sqrt(2) and m / 2 = (sqrt(s + dp_epsilon) - sqrt(s)) / sqrt(2),
  hence t = sqrt(2 s). As Phi(-t) <= exp(-t^2 / 2) / 2 for t >= 0, dp_delta is
  kept with room: at most sqrt(pi / 8) dp_delta = 0.63 dp_delta. QED. It needs
  s >= 0. `GaussianMechanism.analytic` needs less noise.

  Args:
    sensitivity: Largest l2 change of the query, in the units of the noise.
    dp_epsilon: The privacy parameter, > 0.
    dp_delta: The dp_delta, in (0, sqrt(2 / pi)).
  """
  validate.positive(sensitivity=sensitivity, dp_epsilon=dp_epsilon)
  validate.open_probability(dp_delta=dp_delta)
  if dp_delta > _LARGEST_DP_DELTA:
    raise ValueError(
      f"Expected dp_delta={dp_delta!r} <= sqrt(2 / pi): the extended"
      " calibration is not defined beyond. Use GaussianMechanism.analytic."
    )
  s = math.log(_LARGEST_DP_DELTA / dp_delta)
  roots = math.sqrt(s) + math.sqrt(s + dp_epsilon)
  return math.sqrt(2) * sensitivity * roots / (2 * dp_epsilon)


def check_redistribution(
  redistribution: Sequence[float] | np.ndarray,
  total: float | None = None,
) -> np.ndarray:
  """Returns r as float64, or says why it is no redistribution vector.

  Args:
    redistribution: r, of any shape, >= 0.
    total: What r must add up to; None: the number of coordinates K.
  """
  found = np.asarray(redistribution)
  found = found.astype(np.float64) if found.dtype.kind in "fiu" else np.empty(0)
  if not found.size or not np.isfinite(found).all() or found.min() < 0:
    raise ValueError(
      f"Expected redistribution={_short(redistribution)} to be finite numbers"
      " >= 0, one a coordinate, with a sum > 0."
    )
  total = float(found.size if total is None else total)
  if abs(found.sum() - total) > _SUM_TOLERANCE * total:
    raise ValueError(
      f"Expected redistribution={_short(redistribution)} with a sum of"
      f" {total:g} > 0, received a sum of {found.sum():g}. Multiply it by"
      f" {total:g} over its sum."
    )
  return found


def weighted_sensitivity(
  changes: Sequence[float] | np.ndarray,
  redistribution: Sequence[float] | np.ndarray,
) -> float:
  """Bounds ||diag(r)^{-1/2} (f(D) - f(D'))||_2 for |f_k(D) - f_k(D')| <= c_k.

  That is sqrt(sum c_k^2 / r_k): infinite if a coordinate with r_k = 0 can move,
  since its noise is a point mass.
  """
  changes = np.abs(np.asarray(changes, np.float64)).ravel()
  spread = check_redistribution(redistribution).ravel()
  if changes.shape != spread.shape:
    raise ValueError(
      f"Expected one change a coordinate of redistribution, {spread.size},"
      f" received {changes.size}."
    )
  if np.any((spread == 0) & (changes > 0)):
    return math.inf
  moving = spread > 0
  return float(np.sqrt((changes[moving] ** 2 / spread[moving]).sum()))


def claimed_sensitivity(
  kernel: np.ndarray, redistribution: np.ndarray
) -> float:
  """Delta_HGM as in the released code; it bounds nothing.

  s_max(W_1) / sqrt(s_max(r)), with W_1 as a matrix [patch, filters] and r as a
  matrix [positions, filters]. The true counterpart is the norm of D^{-1/2} A
  with the convolution A itself: overlapping patches, and the least r_k rather
  than a singular value of r, decide it.

  Args:
    kernel: Kernel of the first layer, [..., filters].
    redistribution: r, [..., filters].
  """
  kernel = np.asarray(kernel, np.float64)
  spread = np.asarray(redistribution, np.float64)
  largest = np.linalg.norm(kernel.reshape(-1, kernel.shape[-1]), 2)
  of_spread = np.linalg.norm(spread.reshape(-1, spread.shape[-1]), 2)
  return float(largest / math.sqrt(of_spread))


@dataclasses.dataclass(frozen=True)
class HeterogeneousGaussianMechanism(gaussian.ByNoiseMultiplier):
  """Adds N(0, stddev^2 r_k) to coordinate k, with sum r = K (Phan et al. 2019).

  Guarantee: dividing coordinate k by sqrt(r_k) turns it into the Gaussian
  mechanism, so one use is (dp_epsilon, dp_delta)-DP exactly when dp_delta >=
  `gaussian_dp_delta(noise_multiplier, dp_epsilon)` with the noise multiplier
  stddev / weighted_sensitivity, where

    weighted_sensitivity = max ||diag(r)^{-1/2} (f(D) - f(D'))||_2

  over neighbours. A coordinate with r_k = 0 has no noise: no finite guarantee
  holds unless it cannot move at all, which is the caller's to know: see
  `mechanisms.heterogeneous.weighted_sensitivity`. Floating point: see
  `GaussianMechanism`.

  Attributes:
    weighted_sensitivity: The weighted sensitivity, as above.
    stddev: Standard deviation of a coordinate with r_k = 1.
    redistribution: r, K numbers >= 0 that add up to K. One number stands for
      any shape: the Gaussian mechanism.
  """

  weighted_sensitivity: float
  stddev: float
  redistribution: tuple[float, ...] = (1.0,)

  def __post_init__(self):
    validate.positive(
      weighted_sensitivity=self.weighted_sensitivity, stddev=self.stddev
    )
    found = check_redistribution(self.redistribution)
    object.__setattr__(self, "redistribution", tuple(found.ravel().tolist()))

  @classmethod
  def from_l2(
    cls,
    l2_sensitivity: float,
    stddev: float,
    redistribution: Sequence[float] | np.ndarray,
  ) -> HeterogeneousGaussianMechanism:
    """For a query that may move by `l2_sensitivity` in any direction.

    The worst direction is the coordinate with the least noise: the weighted
    sensitivity is l2_sensitivity / sqrt(min r). Without knowing more of the
    query, no redistribution is better than a uniform one.
    """
    validate.positive(l2_sensitivity=l2_sensitivity)
    least = check_redistribution(redistribution).min()
    if least == 0:
      raise ValueError(
        "Expected redistribution > 0 everywhere, received a least value of 0: a"
        " coordinate without noise leaves no finite guarantee."
      )
    return cls(l2_sensitivity / math.sqrt(least), stddev, redistribution)

  @property
  def scales(self) -> np.ndarray:
    """The standard deviation of each coordinate, stddev sqrt(r_k)."""
    return self.stddev * np.sqrt(self.redistribution)

  @property
  def noise_multiplier(self) -> float:
    """The standard deviation over the weighted sensitivity."""
    return self.stddev / self.weighted_sensitivity

  def from_uniform(
    self,
    uniform: mechanism.Uniform,
    shape: mechanism.Shape,
    dtype: tf.DType = tf.float32,
  ) -> tf.Tensor:
    """Scaled normal noise; the last axes of `shape` are the K coordinates."""
    count = len(self.redistribution)
    if not tf.is_tensor(shape):
      _require_coordinates(tf.TensorShape(shape).as_list(), count)
    work = mechanism.working_dtype(dtype)
    shape = tf.cast(shape, tf.int32)
    plain = gaussian.GaussianMechanism(1.0, 1.0).from_uniform(
      uniform, shape, work
    )
    scaled = tf.reshape(plain, [-1, count]) * tf.constant(self.scales, work)
    return tf.cast(tf.reshape(scaled, shape), dtype)


def _require_coordinates(shape: list[int], count: int) -> None:
  """Refuses a shape whose last axes are not the coordinates."""
  size = 1
  for axis in reversed(shape):
    if size == count:
      break
    size *= axis
  if count > 1 and size != count:
    raise ValueError(
      f"Expected a shape whose last axes hold the {count} coordinates of"
      f" redistribution, received {tuple(shape)}."
    )


def _short(values) -> str:
  text = repr(values).replace("\n", " ")
  return text if len(text) < 80 else text[:77] + "..."
