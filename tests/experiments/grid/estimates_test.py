"""Estimates: measured where there is a record, else called a guess."""

import dataclasses
import types

import pytest

from experiments.grid import agenda
from experiments.grid import engine as grid
from experiments.grid import estimates
from experiments.grid import studies


def _record(seconds, **figures):
  return types.SimpleNamespace(figures={"seconds": seconds, **figures})


CELLS = [
  grid.BudgetCell("net", budget, part)
  for budget in (1.0, 3.0)
  for part in ("train", "attack")
]
TINY = types.SimpleNamespace(
  study="tiny", record={"scale": "small", "dataset": "digits"}, cells=CELLS
)
ROWS = [
  agenda.Row("tiny", "small", "digits", "net-1/train", 5.0, "first"),
  agenda.Row("tiny", "small", "digits", "train", 9.0, "later"),
  agenda.Row("tiny", "full", "digits", "attack", 90.0, "another scale"),
  agenda.Row("tiny", "small", "mnist", "attack", 90.0, "another data set"),
]


def _of(records):
  found = estimates.of_cells(TINY, records, ROWS)
  return {name: dataclasses.astuple(e) for name, e in found.items()}


def test_the_first_row_guesses_and_other_scales_do_not():
  assert _of({}) == {
    "net-1/train": (5.0, "guess"),
    "net-3/train": (9.0, "guess"),
  }


def test_a_record_counts_for_its_cell_and_those_of_its_kind():
  found = _of({"net-3/train": _record(120.0), "net-1/attack": _record(30.0)})
  assert found == {
    "net-1/train": (2.0, "measured as net-3/train"),
    "net-3/train": (2.0, "measured"),
    "net-1/attack": (0.5, "measured"),
    "net-3/attack": (0.5, "measured as net-1/attack"),
  }


def test_a_training_in_two_sessions_tells_no_time():
  """Only the last session was timed."""
  found = _of({"net-3/train": _record(1.0, sessions=2)})
  assert found["net-3/train"] == (9.0, "guess")


def test_guesses_for_help_are_no_work_of_the_queue():
  rest = [row for row in agenda.GUESSES if row not in agenda.AGENDA]
  assert rest
  for row in rest:
    assert not row.why
    assert row.minutes > 0
    cells = studies.described(row.study, row.scale, row.dataset, "runs").cells
    assert any(row.cells in cell.name for cell in cells)
  assert all(row.why for row in agenda.AGENDA)


@pytest.mark.parametrize(
  ("scale", "words"),
  [
    ("full", "measured, "),
    ("test", "(0 measured, 15 guessed)"),
  ],
)
def test_a_scale_says_what_is_measured_and_what_is_guessed(scale, words):
  experiment = studies.described("audits", scale, "", "runs")
  text = estimates.of_scale(type(experiment), scale)
  assert text.startswith("about ")
  assert "for 15 of 15" in text
  assert words in text


def test_a_scale_that_nobody_guessed_says_so():
  experiment = studies.described("halfspaces", "smoke", "mnist", "runs")
  text = estimates.of_scale(type(experiment), "smoke")
  assert text == "whose minutes nobody has measured or guessed yet"
