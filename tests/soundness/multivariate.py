"""Gaussian noise of any covariance, and TransDenoiser's claims about it.

The mechanism and `mixed` are proven, and no method uses them. `claimed_stddev`,
`claimed_condition`, `claimed_mixed_stddev` and `moments_bound` are what the
paper "Two Birds, One Stone: Achieving Differential Privacy and Certified
Robustness for Pre-trained Classifiers via Input Perturbation" (TransDenoiser)
states: tests try them.
"""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Union

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.mechanisms import gaussian
from tf_privrob.mechanisms import heterogeneous
from tf_privrob.mechanisms import mechanism

if TYPE_CHECKING:
  import dp_accounting

Matrix = Union[Sequence[Sequence[float]], np.ndarray]
Number = Union[float, np.ndarray, tf.Tensor]

_SYMMETRY_TOLERANCE = 1e-10  # of the largest entry


@dataclasses.dataclass(frozen=True)
class MultivariateGaussianMechanism(mechanism.Mechanism):
  """Adds N(0, covariance) to a vector (TransDenoiser, Theorem 1, stated right).

  Guarantee: let S = covariance be fixed before the data are seen, and so the
  same on both neighbours. Then S^{-1/2} is a public bijection that turns the
  release of f into that of S^{-1/2} f under N(0, I), the Gaussian mechanism
  with l2 sensitivity max ||S^{-1/2} (f(D) - f(D'))||_2. For a query that may
  move by `l2_sensitivity` in any direction the worst one is the eigenvector of
  the least eigenvalue of S (Corollary 1), so one use is (dp_epsilon,
  dp_delta)-DP exactly when dp_delta >= `gaussian_dp_delta(noise_multiplier,
  dp_epsilon)` with

    noise_multiplier = sqrt(lambda_min(S)) / l2_sensitivity

  for every dp_epsilon >= 0, not for (0, 1] only. The rest of S buys nothing
  unless the direction is known: see `of_shift`.

  It does NOT hold for a covariance that is computed from the data. If S differs
  between neighbours, the variance itself is a release; noise that a record
  brings along leaves with it, and the Renyi divergence of N(m, S + u u^T) from
  N(0, S) is infinite at orders alpha with u^T S^{-1} u >= 1 / (alpha - 1). See
  `tests/soundness/multivariate_test.py`. Floating point: see
  `GaussianMechanism`.

  Attributes:
    l2_sensitivity: largest l2 change of the query between neighbours.
    covariance: S, symmetric and positive definite, as rows. A single number,
      ((variance,),), stands for any shape: the Gaussian mechanism.
  """

  l2_sensitivity: float
  covariance: tuple[tuple[float, ...], ...]

  def __post_init__(self):
    validate.positive(l2_sensitivity=self.l2_sensitivity)
    found = _symmetric("covariance", self.covariance)
    if _least_eigenvalue(found) <= 0:
      raise ValueError(
        f"Expected covariance={reprlib.repr(self.covariance)} with eigenvalues"
        f" > 0, received a least one of {np.linalg.eigvalsh(found)[0]:.3g}"
        " (zero to rounding, or below): a singular covariance leaves no finite"
        " guarantee along its null directions. Add isotropic noise: `mixed`."
      )
    rows = tuple(tuple(row) for row in found.tolist())
    object.__setattr__(self, "covariance", rows)

  @classmethod
  def w_element(
    cls, l2_sensitivity: float, stddev: float, size: int
  ) -> MultivariateGaussianMechanism:
    """Theorem 5: the same noise on each of `size` elements.

    It is `GaussianMechanism(l2_sensitivity, stddev)`.
    """
    validate.positive(stddev=stddev)
    validate.positive_int(size=size)
    return cls(l2_sensitivity, stddev**2 * np.eye(size))

  @classmethod
  def heterogeneous(
    cls,
    l2_sensitivity: float,
    stddev: float,
    redistribution: Sequence[float] | np.ndarray,
  ) -> MultivariateGaussianMechanism:
    """Theorem 6 (Appendix F): independent elements of variance stddev^2 r_k.

    It is `HeterogeneousGaussianMechanism.from_l2` of the same arguments. The
    paper's r adds up to 1, here r adds up to its size.
    """
    of_l2 = heterogeneous.HeterogeneousGaussianMechanism.from_l2
    scales = of_l2(l2_sensitivity, stddev, redistribution).scales
    return cls(l2_sensitivity, np.diag(scales**2))

  @classmethod
  def mixed(
    cls,
    l2_sensitivity: float,
    extra_stddev: float,
    input_stddev: float,
    transformation: Matrix,
  ) -> MultivariateGaussianMechanism:
    """Theorem 2 for a FIXED transformation M and without the factor T.

    The sum of independent N(0, extra_stddev^2 I) and N(0, input_stddev^2 M) is
    N(0, extra_stddev^2 I + input_stddev^2 M), whose least eigenvalue is
    extra_stddev^2 + input_stddev^2 lambda_min(M). M must not depend on the
    data; TransDenoiser's does.

    Args:
      l2_sensitivity: largest l2 change of the query between neighbours.
      extra_stddev: of the isotropic noise, >= 0; 0 needs a regular M.
      input_stddev: of the noise that M transforms, >= 0.
      transformation: M = A A^T, symmetric with eigenvalues >= 0.
    """
    validate.non_negative(extra_stddev=extra_stddev, input_stddev=input_stddev)
    found = _symmetric("transformation", transformation)
    values = np.linalg.eigvalsh(found)
    if values[0] < -_rounding(values):
      raise ValueError(
        f"Expected transformation={reprlib.repr(transformation)} with"
        f" eigenvalues >= 0, received {values[0]:.3g}. Pass A A^T."
      )
    extra = extra_stddev**2 * np.eye(len(found))
    return cls(l2_sensitivity, extra + input_stddev**2 * found)

  @property
  def size(self) -> int:
    """The number of elements, w."""
    return len(self.covariance)

  @property
  def smallest_variance(self) -> float:
    """lambda_min(covariance), rounded down."""
    return _least_eigenvalue(np.asarray(self.covariance))

  @property
  def noise_multiplier(self) -> float:
    """The standard deviation along the worst direction over the sensitivity."""
    return math.sqrt(self.smallest_variance) / self.l2_sensitivity

  def of_shift(
    self, shift: Sequence[float] | np.ndarray
  ) -> gaussian.GaussianMechanism:
    """The Gaussian mechanism that this one is if neighbours differ by `shift`.

    Exact where f(D) - f(D') is known to be +-shift, and a bound where it is a
    multiple of it of at most 1: the multiplier is 1 / ||S^{-1/2} shift||_2, the
    inverse of Mahalanobis' distance. `l2_sensitivity` plays no part.
    """
    shift = np.asarray(shift, np.float64)
    known = np.isfinite(shift).all() and np.any(shift)
    if shift.shape != (self.size,) or not known:
      raise ValueError(
        f"Expected shift={reprlib.repr(shift)} to be {self.size} finite"
        " numbers, not all zero."
      )
    white = np.linalg.solve(np.linalg.cholesky(self.covariance), shift)
    return gaussian.GaussianMechanism(float(np.linalg.norm(white)), 1.0)

  def uniforms_needed(self, size: mechanism.Size) -> mechanism.Size:
    """As many as `GaussianMechanism`."""
    return gaussian.GaussianMechanism(1.0, 1.0).uniforms_needed(size)

  def from_uniform(
    self,
    uniform: mechanism.Uniform,
    shape: mechanism.Shape,
    dtype: tf.DType = tf.float32,
  ) -> tf.Tensor:
    """L z with S = L L^T and normal z; the last axis is the vector."""
    mechanism.working_dtype(dtype)  # Refuses whole numbers.
    if not tf.is_tensor(shape):
      shape = tf.TensorShape(shape).as_list()
      if self.size > 1 and shape[-1:] != [self.size]:
        raise ValueError(
          f"Expected a shape whose last axis holds the {self.size} elements of"
          f" covariance, received {tuple(shape)}."
        )
    shape = tf.cast(shape, tf.int32)
    if self.size > 1:
      tf.debugging.assert_equal(shape[-1], self.size)
    plain = gaussian.GaussianMechanism(1.0, 1.0).from_uniform(
      uniform, shape, tf.float64
    )
    factor = tf.constant(np.linalg.cholesky(self.covariance), tf.float64)
    rows = tf.reshape(plain, [-1, self.size])
    noise = tf.matmul(rows, factor, transpose_b=True)
    return tf.cast(tf.reshape(noise, shape), dtype)

  def event(self) -> dp_accounting.DpEvent:
    """`GaussianDpEvent` of this noise multiplier."""
    import dp_accounting

    return dp_accounting.GaussianDpEvent(self.noise_multiplier)

  def dp_epsilon_at(self, dp_delta: float) -> float:
    """The exact cost of one use (Balle and Wang 2018)."""
    return gaussian.gaussian_dp_epsilon(self.noise_multiplier, dp_delta)


