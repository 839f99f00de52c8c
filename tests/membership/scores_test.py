import numpy as np
import pytest

from tf_privrob import membership

_LABELS = np.array([0, 2])


def _outputs(**changes):
  logits = np.log(np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]], np.float32))
  fields = {"benign": (logits, logits[::-1].copy()), **changes}
  return membership.Outputs(_LABELS, _LABELS[::-1], **fields)


def _of(outputs, name):
  return membership.score(outputs, name).members


def test_by_hand():
  outputs = _outputs()
  np.testing.assert_allclose(
    _of(outputs, "benign_confidence"), [0.7, 0.2], rtol=1e-6
  )
  np.testing.assert_allclose(
    _of(outputs, "benign_margin"), np.log([0.7 / 0.3, 0.2 / 0.8]), rtol=1e-6
  )
  np.testing.assert_allclose(
    _of(outputs, "benign_loss"), np.log([0.7, 0.2]), rtol=1e-6
  )
  np.testing.assert_array_equal(_of(outputs, "benign_correct"), [1, 0])
  scores = membership.score(outputs, "benign_confidence")
  np.testing.assert_allclose(scores.nonmembers, [0.2, 0.7], rtol=1e-6)
  np.testing.assert_array_equal(scores.nonmember_labels, [2, 0])


def test_confidences_saturate_in_float32_and_margins_do_not():
  logits = np.array([[40, 0, 0], [0, 0, 30], [30, 0, 0]], np.float32)
  labels = np.array([0, 2, 0])
  outputs = membership.Outputs(labels, labels, (logits, logits))
  confidence = _of(outputs, "benign_confidence")
  assert confidence.dtype == np.float32
  np.testing.assert_array_equal(confidence, [1, 1, 1])
  margin = _of(outputs, "benign_margin")
  assert margin.dtype == np.float64
  np.testing.assert_allclose(margin, np.array([40, 30, 30]) - np.log(2))


def test_verified_scores_by_hand():
  # Bounds of z_j - z_y: y = 0 is proven, y = 2 is not (a tie is no proof).
  worst = np.array([[0, -1, -2], [-1, 0, 0]], np.float32)
  outputs = _outputs(worst_case=(worst, worst[::-1].copy()))
  expected = [1 / (1 + np.exp(-1) + np.exp(-2)), 1 / (2 + np.exp(-1))]
  np.testing.assert_allclose(
    _of(outputs, "verified_confidence"), expected, rtol=1e-6
  )
  np.testing.assert_array_equal(_of(outputs, "verified_correct"), [1, 0])


def test_the_gap_attack_is_the_gap_of_accuracies():
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 3, 50)
  logits = [rng.normal(size=(50, 3)).astype(np.float32) for _ in range(2)]
  logits[0][np.arange(50), labels] += 2
  outputs = membership.Outputs(labels, labels, tuple(logits))
  train, test = ((part.argmax(1) == labels).mean() for part in logits)
  scores = membership.score(outputs, "benign_correct")
  gap = membership.fixed(scores, 1.0)
  assert gap.balanced_accuracy == pytest.approx(0.5 + (train - test) / 2)
  assert membership.oracle(scores).threshold == 1


def test_every_name_is_known_and_only_what_is_there_is_available():
  outputs = _outputs()
  assert set(membership.available(outputs)) == {
    "benign_confidence",
    "benign_margin",
    "benign_loss",
    "benign_correct",
  }
  for name in membership.NAMES:
    if not name.startswith("benign"):
      kind = "worst_case" if name.startswith("verified") else "adversarial"
      with pytest.raises(ValueError, match=f"Expected {kind} outputs.*Pass"):
        membership.score(outputs, name)
  with pytest.raises(ValueError, match="Did you mean 'benign_margin'"):
    membership.score(outputs, "benign_margins")


@pytest.mark.parametrize(
  ("members", "message"),
  [
    (np.array([0.0, np.nan]), "finite scores, received nan for example 1"),
    (np.array([np.inf]), "finite scores, received inf"),
    (np.zeros([2, 2]), r"received shape \(2, 2\)"),
    (np.zeros(0), r"received shape \(0,\)"),
    (np.array(["a"]), "floating-point scores"),
  ],
)
def test_bad_scores_are_refused(members, message):
  with pytest.raises(ValueError, match=message):
    membership.Scores("s", members, np.zeros(3))


def test_labels_must_fit():
  with pytest.raises(ValueError, match="member_labels to be 2 whole numbers"):
    membership.Scores("s", np.zeros(2), np.zeros(2), np.zeros(3, int), None)
  with pytest.raises(ValueError, match="of both members and non-members"):
    membership.Scores("s", np.zeros(2), np.zeros(2), np.zeros(2, int), None)
