"""Tables, budgets and figures that the pages of all studies are made of."""

import types
import xml.etree.ElementTree

import pytest

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from tf_privrob import run_folder
from tf_privrob.privacy import run_facts

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
  assert grid_page.proven(pure) == f"1 {condition}"


def test_a_claim_never_stands_alone():
  claimed = {"claimed": {"dp_epsilon": 2.0, "dp_delta": 0.0}, "label": "A"}
  results = {"a/train": claimed}
  shown = ["A", "2", "none known", "not run"]
  assert grid_page.who(results, {"model": "a"}) == shown
  absent = ["b", "none", "none known", "not run"]
  assert grid_page.who(results, {"model": "b-2", "recipe": "b"}) == absent
  assert len(grid_page.BUDGETS) == 3


def test_a_figure_has_a_sentence_for_the_conditions_of_all():
  unproven = {"proven": None, "condition": run_facts.CONDITION}
  free = {**_SEEDED, "condition": ""}
  found = grid_page.conditions([unproven, _SEEDED, free, _SEEDED])
  assert found == f"Proven {run_facts.CONDITION}."
  assert grid_page.conditions([unproven, free]) == ""


# Figures.


def _line(shape, **more):
  return grid_plots.Line(
    [1.0, 2.0], [0.25, 0.5], shape, "blue", "-", shape, **more
  )


_ENDS = {"intervals": [(0.2, 0.3), (0.6, 0.7)]}  # the second is above its value


@pytest.mark.parametrize("shape", ["band", "bars"])
def test_intervals_are_drawn_where_they_are(shape):
  panel = grid_plots.Panel([_line(shape, **_ENDS)])
  figure = grid_plots.draw(grid_plots.Figure("f", "F", [panel]))
  (collection,) = figure.axes[0].collections
  heights = {y for path in collection.get_paths() for _, y in path.vertices}
  # A bar never starts on the wrong side of its value.
  expected = {0.2, 0.3, 0.5, 0.7} if shape == "bars" else {0.2, 0.3, 0.6, 0.7}
  assert {round(y, 6) for y in heights} == expected


def test_every_shape_is_drawn_and_named_once_in_the_legend():
  lines = [_line("line"), _line("step"), _line("columns"), _line("across")]
  lines.append(grid_plots.Line([0, 1, 2], [0.5, 0.1], "stairs", shape="stairs"))
  lines.append(grid_plots.Line([0.5], (), "down", shape="down"))
  panels = [
    grid_plots.Panel(lines, "one", x_ticks={1.0: "first"}),
    grid_plots.Panel(
      lines, "two", x_log=10, y_log=10, y_limits=(None, None), numbers=True
    ),
    grid_plots.Panel([], "three"),
  ]
  spec = grid_plots.Figure(
    "f", "F", panels, title="On Sundays.", apart=True, across=2
  )
  figure = grid_plots.draw(spec)
  (legend,) = figure.legends
  assert legend.get_title().get_text() == "On Sundays."
  words = [text.get_text() for text in legend.get_texts()]
  assert sorted(words) == [
    "across",
    "columns",
    "down",
    "line",
    "stairs",
    "step",
  ]
  first = figure.axes[0]
  step = next(line for line in first.lines if line.get_label() == "step")
  assert step.get_drawstyle() == "steps-pre"
  assert [text.get_text() for text in first.get_xticklabels()] == ["first"]
  assert figure.axes[1].get_xscale() == "log"
  assert len(figure.axes) == 4  # two rows of two; the last is empty
  assert not figure.axes[3].axison


def test_looks_repeat_no_pair():
  looks = [tuple(grid_plots.look(number).values()) for number in range(28)]
  assert len(set(looks)) == 28


# A page.


def test_a_sheet_leaves_out_what_is_empty(tmp_path):
  full = grid_page.Table("Full", ["a", "b"], [["1", "2"]])
  empty = grid_page.Table("Empty", ["a"], [])
  panel = grid_plots.Panel([_line("line")])
  figures = [
    grid_plots.Figure("some", "Something", [panel]),
    grid_plots.Figure("none", "Nothing", [grid_plots.Panel([])]),
  ]
  experiment = types.SimpleNamespace(
    record={"data": "Two faces."},
    heading=lambda: "Heading",
    tables=lambda results: [full, empty],
    figures=lambda results: iter(figures),
    notes=lambda: ["A note."],
  )
  folder = run_folder.RunFolder(tmp_path)
  lines, paths = grid_page.sheet(
    experiment, {}, "1 of 2 cells.", folder, "pages/x-", "##"
  )
  assert [path.name for path in paths] == ["x-some.svg"]
  xml.etree.ElementTree.parse(tmp_path / "pages" / "x-some.svg")
  text = "\n".join(lines)
  assert text.startswith("## Heading\n\n1 of 2 cells. Two faces.\n\n### Full")
  assert "| 1 | 2 |" in text
  assert "![Something](x-some.svg)" in text
  assert "- A note." in text
  assert "Empty" not in text
  assert "Nothing" not in text
