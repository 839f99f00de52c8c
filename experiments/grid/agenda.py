"""What the queue runs, in the order of its value: the rows of agenda.csv."""

from __future__ import annotations

import dataclasses
import pathlib

from experiments.grid import sheets


@dataclasses.dataclass(frozen=True)
class Row:
  """Some cells of a study.

  Attributes:
    study: The name in `studies.STUDIES`.
    scale: The scale by name.
    dataset: The data set by name, "" where records are made up.
    cells: A whole name, or a part of the names of several cells.
    minutes: What one cell is guessed to take on two cores.
    why: What is known once the cells are done; "" for a guess only.
  """

  study: str
  scale: str
  dataset: str
  cells: str
  minutes: float
  why: str


GUESSES = tuple(
  Row(**{**row, "minutes": float(row["minutes"])})
  for row in sheets.read(pathlib.Path(__file__).with_name("agenda.csv"))
)
AGENDA = tuple(row for row in GUESSES if row.why)
