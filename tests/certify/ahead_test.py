"""Batches at the same time: in order, and only a few of them."""

from __future__ import annotations

import time

import pytest

from tf_privrob.certify import ahead


def test_memory_does_not_depend_on_the_number_of_draws():
  """A few batches are at work, and no more."""
  made = []
  for number, found in enumerate(ahead.results(made.append, range(50))):
    assert found is None
    time.sleep(0.001)
    assert number < len(made) <= number + 5
  assert sorted(made) == list(range(50))


def test_results_come_in_the_order_of_the_items():
  def slow_at_first(number):
    time.sleep(0.02 if number == 0 else 0.0)
    return number

  assert list(ahead.results(slow_at_first, range(9))) == list(range(9))
  assert list(ahead.results(slow_at_first, ())) == []


def test_what_a_batch_raises_is_raised():
  with pytest.raises(ZeroDivisionError):
    list(ahead.results(lambda number: 1 / number, range(3)))
