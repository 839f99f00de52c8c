import numpy as np
import pytest

from tf_privrob import membership


def _outputs(**changes):
  rng = np.random.default_rng(0)
  logits = [rng.normal(size=(count, 3)).astype("f4") for count in (5, 4)]
  fields = {"benign": tuple(logits), "about": {"attack_eps": 0.1}, **changes}
  labels = rng.integers(0, 3, 5), rng.integers(0, 3, 4)
  return membership.Outputs(*labels, **fields)


def _targeted():
  return np.zeros((5, 2, 3), np.float32), np.ones((4, 2, 3), np.float32)


def test_saved_and_loaded(tmp_path):
  outputs = _outputs(targeted=_targeted())
  outputs.save(tmp_path / "deep" / "o.npz")
  loaded = membership.Outputs.load(tmp_path / "deep" / "o.npz")
  assert loaded.about == {"attack_eps": 0.1}
  assert loaded.adversarial is None
  for part in range(2):
    np.testing.assert_array_equal(loaded.benign[part], outputs.benign[part])
    np.testing.assert_array_equal(loaded.targeted[part], outputs.targeted[part])
  np.testing.assert_array_equal(loaded.member_labels, outputs.member_labels)
  assert [path.name for path in (tmp_path / "deep").iterdir()] == ["o.npz"]


def test_a_temperature_divides_every_logit():
  outputs = _outputs(targeted=_targeted()).with_temperature(4)
  np.testing.assert_allclose(outputs.benign[0] * 4, _outputs().benign[0])
  assert outputs.targeted[1].max() == 0.25
  assert outputs.about == {"attack_eps": 0.1, "temperature": 4.0}
  right = membership.score(outputs, "benign_correct").members
  before = membership.score(_outputs(), "benign_correct").members
  np.testing.assert_array_equal(right, before)
  with pytest.raises(ValueError, match="temperature=0 > 0"):
    outputs.with_temperature(0)


def test_some_rows():
  taken = _outputs(targeted=_targeted()).take([4, 0], [1])
  assert (taken.num_members, taken.num_nonmembers) == (2, 1)
  np.testing.assert_array_equal(taken.benign[0], _outputs().benign[0][[4, 0]])
  assert taken.member_labels[0] == _outputs().member_labels[4]


_NAN = np.full((5, 3), np.nan, np.float32)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"benign": np.zeros((5, 3))}, "benign to be a pair"),
    ({"benign": (_NAN, np.zeros((4, 3)))}, "finite benign logits of members"),
    ({"benign": (np.zeros((5, 1)), np.zeros((4, 1)))}, "at least 2 classes"),
    ({"benign": (np.zeros((6, 3)), np.zeros((4, 3)))}, "6 examples"),
    ({"benign": (np.zeros((5, 2)), np.zeros((4, 2)))}, r"labels in \[0, 2\)"),
    ({"benign": (np.zeros((5, 3), int),) * 2}, "floating-point benign"),
    ({"adversarial": (np.zeros((4, 3)),) * 2}, r"shape \(5, 3\), received"),
    ({"targeted": (np.zeros((5, 3)),) * 2}, r"shape \(5, 2, 3\), received"),
  ],
)
def test_wrong_shapes_and_values_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    _outputs(**changes)


# Stored predictions.


def _predictions(tmp_path, **changes):
  rng = np.random.default_rng(1)
  arrays = {}
  for part, count in (("member", 6), ("nonmember", 5)):
    logits = 30 * rng.normal(size=(count, 4))
    p = np.exp(logits - logits.max(1, keepdims=True))
    p = (p / p.sum(1, keepdims=True)).astype(np.float32)
    arrays[f"{part}_predictions"] = p
    arrays[f"{part}_labels"] = p.argmax(1)
  arrays.update(changes)
  arrays = {k: v for k, v in arrays.items() if v is not None}
  np.savez(tmp_path / "p.npz", **arrays)
  return tmp_path / "p.npz", arrays


def test_stored_confidences_come_back_to_the_last_bit(tmp_path):
  path, arrays = _predictions(tmp_path)
  p = np.array([[1 - 2.0**-24, 2.0**-24, 0, 0], [0, 0, 0, 1]], np.float32)
  path, arrays = _predictions(
    tmp_path, member_predictions=p, member_labels=np.array([0, 2])
  )
  outputs = membership.from_predictions(path)
  scores = membership.score(outputs, "benign_confidence")
  np.testing.assert_array_equal(scores.members, p[[0, 1], [0, 2]])
  np.testing.assert_array_equal(
    scores.nonmembers, arrays["nonmember_predictions"].max(1)
  )
  # A temperature works on them as on logits, up to a constant.
  cooled = membership.score(outputs.with_temperature(2), "benign_confidence")
  root = np.sqrt(p[0].astype(float))
  assert cooled.members[0] == pytest.approx(root[0] / root.sum(), rel=1e-6)


