"""Coverage where the truth is known: normal scores, and no difference."""

import numpy as np
import pytest
from scipy import stats

from tf_privrob import binomial
from tf_privrob import membership
from tf_privrob.membership import intervals

_SHIFT = 0.8  # members are N(0.8, 1), non-members N(0, 1)
_BEST = stats.norm.cdf(_SHIFT / 2)  # at the threshold 0.4
_AREA = stats.norm.cdf(_SHIFT / np.sqrt(2))
_TRIALS = 300


def _scores(seed, shift=_SHIFT, count=200):
  rng = np.random.default_rng(seed)
  members, nonmembers = rng.normal(shift, 1, count), rng.normal(0, 1, count)
  return membership.Scores("s", members, nonmembers)


def _true_accuracy(threshold, shift=_SHIFT):
  tpr = stats.norm.sf(threshold - shift)
  return (tpr + stats.norm.cdf(threshold)) / 2


def _required(trials=_TRIALS, coverage=0.95):
  """Fewer hits than this have probability < 1e-4 under the coverage."""
  return binomial.quantile(trials, coverage, 1e-4)


def test_the_held_out_interval_covers_the_truth():
  hits = 0
  for seed in range(_TRIALS):
    found = membership.held_out(_scores(seed), seed=seed)
    low, high = found.interval
    hits += low <= _true_accuracy(found.threshold) <= high
  assert hits >= _required()


def test_a_third_of_the_held_out_interval_does_not():
  hits, wide = 0, 0
  for seed in range(_TRIALS):
    found = membership.held_out(_scores(seed), seed=seed)
    half = (found.interval[1] - found.interval[0]) / 2
    off = abs(sum(found.interval) / 2 - _true_accuracy(found.threshold))
    # Bonferroni is conservative: one third is where it must fail.
    hits += off <= half / 3
    wide += off <= half * 1.5
  assert hits < _required()
  assert wide >= _required()


def test_the_oracle_interval_covers_the_best_threshold_and_the_null():
  for shift, truth in ((_SHIFT, _BEST), (0.0, 0.5)):
    found = [membership.oracle(_scores(s, shift)) for s in range(_TRIALS)]
    hits = sum(f.interval[0] <= truth <= f.interval[1] for f in found)
    assert hits >= _required()


def test_an_interval_for_fixed_thresholds_is_wrong_for_the_oracle():
  # Falsification: without any difference, the maximum over thresholds is
  # above 1/2, and an interval that ignores the choice must miss too often.
  missed = 0
  for seed in range(_TRIALS):
    scores = _scores(seed, 0.0, 60)
    found = membership.oracle(scores)
    caught = round(found.tpr * 60)
    alarms = round(found.fpr * 60)
    # Both rates at 50 % confidence: 0.25 would be lost at a fixed threshold.
    low, _ = intervals.balanced(caught, 60, alarms, 60, 0.5)
    missed += low > 0.5
  assert missed / _TRIALS > 0.25


def test_the_area_interval_covers():
  found = [membership.oracle(_scores(seed)) for seed in range(_TRIALS)]
  hits = sum(f.auc_interval[0] <= _AREA <= f.auc_interval[1] for f in found)
  assert hits >= _required()
  # And is no wider than what McDiarmid gives for 200 and 200.
  low, high = found[0].auc_interval
  assert high - low == pytest.approx(2 * np.sqrt(np.log(40) * 0.01 / 2))


def test_balanced_by_hand():
  # Nobody is caught in 10, nobody alarms in 10, each rate at 97.5 %.
  top = 1 - 0.0125 ** (1 / 10)
  low, high = intervals.balanced(0, 10, 0, 10, 0.95)
  assert low == pytest.approx((1 - top) / 2)
  assert high == pytest.approx((1 + top) / 2)


def test_best_by_hand():
  slack = np.sqrt(np.log(80) / 200) + np.sqrt(np.log(80) / 800)
  low, high = intervals.best(0.75, 100, 400, 0.95)
  assert (low, high) == pytest.approx((0.75 - slack / 2, 0.75 + slack / 2))
  assert intervals.best(0.5, 2, 2, 0.95) == (0.5, 1.0)


def test_the_tpr_at_a_low_fpr_is_covered_given_its_threshold():
  hits, below = 0, 0
  for seed in range(_TRIALS):
    scores = _scores(seed)
    row = membership.tpr_at_fpr(scores, 0.05)
    tau = np.sort(scores.nonmembers)[-11]  # ten alarms of 200 are allowed
    low, high = row["interval"]
    hits += low <= stats.norm.sf(tau - _SHIFT) <= high
    below += stats.norm.sf(tau) <= row["fpr_upper"]
  assert hits >= _required()
  assert below >= _required()
  assert below < _TRIALS  # 95 % and not all of them