def _symmetric(name: str, matrix: Matrix) -> np.ndarray:
  """Returns the matrix as float64, or says why it is no symmetric one."""
  try:
    found = np.asarray(matrix)
  except ValueError:  # Rows of different lengths.
    found = np.empty(0)
  numbers = found.ndim == 2 and found.size and found.dtype.kind in "fiu"
  found = found.astype(np.float64) if numbers else np.empty([0, 1])
  square = found.shape[0] == found.shape[1] and np.isfinite(found).all()
  if not square or np.any(
    np.abs(found - found.T) > _SYMMETRY_TOLERANCE * np.abs(found).max()
  ):
    raise ValueError(
      f"Expected {name}={reprlib.repr(matrix)} to be rows of a symmetric matrix"
      " of finite numbers, its size > 0."
    )
  return (found + found.T) / 2


def _rounding(eigenvalues: np.ndarray) -> float:
  """What rounding may add to an eigenvalue of a symmetric matrix."""
  return eigenvalues.size * np.finfo(np.float64).eps * np.abs(eigenvalues).max()


def _least_eigenvalue(matrix: np.ndarray) -> float:
  """lambda_min, less what rounding may have added; exact for a diagonal."""
  if not np.any(matrix - np.diag(np.diag(matrix))):
    return float(np.diag(matrix).min())
  values = np.linalg.eigvalsh(matrix)
  return float(values[0] - _rounding(values))


