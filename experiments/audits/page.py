"""The page of `experiments.audits`, and its table in docs/soundness.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.audits import cells as audits_cells
from experiments.grid import page as grid_page

Results = Mapping[str, Mapping[str, Any]]


def tables(experiment, results: Results) -> list[grid_page.Table]:
  """Claimed, proven and audited, for the same steps."""
  del experiment
  rows = [
    [
      result["label"],
      result["scope"],
      result["canary"],
      *grid_page.budgets(result),
      _if_gaussian(result),
      f"{result['caught']:,} / {result['false_alarms']:,} of"
      f" {result['runs']:,}",
      f"{result['reachable']:.2f}",
      result["statistic"],
      f"{result['seconds']:.0f}",
      result["verdict"],
    ]
    for result in results.values()
  ]
  head = ["method", "what was run", "canary", "claimed", "proven", "audited"]
  head += ["if Gaussian", "caught / false alarms", "reachable", "statistic"]
  head += ["seconds", "verdict"]
  return [grid_page.Table("What trainings in two worlds show", head, rows)]


def _if_gaussian(result) -> str:
  found = result["gaussian"]
  return "-" if found is None else grid_page.audited(found)


def summary(results: Results) -> grid_page.Table:
  """A row for each case, of which some may not have been run."""
  rows = []
  for name, case in audits_cells.CASES.items():
    row = [case.label, f"{case.scope}; {case.canary}"]
    result = results.get(audits_cells.Cell(name).name)
    if result is None:
      rows.append([*row, *[grid_page.NOT_RUN] * 5])
      continue
    runs = f"{result['runs']:,}, {result['seconds']:.0f} s"
    rows.append([*row, *grid_page.budgets(result), runs, result["verdict"]])
  head = ["claim", "what was run", "claimed", "proven", "audited"]
  head += ["runs a side, seconds", "verdict"]
  return grid_page.Table("Audits of privacy, from records", head, rows)


def notes(experiment, results: Results) -> list[str]:
  """How to read it."""
  del results
  pilots = experiment["settings"]["pilots"]
  return [
    "All three figures of a row are for what the row says was run, not for a"
    " whole training.",
    "Audited is a lower bound at 95 % confidence (Clopper-Pearson), at the"
    " dp_delta of the row: what an adversary that knows all other records, and"
    " sees every update, has shown. It cannot exceed what is reachable with so"
    " many runs. Statistic and threshold were settled on other runs, up to"
    f" {pilots:,} of each world.",
    "If Gaussian: the bound for a mechanism whose trade-off is that of one"
    " Gaussian shift, shown where it is one (fixed sums with Gaussian noise);"
    " no verdict rests on it.",
    "A verdict below a figure does not prove the figure.",
  ]
