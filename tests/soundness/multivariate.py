"""Gaussian noise of any fixed covariance, and TransDenoiser's claims about it.

`FixedGaussian` is proven, and no method draws it. `claimed_stddev`,
`claimed_condition`, `claimed_mixed_stddev` and `moments_bound` are what the
paper "Two Birds, One Stone: Achieving Differential Privacy and Certified
Robustness for Pre-trained Classifiers via Input Perturbation" (TransDenoiser)
states: tests try them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Union

import numpy as np
import tensorflow as tf

Number = Union[float, np.ndarray, tf.Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class FixedGaussian:
  """Adds N(0, covariance) to a vector (TransDenoiser, Theorem 1, stated right).

  Let S = covariance be fixed before the data are seen, and so the same on both
  neighbours. Then S^{-1/2} is a public bijection that turns the release of f
  into that of S^{-1/2} f under N(0, I), the Gaussian mechanism with l2
  sensitivity max ||S^{-1/2} (f(D) - f(D'))||_2. For a query that may move by
  `l2_sensitivity` in any direction the worst one is the eigenvector of the
  least eigenvalue of S (Corollary 1), so that it is the Gaussian mechanism of

    noise_multiplier = sqrt(lambda_min(S)) / l2_sensitivity

  for every dp_epsilon >= 0, not for (0, 1] only. The rest of S buys nothing
  unless the direction is known: see `of_shift`.

  It does NOT hold for a covariance that is computed from the data. If S differs
  between neighbours, the variance itself is a release; noise that a record
  brings along leaves with it, and the Renyi divergence of N(m, S + u u^T) from
  N(0, S) is infinite at orders alpha with u^T S^{-1} u >= 1 / (alpha - 1).

  Attributes:
    l2_sensitivity: largest l2 change of the query between neighbours.
    covariance: S, symmetric and positive definite.
  """

  l2_sensitivity: float
  covariance: np.ndarray

  def __post_init__(self):
    values = np.linalg.eigvalsh(self.covariance)
    rounding = len(values) * np.finfo(np.float64).eps * np.abs(values).max()
    if values[0] <= rounding:
      raise ValueError("no finite guarantee along its null directions")

  @classmethod
  def mixed(
    cls,
    l2_sensitivity: float,
    extra_stddev: float,
    input_stddev: float,
    transformation: np.ndarray,
  ) -> FixedGaussian:
    """Theorem 2 for a FIXED transformation M and without the factor T.

    The sum of independent N(0, extra_stddev^2 I) and N(0, input_stddev^2 M),
    whose least eigenvalue is extra_stddev^2 + input_stddev^2 lambda_min(M).
    """
    extra = extra_stddev**2 * np.eye(len(transformation))
    return cls(l2_sensitivity, extra + input_stddev**2 * transformation)

  @property
  def noise_multiplier(self) -> float:
    """The standard deviation along the worst direction over the sensitivity."""
    least = np.linalg.eigvalsh(self.covariance)[0]
    return math.sqrt(least) / self.l2_sensitivity

  def multiplier_of(self, shift: np.ndarray) -> float:
    """The noise multiplier if neighbours are known to differ by `shift`.

    It is 1 / ||S^{-1/2} shift||_2, the inverse of Mahalanobis' distance.
    """
    white = np.linalg.solve(np.linalg.cholesky(self.covariance), shift)
    return 1 / float(np.linalg.norm(white))

  def sample(self, count: int, seed: int) -> np.ndarray:
    """So many draws, one in each row."""
    normal = np.random.default_rng(seed).normal(
      size=(count, len(self.covariance))
    )
    return normal @ np.linalg.cholesky(self.covariance).T


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
  return math.sqrt(2 * math.log(1.25 / dp_delta)) * l2_sensitivity / dp_epsilon


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
  q = sampling_prob
  return q**2 * order * (order + 1) / ((1 - q) * smallest_variance_ratio)
