"""An experiment as a grid of cells: one piece of work, one result file.

What is done is on disk cell by cell, so a killed experiment goes on where it
was, and two processes may work on different cells of one folder.
"""

from __future__ import annotations

import abc
import dataclasses
import difflib
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import Protocol

_RECORD = "experiment.json"


class Cell(Protocol):
  """A frozen dataclass that names one piece of work.

  Attributes:
    name: as in --cells; its result is <name>.json.
    model: the sub-folder that the cells of one trained model share.
    training: the cell that must be done before: that which trains the model of
      this one, or makes what the training needs; the cell itself, if none.
  """

  name: str
  model: str
  training: Cell


@dataclasses.dataclass(frozen=True)
class BudgetCell:
  """A cell of a model that is known by its recipe and its budget.

  Attributes:
    recipe: by name.
    dp_epsilon: the budget; None without one.
    part: what is done, e.g. "train".
  """

  recipe: str
  dp_epsilon: Optional[float]
  part: str

  @property
  def model(self) -> str:
    """The sub-folder that the cells of one trained model share."""
    if self.dp_epsilon is None:
      return self.recipe
    return f"{self.recipe}-{self.dp_epsilon:g}"

  @property
  def name(self) -> str:
    """As in --cells; its result is <name>.json."""
    return f"{self.model}/{self.part}"


def select(every: Sequence[Cell], text: str) -> list[Cell]:
  """Cells whose names contain the text, and the trainings they need.

  A whole name means that cell only, though others may contain it.
  """
  wanted = {cell for cell in every if text == cell.name}
  wanted = wanted or {cell for cell in every if text in cell.name}
  if not wanted:
    names = [cell.name for cell in every]
    near = difflib.get_close_matches(text, names, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(
      f"Expected --cells to be a part of a cell's name, received {text!r}."
      f"{hint} There are: {', '.join(names)}."
    )
  while not {cell.training for cell in wanted} <= wanted:
    wanted |= {cell.training for cell in wanted}
  return [cell for cell in every if cell in wanted]


class Experiment(abc.ABC):
  """The cells of one experiment, in one folder.

  Args:
    out_dir: where everything goes.
    cells: all of them, in the order they run.
    record: what was run, for the page and for `open`.
    fixed: keys of the record that a resumed run must have in common with the
      one it goes on with.
  """

  def __init__(
    self,
    out_dir: str,
    cells: Sequence[Cell],
    record: Mapping[str, Any],
    fixed: Sequence[str],
  ):
    from tf_privrob import files
    from tf_privrob import run_folder

    self.folder = run_folder.RunFolder(out_dir)
    self.cells = list(cells)
    self.record = files.to_jsonable({**record, "num_cells": len(cells)})
    self._fixed = tuple(fixed)

  @abc.abstractmethod
  def measure(self, cell: Cell) -> dict:
    """The work of one cell; the result has "seconds"."""

  @abc.abstractmethod
  def write(self) -> None:
    """Tables, figures and the page, from what is done."""

  def payload(self) -> dict[str, Any]:
    """What results.json says besides the cells."""
    return {"experiment": self.record}

  def open(self, resume: bool) -> None:
    """Refuses a folder of other settings, or one that is not to be resumed."""
    before = self.folder.read_json(_RECORD)
    if before is not None and not resume:
      raise ValueError(
        f"Expected a fresh out_dir, found {_RECORD} of an earlier run in"
        f" {self.folder.path}. Go on with --resume, or choose another folder."
      )
    for key in self._fixed:
      if before is not None and before.get(key) != self.record[key]:
        raise ValueError(
          f"Expected the same {key} as in {self.folder.file(_RECORD)}, whose"
          " run would be resumed. Choose another out_dir."
        )
    self.folder.write_json(_RECORD, self.record)

  def results(self) -> dict[str, dict]:
    """What is done, by cell name and in the order of the cells."""
    found = {}
    for cell in self.cells:
      result = self.folder.read_json(f"{cell.name}.json")
      if result is not None:
        found[cell.name] = result
    return found

  def run(self, wanted: Sequence[Cell]) -> None:
    """Runs what is not done; each result is written when its cell ends."""
    from tf_privrob import progress

    done = [cell for cell in wanted if self._has(cell)]
    line = progress.Progress(len(wanted), "cells", len(done), interval=0)
    for cell in wanted:
      if self._has(cell):
        continue
      print(f"cell {cell.name}", file=sys.stderr, flush=True)
      result = {**dataclasses.asdict(cell), "model": cell.model}
      result.update(self.measure(cell))
      self.folder.write_json(f"{cell.name}.json", result)
      self.write_results()
      line.update(note=f"{cell.name}, {result['seconds']:.0f} s")

  def write_results(self) -> dict[str, dict]:
    """results.json; returns the results."""
    results = self.results()
    self.folder.write_json("results.json", {**self.payload(), "cells": results})
    return results

  def _has(self, cell: Cell) -> bool:
    return self.folder.has(f"{cell.name}.json")
