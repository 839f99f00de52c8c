"""Renyi divergences of one step, as upper bounds in double precision.

dp_accounting 0.4.3 takes the logarithm of a sum that is nearly 1, so what a
step loses, about order q^2 / (2 noise^2), drowns in the rounding of 1: small
losses come out as zero or below. Its fractional orders also cut a series off at
exp(-30) = 1e-13. Times 10^6 steps neither is small; from 0.5.0 on less is lost,
and the truth is still missed by 3e-7 of it (noise 1000, q 1e-4, order 2). Here
the 1 is never added: what is above it is a sum of terms that are not negative,
and all that rounding can have taken from it is added to it.
"""

from __future__ import annotations

import functools
import math

import numpy as np

# What numpy and scipy compute here is within 8 units in the last place: their
# log, exp, log1p and expm1 within 4, gammaln within 5 by its authors' tests.
_UNIT = 8 * 2.0**-52
_LEAST = 1e-300  # What is smaller may have been lost to underflow.
_STEEP = 600.0  # From here on exp would overflow: no integral.


@functools.lru_cache(maxsize=256)
def sampled_gaussian(
  sampling_prob: float, noise_multiplier: float, orders: tuple[float, ...]
) -> np.ndarray:
  """Upper bounds on the divergences of one Poisson-sampled Gaussian step.

  With q the probability, z the noise, r the ratio of the densities of N(1, z^2)
  and N(0, z^2), and E the mean under the latter, the divergence of order a is
  log(A) / (a - 1) with A = E (1 - q + q r)^a; that of the other direction is no
  larger (Mironov, Talwar and Zhang 2019).

  Args:
    sampling_prob: Sampling probability, in (0, 1).
    noise_multiplier: Standard deviation over sensitivity, > 0.
    orders: Each above 1.

  Returns:
    A bound for each order. It is remembered, and cannot be written to.
  """
  whole = functools.lru_cache(None)(
    lambda order: _whole(sampling_prob, noise_multiplier, order)
  )
  bounds = []
  for order in orders:
    low = math.floor(order)
    log_a = whole(low) if low > 1 else 0.0
    if order > low:  # log A is convex in the order: below its chord.
      part = order - low
      chord = (1 - part) * log_a + part * whole(low + 1)
      exact = _fractional(sampling_prob, noise_multiplier, order)
      log_a = min(chord, exact)
    bounds.append(max(log_a * (1 + _UNIT) / (order - 1), _LEAST))
  result = np.array(bounds)
  result.flags.writeable = False
  return result


def laplace(dp_epsilon: float, orders: np.ndarray) -> np.ndarray:
  """Upper bounds on the divergences of one Laplace mechanism.

  Mironov 2017, Table II; dp_accounting 0.4.3 has a looser bound.

  With a the order and x the parameter, the divergence is
  log(a / (2a - 1) exp((a - 1) x) + (a - 1) / (2a - 1) exp(-a x)) / (a - 1).
  What rounding can take from the logarithm is added. For small x that is more
  than all of it; but no pure mechanism loses more than a x^2 / 2 (Bun and
  Steinke 2016, Proposition 3.3), which is what is left of it there.
  """
  orders = np.asarray(orders, np.float64)
  first = np.log(orders / (2 * orders - 1)) + (orders - 1) * dp_epsilon
  second = np.log((orders - 1) / (2 * orders - 1)) - orders * dp_epsilon
  rounding = _UNIT * (1 + np.abs(first) + np.abs(second))
  exact = (np.logaddexp(first, second) + rounding) / (orders - 1)
  pure = orders / 2 * dp_epsilon**2
  return np.minimum(exact, pure) * (1 + _UNIT)


