"""The sample size of a noisy mean on the uniform instance, by formula.

The DP Batch Perceptron whose every example is always violated ends at

  w = sum_j c_j y_j x_j + N(0, sigma^2 T I),   c_j ~ Binomial(T, p),

a noisy mean. Its law on `halfspaces_instances.Easy` is simple enough to tell
what any n gives, for any d, without a run. It is no learner of the paper: it
says which part of the growth with d comes from the instance.
"""

from __future__ import annotations

import math


def noisy_mean_risk(
  n: float,
  dimension: int,
  gamma: float,
  radius: float,
  stddev: float,
  sampling_prob: float,
  steps: int,
) -> float:
  """Robust risk of the noisy mean, with |w| at its typical length.

  With w_1 = p T n gamma along w* and length r across,

    r^2 = (1 - gamma^2) n (p^2 T^2 + T p (1 - p)) + sigma^2 T (d - 1),

  a fresh example has y <w, x> = gamma w_1 + sqrt(1 - gamma^2) r s, where s is a
  coordinate of a uniform unit vector in d - 1 dimensions, and is at risk where
  that is at most radius |w|. ((1 + s) / 2 has the law Beta(a, a), a = (d - 2) /
  2.)
  """
  from scipy import special

  mean = sampling_prob * steps
  square = mean**2 + mean * (1 - sampling_prob)  # of c_j
  along = mean * n * gamma
  across = (1 - gamma**2) * n * square + stddev**2 * steps * (dimension - 1)
  length = math.sqrt(along**2 + across)
  needed = (radius * length - gamma * along) / math.sqrt(
    (1 - gamma**2) * across
  )
  half = (dimension - 2) / 2
  return float(special.betainc(half, half, min(max((1 + needed) / 2, 0), 1)))


def noisy_mean_n(
  dimension: int,
  gamma: float,
  radius: float,
  stddev: float,
  sampling_prob: float,
  steps: int,
  limit: float = 0.1,
) -> float:
  """The n, a real number, at which `noisy_mean_risk` is `limit`.

  Args:
    dimension: d > 2.
    gamma: margin of the instance.
    radius: less than gamma.
    stddev: sigma of a step.
    sampling_prob: p.
    steps: T.
    limit: risk, less than 1/2.
  """
  from scipy import optimize

  if not 0 <= radius < gamma:
    raise ValueError(
      f"Expected 0 <= radius < gamma={gamma}, received radius={radius}."
    )

  def excess(log_n: float) -> float:
    settings = (gamma, radius, stddev, sampling_prob, steps)
    return noisy_mean_risk(math.exp(log_n), dimension, *settings) - limit

  low, high = 0.0, 1.0
  while excess(high) > 0:
    low, high = high, 2 * high
  return math.exp(optimize.brentq(excess, low, high))


def exponent(dimensions, **settings) -> float:
  """The log-log slope of `noisy_mean_n` over these values of d."""
  import numpy as np

  sizes = [noisy_mean_n(d, **settings) for d in dimensions]
  return float(np.polyfit(np.log(dimensions), np.log(sizes), 1)[0])
