"""The pages and Markdown files of a run and of a comparison."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tf_privrob.report import card
from tf_privrob.report import commands
from tf_privrob.report import comparison
from tf_privrob.report import consistency
from tf_privrob.report import formats
from tf_privrob.report import headlines
from tf_privrob.report import leakage
from tf_privrob.report import pictures
from tf_privrob.report import plots
from tf_privrob.report import promises as promises_lib
from tf_privrob.report import rendering
from tf_privrob.report import results as results_lib
from tf_privrob.report import views
from tf_privrob.report.consistency import Checks

_UNPROVEN = (
  "No theorem is known to bound what this model reveals about a training"
  " example. Treat it as not private."
)
_HEADINGS = (
  ("may", "You may promise"),
  ("measured", "You may report as measured, without a guarantee"),
  ("must_not", "You must not promise"),
)
_PARTS = {  # title, lead, what was not run, the command that runs it
  "attacked": (
    "Under attack",
    "The worst attack at every size; an upper bound on robustness.",
    "accuracy under attack",
    "evaluate",
  ),
  "radius": (
    "Radii",
    "Accuracy with a radius of at least r. Proven radii are called certified,"
    " claimed ones are not, and the two are never drawn together.",
    "radii",
    "evaluate",
  ),
  "roc": (
    "Membership inference",
    "The same strategy and score of each run, on log axes; the strongest"
    " strategy of each run is in the table. Computed on private training data:"
    " not covered by the guarantee.",
    "membership inference",
    "infer",
  ),
}


def _shared(results: results_lib.Results, checks: Checks) -> dict[str, Any]:
  """What the page and the Markdown file of a run show."""
  promises = promises_lib.find(results, checks)
  return {
    "run": results,
    "checks": checks,
    "promised": [
      (name.replace("_", "-"), heading, getattr(promises, name))
      for name, heading in _HEADINGS
    ],
    "allowed": views.allowed(results),
    "command": functools.partial(commands.command, results),
    "views": views,
    "headlines": headlines,
  }


def html(results: results_lib.Results, checks: Checks) -> str:
  """The whole page of a run."""
  statement, radii = results.privacy, results.smoothed
  return rendering.html(
    "predictions.html" if results.predictions else "run.html",
    **_shared(results, checks),
    worst=headlines.headline_attack(results.attacks),
    worst_by_size=headlines.worst_by_size(results.attacks),
    point=radii and headlines.headline_radius(radii),
    replaced=leakage.replaced(statement),
    refutation=statement and consistency.refutation(statement),
    change=statement and views.change(statement),
    attack_figures=views.attack_figures(results),
    radius_figure=radii and views.radius_figure(results),
    commands=commands.everything(results),
    pictures=pictures,
    UNPROVEN=_UNPROVEN,
  )


def markdown(results: results_lib.Results, checks: Checks) -> str:
  """The whole report of a run as Markdown."""
  return rendering.markdown(
    "predictions.md" if results.predictions else "run.md",
    **_shared(results, checks),
    summary=card.summary(results),
    not_run=lambda binary: rendering.Markdown(
      "Not run. To get it:\n\n"
      + rendering.code(commands.command(results, binary))
    ),
  )


def _compared(
  runs: Sequence[comparison.Run], found: Sequence[comparison.Group]
) -> dict[str, Any]:
  """What the page and the Markdown file of a comparison show."""
  return {
    "title": f"{len(runs)} runs compared",
    "differences": comparison.differences(runs, found),
  }


def compare_html(
  runs: Sequence[comparison.Run], found: Sequence[comparison.Group]
) -> str:
  """The whole page of a comparison."""
  return rendering.html(
    "compare.html",
    **_compared(runs, found),
    runs=runs,
    violated=[
      f"A guarantee of {run.name} is violated: {'; '.join(run.failed)}."
      for run in runs
      if run.failed
    ],
    unread=[
      f"{run.name}: could not be read: {problem}"
      for run in runs
      for problem in run.results.problems
    ],
    parts=[_part(name, runs, found) for name in _PARTS],
  )


def compare_markdown(
  runs: Sequence[comparison.Run], found: Sequence[comparison.Group]
) -> str:
  """The whole comparison as Markdown."""
  return rendering.markdown(
    "compare.md",
    **_compared(runs, found),
    violated=[
      f"{run.name}: {'; '.join(run.failed)}" for run in runs if run.failed
    ],
    unread=[
      f"{run.name}: {problem}"
      for run in runs
      for problem in run.results.problems
    ],
    runs=runs,
  )


def _part(
  name: str,
  runs: Sequence[comparison.Run],
  found: Sequence[comparison.Group],
) -> dict[str, Any]:
  """A section of the comparison: its plots, and who is missing."""
  title, lead, what, binary = _PARTS[name]
  groups = [group for group in found if group.part == name]
  order = [run.name for run in runs]
  shown = {run.name for group in groups for run in group.runs}
  missing = [run for run in runs if run.name not in shown]
  lines = [commands.command(run.results, binary) for run in missing]
  return {
    "anchor": name,
    "title": title,
    "lead": lead,
    "figures": [
      views.Figure(
        plots.compared(group, order, f"{name}-{index}"), *_caption(group)
      )
      for index, group in enumerate(groups)
    ],
    "missing": missing
    and f"Missing: {what} of {', '.join(run.name for run in missing)}.",
    "commands": "\n".join(lines),
  }


def _caption(group: comparison.Group) -> tuple[str, str]:
  """Of a plot, and the data that it is about."""
  if group.part == "attacked":
    text = f"Accuracy under {formats.norm(group.key[1])} attacks"
  elif group.part == "radius":
    word = "Certified" if group.key[2] == "proven" else "Claimed, not proven"
    text = f"{word}: accuracy against the {formats.norm(group.key[1])} radius"
  else:
    text = comparison.roc_of(group.runs[0]).label
  alone = "" if len(group.runs) > 1 else ", comparable with no other run"
  return text, f"{group.key[0][0]}{alone}"
