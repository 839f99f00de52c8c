"""Tables, figures and notes of an experiment as table.md and index.html."""

from __future__ import annotations

import base64
import pathlib
import re
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from tf_privrob.report import formats
from tf_privrob.report import rendering

NONE_KNOWN = "none known"
_MANY = 7  # columns; with more of them a table takes what width there is


class Table(NamedTuple):
  """A table; one without rows is left out.

  Attributes:
    title: above it.
    head: names of the columns.
    rows: as many texts each.
    numeric_from: the first column that is aligned as numbers.
  """

  title: str
  head: list[str]
  rows: list[list[str]]
  numeric_from: int = 1


class Picture(NamedTuple):
  """A figure as SVG text."""

  key: str
  caption: str
  svg: str


def percent(value: float | None) -> str:
  """An accuracy in points, as the papers give them."""
  return "not run" if value is None else f"{100 * value:.2f}"


def budget(figures: Mapping[str, float] | None, absent: str) -> str:
  """(dp_epsilon, dp_delta), rounded up; or that there is none."""
  if not figures:
    return absent
  dp_epsilon = formats.dp_epsilon(figures["dp_epsilon"])
  if not figures["dp_delta"]:
    return dp_epsilon
  return f"({dp_epsilon}, {formats.dp_delta(figures['dp_delta'])})"


def proven(result: Mapping[str, Any], absent: str = NONE_KNOWN) -> str:
  """The proven budget of a result with its condition, or that there is none."""
  return budget(result.get("proven"), absent) + beside(result)


def beside(result: Mapping[str, Any]) -> str:
  """The condition of a result's proven figure, to stand behind it."""
  condition = result.get("proven") and result.get("condition")
  return f" ({condition})" if condition else ""


def conditions(results: Iterable[Mapping[str, Any]]) -> str:
  """The conditions of all that is proven, as a sentence; "" if there is none.

  For figures, which name many budgets in little room.
  """
  found = dict.fromkeys(map(beside, results))
  texts = [text.strip(" ()") for text in found if text]
  return f"Proven {', '.join(texts)}." if texts else ""


def audited(dp_epsilon: float | None) -> str:
  """The lower bound of an audit of the model, or that there was none."""
  if dp_epsilon is None:
    return "not run"
  return f">= {formats.dp_epsilon_lower(dp_epsilon)}"


def accuracy_at(result, radius: float) -> float:
  """Of the curve, at the next radius that it was evaluated at; 0 beyond."""
  for point in result["curve"]:
    if point["radius"] >= radius - 1e-9:
      return point["accuracy"]
  return 0.0


def markdown(title: str, tables: Sequence[Table], notes: Sequence[str]) -> str:
  """table.md."""
  found = [f"# {title}", ""]
  for table in tables:
    found += lines(table, "##")
  found += ["## Notes", ""]
  found += [f"- {note}" for note in notes]
  return "\n".join(found) + "\n"


def lines(table: Table, marks: str) -> list[str]:
  """A table in Markdown, below a heading with these marks."""
  found = [f"{marks} {table.title}", "", _row(table.head)]
  found += [_row(["---"] * len(table.head))]
  return [*found, *map(_row, table.rows), ""]


def html(
  experiment: Mapping[str, Any],
  title: str,
  num_done: int,
  pictures: Sequence[Picture],
  tables: Sequence[Table],
  notes: Sequence[str],
) -> str:
  """index.html: all figures and tables in one file.

  Args:
    experiment: the record of what was run.
    title: of the page.
    num_done: cells that have a result.
    pictures: above the tables.
    tables: without the empty ones.
    notes: how to read it all, in sentences.
  """
  return rendering.html(
    pathlib.Path(__file__).with_name("page.html"),
    experiment=experiment,
    title=title,
    num_done=num_done,
    pictures=[(picture, _data_uri(picture)) for picture in pictures],
    tables=[
      (table, len(table.head) > _MANY, [map(_split, row) for row in table.rows])
      for table in tables
    ],
    notes=notes,
  )


def _split(text: str) -> tuple[str, str]:
  """A figure and its brackets, which stand on a line of their own."""
  found = re.fullmatch(r"(\d[\d.,]*) (\([-\d][^()]*\))", text)
  return found.groups() if found else (text, "")


def _row(cells: Sequence[str]) -> str:
  return f"| {' | '.join(cells)} |"


def _data_uri(picture: Picture) -> str:
  data = base64.b64encode(picture.svg.encode()).decode()
  return f"data:image/svg+xml;base64,{data}"
