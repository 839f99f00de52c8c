"""What a test for one record shows about dp_epsilon, and what it could show.

All bounds are of counts: alarms in runs with the record, alarms in runs without
it. The test must have been fixed beforehand, or on other runs.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tf_privrob import validate


@dataclasses.dataclass(frozen=True)
class LowerBound:
  """What every audit shows.

  Attributes:
    audited: The lower bound on dp_epsilon.
    dp_delta: The dp_delta at which it holds.
    confidence: The confidence of the bound.
    reachable: The largest bound that so many runs or canaries can show.
  """

  audited: float
  dp_delta: float
  confidence: float
  reachable: float

  def to_json(self) -> dict[str, Any]:
    """The record as plain values."""
    return dataclasses.asdict(self)


def dp_epsilon_lower_bound(
  caught: int,
  false_alarms: int,
  runs: int,
  dp_delta: float = 0.0,
  confidence: float = 0.95,
) -> float:
  """The larger of two bounds from one fixed test: on alarms, and on silence.

  A mechanism that is (dp_epsilon, dp_delta)-DP bounds every test for a record,
  and its complement with the worlds exchanged (Kairouz et al. 2015):

    TPR <= exp(dp_epsilon) FPR + dp_delta,
    TNR <= exp(dp_epsilon) FNR + dp_delta,  TNR = 1 - FPR, FNR = 1 - TPR.

  Each rate is bounded by Clopper-Pearson with half of the failure probability.
  Both inequalities rest on the same two one-sided bounds, TPR >= l and FPR <=
  u, which hold together with probability `confidence`: the larger one costs no
  further correction.

  Guarantee: With probability at least `confidence` over the runs, dp_epsilon is
  at least what is returned. The test must have been fixed beforehand, or on
  other runs.

  Args:
    caught: Alarms in `runs` runs with the record.
    false_alarms: Alarms in as many runs without it.
    runs: Number of runs of each kind; all are independent.
    dp_delta: The dp_delta at which dp_epsilon is bounded.
    confidence: The confidence of the bound.

  Returns:
    The bound; 0 if the test shows nothing.
  """
  least, most = _rates(caught, false_alarms, runs, dp_delta, confidence)
  return max(
    _log_ratio(least - dp_delta, most),
    _log_ratio(1 - most - dp_delta, 1 - least),
  )


def gaussian_lower_bound(
  caught: int,
  false_alarms: int,
  runs: int,
  dp_delta: float,
  confidence: float = 0.95,
) -> float:
  """A bound for mechanisms whose trade-off is that of one Gaussian shift.

  A mu-GDP mechanism (Dong et al. 2019) lets no test have

    Phi^-1(TPR) - Phi^-1(FPR) > mu,

  and a shift mu of unit noise has the dp_epsilon of the Gaussian mechanism with
  noise multiplier 1 / mu (Nasr et al. 2023). Full-batch DP-SGD is such a
  mechanism: T steps are mu = sqrt(T) / noise_multiplier.

  Guarantee: as `dp_epsilon_lower_bound`, but only for mechanisms that are
  mu-GDP for some mu; of others it says nothing. It needs far fewer runs.

  Args: see `dp_epsilon_lower_bound`; dp_delta > 0.
  """
  from scipy import special  # on first use

  from tf_privrob import mechanisms

  validate.open_probability(dp_delta=dp_delta)
  least, most = _rates(caught, false_alarms, runs, dp_delta, confidence)
  if least <= most:
    return 0.0
  shift = float(special.ndtri(least) - special.ndtri(most))
  return mechanisms.gaussian_dp_epsilon(1 / shift, dp_delta)


def reachable(
  runs: int, dp_delta: float = 0.0, confidence: float = 0.95
) -> float:
  """The largest bound that so many runs of each kind can show.

  All are caught, with no false alarm: with l = ((1 - confidence) / 2)^(1/n) it
  is ln((l - dp_delta) / (1 - l)).
  """
  return dp_epsilon_lower_bound(runs, 0, runs, dp_delta, confidence)


def runs_for(
  dp_epsilon: float, dp_delta: float = 0.0, confidence: float = 0.95
) -> int:
  """The least number of runs of each kind that could show more than this.

  The inverse of `reachable`: n > ln((1 - confidence) / 2) / ln(l) with
  l = (exp(dp_epsilon) + dp_delta) / (exp(dp_epsilon) + 1).
  """
  validate.non_negative(dp_epsilon=dp_epsilon)
  log_least = math.log1p(-(1 - dp_delta) / (math.exp(dp_epsilon) + 1))
  guess = max(1, math.floor(math.log((1 - confidence) / 2) / log_least))
  while reachable(guess, dp_delta, confidence) <= dp_epsilon:
    guess += 1
  return guess


def require_reachable(
  runs: int,
  dp_epsilon: float | None,
  dp_delta: float = 0.0,
  confidence: float = 0.95,
) -> float:
  """Refuses an audit that could not refute `dp_epsilon`, before any work.

  Args:
    runs: Number of runs of each kind.
    dp_epsilon: The figure to be refuted; None: anything above 0 will do.
    dp_delta: The dp_delta at which it is stated.
    confidence: Confidence of the audit.

  Returns:
    What is reachable.
  """
  validate.positive_int(runs=runs)
  most, figure = reachable(runs, dp_delta, confidence), dp_epsilon or 0.0
  if most <= figure:
    needed = runs_for(figure, dp_delta, confidence)
    raise ValueError(
      f"Expected enough runs to show more than dp_epsilon={figure:.4g} at"
      f" dp_delta={dp_delta:g}, received runs={runs}, which can show"
      f" {most:.4g} at most. Set runs={needed} or more."
    )
  return most


def _rates(caught, false_alarms, runs, dp_delta, confidence):
  """TPR is at least the first, FPR at most the second."""
  from tf_privrob import binomial  # SciPy, on first use

  validate.positive_int(runs=runs)
  validate.open_probability(confidence=confidence)
  validate.non_negative(dp_delta=dp_delta)
  for name, count in (("caught", caught), ("false_alarms", false_alarms)):
    if count != int(count) or not 0 <= count <= runs:
      raise ValueError(
        f"Expected a whole number 0 <= {name}={count!r} <= runs={runs}."
      )
  failure_prob = (1 - confidence) / 2
  return (
    binomial.lower(caught, runs, failure_prob),
    binomial.upper(false_alarms, runs, failure_prob),
  )


def _log_ratio(least: float, most: float) -> float:
  return max(0.0, math.log(least / most)) if least > 0 else 0.0