def test_verified_and_targeted_predictions_come_back(tmp_path):
  """Verified ones as differences of logs, 0 for the true class."""
  p = np.array([[0.5, 0.25, 0.125, 0.125]] * 6, np.float32)
  more = {
    f"{kind}_{part}_predictions": np.broadcast_to(
      p[0], (count, *inner, 4)
    ).copy()
    for kind, inner in (("verified", ()), ("targeted", (3,)))
    for part, count in (("member", 6), ("nonmember", 5))
  }
  labels = np.array([1, 0, 2, 3, 1, 0])
  path, _ = _predictions(tmp_path, member_labels=labels, **more)
  outputs = membership.from_predictions(path)
  np.testing.assert_allclose(
    outputs.worst_case[0][0], np.log([2, 1, 0.5, 0.5]), atol=1e-6
  )
  scores = membership.score(outputs, "verified_confidence")
  np.testing.assert_allclose(scores.members, p[0][labels], rtol=1e-6)
  right = membership.score(outputs, "verified_correct").members
  np.testing.assert_array_equal(right, labels == 0)
  assert outputs.targeted[1].shape == (5, 3, 4)
  np.testing.assert_allclose(np.exp(outputs.targeted[0][0, 2]), p[0])


def test_files_of_the_paper_s_authors_are_read(tmp_path):
  """The names of the released files of Song, Shokri and Mittal."""
  path, arrays = _predictions(tmp_path)
  theirs = {
    "output_train_benign": arrays["member_predictions"],
    "output_test_benign": arrays["nonmember_predictions"],
    "output_train_adversarial": arrays["member_predictions"][::-1],
    "output_test_adversarial": arrays["nonmember_predictions"][::-1],
    "train_label": arrays["member_labels"],
    "test_label": arrays["nonmember_labels"],
  }
  np.savez(tmp_path / "theirs.npz", **theirs)
  found = membership.from_predictions(tmp_path / "theirs.npz")
  ours = membership.from_predictions(path)
  for one, other in zip(found.benign, ours.benign):
    np.testing.assert_array_equal(one, other)
  np.testing.assert_array_equal(found.adversarial[0], ours.benign[0][::-1])
  np.testing.assert_array_equal(found.member_labels, ours.member_labels)
  del theirs["test_label"]
  np.savez(tmp_path / "theirs.npz", **theirs)
  with pytest.raises(ValueError, match="test_label is not there"):
    membership.from_predictions(tmp_path / "theirs.npz")


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"member_labels": None}, "member_labels is not there"),
    ({"member_predictions": np.ones((6, 4), "f4")}, "sum 4. Apply a softmax"),
    ({"member_predictions": _NAN}, "Expected probabilities"),
    (
      {"member_predictions": np.array([[1.5, -0.5, 0, 0]] * 6)},
      r"Row 0 has values in \[-0.5, 1.5\]",
    ),
    ({"member_predictions": np.ones(6)}, r"float64 of shape \(6,\)"),
    ({"member_labels": np.full(6, 9)}, r"labels in \[0, 4\)"),
    (
      {"adversarial_member_predictions": np.full((6, 4), 0.25)},
      "or neither",
    ),
    (
      {
        "targeted_member_predictions": np.full((6, 4), 0.25),
        "targeted_nonmember_predictions": np.full((5, 4), 0.25),
      },
      r"\[examples, classes - 1, classes\]",
    ),
    ({"verified_predictions": np.full((6, 4), 0.25)}, "verified_predictions"),
  ],
)
def test_what_is_not_probabilities_is_refused(tmp_path, changes, message):
  path, _ = _predictions(tmp_path, **changes)
  with pytest.raises(ValueError, match=message):
    membership.from_predictions(path)


def test_files_that_are_none(tmp_path):
  with pytest.raises(ValueError, match="there is no file"):
    membership.from_predictions(tmp_path / "none.npz")
  (tmp_path / "text.npz").write_text("hello")
  with pytest.raises(ValueError, match="cannot be read"):
    membership.Outputs.load(tmp_path / "text.npz")
  path, _ = _predictions(tmp_path)
  with pytest.raises(ValueError, match=r"read by\s+membership.from_pred"):
    membership.Outputs.load(path)
