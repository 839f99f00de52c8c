"""What a test for one record shows about dp_epsilon."""

from __future__ import annotations

import math

from tf_privrob import validate


def dp_epsilon_lower_bound(
  caught: int,
  false_alarms: int,
  runs: int,
  dp_delta: float = 0.0,
  confidence: float = 0.95,
) -> float:
  """A lower bound on dp_epsilon, from the rates of one fixed test.

  A mechanism that is (dp_epsilon, dp_delta)-DP lets no test for a record have

    TPR > exp(dp_epsilon) FPR + dp_delta

  (Kairouz et al. 2015). Each rate is bounded by Clopper-Pearson with half of
  the failure probability.

  Guarantee: with probability at least `confidence` over the runs, dp_epsilon is
  at least what is returned. The test must have been fixed beforehand, or on
  other runs.

  Args:
    caught: alarms in `runs` runs with the record.
    false_alarms: alarms in as many runs without it.
    runs: of each kind, independent.
    dp_delta: at which dp_epsilon is bounded.
    confidence: of the bound.

  Returns:
    The bound; 0 if the test shows nothing.
  """
  from tf_privrob import binomial  # SciPy, on first use

  validate.positive_int(runs=runs)
  validate.open_probability(confidence=confidence)
  validate.non_negative(dp_delta=dp_delta)
  failure_prob = (1 - confidence) / 2
  least = binomial.lower(caught, runs, failure_prob) - dp_delta
  most = binomial.upper(false_alarms, runs, failure_prob)
  return max(0.0, math.log(least / most)) if least > 0 else 0.0
