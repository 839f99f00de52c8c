"""Committed records: what was measured, where, when and with which command.

One small file for each finished cell, <records>/<study>/<group>/<cell>.json.
The pages in docs/ are made from these files and from nothing else, and a study
that is resumed on another machine takes its finished cells from them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any
from typing import Optional

from experiments.grid import provenance

ROOT = provenance.ROOT
COMMITTED = ROOT / "results"


@dataclasses.dataclass(frozen=True)
class _Measured:
  """What was measured.

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


@dataclasses.dataclass(frozen=True)
class Record(provenance.Provenance, _Measured):
  """One measured cell: what was measured, and where it is from."""

  @property
  def provenance(self) -> dict[str, Any]:
    """Where the figures are from, as a result has it."""
    fields = dataclasses.fields(provenance.Provenance)
    return {field.name: getattr(self, field.name) for field in fields}

  @property
  def result(self) -> dict[str, Any]:
    """The figures as the result of a cell."""
    return {**self.figures, provenance.KEY: self.provenance}

  @property
  def subject(self) -> tuple:
    """What was measured: settings, data and weights."""
    trained = (self.training or {}).get("weights")
    return self.fingerprint, self.data, self.weights, trained

  @classmethod
  def from_json(cls, payload: Mapping[str, Any]) -> Record:
    """The record of a file; anything else is refused."""
    fields = dataclasses.fields(cls)
    names = [field.name for field in fields]
    added = {field.name for field in fields if field.default is None}
    odd = sorted(set(payload) ^ (set(names) - (added - set(payload))))
    if odd:
      raise ValueError(
        f"Expected a record with the fields {', '.join(names)}, received a file"
        f" that differs in {', '.join(odd)}. Measure the cell again."
      )
    for field in fields:
      if field.name in payload:
        _check(field, payload[field.name])
    return cls(**payload)


_KINDS = {
  "str": (str,),
  "Mapping": (Mapping,),
  "Optional[Mapping": (Mapping, type(None)),
  "Optional[float]": (int, float, type(None)),
  "Optional[str]": (str, type(None)),
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
    """The records of an experiment, in the order of its cells.

    Of each model those that are about the weights which its training left.
    """
    found = {c.name: self.of_cell(experiment, c) for c in experiment.cells}
    return {name: record for name, record in found.items() if record}

  def of_cell(self, experiment, cell) -> Record | None:
    """The record of a cell, None if it is about another model by now."""
    record = self.read(experiment.study, experiment.group, cell.name)
    if record is None or cell.training == cell:
      return record
    trained = self.of_cell(experiment, cell.training)
    same = trained and provenance.belongs(record.result, trained.result)
    return record if same else None

  def matching(self, experiment) -> dict[str, Record]:
    """Those that were measured with the settings and data of today."""
    cells = {cell.name: cell for cell in experiment.cells}
    return {
      name: record
      for name, record in self.of(experiment).items()
      if record.fingerprint == experiment.fingerprint(cells[name])
      and record.data == experiment.record["data"]
    }


def make(experiment, cell, result: Mapping[str, Any]) -> Record:
  """The record of a cell that has been measured.

  Args:
    experiment: The one that measured it.
    cell: Which of its cells.
    result: What was found, as plain JSON values, with its provenance.
  """
  figures = {k: v for k, v in result.items() if k != provenance.KEY}
  figures = experiment.compact(figures)
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
    **result[provenance.KEY],
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
