import numpy as np
import pytest
from scipy import special

from tf_privrob import membership
from tf_privrob.membership import leave_one_out


def _nearest(x, y):
  """A classifier that is sure of what it has seen, and else of nothing."""

  def logits(queries):
    seen = (queries[:, None, 0] == x[None, :, 0]).any(axis=1)
    near = y[np.abs(queries[:, None, 0] - x[None, :, 0]).argmin(axis=1)]
    return np.where(seen[:, None], 4.0, 1.0) * np.eye(3)[near]

  return logits


_X = np.array([[0.0], [0.1], [1.0], [1.1], [2.0], [2.1], [0.2], [1.2], [2.2]])
_Y = np.array([0, 0, 1, 1, 2, 2, 0, 1, 2])


def test_by_hand():
  groups = [np.array([0, 2, 4]), np.array([1, 3, 5])]
  found = membership.sensitivity(_nearest, _X, _Y, groups, progress=False)
  np.testing.assert_array_equal(found.indices, [0, 2, 4, 1, 3, 5])
  seen = special.softmax([4, 0, 0])[0]
  unseen = special.softmax([1, 0, 0])[0]
  np.testing.assert_allclose(found.original, seen)
  np.testing.assert_allclose(found.retrained, unseen)
  np.testing.assert_allclose(found.differences, seen - unseen)


def test_a_model_that_ignores_a_point_has_no_sensitivity():
  def constant(x, y):
    del x, y
    return lambda queries: np.zeros((len(queries), 3))

  found = membership.sensitivity(
    constant, _X, _Y, [np.array([3])], progress=False
  )
  np.testing.assert_array_equal(found.differences, [0.0])


def test_the_original_is_trained_once_or_given():
  sizes = []

  def train(x, y):
    sizes.append(len(x))
    return _nearest(x, y)

  groups = membership.leave_out_groups(_Y, 2, seed=1)
  membership.sensitivity(train, _X, _Y, groups, progress=False)
  assert sizes == [9, 6, 6]
  sizes.clear()
  membership.sensitivity(
    train, _X, _Y, groups, original=_nearest(_X, _Y), progress=False
  )
  assert sizes == [6, 6]


def test_groups_have_one_point_of_every_class_and_none_twice():
  labels = np.random.default_rng(0).permutation(np.arange(100) % 10)
  groups = membership.leave_out_groups(labels, 6, seed=2)
  assert len(groups) == 6
  for group in groups:
    np.testing.assert_array_equal(np.sort(labels[group]), np.arange(10))
  assert len(set(np.concatenate(groups).tolist())) == 60
  again = membership.leave_out_groups(labels, 6, seed=2)
  np.testing.assert_array_equal(np.stack(groups), np.stack(again))


def test_the_json_form_is_sorted():
  found = leave_one_out.Sensitivity(
    np.array([4, 7]), np.array([0.9, 0.8]), np.array([0.2, 0.6])
  ).to_json()
  assert found["indices"] == [7, 4]
  assert found["differences"] == pytest.approx([0.2, 0.7])


def test_failures():
  with pytest.raises(
    ValueError, match=r"num_groups=3 .* received 3 of class 0"
  ):
    membership.leave_out_groups(_Y, 3)
  for groups, message in (
    ([], "at least one group"),
    ([np.array([9])], r"rows in \[0, 9\)"),
    ([np.array([1]), np.array([1])], "occurs twice"),
  ):
    with pytest.raises(ValueError, match=message):
      membership.sensitivity(_nearest, _X, _Y, groups, progress=False)
