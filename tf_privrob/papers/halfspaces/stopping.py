"""What Algorithm 1 costs: a Laplace count and a Gaussian sum of one sample.

Lines 3 to 13 of Algorithm 1 (Ghazi et al. 2021) release, of one Poisson sample
of rate q, the number of violations plus Lap(b), as far as line 9 looks at it,
and, where that does not end the run, their sum plus N(0, sigma^2 I). With one
example more the number moves by at most 1, and the sum by at most 1 in norm.
The accountants of `dp_accounting` know either release, on a sample of its own;
both on one sample cost more, and this module bounds it.

1. Without sampling. Lap(0, b) against Lap(1, b) dominates the number, N(0,
   sigma^2) against N(1, sigma^2) the sum, and the products of both pairs their
   adaptive composition (Zhu, Dong and Wang 2022, Theorem 10); that the sum is
   kept back where the run ends is post-processing. The loss l of the number is
   a = 1 / b with probability 1/2, -a with exp(-a) / 2, and has the density
   exp((l - a) / 2) / 4 between. So the hockey-stick divergence of the products
   at x is

     d(x) = E_l[g(x - l)],                                                  (1)
     g(x) = Phi(1 / (2 sigma) - x sigma) - e^x Phi(-1 / (2 sigma) - x sigma).

   g falls, so that each l may be rounded up; and both pairs are symmetric, so
   that d is the same when an example is added and when one is removed.

2. On a Poisson sample (Theorem 11 there, which is algebra): P and (1 - q) P +
   q Q have the divergences

     removed: q d(log(1 + (e^x - 1) / q)), for x <= log(1 - q): 1 - e^x,    (2)
     added: (1 - e^x (1 - q)) d(log(q e^x / (1 - e^x (1 - q)))),
            for x >= -log(1 - q): 0.                                        (3)

3. All T steps compose, whoever ends the run: the next step is chosen by what
   was released before, and T of them are the most that there can be.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tf_privrob.privacy import loss_distribution

_CELLS = 512  # of the loss of the number
_TOGETHER = 16
_OVER_SPREAD = 0.05  # the grid over the spread of one step's loss
_LARGEST = 700.0  # loss whose exponential a float can hold
_TAIL = 9.0  # standard deviations of the Gaussian loss that the grid holds


def unsampled(x: np.ndarray, stddev: float, scale: float) -> np.ndarray:
  """The divergence d of (1) at x, from above.

  Args:
    x: any shape.
    stddev: sigma, of the noise of the sum.
    scale: b, of the noise of the number.
  """
  a = 1 / scale
  ends = np.linspace(-a, a, _CELLS + 1)
  inside = np.diff(np.exp((ends - a) / 2)) / 2
  losses = np.concatenate([[-a], ends[1:], [a]])
  masses = np.concatenate([[math.exp(-a) / 2], inside, [0.5]])
  found = np.zeros((_TOGETHER, *np.shape(x)))  # sums of few terms, for rounding
  for number, (loss, mass) in enumerate(zip(losses, masses)):
    found[number % _TOGETHER] += mass * _gaussian(x - loss, stddev)
  return found.sum(axis=0)


def _gaussian(x: np.ndarray, stddev: float) -> np.ndarray:
  """The divergence g of N(1, sigma^2) and N(0, sigma^2) at x."""
  from scipy import special

  half = 1 / (2 * stddev)
  first = special.ndtr(half - x * stddev)
  second = np.exp(x + special.log_ndtr(-half - x * stddev))
  return np.clip(first - second, 0.0, 1.0)


def sampled(
  x: np.ndarray, stddev: float, scale: float, prob: float, removed: bool
) -> np.ndarray:
  """The divergence of (2) or (3) at x, from above."""
  x = np.asarray(x, np.float64)
  found = np.zeros(x.shape)
  if removed:
    rest = np.expm1(x) / prob
    kept = rest > -1
    found[~kept] = -np.expm1(x[~kept])
    found[kept] = prob * unsampled(np.log1p(rest[kept]), stddev, scale)
  else:
    weight = prob - np.expm1(x) * (1 - prob)  # 1 - e^x (1 - q)
    kept = weight > 0
    moved = x[kept] + np.log(prob / weight[kept])
    found[kept] = weight[kept] * unsampled(moved, stddev, scale)
  return found


@functools.lru_cache(maxsize=64)
def dp_epsilon(
  stddev: float, scale: float, prob: float, steps: int, dp_delta: float
) -> float:
  """The proven dp_epsilon of `steps` steps of Algorithm 1 at dp_delta.

  Args:
    stddev: sigma, over the sensitivity 1 of the sum.
    scale: b.
    prob: q, the rate of the Poisson samples; 1 for all examples.
    steps: T, of all halfspaces together.
    dp_delta: in (0, 1).

  Returns:
    An upper bound for adding or removing one example, rounding included;
    infinite where `privacy.loss_distribution` has none.
  """
  from dp_accounting.pld import pld_pmf
  from dp_accounting.pld import privacy_loss_distribution as library

  most = 1 / scale + _TAIL / stddev + 0.5 / stddev**2
  if most > _LARGEST:
    return math.inf
  spread = prob * math.sqrt(math.expm1(min(1 / stddev**2 + 1 / scale**2, 60.0)))
  interval = max(min(_OVER_SPREAD * spread, 0.1), most / 1e5)
  # Losses of one step when an example is removed; the signs turn for one added.
  highest = most if prob == 1 else math.log1p(prob * math.expm1(most))
  lowest = -most if prob == 1 else math.log1p(prob * math.expm1(-most))

  def masses(removed: bool):
    ends = (lowest, highest) if removed else (-highest, -lowest)
    first, last = math.floor(ends[0] / interval), math.ceil(ends[1] / interval)
    grid = np.arange(first, last + 1) * interval
    profile = sampled(grid, stddev, scale, prob, removed)
    falling = np.maximum.accumulate(profile[::-1])[::-1]
    make = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap
    return make(interval, first, last, np.minimum(falling, 1.0))

  one = library.PrivacyLossDistribution(masses(True), masses(False))
  return loss_distribution.compose([(one, steps)]).dp_epsilon(dp_delta)