# What the paper claims.


def claimed_stddev(
  l2_sensitivity: float, dp_epsilon: float, dp_delta: float
) -> float:
  """The right side of Theorems 1, 2, 5, 6: the standard deviation to reach.

    sqrt(2 ln(1.25 / dp_delta)) l2_sensitivity / dp_epsilon

  of one release, for dp_epsilon in (0, 1]. For a fixed covariance the exact
  curve is kept with room there, up to dp_epsilon 8.4 at dp_delta 1e-5,
  and is broken beyond (as measured in the tests; no proof). What fails is the
  left side, see `claimed_mixed_stddev`.
  """
  validate.positive(dp_epsilon=dp_epsilon)
  if dp_epsilon > 1:
    raise ValueError(
      f"Expected 0 < dp_epsilon={dp_epsilon!r} <= 1: the theorem claims nothing"
      " beyond. MultivariateGaussianMechanism is exact for every dp_epsilon."
    )
  # The formula is of the form c / dp_epsilon, and `classic` excludes 1.
  classic = gaussian.GaussianMechanism.classic
  return classic(l2_sensitivity, dp_epsilon / 2, dp_delta).stddev / 2


def claimed_condition(
  smallest: float,
  input_stddev: float,
  l2_sensitivity: float,
  dp_epsilon: float,
  dp_delta: float,
) -> bool:
  """Theorem 1: whether S_min(M)^{1/2} sigma suffices, as the paper says.

  A claim about one release. It holds if M is fixed and public; the paper's M is
  made from the private examples, and then it does not.

  Args:
    smallest: S_min(M), the least singular value of M, >= 0.
    input_stddev: sigma of the input noise.
    l2_sensitivity: largest l2 change of the query between neighbours.
    dp_epsilon: in (0, 1].
    dp_delta: in (0, 1).
  """
  validate.non_negative(smallest=smallest, input_stddev=input_stddev)
  needed = claimed_stddev(l2_sensitivity, dp_epsilon, dp_delta)
  return math.sqrt(smallest) * input_stddev >= needed


