"""What the pages of all studies are made of: tables, figures, budgets."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from experiments.grid import plots as grid_plots
from tf_privrob import randomness
from tf_privrob.report import formats

NONE_KNOWN, NOT_RUN = "none known", "not run"
BUDGETS = ["claimed budget", "proven budget", "audited"]
PUBLIC_DRAWS = (
  "The draws behind certificates come from a seed that everybody knows, so that"
  f" they can be repeated: what is proven by them holds {randomness.SEEDED}."
)


class Table(NamedTuple):
  """A table; one without rows is left out.

  Attributes:
    title: above it.
    head: names of the columns.
    rows: as many texts each.
  """

  title: str
  head: list[str]
  rows: list[list[str]]


def percent(value: float | None) -> str:
  """An accuracy in points, as the papers give them."""
  return NOT_RUN if value is None else f"{100 * value:.2f}"


def with_interval(value: float, interval: Sequence[float], digits=2) -> str:
  """A share and its interval, in percent."""
  low, high = interval
  return f"{100 * value:.{digits}f} ({100 * low:.1f} to {100 * high:.1f})"


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
    return NOT_RUN
  return f">= {formats.dp_epsilon_lower(dp_epsilon)}"


def budgets(result: Mapping[str, Any]) -> list[str]:
  """Claimed, proven and audited: a claim never stands alone."""
  return [
    budget(result.get("claimed"), "none"),
    proven(result),
    audited(result.get("audited")),
  ]


def who(results: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
  """Label and the three figures of the budget of the model of a result."""
  trained = results.get(f"{result['model']}/train", {})
  return [trained.get("label", result.get("recipe", "")), *budgets(trained)]


def of_part(results: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
  """Results whose part begins with this word."""
  return [r for r in results.values() if r["part"].split("-")[0] == part]


def accuracy_at(result, radius: float) -> float:
  """Of the curve, at the next radius that it was evaluated at; 0 beyond."""
  for point in result["curve"]:
    if point["radius"] >= radius - 1e-9:
      return point["accuracy"]
  return 0.0


def lines(table: Table, marks: str) -> list[str]:
  """A table in Markdown, below a heading with these marks."""
  found = [f"{marks} {table.title}", "", _row(table.head)]
  found += [_row(["---"] * len(table.head))]
  return [*found, *map(_row, table.rows), ""]


def sheet(
  experiment,
  results: Mapping[str, Any],
  count: str,
  folder,
  prefix: str,
  marks: str,
) -> tuple[list[str], list]:
  """The page of one experiment in Markdown: tables, figures, notes.

  Args:
    experiment: Whose `tables`, `figures` and `notes` are shown.
    results: By cell name.
    count: How many cells are done, as a sentence.
    folder: The `RunFolder` that figures are written to.
    prefix: Of the names of the figures' files.
    marks: Of the heading; tables have one more.

  Returns:
    The lines, and the paths of the figures.
  """
  found = [f"{marks} {experiment.heading()}", ""]
  found += [f"{count} {experiment.record['data']}", ""]
  for table in experiment.tables(results):
    if table.rows:
      found += lines(table, f"{marks}#")
  paths = []
  for figure in experiment.figures(results):
    if not figure.shows_any:
      continue
    path = folder.file(f"{prefix}{figure.name}.svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    grid_plots.save(grid_plots.draw(figure), path)
    paths.append(path)
    found += [f"![{figure.caption}]({path.name})", ""]
  return [*found, *(f"- {note}" for note in experiment.notes()), ""], paths


def _row(cells: Sequence[str]) -> str:
  return f"| {' | '.join(cells)} |"
