"""An experiment as a grid of cells: one piece of work, one result file.

What is done is on disk cell by cell, so a killed experiment goes on where it
was, and two processes may work on different cells of one folder.
"""

from __future__ import annotations

import abc
import dataclasses
import difflib
import json
import pathlib
import sys
import time
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.grid import provenance
from experiments.grid import records as grid_records

_RECORD = "experiment.json"
_COMMITS = "commits.jsonl"  # that worked on the cells of a model
Results = Mapping[str, Mapping[str, Any]]  # by cell name


class Cell:
  """One piece of work; a subclass is a frozen dataclass that names it.

  It has a `part`, what is done, and a `model`: the sub-folder that the cells of
  one trained model share.
  """

  part: str
  model: str

  @property
  def name(self) -> str:
    """As in --cells; its result is <name>.json."""
    return f"{self.model}/{self.part}"

  @property
  def training(self) -> Cell:
    """The cell that must be done before; the cell itself, if none.

    It trains the model of this one, or makes what the training needs.
    """
    return dataclasses.replace(self, part="train")

  @property
  def kind(self) -> str:
    """Cells of one kind, scale and data set take about as long."""
    return self.name


@dataclasses.dataclass(frozen=True)
class BudgetCell(Cell):
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
  def kind(self) -> str:
    """One budget takes as long as another."""
    return f"{self.recipe}/{self.part}"


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

  A subclass says what is measured and what the page shows.

  Args:
    out_dir: where everything goes.
    cells: all of them, in the order they run.
    record: what was run, for the page and for `open`.
    fixed: keys of the record that a resumed run must have in common with the
      one it goes on with.

  Attributes:
    study: Its name in `studies.STUDIES`.
    title: Stands above the page.
    page: The module with `tables`, `notes` and maybe `figures`, each a function
      of what was run and of the results by cell name, and maybe PUBLISHED.
    axes: Settings that only say which cells there are.
    choices: Settings from which each cell takes the entries that it names.
  """

  study = ""
  title = ""
  page: Any = None
  axes: Sequence[str] = ()
  choices: Sequence[str] = ()

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
    self._adopted: dict[str, Mapping[str, Any]] = {}
    self._store: Optional[grid_records.Store] = None

  @abc.abstractmethod
  def measure(self, cell: Cell) -> dict:
    """The work of one cell."""

  # What a result depends on.

  @property
  def group(self) -> str:
    """The folder that the records of one scale and data set share."""
    name = self.record.get("dataset", "")
    scale = self.record["scale"]
    return f"{scale}-{name}" if name and "," not in name else scale

  def seed(self, cell: Cell) -> int:
    """The seed of what is random in a measurement."""
    del cell
    return 0

  def config(self, cell: Cell) -> Any:
    """The settings of the method that a cell trains or measures, or None."""
    del cell

  def settings_of(self, cell: Cell) -> dict[str, Any]:
    """The settings that the result of a cell depends on."""
    named = {str(value) for value in dataclasses.asdict(cell).values()}
    found = {}
    for key, value in self.record["settings"].items():
      if key in self.choices:
        value = {name: value[name] for name in value if name in named}
      if key not in self.axes:
        found[key] = value
    config = self.config(cell)
    if config is not None:
      found["config"] = grid_records.changed_fields(config)
    return found

  def fingerprint(self, cell: Cell) -> str:
    """Stands for study, data set, cell and all settings of its result."""
    dataset = self.record.get("dataset", "")
    return grid_records.fingerprint(
      [self.study, dataset, cell.name, self.settings_of(cell)]
    )

  def missing(self, cell: Cell) -> str:
    """Why a cell cannot be run yet, "" if it can."""
    del cell
    return ""

  def flags(self) -> list[str]:
    """Flags of the command besides those that all studies have."""
    return []

  def weights(self, cell: Cell) -> Optional[str]:
    """The hash of the model of a cell as it is on disk, None if none is."""
    del cell

  def compact(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a record keeps of a result: all that the page needs."""
    return result

  # Running.

  def payload(self) -> dict[str, Any]:
    """What results.json says besides the cells."""
    rows = getattr(self.page, "PUBLISHED", ())
    published = [dataclasses.asdict(row) for row in rows]
    return {"experiment": self.record, "published": published}

  def open(self, resume: bool) -> None:
    """Refuses a folder of other settings, or one that is not to be resumed."""
    before = self.folder.read_json(_RECORD)
    if before is not None and not resume:
      raise ValueError(
        f"Expected a fresh out_dir, found {_RECORD} of an earlier run in"
        f" {self.folder.path}. Go on with --resume, or choose another folder."
      )
    now = {cell.name: self.fingerprint(cell) for cell in self.cells}
    if before is not None:
      self._compare(before, now)
    record = {**self.record, "fingerprints": now}
    self.folder.write_json(_RECORD, record)

  def _compare(self, before: Mapping[str, Any], now: Mapping[str, str]) -> None:
    """Refuses what was begun with other data, or other settings of a cell."""
    old = before.get("fingerprints", {})
    changed = [
      key for key in self._fixed if before.get(key) != self.record[key]
    ]
    begun = [cell.name for cell in self.cells if self.folder.has(cell.model)]
    if old and "settings" in changed:
      changed.remove("settings")
      changed += [
        f"settings of {n}" for n in begun if old.get(n, now[n]) != now[n]
      ]
    if changed:
      raise ValueError(
        f"Expected the same {changed[0]} as in {self.folder.file(_RECORD)},"
        " whose run would be resumed. Choose another out_dir."
      )

  def adopt(self, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Takes results by cell name that were measured elsewhere."""
    self._adopted = dict(found)

  def keep(self, store: grid_records.Store) -> None:
    """Writes a record of every cell that is done from now on."""
    self._store = store

  def result(self, cell: Cell) -> Optional[Mapping[str, Any]]:
    """What is known of a cell and its model, from here or from elsewhere."""
    here, elsewhere = self._read(cell), self._adopted.get(cell.name)
    fitting = (r for r in (here, elsewhere) if r and self._fits(cell, r))
    return next(fitting, None)

  def _read(self, cell: Cell) -> Optional[dict[str, Any]]:
    """The result in this folder, unless it is about a model that is gone.

    One without a provenance, of earlier versions, can have no record.
    """
    found = self.folder.read_json(f"{cell.name}.json")
    if found is None or (self._store and provenance.KEY not in found):
      return None
    weights = self.weights(cell)
    known = found.setdefault(provenance.KEY, {"weights": weights})["weights"]
    lost = cell.part == "train" and known is None
    return None if lost or weights not in (None, known) else found

  def _fits(self, cell: Cell, found: Mapping[str, Any]) -> bool:
    """Whether a result is about the model that the known training left."""
    if cell.training == cell:
      return True
    trained = self.result(cell.training)
    return trained is not None and provenance.belongs(found, trained)

  def _is_here(self, cell: Cell) -> bool:
    """Whether the known result of a cell is in this folder, with its model."""
    found = self._read(cell)
    return found is not None and self._fits(cell, found)

  def results(self) -> Results:
    """What is done, by cell name and in the order of the cells."""
    found = {cell.name: self.result(cell) for cell in self.cells}
    return {name: result for name, result in found.items() if result}

  def left(self, wanted: Sequence[Cell]) -> list[Cell]:
    """Cells without a result, and trainings elsewhere whose model they need.

    A result about another model than that of the training is none.
    """
    left = {cell for cell in wanted if not self.result(cell)}
    while True:
      needed = {cell.training for cell in left} - left
      needed = {cell for cell in needed if not self._is_here(cell)}
      if not needed:
        return [cell for cell in self.cells if cell in left]
      left |= needed

  def run(self, wanted: Sequence[Cell]) -> None:
    """Runs what is not done; each result is written when its cell ends.

    A training that is done again leaves its measurements to be done again.
    """
    from tf_privrob import progress

    commit = provenance.commit()
    self._record(wanted)
    left = self.left(wanted)
    count = len({*left, *wanted})
    line = progress.Progress(count, "cells", count - len(left), interval=0)
    while left:
      cell = left[0]
      print(f"cell {cell.name}", file=sys.stderr, flush=True)
      result = self._run_one(cell, commit)
      line.update(note=f"{cell.name}, {result['seconds']:.0f} s")
      left = self.left(wanted)
      if cell in left:
        raise ValueError(
          f"Expected {cell.name} to be done, found its model changed meanwhile"
          f" in {self.folder.file(cell.model)}. Run it again, by one process."
        )

  def _record(self, wanted: Sequence[Cell]) -> None:
    """Writes the records of what was done here before without them."""
    for cell in wanted if self._store else ():
      if self._is_here(cell):
        made = grid_records.make(self, cell, self._read(cell))
        known = self._store.read(self.study, self.group, cell.name)
        if known is None or known.subject != made.subject:
          self._store.write(made, self.group)

  def _run_one(self, cell: Cell, commit: str) -> Mapping[str, Any]:
    """Does the work of a cell and writes its result, with its record."""
    from tf_privrob import files

    commit = self._begin(cell, commit)
    started = time.monotonic()
    result = {**dataclasses.asdict(cell), "model": cell.model}
    result = files.to_jsonable({**result, **self.measure(cell)})
    result.setdefault("seconds", round(time.monotonic() - started, 2))
    result[provenance.KEY] = self._provenance(cell, commit, result).to_json()
    if self._store:  # first: what is done has its record, whatever happens
      self._store.write(grid_records.make(self, cell, result), self.group)
    self.folder.write_json(f"{cell.name}.json", result)
    self.write_results()
    return result

  def _begin(self, cell: Cell, commit: str) -> str:
    """Notes the commit that works on a cell; returns all that have done so.

    Measurements of one model share what they have computed so far. A training
    whose result is there and does not count starts in a new folder.
    """
    from tf_privrob import files

    folder = self.folder.file(cell.model)
    if cell.part == "train" and self.folder.has(f"{cell.name}.json"):
      _set_aside(folder)
    alone = cell.part == "train" or cell.training == cell
    work = cell.part if alone else "measured"
    path, found = folder / _COMMITS, [{"work": work, "commit": commit}]
    if folder.exists() and not path.exists():  # of an earlier version
      found.insert(0, {"work": "any", "commit": provenance.UNKNOWN})
    known = files.read_lines(path)
    for row in found:
      if row not in known:
        files.append(path, json.dumps(row) + "\n")
    rows = [r for r in (*known, *found) if r.get("work") in (work, "any")]
    return "; ".join(dict.fromkeys(row["commit"] for row in rows))

  def _provenance(self, cell: Cell, commit: str, result: dict):
    """That of a result; what `measure` knows of the model is taken from it."""
    adopted = {provenance.KEY: result.pop(provenance.KEY, None)}
    weights = result.pop("weights", None) or self.weights(cell)
    if cell.part == "train" and not weights:
      raise ValueError(
        f"Expected the training of {cell.model} to name its weights, found none"
        f" in {self.folder.file(cell.model)}. Train in a new out_dir."
      )
    training = None
    if adopted[provenance.KEY]:  # the model was trained in another study
      training = provenance.identity(adopted)
    elif cell.training != cell:
      training = provenance.identity(self.result(cell.training))
    if cell.training != cell and cell.part != "train":
      weights = weights or training["weights"]
    return provenance.of_today(
      self.record["command"], commit, weights, training
    )

  def write_results(self) -> Results:
    """results.json; returns the results."""
    results = self.results()
    self.folder.write_json("results.json", {**self.payload(), "cells": results})
    return results

  # The page.

  def tables(self, results: Results) -> list[grid_page.Table]:
    """Those of the page; the ones without rows are left out."""
    return self.page.tables(self.record, results)

  def figures(self, results: Results) -> Iterable[grid_plots.Figure]:
    """Those that can be drawn from the results."""
    make = getattr(self.page, "figures", None)
    return make(self.record, results) if make else ()

  def notes(self) -> list[str]:
    """How to read it all."""
    return self.page.notes(self.record, self.results())

  def heading(self) -> str:
    """The title with the data set, where there is one, and the scale."""
    name = self.record.get("dataset")
    title = f"{self.title}: {name}" if name else self.title
    return f"{title}, scale {self.record['scale']}"

  def write(self) -> None:
    """results.json, table.md and its figures."""
    results = self.write_results()
    count = f"{len(results)} of {len(self.cells)} cells."
    lines, _ = grid_page.sheet(self, results, count, self.folder, "", "#")
    if self.record["command"]:
      lines.append(f"Made by `{self.record['command']}`.")
    self.folder.write_text("table.md", "\n".join(lines) + "\n")


def _set_aside(folder: pathlib.Path) -> None:
  """Gives the folder of a model that does not count another name."""
  number = 1
  while folder.with_name(f"{folder.name}.before-{number}").exists():
    number += 1
  folder.rename(folder.with_name(f"{folder.name}.before-{number}"))
