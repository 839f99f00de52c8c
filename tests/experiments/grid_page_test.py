from experiments.grid import page as grid_page
from tf_privrob.privacy import run_facts

_EXPERIMENT = {
  "num_cells": 2,
  "scale": "tiny",
  "data": "Two faces.",
  "command": "python -m <experiments>",
}


def _page(columns):
  head = ["trainer", *[f"column {n}" for n in range(columns - 1)]]
  row = ["PGD (ours)", "97.91 (97.8 to 98.0)", "(3, 1e-5)"]
  table = grid_page.Table("A table", head, [row + ["-"] * (columns - 3)])
  return grid_page.html(_EXPERIMENT, "A <title>", 1, [], [table], ["A note."])


def test_a_wide_table_sets_intervals_below_their_figures():
  page = _page(8)
  assert '<table class="many">' in page
  assert "97.91 <small>(97.8 to 98.0)</small>" in page
  assert page.count("<small>") == 1  # neither a name's bracket nor a budget


def test_a_narrow_table_stays_on_one_line():
  page = _page(7)
  assert "97.91 (97.8 to 98.0)" in page
  assert "<small>" not in page
  assert 'class="many"' not in page


_SEEDED = {
  "proven": {"dp_epsilon": 2.9991, "dp_delta": 1e-5},
  "condition": run_facts.CONDITION,
}


def test_a_proven_budget_stands_with_its_condition():
  condition = f"({run_facts.CONDITION})"
  assert grid_page.proven(_SEEDED) == f"(3, 1e-5) {condition}"
  assert grid_page.proven({**_SEEDED, "condition": ""}) == "(3, 1e-5)"
  assert grid_page.proven({**_SEEDED, "proven": None}) == "none known"
  assert grid_page.proven({}, "not private") == "not private"
  pure = {**_SEEDED, "proven": {"dp_epsilon": 1.0, "dp_delta": 0.0}}
  table = grid_page.Table("A", ["x"] * 8, [[grid_page.proven(pure)] * 8])
  page = grid_page.html(_EXPERIMENT, "", 1, [], [table], [])
  assert page.count(f"1 {condition}") == 8


def test_a_figure_has_a_sentence_for_the_conditions_of_all():
  unproven = {"proven": None, "condition": run_facts.CONDITION}
  free = {**_SEEDED, "condition": ""}
  found = grid_page.conditions([unproven, _SEEDED, free, _SEEDED])
  assert found == f"Proven {run_facts.CONDITION}."
  assert grid_page.conditions([unproven, free]) == ""


def test_texts_are_escaped():
  page = _page(8)
  assert "A &lt;title&gt;" in page
  assert "python -m &lt;experiments&gt;" in page
