"""Figures typed by hand from papers, and the queue's guesses: csv files.

Lines that start with # say where the figures are from. Nothing in these files
was measured by this project.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Optional

_KEYS = ("table", "dataset", "model", "study", "value")
_REMARKS = ("estimated", "label", "remark")


def read(path: str | os.PathLike) -> list[dict[str, str]]:
  """The rows of a csv file, by the names of its columns."""
  text = pathlib.Path(path).read_text(encoding="utf-8")
  lines = [line for line in text.splitlines() if not line.startswith("#")]
  return list(csv.DictReader(lines, strict=True))


@dataclasses.dataclass(frozen=True)
class Published:
  """What was published of one model.

  Attributes:
    table: Where it stands, such as the number of a table; "" if in the text.
    dataset: By name.
    model: By name, such as that of a trainer.
    study: What `value` is, such as a radius; "" if the model has no such.
    value: The parameter of the model in that study.
    figures: As they were published, by name; what was not is not there.
    estimated: Whether bounds among them rest on estimates, which can be too
      high.
    label: Of another model than ours; "" if it is the same.
    remark: What is known about the row.
  """

  table: str
  dataset: str
  model: str
  study: str
  value: Optional[float]
  figures: Mapping[str, float]
  estimated: bool = False
  label: str = ""
  remark: str = ""


def published(module_file: str) -> list[Published]:
  """The rows of published.csv beside a module."""
  found = []
  for row in read(pathlib.Path(module_file).with_name("published.csv")):
    names = [name for name in row if name not in (*_KEYS, *_REMARKS)]
    found.append(
      Published(
        row["table"],
        row["dataset"],
        row["model"],
        row["study"],
        float(row["value"]) if row["value"] else None,
        {name: float(row[name]) for name in names if row[name]},
        estimated=row.get("estimated") == "yes",
        label=row.get("label", ""),
        remark=row.get("remark", ""),
      )
    )
  return found


def by_value(
  rows: list[Published], dataset: str, study: str, model: str | None = None
) -> dict[float, Published]:
  """Rows of a study by their parameter."""
  return {
    row.value: row
    for row in rows
    if (row.dataset, row.study) == (dataset, study)
    and model in (None, row.model)
  }
