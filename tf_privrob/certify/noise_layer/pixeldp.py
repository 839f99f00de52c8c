"""How far Gaussian noise keeps the class of an expected score.

Both rules are in units of the noise's standard deviation, for changes of the
place where the noise is added, measured in l2.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

# PixelDP's grid of delta, and its largest dp_epsilon: the classic Gaussian
# mechanism is proven for dp_epsilon <= 1 only.
DELTAS = np.arange(1, 300) / 1000
LARGEST_EPSILON = 1.0
_SHRINK = 1 - 1e-12  # rounding must not enlarge a radius


def gaussian_search(p1_lower, p2_upper):
  """PixelDP's rule: the best (dp_epsilon, dp_delta) that keeps the class.

  Noise of standard deviation s makes a score in [0, 1] (eps, delta)-DP for l2
  changes up to s eps / sqrt(2 ln(1.25 / delta)), eps <= 1 (Dwork and Roth
  2014, Theorem A.1). An (eps, delta)-DP score keeps its top class if

    p1 >= e^(2 eps) p2 + (1 + e^eps) delta  (Lecuyer et al. 2019, Prop. 2).

  For each delta of the grid the largest eps is the root of a quadratic in
  u = e^eps: p2 u^2 + delta u + delta - p1 = 0, so nothing is searched but the
  299 deltas. The bounds p1, p2 hold for all of them at once, since none of
  them looks at delta: choosing the best one costs no confidence.

  Args:
    p1_lower: Lower bound of the class's expected score, float or array.
    p2_upper: Upper bound of all other classes'.

  Returns:
    The radius over the standard deviation; 0 where nothing is certified.
  """
  p1, p2 = (
    np.asarray(part, float)[..., None]
    for part in np.broadcast_arrays(p1_lower, p2_upper)
  )
  margin = np.maximum(p1 - DELTAS, 0.0)
  root = 2 * margin / (DELTAS + np.sqrt(DELTAS**2 + 4 * p2 * margin))
  with np.errstate(divide="ignore"):
    largest = np.clip(np.log(root), 0.0, LARGEST_EPSILON)
  sizes = largest / np.sqrt(2 * np.log(1.25 / DELTAS))
  return (sizes.max(axis=-1) * _SHRINK)[()]


def gaussian_tight(p1_lower, p2_upper):
  """Cohen et al. 2019, Theorem 1: (Phi^-1(p1) - Phi^-1(p2)) / 2, or 0.

  For a score f in [0, 1], Phi^-1(E f(h + N(0, s^2 I))) changes by at most r/s
  when h moves by r in l2 (Salman et al. 2019, Lemma 2): the top class loses no
  more and another gains no more. A half-space attains it. It is never below
  `gaussian_search`, which follows from the same premises.
  """
  p1, p2 = np.asarray(p1_lower, float), np.asarray(p2_upper, float)
  gap = (special.ndtri(p1) - special.ndtri(p2)) / 2
  return np.where(p1 > p2, gap, 0.0)[()]


def classic_multiplier(dp_epsilon: float, dp_delta: float) -> float:
  """sqrt(2 ln(1.25 / dp_delta)) / dp_epsilon: stddev over l2 sensitivity."""
  return math.sqrt(2 * math.log(1.25 / dp_delta)) / dp_epsilon
