from experiments import grid_page

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


def test_texts_are_escaped():
  page = _page(8)
  assert "A &lt;title&gt;" in page
  assert "python -m &lt;experiments&gt;" in page
