"""The generated parts of docs: headlines, the six models, the audits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import Callable

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
    show: Gives the words from the figures of the cell.
    published: The figure to compare with, "" if there is none.
  """

  title: str
  study: str
  scale: str
  dataset: str
  cell: str
  show: Callable[[Mapping[str, Any]], str]
  published: str = ""


def _radius(figures: Mapping[str, Any]) -> str:
  error = f"+- {figures['standard_error']:.3f}"
  return f"{figures['mean_radius']:.3f} {error}"


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


def _accuracy(name: str) -> Callable[[Mapping[str, Any]], str]:
  def show(figures: Mapping[str, Any]) -> str:
    found = figures[name]
    low, high = found["interval"]
    interval = f"({100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * found['accuracy']:.2f} {interval} %"

  return show


def _attacked(figures: Mapping[str, Any]) -> str:
  points = [row["accuracy"] for row in figures["attacks"]]
  size, worst = figures["attack_eps"], 100 * min(points)
  return f"{worst:.2f} % at l_inf {size:g}, the strongest of {len(points)}"


def _best(dataset: str) -> dict[float, float]:
  """The published average certified radius by noise."""
  rows = sheets.by_value(smoothing_page.PUBLISHED, dataset, "noise")
  return {stddev: row.figures["mean_radius"] for stddev, row in rows.items()}


def _attacked_test(trainer: str) -> str:
  row = training_page.published_row("uci_har", trainer)
  return f"{row.figures['adv-test']:.2f}" if row else ""


_ACR = "average certified l_2 radius"
_SMOOTHING = ("smoothing", "full", "mnist")
HEADLINES = (
  *(
    Headline(
      f"flagship on MNIST, noise {noise:g}, {draws:,} draws: {_ACR}",
      *_SMOOTHING,
      f"dp_smooth-3-{noise:g}/certify-{noise:g}-{draws}",
      _radius,
      f"{best:.3f}",
    )
    for noise, best in _best("mnist").items()
    for draws in (10_000, 100_000)
  ),
  *(
    Headline(
      f"fixed features on Fashion-MNIST, noise {noise:g}, 10,000 draws: {_ACR}",
      "smoothing",
      "full",
      "fashion_mnist",
      f"scattering-3-{noise:g}/certify-{noise:g}-10000",
      _radius,
      f"{best:.3f}",
    )
    for noise, best in _best("fashion_mnist").items()
  ),
  Headline(
    "attacks inside the flagship's certified radii",
    *_SMOOTHING,
    "dp_smooth-3-0.5/attack-0.5",
    _fallen,
  ),
  *(
    Headline(title, "audits", "full", "", f"audits/{name}", _verdict)
    for title, name in (
      ("audit of DPAL as published, one step", "dpal-paper"),
      ("audit of AdLM as published, one step", "adlm-paper"),
      ("audit of SecureSGD's released code, one step", "secure_sgd-released"),
      ("audit of TransDenoiser, one step", "transdenoiser-paper"),
      ("audit of ten halfspaces with the noise of one", "halfspaces-paper"),
      ("audit of DP-SGD, two full-batch steps", "dp_sgd-3"),
      ("audit of SoundDPAL, two full-batch steps", "dpal-sound"),
    )
  ),
  *(
    Headline(
      f"{title} on MNIST, under attack",
      "dpal",
      "small",
      "mnist",
      f"{name}-2/linf-0.2",
      _attacked,
    )
    for title, name in (
      ("DPAL", "dpal"),
      ("SoundDPAL", "sound_dpal"),
      ("DP-SGD", "dp_sgd"),
    )
  ),
  Headline(
    f"sound TransDenoiser on MNIST: {_ACR}",
    "transdenoiser",
    "small",
    "mnist",
    "sound-1/certify",
    lambda figures: f"{figures['mean_radius']:.3f}",
  ),
  *(
    Headline(
      f"ten halfspaces on USPS, noise for {noise}",
      "halfspaces",
      "full",
      "usps",
      f"perceptron/{name}-100",
      _best_margin,
    )
    for noise, name in (("ten (proven)", "joint"), ("one (paper)", "literal"))
  ),
  *(
    Headline(
      f"{title} on UCI HAR, attacked test accuracy",
      "training",
      "full",
      "uci_har",
      f"uci_har-{name}/attack",
      _accuracy("test"),
      _attacked_test(name),
    )
    for title, name in (
      ("natural training", "natural"),
      ("PGD training", "pgd"),
      ("PGD training with a budget", "private_pgd-3"),
    )
  ),
)


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
    record = store.read(headline.study, experiment.group, headline.cell)
    rows.append([headline.title, *_words(headline, experiment, record)])
  head = ["what", "measured", "published", "claimed / proven / audited"]
  tables = [grid_page.Table("Headlines", [*head, "date"], rows)]
  tables.append(six_models(store))
  found = [line for table in tables for line in grid_page.lines(table, "##")]
  return "\n".join(found).strip()


def _words(headline: Headline, experiment, record) -> list[str]:
  published = headline.published or "-"
  if record is None:
    words = studies.command(
      experiment, headline.scale, headline.dataset, headline.cell
    )
    command = f"`python {' '.join(words)} --records=results`"
    return [f"not yet recorded: {command}", published, "", ""]
  link = f"[{record.date}](results/{headline.study}.md)"
  return [headline.show(record.figures), published, budgets(record), link]


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
