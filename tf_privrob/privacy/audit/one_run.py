"""One-run audits (Steinke, Nasr and Jagielski 2023): many canaries at once.

Each of m canaries is included by a fair coin of its own, one model is trained,
and the auditor guesses the coins from scores: the highest are called included,
the lowest left out, those between are not guessed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from tf_privrob import validate
from tf_privrob.privacy.audit import audit

_STEP, _PRECISION = 0.05, 1e-4
_LARGEST = 100.0


@dataclasses.dataclass(frozen=True)
class OneRunAudit(audit.LowerBound):
  """What a one-run audit showed.

  Attributes:
    canaries: Their number m.
    guesses: The number r of guesses that showed most.
    correct: How many of these were right.
    tried: All numbers of guesses that were tried; the failure probability is
      divided by how many there are.
  """

  canaries: int
  guesses: int
  correct: int
  tried: tuple[int, ...]


def p_value(
  correct: int,
  guesses: int,
  canaries: int,
  dp_epsilon: float,
  dp_delta: float = 0.0,
) -> float:
  """A bound on the probability of so many correct guesses (Theorem 5.2).

  If the training is (dp_epsilon, dp_delta)-DP, add-or-remove-one, then with
  W ~ Binomial(r, e^dp_epsilon / (1 + e^dp_epsilon)) and any way of guessing r
  of m independent fair coins

    P(correct >= c) <= P(W >= c) + 2 m dp_delta max_i P(c > W >= c - i) / i,

  i from 1 to c.

  Args:
    correct: c.
    guesses: r.
    canaries: m.
    dp_epsilon: The dp_epsilon of the hypothesis.
    dp_delta: The dp_delta of the hypothesis.
  """
  from scipy import special  # on first use

  _check(correct, guesses, canaries, dp_delta)
  prob, other = special.expit([dp_epsilon, -dp_epsilon])
  found = 1.0  # P(W >= 0)
  if correct:
    found = float(special.betainc(correct, guesses - correct + 1, prob))
  if dp_delta and correct:
    values = np.arange(correct - 1, -1, -1)
    below = np.exp(
      -special.betaln(values + 1, guesses - values + 1)
      - math.log(guesses + 1)
      + values * math.log(prob)
      + (guesses - values) * math.log(other)
    )
    steps = np.arange(1, correct + 1)
    found += 2 * canaries * dp_delta * float((np.cumsum(below) / steps).max())
  return min(1.0, found)


@functools.lru_cache(maxsize=4096)
def one_run_lower_bound(
  correct: int,
  guesses: int,
  canaries: int,
  dp_delta: float = 0.0,
  confidence: float = 0.95,
) -> float:
  """The dp_epsilon below which so many correct guesses are too unlikely.

  Guarantee: with probability at least `confidence` over coins and training,
  dp_epsilon at dp_delta is at least what is returned; r must have been fixed
  beforehand. All dp_epsilons below it, on a grid of 0.05 and at the end, have a
  p-value of at most 1 - confidence.

  Args: see `p_value`.
    confidence: of the bound.
  """
  validate.open_probability(confidence=confidence)

  def refuted(dp_epsilon):
    found = p_value(correct, guesses, canaries, dp_epsilon, dp_delta)
    return found <= 1 - confidence

  if not refuted(0.0):
    return 0.0
  low = 0.0
  while refuted(low + _STEP) and low < _LARGEST:
    low += _STEP
  high = low + _STEP
  while high - low > _PRECISION:
    middle = (low + high) / 2
    low, high = (middle, high) if refuted(middle) else (low, middle)
  return low


def one_run_reachable(
  canaries: int,
  dp_delta: float = 0.0,
  confidence: float = 0.95,
  guesses: int | None = None,
) -> float:
  """The largest bound that so many canaries can show: all guesses right.

  Without dp_delta and with r guesses it is ln(p / (1 - p)) with
  p = (1 - confidence)^(1 / r).
  """
  validate.positive_int(canaries=canaries)
  guesses = canaries if guesses is None else guesses
  return one_run_lower_bound(guesses, guesses, canaries, dp_delta, confidence)


def canaries_for(
  dp_epsilon: float, dp_delta: float = 0.0, confidence: float = 0.95
) -> int:
  """The least number of canaries, all guessed, that could show more.

  Raises:
    ValueError: No number does, since the term with dp_delta grows with it.
  """
  validate.non_negative(dp_epsilon=dp_epsilon)
  prob = 1 / (1 + math.exp(-dp_epsilon))
  found = max(1, math.floor(math.log(1 - confidence) / math.log(prob)))
  limit = 4 * found + 100
  while found <= limit:
    if one_run_reachable(found, dp_delta, confidence) > dp_epsilon:
      return found
    found += max(1, found // 200)
  raise ValueError(
    f"Expected a dp_epsilon that one run can show, received {dp_epsilon:.4g} at"
    f" dp_delta={dp_delta:g}: no number of canaries can. Lower dp_delta."
  )


def one_run(
  scores: np.ndarray,
  included: np.ndarray,
  guesses: int | Sequence[int],
  dp_delta: float = 0.0,
  confidence: float = 0.95,
) -> OneRunAudit:
  """Guesses from scores and bounds dp_epsilon.

  Half of the guesses call the highest scores included, half the lowest left
  out. If several numbers of guesses are tried, each has its share of the
  failure probability (Bonferroni), so that the best may be taken.

  Args:
    scores: [m], higher is more likely included. They may depend on the trained
      model in any way, not on the coins.
    included: [m], the coins.
    guesses: r, or those to be tried; settled before a look at the scores.
    dp_delta: The dp_delta at which dp_epsilon is bounded.
    confidence: Confidence of the bound.
  """
  scores, included = np.asarray(scores, float), np.asarray(included, bool)
  if scores.shape != included.shape or scores.ndim != 1:
    raise ValueError(
      f"Expected one score and one coin a canary, received shapes"
      f" {scores.shape} and {included.shape}."
    )
  tried = tuple(np.atleast_1d(guesses).tolist())
  share = 1 - (1 - confidence) / len(tried)
  order = np.argsort(scores, kind="stable")
  found = []
  for number in tried:
    _check(0, number, len(scores), dp_delta)
    low, high = number // 2, number - number // 2
    right = int((~included[order[:low]]).sum())
    right += int(included[order[len(order) - high :]].sum())
    bound = one_run_lower_bound(right, number, len(scores), dp_delta, share)
    found.append((bound, right, number))
  audited, right, number = max(found)
  most = max(
    one_run_reachable(len(scores), dp_delta, share, each) for each in tried
  )
  return OneRunAudit(
    audited, dp_delta, confidence, most, len(scores), number, right, tried
  )


def _check(correct: int, guesses: int, canaries: int, dp_delta: float) -> None:
  validate.non_negative(dp_delta=dp_delta)
  validate.positive_int(guesses=guesses, canaries=canaries)
  if not 0 <= correct <= guesses <= canaries:
    raise ValueError(
      f"Expected 0 <= correct={correct} <= guesses={guesses} <= canaries="
      f"{canaries}."
    )
