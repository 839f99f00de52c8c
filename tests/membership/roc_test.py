import math

import numpy as np
import pytest

from tf_privrob import membership
from tf_privrob.membership import roc


def _loop(members, nonmembers):
  """Best accuracy and its threshold: the published loop, highest tie."""
  best, place = 0.5, math.inf
  for tau in sorted({*members, *nonmembers}, reverse=True):
    tpr = sum(s >= tau for s in members) / len(members)
    fpr = sum(s >= tau for s in nonmembers) / len(nonmembers)
    accuracy = 0.5 * (tpr + 1 - fpr)
    if accuracy > best + 1e-12:
      best, place = accuracy, tau
  return best, place


def test_by_hand():
  # >= 3: TPR 2/4, FPR 0/2. >= 2: 3/4 and 1/2. >= 1: 3/4 and 1. >= 0: 1 and 1.
  members = np.array([3.0, 3.0, 2.0, 0.0])
  nonmembers = np.array([2.0, 1.0])
  found = roc.curve(members, nonmembers)
  assert found.thresholds.tolist() == [3, 2, 1, 0]
  assert found.caught.tolist() == [2, 3, 3, 4]
  assert found.alarms.tolist() == [0, 1, 2, 2]
  inference = membership.oracle(membership.Scores("s", members, nonmembers))
  assert inference.balanced_accuracy == 0.75
  assert inference.threshold == 3
  assert inference.advantage == 0.5
  # Pairs won: 3, 3 beat both (4); 2 beats 1 and ties with 2 (1.5); 0 none.
  assert inference.auc == 5.5 / 8


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parity_with_the_loop(seed, dtype):
  rng = np.random.default_rng(seed)
  levels = [7, 300, 10**6][seed % 3]  # many ties, some, almost none
  members = (rng.integers(0, levels, 600) / levels).astype(dtype)
  nonmembers = (rng.integers(-3, levels, 431) / levels).astype(dtype)
  accuracy, tau = _loop(members, nonmembers)
  scores = membership.Scores("s", members, nonmembers)
  inference = membership.oracle(scores)
  assert inference.balanced_accuracy == pytest.approx(accuracy, abs=1e-12)
  assert inference.threshold == tau
  won = (members[:, None] > nonmembers).mean()
  tied = (members[:, None] == nonmembers).mean()
  assert inference.auc == pytest.approx(won + tied / 2, abs=1e-12)


def test_nobody_is_called_a_member_where_no_threshold_beats_a_coin():
  scores = membership.Scores("s", np.array([0.0, 1.0]), np.array([1.0, 2.0]))
  inference = membership.oracle(scores)
  assert inference.balanced_accuracy == 0.5
  assert inference.threshold == math.inf
  assert (inference.tpr, inference.fpr) == (0, 0)
  assert inference.to_json()["threshold"] is None


def test_the_lowest_false_positive_rates_against_a_loop():
  rng = np.random.default_rng(3)
  members = rng.integers(0, 400, 700) / 10.0
  nonmembers = rng.integers(0, 380, 1500) / 10.0
  for fpr in (0.001, 0.01, 0.2):
    scores = membership.Scores("s", members, nonmembers)
    expected = 0.0
    for tau in {*members, *nonmembers}:
      if (nonmembers >= tau).mean() <= fpr:
        expected = max(expected, (members >= tau).mean())
    row = membership.tpr_at_fpr(scores, fpr)
    assert row["tpr"] == pytest.approx(expected, abs=1e-12)
    assert row["measured_fpr"] <= fpr < row["fpr_upper"]
    assert row["interval"][0] <= row["tpr"] <= row["interval"][1]


def test_exactly_one_alarm_is_allowed_at_one_in_a_thousand():
  nonmembers = np.arange(1000.0)
  scores = membership.Scores("s", np.array([998.5, 999.5, 5.0]), nonmembers)
  # Threshold 998.5: one alarm (999) and two members.
  assert membership.tpr_at_fpr(scores, 0.001)["tpr"] == pytest.approx(2 / 3)


def test_too_few_nonmembers_say_how_many_are_needed():
  scores = membership.Scores("s", np.arange(9.0), np.arange(999.0))
  message = "at least 1000 non-members .* 0.001, received 999"
  with pytest.raises(ValueError, match=message):
    membership.tpr_at_fpr(scores, 0.001)
  found = membership.oracle(scores).to_json()
  assert [row["fpr"] for row in found["tpr_at_fpr"]] == [0.01]
  assert "TPR at FPR 0.001 needs at least 1000 non-members" in found["note"]


def test_a_thinned_curve_keeps_its_low_end():
  rng = np.random.default_rng(1)
  members, nonmembers = rng.normal(1, 1, 5000), rng.normal(0, 1, 20_000)
  whole = roc.curve(members, nonmembers)
  thin = roc.thinned(whole)
  assert len(thin["fpr"]) <= 300
  assert (thin["fpr"][0], thin["tpr"][0]) == (0, 0)
  assert (thin["fpr"][-1], thin["tpr"][-1]) == (1, 1)
  assert sum(0 < fpr <= 0.01 for fpr in thin["fpr"]) >= 50
  points = set(
    zip((whole.alarms / 20_000).tolist(), (whole.caught / 5000).tolist())
  )
  assert set(zip(thin["fpr"][1:], thin["tpr"][1:])) <= points