def claimed_mixed_stddev(
  extra_stddev: Number,
  smallest: Number,
  input_stddev: float,
  amplification: float,
) -> Number:
  """Theorem 2: the "overall" sqrt(sigma_bar^2 + T S_min(M) sigma^2).

  Not a guarantee. With amplification 1 and a fixed, public M it is the true
  standard deviation along the worst direction: `mixed`. The factor T is right
  for T steps with one draw of input noise, the same fixed M in each, and
  neighbours whose gradients differ by the same vector in all of them; along
  other directions the input noise gives nothing at all, and with fresh noise
  in each step there is no factor. With an M of the private examples not even
  the term without T stands.

  Args:
    extra_stddev: sigma_bar.
    smallest: S_min(M).
    input_stddev: sigma.
    amplification: T; 1 leaves the factor out.
  """
  validate.positive(amplification=amplification)
  return (extra_stddev**2 + amplification * smallest * input_stddev**2) ** 0.5


def moments_bound(
  order: int, sampling_prob: float, smallest_variance_ratio: float
) -> float:
  """The leading term of Lemma 4: alone it is NOT a bound.

    lambda(alpha) ~ q^2 alpha (alpha + 1) / ((1 - q) s^2),
    s^2 = S_min(M) sigma^2 / C^2,

  for the log moment lambda(alpha) = alpha D_{alpha + 1} of one step, where D is
  the Renyi divergence of the Poisson-subsampled Gaussian of multiplier s. The
  conditions are those of Abadi et al. 2016, Lemma 3: the query has norm <= 1
  (C after scaling), s >= 1, q < 1 / (16 s), alpha <= s^2 ln(1 / (q s)). The
  paper prints the first two reversed (>= 1 and <= 1), where the bound is
  false, whatever the constant of its remainder O(q^3 alpha^3 / s^3). Its
  Theorem 3 asks for dp_epsilon < c_1 q^2 without Abadi's factor T of steps, so
  that it speaks of no useful dp_epsilon.

  On the grid of the tests lambda is between 0.49 and 1.09 of this term, above
  it only for s < 1.06, and never above it by more than (q alpha / s)^3. That is
  a measurement. Nothing in the library uses this for a proven figure: `privacy`
  computes lambda itself.

  Args:
    order: alpha, a whole number >= 1.
    sampling_prob: q.
    smallest_variance_ratio: s^2.
  """
  validate.positive_int(order=order)
  validate.open_probability(sampling_prob=sampling_prob)
  validate.positive(smallest_variance_ratio=smallest_variance_ratio)
  scale = math.sqrt(smallest_variance_ratio)
  if scale < 1 or sampling_prob >= 1 / (16 * scale):
    raise ValueError(
      f"Expected smallest_variance_ratio={smallest_variance_ratio!r} >= 1 and"
      f" sampling_prob={sampling_prob!r} < 1 / (16 s), s its square root: the"
      " lemma claims nothing else."
    )
  most = smallest_variance_ratio * math.log(1 / (sampling_prob * scale))
  if order > most:
    raise ValueError(
      f"Expected order={order!r} <= s^2 ln(1 / (q s)) = {most:.4g}: the lemma"
      " claims nothing beyond."
    )
  q = sampling_prob
  return q**2 * order * (order + 1) / ((1 - q) * smallest_variance_ratio)
