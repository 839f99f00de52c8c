"""Confidence bounds on expected scores, from independent draws in [0, 1]."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from tf_privrob import binomial
from tf_privrob import validate

BOUNDS = ("hoeffding", "empirical_bernstein", "pixeldp", "clopper_pearson")
_PIXELDP_LARGEST_TERM = 0.025


@dataclasses.dataclass(frozen=True)
class Scores:
  """What n independent draws of the K scores of one input leave behind.

  Attributes:
    num_draws: n.
    means: Mean score of each class, [K].
    variances: Unbiased sample variance of each class, [K]; 0 for n = 1.
    votes: How often each class had the largest score, [K]; the other draws
      were so close that rounding might turn them.
    seconds: Time spent on the draws.
    slack: How far an expected score may be from that under real noise; see
      `grid`.
    rounding: By how much the place in a batch may change a mean score.
  """

  num_draws: int
  means: np.ndarray
  variances: np.ndarray
  votes: np.ndarray
  seconds: float = 0.0
  slack: float = 0.0
  rounding: float = 0.0

  @property
  def undecided(self) -> int:
    """Draws that count for no class, and against every one."""
    return self.num_draws - int(np.sum(self.votes))

  def top(self, bound: str) -> int:
    """The class with most votes or the largest mean, whichever is bounded."""
    by_votes = bound == "clopper_pearson"
    return int(np.argmax(self.votes if by_votes else self.means))


class TopTwo(NamedTuple):
  """Bounds on the expected score of a class and of all others."""

  label: int
  p1_lower: float
  p2_upper: float


def hoeffding_margin(num_draws: int, failure_prob: float) -> float:
  """One-sided t with P(mean - E > t) <= failure_prob: sqrt(ln(1/p) / 2n).

  Hoeffding (1963). With failure_prob = eta / K it is PixelDP's and DPAL's
  sqrt(ln(K/eta) / 2n).
  """
  validate.positive_int(num_draws=num_draws)
  validate.open_probability(failure_prob=failure_prob)
  return math.sqrt(-math.log(failure_prob) / (2 * num_draws))


def empirical_bernstein_margin(
  variances: np.ndarray, num_draws: int, failure_prob: float
) -> np.ndarray:
  """One-sided margin that shrinks with the sample variance V.

  sqrt(2 V ln(2/p) / n) + 7 ln(2/p) / (3 (n - 1)), V the unbiased sample
  variance; Maurer and Pontil (2009), Theorem 4. By symmetry (score -> 1 -
  score) it serves either side.
  """
  validate.open_probability(failure_prob=failure_prob)
  return np.sqrt(
    2 * np.asarray(variances, float) * math.log(2 / failure_prob) / num_draws
  ) + _bernstein_constant(num_draws, failure_prob)


def pixeldp_bound(num_draws: int, failure_prob: float) -> str:
  """PixelDP's choice between the two bounds on means.

  Hoeffding's where the constant term of the other exceeds 0.025 (below about
  560 draws for K = 10, eta = 0.05). It looks at n and p only, never at the
  scores, so that choosing costs no confidence.
  """
  validate.positive_int(num_draws=num_draws)
  validate.open_probability(failure_prob=failure_prob)
  constant = _bernstein_constant(max(num_draws, 2), failure_prob)
  small = num_draws < 2 or constant > _PIXELDP_LARGEST_TERM
  return "hoeffding" if small else "empirical_bernstein"


def interval(
  scores: Scores, bound: str, failure_prob: float
) -> tuple[np.ndarray, np.ndarray]:
  """Lower and upper bounds [K], each false with probability <= failure_prob.

  "clopper_pearson" bounds the probability that a class has the largest score;
  the others bound the expected score. Every single bound is one-sided; how
  many of them a statement needs, and so how to split its failure probability,
  is the caller's to say.
  """
  validate.one_of(BOUNDS, bound=bound)
  validate.open_probability(failure_prob=failure_prob)
  draws = scores.num_draws
  if bound == "clopper_pearson":
    sides = (
      (binomial.lower, scores.votes),
      (binomial.upper, scores.votes + scores.undecided),
    )
    return tuple(
      np.array([side(int(count), draws, failure_prob) for count in counts])
      for side, counts in sides
    )
  if bound == "pixeldp":
    bound = pixeldp_bound(draws, failure_prob)
  margin = (
    hoeffding_margin(draws, failure_prob)
    if bound == "hoeffding"
    else empirical_bernstein_margin(scores.variances, draws, failure_prob)
  )
  means = np.asarray(scores.means, float)
  return np.maximum(means - margin, 0.0), np.minimum(means + margin, 1.0)


def top_two(
  scores: Scores, bound: str, failure_prob: float, label: int | None = None
) -> TopTwo:
  """Lower bound of one class, and the largest upper bound of the others.

  For a class k fixed before the draws, both hold together with probability at
  least 1 - 2 failure_prob, whatever K: max_i ub_i < max_i E f_i, i != k, takes
  that the bound of the one class which attains the right-hand maximum fails.
  If the same draws choose k, K + 2 bounds are involved: the lower ones of all
  K classes, and the upper ones of the two truly largest.

  Args:
    scores: Draws of one input.
    bound: One of BOUNDS.
    failure_prob: Failure probability of each one-sided bound.
    label: The class k, or None for the top class of these very draws.
  """
  if label is None:
    label = scores.top(bound)
  lower, upper = interval(scores, bound, failure_prob)
  others = np.delete(upper, label)
  return TopTwo(label, float(lower[label]), float(others.max()))


def robust_epsilon(p1_lower, p2_upper):
  """The largest eps_r >= 0 with p1 >= e^(2 eps_r) p2: ln(p1 / p2) / 2.

  Lemma 1 and Eq. 4 with delta_r = 0 (and Eq. 13, 16 of DPAL): an eps_r-DP
  score keeps its top class. The condition is monotone in eps_r, so the maximum
  needs no search; it is 0 where p1 <= p2. Takes and returns arrays or floats.
  """
  p1, p2 = np.asarray(p1_lower, float), np.asarray(p2_upper, float)
  with np.errstate(divide="ignore", invalid="ignore"):
    value = np.where(p1 > p2, (np.log(p1) - np.log(p2)) / 2, 0.0)
  return value[()]


def _bernstein_constant(num_draws: int, failure_prob: float) -> float:
  if num_draws < 2:
    raise ValueError(
      f"Expected num_draws={num_draws} >= 2 for an empirical Bernstein bound:"
      " one draw has no variance."
    )
  return 7 * math.log(2 / failure_prob) / (3 * (num_draws - 1))