def _whole(prob: float, noise: float, order: int) -> float:
  """An upper bound on log A for a whole order.

  A - 1 is the sum over i >= 2 of
  binom(order, i) q^i (1 - q)^(order - i) (exp(i (i - 1) / (2 z^2)) - 1).
  The logarithm of a term is a sum of seven numbers, each of them within a few
  units of its own size. All terms are positive, so that the largest of their
  relative errors is one of their sum.
  """
  from scipy import special

  i = np.arange(2, order + 1)
  with np.errstate(divide="ignore", over="ignore"):
    exponent = i * (i - 1) / 2 / noise / noise
    parts = [
      np.full(len(i), special.gammaln(order + 1.0)),
      -special.gammaln(i + 1.0),
      -special.gammaln(order - i + 1.0),
      i * math.log(prob),
      (order - i) * math.log1p(-prob),
      exponent,
      np.log(-np.expm1(-exponent)),  # exp(x) - 1 = exp(x) (1 - exp(-x)).
    ]
  if not exponent[-1] < math.inf:
    return math.inf
  if not exponent[0] > 0:  # Underflow: all terms are below `_LEAST`.
    return 0.0
  logs = sum(parts)
  error = _UNIT * (8 + 4 * np.max(sum(np.abs(part) for part in parts)))
  largest = np.max(logs)
  total = largest + math.log(math.fsum(np.exp(logs - largest)))
  return float(np.logaddexp(0.0, total + error))


def _fractional(prob: float, noise: float, order: float) -> float:
  """An upper bound on log A for any order, `inf` where it is steep.

  With l = log(1 - q + q r) and since the mean of r is 1, A - 1 is the mean of
  g = exp(a l) - 1 - a (exp(l) - 1) >= 0, here by the trapezoid rule with steps
  h of t, a standard normal variable. What is added to it:

  * The rule. Where t has the imaginary part s, r is turned by s / z. So all is
    analytic for |s| < pi z, where |1 - q + q r| is at most its value without s
    and the density grows by exp(s^2 / 2). For any d < pi z the rule is then off
    by at most 2 exp(d^2 / 2) / (exp(2 pi d / h) - 1) times A + 1 + 2 a
    (Trefethen and Weideman 2014, Theorem 5.1): 4e-31 for h = min(z, 1) / 4 and
    d = 3 min(z, 1).
  * The ends. Below t = -40 g is at most a, and above t = a / z + 40 at most
    r^a: what is left out is at most exp(-800) (a + exp(a (a - 1) / (2 z^2))).
  * Rounding. g is a difference of two numbers, each within a few units of its
    size times the argument of its exponential. An error of l changes both:
    g by a (exp(a l) - exp(l)) times it, no more than a times both sizes.
  """
  slope = 1 / noise
  if not order * (order - 1) / 2 * slope * slope < _STEEP:
    return math.inf
  step = min(noise, 1.0) / 4
  first, last = -40 / step, (order * slope + 40) / step
  t = step * np.arange(math.floor(first), math.ceil(last) + 1)
  exponent = slope * t - slope * slope / 2
  near = np.log1p(prob * np.expm1(np.minimum(exponent, 30.0)))
  far = np.logaddexp(math.log1p(-prob), math.log(prob) + exponent)
  log_ratio = np.where(exponent < 30, near, far)
  inputs = np.abs(slope * t) + slope * slope + np.abs(log_ratio)
  inputs += np.where(exponent < 30, 0.0, -math.log(prob))
  weight = t * t / 2 + math.log(math.sqrt(2 * math.pi) / step)
  power = _weighted_expm1(order * log_ratio, weight)
  linear = order * _weighted_expm1(log_ratio, weight)
  error = np.abs(power) + np.abs(linear)
  error *= _UNIT * (16 + 4 * weight + 4 * order * inputs)
  total = math.fsum(power - linear) + 1.01 * math.fsum(error)
  return math.log1p(total + 1e-30 * (2 + total + 2 * order))


def _weighted_expm1(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
  """(exp(x) - 1) exp(-weight), without overflow where x is large."""
  small = np.expm1(np.minimum(x, 1.0)) * np.exp(-weight)
  return np.where(x < 1, small, np.exp(x - weight) - np.exp(-weight))
