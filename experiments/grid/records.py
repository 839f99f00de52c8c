"""Committed records: what was measured, where, when and with which command.

One small file for each finished cell, <records>/<study>/<group>/<cell>.json.
The pages in docs/ are made from these files and from nothing else, and a study
that is resumed on another machine takes its finished cells from them.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib import metadata
from typing import Any
from typing import Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "results"
_SOURCES = ("experiments", "tf_privrob")  # whose changes a commit must have


@dataclasses.dataclass(frozen=True)
class Record:
  """One measured cell.

  Attributes:
    study: Its name in `studies.STUDIES`.
    scale: The scale by name.
    dataset: The data set by name, "" where records are made up.
    cell: The name of the cell.
    fingerprint: Stands for all settings that the figures depend on.
    data: What the data are, in a sentence.
    figures: All that was measured, with intervals, as plain JSON values.
    claimed: The claimed budget of the model, None where there is no one budget.
    proven: The proven budget of the model, None where none is known.
    condition: What the proven budget holds under, "" if always.
    audited: The lower bound of an audit, None where none was run.
    seeds: The seeds of training and measurement, by what they are for.
    command: The command line that measured it.
    commit: The commit of the sources.
    date: The day that it was measured, as in 2026-11-18.
    machine: Processor ("cpu") and number of cores ("cores").
    versions: Of the library, TensorFlow and Python.
  """

  study: str
  scale: str
  dataset: str
  cell: str
  fingerprint: str
  data: str
  figures: Mapping[str, Any]
  claimed: Optional[Mapping[str, float]]
  proven: Optional[Mapping[str, float]]
  condition: str
  audited: Optional[float]
  seeds: Mapping[str, int]
  command: str
  commit: str
  date: str
  machine: Mapping[str, Any]
  versions: Mapping[str, str]

  def to_json(self) -> dict[str, Any]:
    """Plain values, for a file."""
    return dataclasses.asdict(self)

  @classmethod
  def from_json(cls, payload: Mapping[str, Any]) -> Record:
    """The record of a file; anything else is refused."""
    names = [field.name for field in dataclasses.fields(cls)]
    if sorted(payload) != sorted(names):
      odd = sorted(set(payload) ^ set(names))
      raise ValueError(
        f"Expected a record with the fields {', '.join(names)}, received a file"
        f" that differs in {', '.join(odd)}. Measure the cell again."
      )
    for field in dataclasses.fields(cls):
      _check(field, payload[field.name])
    return cls(**payload)


_KINDS = {
  "str": (str,),
  "Mapping": (Mapping,),
  "Optional[Mapping": (Mapping, type(None)),
  "Optional[float]": (int, float, type(None)),
}


def _check(field: dataclasses.Field, value: Any) -> None:
  """Refuses a value of another type than the field has."""
  kinds = next(_KINDS[k] for k in _KINDS if field.type.startswith(k))
  if not isinstance(value, kinds) or isinstance(value, bool):
    raise ValueError(
      f"Expected {field.name} of a record to be {field.type}, received"
      f" {value!r}. Measure the cell again."
    )


class Store:
  """Records in a folder, by study, group and cell.

  Args:
    path: The folder; it need not exist.
  """

  def __init__(self, path: str | os.PathLike = COMMITTED):
    from tf_privrob import run_folder

    self.folder = run_folder.RunFolder(path)

  def read(self, study: str, group: str, cell: str) -> Record | None:
    """The record of a cell, or None if it has none."""
    payload = self.folder.read_json(f"{study}/{group}/{cell}.json")
    return payload and Record.from_json(payload)

  def write(self, record: Record, group: str) -> None:
    """Puts a record in its place, whole or not at all."""
    name = f"{record.study}/{group}/{record.cell}.json"
    text = json.dumps(record.to_json(), indent=1, allow_nan=False)
    # Numbers of a list stand on one line, and a file has a few kilobytes.
    text = re.sub(r"(?<=[\[\d,])\n *(?=[-\d\]])", "", text)
    self.folder.write_text(name, text + "\n")

  def groups(self, study: str) -> list[str]:
    """The groups of a study that have records."""
    folder = self.folder.file(study)
    return sorted({p.relative_to(folder).parts[0] for p in self.files(study)})

  def files(self, study: str) -> list[pathlib.Path]:
    """All records of a study."""
    return sorted(self.folder.file(study).glob("*/**/*.json"))

  def of(self, experiment) -> dict[str, Record]:
    """The records of an experiment, in the order of its cells."""
    found = {
      cell.name: self.read(experiment.study, experiment.group, cell.name)
      for cell in experiment.cells
    }
    return {name: record for name, record in found.items() if record}

  def matching(self, experiment) -> dict[str, Record]:
    """Those that were measured with the settings and data of today."""
    cells = {cell.name: cell for cell in experiment.cells}
    return {
      name: record
      for name, record in self.of(experiment).items()
      if record.fingerprint == experiment.fingerprint(cells[name])
      and record.data == experiment.record["data"]
    }


def make(experiment, cell, figures: Mapping[str, Any], sources: str) -> Record:
  """The record of a cell that has just been measured.

  Args:
    experiment: The one that measured it.
    cell: Which of its cells.
    figures: The result, as plain JSON values.
    sources: The commit that the measurement began with.
  """
  stated = _stated(figures) or _stated(experiment.result(cell.training) or {})
  config = figures.get("config") or {}
  seeds = {"measurement": experiment.seed(cell)}
  if config.get("seed") is not None:
    seeds["training"] = config["seed"]
  return Record(
    study=experiment.study,
    scale=experiment.record["scale"],
    dataset=figures.get("dataset") or experiment.record.get("dataset", ""),
    cell=cell.name,
    fingerprint=experiment.fingerprint(cell),
    data=experiment.record["data"],
    figures=figures,
    claimed=stated.get("claimed"),
    proven=stated.get("proven"),
    condition=stated.get("condition") or "",
    audited=stated.get("audited"),
    seeds=seeds,
    command=experiment.record["command"],
    commit=sources,
    date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    machine={"cpu": _cpu(), "cores": os.cpu_count()},
    versions=_versions(),
  )


def _stated(figures: Mapping[str, Any]) -> Mapping[str, Any]:
  """What a result says of the budget of its model, {} if nothing."""
  budgets = (figures.get("claimed"), figures.get("proven"))
  found = any(budget and "dp_epsilon" in budget for budget in budgets)
  return figures if found else {}


def fingerprint(settings: Any) -> str:
  """A short text that differs where settings differ."""
  from tf_privrob import files

  text = json.dumps(files.to_jsonable(settings), sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def changed_fields(config: Any) -> dict[str, Any]:
  """The settings of a dataclass that differ from its defaults.

  A new setting whose default changes nothing so leaves fingerprints as they
  are.
  """
  return {
    field.name: getattr(config, field.name)
    for field in dataclasses.fields(config)
    if getattr(config, field.name) != field.default
  }


def commit() -> str:
  """The commit of the sources, and whether they were changed since."""
  found = _git("rev-parse", "--short=12", "HEAD")
  if not found:
    return "unknown"
  changed = _git("status", "--porcelain", "--", *_SOURCES)
  return f"{found}, with changes" if changed else found


def _git(*words: str) -> str:
  try:
    done = subprocess.run(
      ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
  except (OSError, subprocess.CalledProcessError):
    return ""
  return done.stdout.strip()


def _cpu() -> str:
  """The model of the processor, as far as the system tells it."""
  try:
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
  except OSError:
    return platform.processor() or platform.machine()
  lines = [line for line in text.splitlines() if line.startswith("model name")]
  return lines[0].split(":")[1].strip() if lines else platform.machine()


def _versions() -> dict[str, str]:
  import tensorflow as tf

  import tf_privrob

  return {
    "tf_privrob": tf_privrob.__version__,
    "tensorflow": tf.__version__,
    "python": platform.python_version(),
    "numpy": metadata.version("numpy"),
  }
