"""Canaries are records like any other, and stand out as they should."""

import numpy as np
import pytest

from tf_privrob.privacy.audit import canaries


def test_blank_and_out_of_distribution_are_in_range():
  x, y = canaries.blank(5, (4, 4, 1), (-1.0, 1.0), 3)
  assert x.shape == (5, 4, 4, 1)
  assert (x == -1).all()
  assert set(y) <= {0, 1, 2}
  x, _ = canaries.out_of_distribution(200, (4,), (0.0, 1.0), 3)
  assert set(np.unique(x)) == {0.0, 1.0}
  assert 0.4 < x.mean() < 0.6
  again, _ = canaries.out_of_distribution(200, (4,), (0.0, 1.0), 3)
  np.testing.assert_array_equal(x, again)
  other, _ = canaries.out_of_distribution(200, (4,), (0.0, 1.0), 3, seed=1)
  assert (x != other).any()


def test_mislabelled_records_have_another_label():
  x, y = np.arange(30.0).reshape(30, 1), np.arange(30) % 4
  found, labels, rows = canaries.mislabelled(x, y, 10, 4)
  np.testing.assert_array_equal(found, x[rows])
  assert (labels != y[rows]).all()
  assert set(labels) <= {0, 1, 2, 3}
  assert len(set(rows)) == 10


def test_own_direction_by_hand():
  """Others span e_1 and e_2: what counts is the rest of a candidate."""
  gradients = {
    "others": [[1, 0, 0, 0], [1, 1, 0, 0]],
    "candidates": [[9, 9, 0.1, 0], [0, 0, 3, 0], [5, 0, 2.9, 0], [0, 0, 0, 1]],
  }

  def gradients_of(x, y):
    del y
    return np.array(gradients[x[0]])

  def arguments(count):
    candidates = ["candidates"] * 4, None
    return candidates, (["others"] * 2, None), gradients_of, count

  # The second choice has nothing in common with the first one.
  found = canaries.own_direction(*arguments(2))
  assert found.tolist() == [1, 3]


def test_failures():
  with pytest.raises(ValueError, match="count=9 <= 3"):
    canaries.mislabelled(np.zeros((3, 1)), np.zeros(3, int), 9, 2)
  with pytest.raises(ValueError, match="num_classes=1"):
    canaries.mislabelled(np.zeros((3, 1)), np.zeros(3, int), 1, 1)
