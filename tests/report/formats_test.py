"""Numbers as people write them, never rounded to our favour."""

from __future__ import annotations

import pytest

from tf_privrob import records
from tf_privrob.report import formats


@pytest.mark.parametrize(
  ("value", "up", "down"),
  [(2.981, "2.99", "2.98"), (3.0, "3", "3"), (0.05012, "0.0502", "0.0501")],
)
def test_epsilon_is_rounded_against_us(value, up, down):
  assert formats.dp_epsilon(value) == up
  assert formats.dp_epsilon_lower(value) == down


@pytest.mark.parametrize(
  ("value", "text"),
  [
    (1e-5, "1e-5"),
    (26010, "26,010"),
    (4000, "4000"),
    (0.064, "0.064"),
    (True, "yes"),
    (None, "none"),
    ([0, 1], "0, 1"),
    (1.0, "1"),
    (float("inf"), "inf"),
  ],
)
def test_numbers_as_people_write_them(value, text):
  assert formats.number(value) == text


@pytest.mark.parametrize(
  ("seconds", "text"),
  [
    (0.25, "0.2 s"),
    (59.7, "1 min 0 s"),
    (118.4, "1 min 58 s"),
    (7260, "2 h 1 min"),
  ],
)
def test_durations(seconds, text):
  assert formats.duration(seconds) == text


def test_an_accuracy_stands_with_its_interval():
  assert formats.accuracy(None) == "not run"
  assert formats.accuracy(records.Accuracy(0.5)) == "50.0%"
  found = formats.accuracy(records.Accuracy(0.5, interval=(0.4, 0.6)))
  assert found == "50.0% (40.0\u201360.0%)"
