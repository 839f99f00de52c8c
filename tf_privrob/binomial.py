"""Exact statements about a success probability, from counts.

Clopper-Pearson bounds invert the binomial tail, so their coverage holds for
every n and every probability, with no approximation (Clopper and Pearson
1934).
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from tf_privrob import validate


def lower(successes: int, trials: int, failure_prob: float) -> float:
  """One-sided lower bound: P(bound > p) <= failure_prob for every p.

  The failure_prob-quantile of Beta(k, n - k + 1), and 0 for k = 0; for k = n
  it is failure_prob^(1/n).
  """
  if successes == 0:
    return 0.0
  return float(
    special.betaincinv(successes, trials - successes + 1, failure_prob)
  )


def upper(successes: int, trials: int, failure_prob: float) -> float:
  """One-sided upper bound: P(bound < p) <= failure_prob for every p."""
  return 1.0 - lower(trials - successes, trials, failure_prob)


def interval(
  successes: int, trials: int, confidence: float = 0.95
) -> tuple[float, float]:
  """Two-sided interval that covers p with probability >= confidence."""
  validate.positive_int(trials=trials)
  validate.open_probability(confidence=confidence)
  if successes != int(successes) or not 0 <= successes <= trials:
    raise ValueError(
      f"Expected a whole number 0 <= successes={successes!r} <="
      f" trials={trials}."
    )
  half = (1 - confidence) / 2
  return lower(successes, trials, half), upper(successes, trials, half)


def two_sided_p_value(first: int, second: int) -> float:
  """Exact p-value of `first` against `second` under a fair coin."""
  most, trials = max(first, second), first + second
  tail = special.betainc(most, trials - most + 1, 0.5)  # P(X >= most)
  return min(1.0, 2.0 * float(tail))


def tail(successes: int, trials: int, prob: float) -> float:
  """P(Binomial(trials, prob) >= successes), exactly; 1 for successes = 0."""
  if successes == 0:
    return 1.0
  return float(special.betainc(successes, trials - successes + 1, prob))


def quantile(trials: int, prob: float, level: float) -> int:
  """Smallest k with P(Binomial(trials, prob) <= k) >= level."""
  values = special.bdtr(np.arange(trials + 1), trials, prob)
  return int(np.argmax(values >= level))


def unanimous(trials: int, failure_prob: float) -> float:
  """The largest value that `lower` can take: failure_prob^(1/n)."""
  return failure_prob ** (1 / trials)


def trials_for(log_prob: float, failure_prob: float) -> float:
  """Smallest n whose unanimous lower bound exceeds exp(log_prob)."""
  if log_prob >= 0:
    return math.inf
  return math.floor(math.log(failure_prob) / log_prob) + 1
