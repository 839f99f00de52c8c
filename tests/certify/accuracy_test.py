"""Certified accuracy by hand, and the correction for false rows."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from tf_privrob import certify

ROW = certify.Certificate(
  index=0,
  label=1,
  prediction=1,
  radius=0.5,
  norm="l2",
  abstained=False,
  confidence=0.999,
  kind="proven",
  method="randomised_smoothing",
)
WRONG = dataclasses.replace(ROW, prediction=2, radius=2.0)
ABSTAINED = dataclasses.replace(ROW, prediction=-1, radius=0.0, abstained=True)
SMALL = dataclasses.replace(ROW, radius=0.25)
ROWS = [ROW, WRONG, ABSTAINED, SMALL]


def test_by_hand():
  curve = certify.certified_accuracy(ROWS, [0.0, 0.25, 0.3, 0.6, 0.5])
  assert [entry["accuracy"] for entry in curve] == [0.5, 0.5, 0.25, 0.0, 0.25]
  assert [entry["radius"] for entry in curve] == [0.0, 0.25, 0.3, 0.6, 0.5]
  wanted = stats.binomtest(2, 4).proportion_ci(0.95, method="exact")
  assert curve[0]["interval"] == pytest.approx((wanted.low, wanted.high))
  assert "lower_bound" not in curve[0]


def test_abstentions_count_as_errors_even_for_the_label_minus_one_trap():
  assert certify.certified_accuracy([ABSTAINED], [0.0])[0]["accuracy"] == 0


def test_mean_certified_radius():
  assert certify.mean_certified_radius(ROWS) == pytest.approx(0.75 / 4)


@pytest.mark.parametrize("total", [50, 500, 10_000])
def test_lower_bound_is_exact_and_not_below_bernstein(total):
  rho, alpha = 0.001, 0.001
  entry = certify.certified_accuracy([ROW] * total, [0.0], rho)[0]
  false = round((1 - entry["lower_bound"]) * total)
  assert stats.binom.sf(false, total, alpha) <= rho
  assert stats.binom.sf(false - 1, total, alpha) > rho
  log = np.log(1 / rho)
  slack = np.sqrt(2 * alpha * (1 - alpha) * log / total) + log / (3 * total)
  assert entry["lower_bound"] >= 1 - alpha - slack - 1 / total


def test_lower_bound_holds_in_simulation():
  """alpha of the rows are false: the bound must miss the truth <= rho."""
  rho, alpha, total = 0.05, 0.1, 200
  row = dataclasses.replace(ROW, confidence=1 - alpha)
  bound = certify.certified_accuracy([row] * total, [0.0], rho)[0]
  false = np.random.RandomState(0).binomial(total, alpha, 20_000) / total
  missed = np.mean(bound["lower_bound"] > 1 - false)
  assert missed <= rho
  assert missed > rho / 5


def test_deterministic_rows_need_no_correction():
  row = dataclasses.replace(ROW, confidence=1.0)
  assert certify.certified_accuracy([row], [0.0], 0.01)[0]["lower_bound"] == 1


def test_claimed_rows_are_refused_and_have_their_own_function():
  claimed = dataclasses.replace(ROW, kind="claimed")
  with pytest.raises(ValueError, match=r"1 claimed of 2.*claimed_accuracy"):
    certify.certified_accuracy([ROW, claimed], [0.0])
  with pytest.raises(ValueError, match="not certified"):
    certify.mean_certified_radius([claimed])
  curve = certify.claimed_accuracy([claimed, WRONG], [0.5])
  assert curve[0]["accuracy"] == 0.5


@pytest.mark.parametrize(
  ("rows", "message"),
  [
    ([], "at least one certificate"),
    ([dataclasses.replace(ROW, label=None)], "Pass y when certifying"),
    ([ROW, dataclasses.replace(ROW, norm="linf")], "one norm"),
  ],
)
def test_bad_rows(rows, message):
  with pytest.raises(ValueError, match=message):
    certify.certified_accuracy(rows, [0.0])
  with pytest.raises(ValueError, match=message):
    certify.mean_certified_radius(rows)


def test_bad_failure_prob():
  with pytest.raises(ValueError, match=r"0 < failure_prob=1.0 < 1"):
    certify.certified_accuracy(ROWS, [0.0], failure_prob=1.0)
