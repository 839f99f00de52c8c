import math

import numpy as np
import pytest

from tf_privrob import membership
from tf_privrob.membership import roc
from tf_privrob.membership import thresholds


def _labelled(count=40, classes=4, seed=0):
  rng = np.random.default_rng(seed)
  labels = np.arange(count * classes) % classes
  # Each class has another scale: one threshold cannot serve all.
  members = 10.0 * labels + rng.normal(1.0, 0.5, len(labels))
  nonmembers = 10.0 * labels + rng.normal(-1.0, 0.5, len(labels))
  return membership.Scores("s", members, nonmembers, labels, labels)


def test_held_out_points_are_not_those_it_learns_on(monkeypatch):
  scores = _labelled()
  seen, curve = [], roc.curve
  monkeypatch.setattr(
    roc, "curve", lambda *parts: seen.append(parts[0]) or curve(*parts)
  )
  found = membership.held_out(scores, share=0.25, seed=3)
  assert (found.num_members, found.num_nonmembers) == (120, 120)
  fit = seen[0]  # the members that the threshold is learnt on
  assert len(fit) == 40
  rest_best = (scores.members >= found.threshold).sum() - (
    fit >= found.threshold
  ).sum()
  assert round(found.tpr * 120) == rest_best
  again = membership.held_out(scores, share=0.25, seed=3)
  assert again.to_json() == found.to_json()
  other = membership.held_out(scores, share=0.25, seed=4)
  assert other.to_json() != found.to_json()


def test_the_oracle_overestimates_and_held_out_points_do_not():
  # No difference at all: the mean over draws says which is biased.
  rng = np.random.default_rng(0)
  oracle, learnt = [], []
  for seed in range(200):
    scores = membership.Scores("s", rng.random(50), rng.random(50))
    oracle.append(membership.oracle(scores).balanced_accuracy)
    learnt.append(membership.held_out(scores, seed=seed).balanced_accuracy)
  # Each held-out mean of 200 has a standard error below 0.005.
  assert abs(np.mean(learnt) - 0.5) < 0.02
  assert np.mean(oracle) > 0.55


def test_a_shadow_models_threshold_by_hand():
  scores = membership.Scores("s", np.array([0.9, 0.4]), np.array([0.6, 0.1]))
  shadow = membership.Scores("s", np.array([0.5]), np.array([0.3]))
  found = membership.from_shadow(scores, shadow)
  assert found.threshold == 0.5
  assert (found.tpr, found.fpr) == (0.5, 0.5)
  with pytest.raises(ValueError, match="one kind of score"):
    membership.from_shadow(
      scores, membership.Scores("t", np.ones(1), np.ones(1))
    )


def test_classes_have_thresholds_of_their_own():
  scores = _labelled()
  found = membership.class_dependent(scores, num_fit=10)
  assert (found.num_members, found.num_nonmembers) == (120, 120)
  assert found.balanced_accuracy > 0.9
  assert membership.held_out(scores).balanced_accuracy < 0.65
  assert [row["class"] for row in found.per_class] == [0, 1, 2, 3]
  for row in found.per_class:
    assert abs(row["threshold"] - 10 * row["class"]) < 2
  mean = np.mean([row["balanced_accuracy"] for row in found.per_class])
  assert found.balanced_accuracy == pytest.approx(mean)


def test_class_dependent_against_a_loop():
  scores = _labelled(seed=5)
  found = membership.class_dependent(scores, num_fit=7, seed=2)
  for row, (label, fit, rest) in zip(
    found.per_class, thresholds.class_splits(scores, 7, 2)
  ):
    assert not {*fit[0]} & {*rest[0]}
    assert not {*fit[1]} & {*rest[1]}
    assert sorted([*fit[0], *rest[0]]) == [
      i for i, c in enumerate(scores.member_labels) if c == label
    ]
    learnt = membership.oracle(scores.take(*fit)).threshold
    assert row["threshold"] == learnt
    tpr = np.mean(scores.members[rest[0]] >= learnt)
    fpr = np.mean(scores.nonmembers[rest[1]] >= learnt)
    assert row["balanced_accuracy"] == pytest.approx((tpr + 1 - fpr) / 2)


def test_a_class_in_which_nothing_is_learnt_calls_nobody_a_member():
  labels = np.arange(20) % 2
  members = np.where(labels == 0, 5.0, 1.0)
  nonmembers = np.where(labels == 0, 6.0, 0.0)
  scores = membership.Scores("s", members, nonmembers, labels, labels)
  found = membership.class_dependent(scores, num_fit=3)
  assert found.per_class[0]["threshold"] == math.inf
  assert found.to_json()["per_class"][0]["threshold"] is None
  # Class 1 is told apart wholly, class 0 is not at all.
  assert (found.tpr, found.fpr) == (0.5, 0.0)


def test_too_few_points_of_a_class():
  with pytest.raises(ValueError, match=r"num_fit=40 .* received 40 of class 0"):
    membership.class_dependent(_labelled(), num_fit=40)
  bare = membership.Scores("s", np.zeros(3), np.zeros(3))
  with pytest.raises(ValueError, match="Expected scores with labels"):
    membership.class_dependent(bare, num_fit=1)
  one = membership.Scores("s", np.zeros(1), np.zeros(1))
  with pytest.raises(ValueError, match="at least one member and one"):
    membership.held_out(one)


def test_the_json_form():
  found = membership.oracle(
    membership.Scores("benign_confidence", np.ones(1500), np.zeros(1500))
  ).to_json()
  assert found["label"] == "I_B, oracle threshold (upper estimate)"
  assert found["balanced_accuracy"] == found["auc"] == found["advantage"] == 1
  assert [row["tpr"] for row in found["tpr_at_fpr"]] == [1, 1]
  assert "per_class" not in found
  assert "note" not in found
  assert "Dvoretzky" in found["interval_method"]
