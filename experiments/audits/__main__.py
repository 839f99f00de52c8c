"""Audits of every claim: the papers' methods, their heirs, and DP-SGD.

python -m experiments.audits --scale=test --out_dir=runs/audits_test
python -m experiments.audits --scale=full --out_dir=runs/audits

Each cell repeats a method's own training step in two worlds, thousands of
times, and shows claimed beside proven beside audited for exactly that. test
takes a minute or two a cell, full some minutes. What is done is on disk cell by
cell; a killed run goes on with the same command and --resume.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Mapping
from typing import Any

from experiments.audits import cases as audit_cases
from experiments.grid import engine as grid
from experiments.grid import flags as grid_flags
from experiments.grid import page as grid_page
from tf_privrob.console import command
from tf_privrob.runs.audit import perform as auditing
from tf_privrob.runs.audit import record as audit_record
from tf_privrob.runs.audit import steps as audit_steps

_LEAST = 200  # runs of each world
_SEEDS = 20_000  # apart from those that the rule for thresholds was chosen on


@dataclasses.dataclass(frozen=True)
class Scale:
  """How much is done.

  Attributes:
    runs: judged runs of each world.
    pilots: runs of each world that settle the test.
  """

  runs: int
  pilots: int


SCALES = {"test": Scale(1_500, 750), "full": Scale(40_000, 8_000)}


@dataclasses.dataclass(frozen=True)
class Cell:
  """One case.

  Attributes:
    part: its name in `audit_cases.CASES`.
  """

  part: str

  @property
  def model(self) -> str:
    """The sub-folder."""
    return "audits"

  @property
  def name(self) -> str:
    """As in --cells; its result is <name>.json."""
    return f"{self.model}/{self.part}"

  @property
  def training(self) -> Cell:
    """Nothing must be done before."""
    return self


def cells() -> list[Cell]:
  """All of them."""
  return [Cell(name) for name in audit_cases.CASES]


def measure(case: audit_cases.Case, scale: Scale, folder, seed: int) -> dict:
  """One audit as a result; its runs are on disk as they come."""
  from tf_privrob import privacy
  from tf_privrob import progress

  started = time.monotonic()
  repeated = case.make()
  statement = repeated.statement()
  stated = statement.proven or statement.claimed
  claimed, proven = auditing.figures(statement, repeated, stated.dp_delta)
  target = min(f["dp_epsilon"] for f in (claimed, proven) if f)
  pilots = max(_LEAST, round(case.share * scale.pilots))
  # At least as many as could refute what is stated.
  needed = privacy.runs_for(target, stated.dp_delta)
  runs = max(_LEAST, round(case.share * scale.runs), needed)
  settings = {"kind": "suite", "label": case.label, "runs": runs}
  store = audit_record.Store(folder, settings, seed)
  shown = progress.Progress(2 * (runs + pilots), "audit", store.done)
  found = privacy.audit_two_world(
    None,
    runs,
    pilots=pilots,
    statistics=audit_steps.STATISTICS,
    dp_delta=stated.dp_delta,
    refute=target,
    seed=store.seed,
    collect=store.collecting(repeated.collect, progress=shown),
  )
  store.close()
  return {
    **found.to_json(),
    "label": case.label,
    "canary": case.canary,
    "scope": case.scope,
    "neighbouring": repeated.worlds.neighbouring,
    "gaussian": found.gaussian if case.gaussian else None,
    "claimed": claimed,
    "proven": proven,
    "condition": statement.condition,
    "verdict": audit_record.verdict(found.audited, claimed, proven),
    "seconds": round(time.monotonic() - started, 2),
  }


class Experiment(grid.Experiment):
  """The audits of one scale, in one folder."""

  study = "audits"
  title = "Audits"

  def __init__(self, out_dir: str, scale_name: str, command_line: str = ""):
    self.scale = SCALES[scale_name]
    super().__init__(
      out_dir,
      cells(),
      {
        "scale": scale_name,
        "data": "A few made-up records a case; every run is a training.",
        "settings": dataclasses.asdict(self.scale),
        "command": command_line,
      },
      fixed=("scale", "settings"),
    )

  def measure(self, cell: Cell) -> dict:
    """One audit."""
    import tensorflow as tf

    tf.keras.backend.clear_session()
    case = audit_cases.CASES[cell.part]
    return measure(case, self.scale, self.folder, self.seed(cell))

  def seed(self, cell: Cell) -> int:
    """One for each case."""
    return _SEEDS + list(audit_cases.CASES).index(cell.part)

  def settings_of(self, cell: Cell) -> dict:
    """Runs, and what is run."""
    case = audit_cases.CASES[cell.part]
    words = {"share": case.share, "scope": case.scope, "canary": case.canary}
    return {**super().settings_of(cell), **words}

  def tables(self, results):
    """Claimed, proven and audited."""
    return [table(results)]

  def notes(self) -> list[str]:
    """How to read it."""
    return notes(self.record)


def described(scale_name: str, dataset: str, out_dir: str) -> Experiment:
  """The experiment; it needs no data."""
  del dataset
  return Experiment(out_dir, scale_name)


def table(results: Mapping[str, Mapping[str, Any]]) -> grid_page.Table:
  """Claimed, proven and audited, for the same steps."""
  rows = [
    [
      result["label"],
      result["scope"],
      result["canary"],
      grid_page.budget(result["claimed"], "none"),
      grid_page.proven(result),
      grid_page.audited(result["audited"]),
      "-"
      if result["gaussian"] is None
      else grid_page.audited(result["gaussian"]),
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
  return grid_page.Table("What trainings in two worlds show", head, rows)


def notes(experiment: Mapping[str, Any]) -> list[str]:
  """How to read it."""
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


@dataclasses.dataclass(frozen=True)
class Options(grid_flags.Options):
  """Flags of the study.

  Attributes:
    dataset: Not used; every case makes its own records.
  """

  scale: str = "test"


STUDY = grid_flags.Study(
  {"test": "9 to 132 seconds a cell", "full": "1 to 35 minutes a cell"},
  dict.fromkeys(SCALES, ()),
  lambda scale, dataset: cells(),
)
about = STUDY.about


def main(options: Options, call: command.Call) -> None:
  """Runs as the flags say and prints the table."""
  wanted = STUDY.check(options)
  grid_flags.run(
    lambda: Experiment(options.out_dir, options.scale, call.line),
    wanted,
    options,
  )


if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
