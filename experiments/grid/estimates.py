"""How long a cell takes: from records where there are any, else a guess.

A record tells the seconds of its own cell, and of others of one kind, scale and
data set. Where nothing of the kind was measured, the guess of the agenda is
taken and called so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence

from experiments.grid import agenda
from experiments.grid import engine as grid
from experiments.grid import records as grid_records

GUESS, MEASURED = "guess", "measured"


@dataclasses.dataclass(frozen=True)
class Estimate:
  """Minutes of one cell.

  Attributes:
    minutes: On the machine of the record, or on two cores.
    source: GUESS, MEASURED, or "measured as <cell>", of the same kind.
  """

  minutes: float
  source: str


def of_cells(
  experiment: grid.Experiment,
  records: Mapping[str, grid_records.Record],
  rows: Sequence[agenda.Row] = agenda.GUESSES,
) -> dict[str, Estimate]:
  """Estimates by the name of the cell; cells that nobody guessed are not there.

  Args:
    experiment: Whose cells.
    records: Of the experiment, by cell name.
    rows: With guesses; the first that names a cell counts.
  """
  found: dict[str, Estimate] = {}
  place = (experiment.study, experiment.record["scale"])
  dataset = experiment.record.get("dataset", "")
  for row in rows:
    named = row.dataset in dataset.split(", ")
    if (row.study, row.scale) == place and named:
      for cell in grid.select(experiment.cells, row.cells):
        if row.cells in cell.name:
          found.setdefault(cell.name, Estimate(row.minutes, GUESS))
  measured = {}
  for cell in experiment.cells:
    figures = records[cell.name].figures if cell.name in records else {}
    # Of a training in several sessions only the last one was timed.
    if "seconds" in figures and figures.get("sessions", 1) == 1:
      measured[cell.name] = figures["seconds"] / 60
  for cell in experiment.cells:
    for other in experiment.cells:
      if other.name in measured and other.kind == cell.kind:
        source = f"{MEASURED} as {other.name}"
        found[cell.name] = Estimate(measured[other.name], source)
    if cell.name in measured:
      found[cell.name] = Estimate(measured[cell.name], MEASURED)
  return found


def of_scale(experiment_class, scale: str) -> str:
  """What all cells of a scale take, in words.

  Where the data sets of a scale differ, for the one with the most estimates.
  """
  store, best, shown = grid_records.Store(), {}, None
  for dataset in experiment_class.datasets_of(scale) or ("",):
    experiment = experiment_class.described(scale, dataset, "runs")
    found = of_cells(experiment, store.of(experiment))
    if shown is None or len(found) > len(best):
      best, shown = found, experiment
  if not best:
    return "whose minutes nobody has measured or guessed yet"
  guesses = sum(estimate.source == GUESS for estimate in best.values())
  total = sum(estimate.minutes for estimate in best.values())
  name = shown.record.get("dataset", "")
  where = f" on {name}" if name and ", " not in name else ""
  return (
    f"about {max(total, 1):,.0f} minutes for {len(best)} of"
    f" {len(shown.cells)}{where} ({len(best) - guesses} measured, {guesses}"
    " guessed)"
  )
