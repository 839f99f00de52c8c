"""The generated parts of docs: headlines, the six models, the audits."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.audits import page as audits_page
from experiments.dpal import page as dpal_page
from experiments.grid import page as grid_page
from experiments.grid import records as grid_records
from experiments.grid import sheets
from experiments.grid import studies
from experiments.halfspaces import cells as halfspaces_cells
from experiments.privacy_risks.training import page as training_page
from experiments.smoothing import page as smoothing_page


@dataclasses.dataclass(frozen=True)
class Headline:
  """One line.

  Attributes:
    title: What is measured, in words.
    study: The name in `studies.STUDIES`.
    scale: The scale by name.
    dataset: The data set by name, "" where records are made up.
    cell: The cell with the figure.
    show: A key of SHOWN: what of the figures of the cell is shown.
  """

  title: str
  study: str
  scale: str
  dataset: str
  cell: str
  show: str


HEADLINES = tuple(
  Headline(**row)
  for row in sheets.read(pathlib.Path(__file__).with_name("headlines.csv"))
)


def _radius(figures: Mapping[str, Any]) -> str:
  error = figures.get("standard_error")
  words = "" if error is None else f" +- {error:.3f}"
  return f"{figures['mean_radius']:.3f}{words}"


def _verdict(figures: Mapping[str, Any]) -> str:
  return f"{figures['verdict']}, {figures['runs']:,} runs of each world"


def _fallen(figures: Mapping[str, Any]) -> str:
  return f"{figures['fallen']} of {figures['attacked']} changed class"


def _best_margin(figures: Mapping[str, Any]) -> str:
  """The best margin on USPS at dp_epsilon 1 and the paper's dp_delta."""
  budget = (1.0, halfspaces_cells.dp_delta("usps"))
  rows = figures["rows"]
  rows = [r for r in rows if (r["dp_epsilon"], r["dp_delta"]) == budget]
  row = max(rows, key=lambda row: row["accuracy"])
  error = f"+- {100 * row['standard_error']:.2f}"
  claimed, proven = (
    grid_page.budget({"dp_epsilon": row[kind], "dp_delta": budget[1]}, "")
    for kind in ("claimed", "proven")
  )
  return (
    f"{100 * row['accuracy']:.2f} {error} %, claimed {claimed} / proven"
    f" {proven} ({row['condition']}) / audited: not run"
  )


def _test(figures: Mapping[str, Any]) -> str:
  found = figures["test"]
  return f"{grid_page.with_interval(found['accuracy'], found['interval'])} %"


def _attacked(figures: Mapping[str, Any]) -> str:
  points = [row["accuracy"] for row in figures["attacks"]]
  size, worst = figures["attack_eps"], 100 * min(points)
  return f"{worst:.2f} % at l_inf {size:g}, the strongest of {len(points)}"


SHOWN = {
  "radius": _radius,
  "verdict": _verdict,
  "fallen": _fallen,
  "best_margin": _best_margin,
  "test": _test,
  "attacked": _attacked,
}


def published(headline: Headline) -> str:
  """The figure to compare with, "-" if there is none."""
  if (headline.study, headline.show) == ("smoothing", "radius"):
    rows = sheets.by_value(smoothing_page.PUBLISHED, headline.dataset, "noise")
    stddev = float(headline.cell.split("-")[-2])
    return f"{rows[stddev].figures['mean_radius']:.3f}"
  if headline.study == "training":
    trainer = headline.cell.split("/")[0].removeprefix(f"{headline.dataset}-")
    row = training_page.published_row(headline.dataset, trainer)
    return f"{row.figures['adv-test']:.2f}" if row else "-"
  return "-"


# The audits whose step is that of a model in DPAL's setting.
_AUDITS = {
  "dpal": "dpal-paper",
  "adlm": "adlm-paper",
  "dp_sgd": "dp_sgd-3",
  "sound_dpal": "dpal-sound",
  "secure_sgd": "secure_sgd-released",
}


def _figures(store: grid_records.Store, *place: str) -> dict[str, Mapping]:
  """What is recorded of a study at a scale, by cell."""
  found = store.of(studies.described(*place, "runs/studies"))
  return {name: record.figures for name, record in found.items()}


def six_models(store: grid_records.Store) -> grid_page.Table:
  """DPAL, its heir and its rivals, from records."""
  audits = _figures(store, "audits", "full", "")
  steps = {
    method: audits[f"audits/{name}"]
    for method, name in _AUDITS.items()
    if f"audits/{name}" in audits
  }
  return dpal_page.summary(_figures(store, "dpal", "small", "mnist"), steps)


def audits(store: grid_records.Store) -> str:
  """The table of docs/soundness.md: every case, run or not."""
  table = audits_page.summary(_figures(store, "audits", "full", ""))
  return "\n".join(grid_page.lines(table, "###")[2:]).strip()


def markdown(store: grid_records.Store) -> str:
  """Headlines, with the command where there is no record, and six models."""
  rows = []
  for headline in HEADLINES:
    place = (headline.study, headline.scale, headline.dataset)
    experiment = studies.described(*place, "runs/studies")
    record = store.of(experiment).get(headline.cell)
    rows.append([headline.title, *_words(headline, experiment, record)])
  head = ["what", "measured", "published", "claimed / proven / audited"]
  tables = [grid_page.Table("Headlines", [*head, "date"], rows)]
  tables.append(six_models(store))
  found = [line for table in tables for line in grid_page.lines(table, "##")]
  return "\n".join(found).strip()


def _words(headline: Headline, experiment, record) -> list[str]:
  if record is None:
    words = studies.command(
      experiment, headline.scale, headline.dataset, headline.cell
    )
    command = f"`python {' '.join(words)} --records=results`"
    return [f"not yet recorded: {command}", published(headline), "", ""]
  link = f"[{record.date}](results/{headline.study}.md)"
  shown = SHOWN[headline.show](record.figures)
  return [shown, published(headline), budgets(record), link]


def budgets(record: grid_records.Record) -> str:
  """Claimed, proven and audited: none of them stands alone."""
  stated = {"proven": record.proven, "condition": record.condition}
  rows = record.figures.get("rows")
  if rows and "proven" in rows[-1]:
    return "beside the figure"
  return " / ".join(
    [
      grid_page.budget(record.claimed, "none"),
      grid_page.proven(stated),
      grid_page.audited(record.audited),
    ]
  )
