"""An experiment about trained models: a training, then measurements of it."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from experiments.grid import engine as grid
from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots


class ModelExperiment(grid.Experiment):
  """The cells of one scale and data set, in one folder.

  A subclass trains, loads and examines models, and says what the page shows.

  Args:
    out_dir: where everything goes.
    scale_name: for the page.
    scale: its sizes, a dataclass.
    dataset: training and test data, or whatever `about_data` describes.
    command_line: for the page.
  """

  def __init__(
    self,
    out_dir: str,
    scale_name: str,
    scale: Any,
    dataset,
    command_line: str = "",
  ):
    self.dataset = dataset
    self.scale = scale
    super().__init__(
      out_dir,
      self.all_cells(scale),
      {
        "scale": scale_name,
        **self.about_data(dataset),
        "settings": dataclasses.asdict(scale),
        "command": command_line,
      },
      fixed=("scale", "dataset", "data", "settings"),
    )
    self._model = (None, None)  # the last model that was loaded

  def about_data(self, dataset) -> dict[str, str]:
    """The record's "dataset", a name, and "data", a sentence."""
    sentence = f"{dataset.num_train:,} training images. {dataset.split}"
    return {"dataset": dataset.name, "data": sentence}

  @abc.abstractmethod
  def all_cells(self, scale: Any) -> Sequence[grid.Cell]:
    """In the order they run."""

  @abc.abstractmethod
  def train(self, cell: grid.Cell, folder) -> dict:
    """The result of a "train" cell."""

  @abc.abstractmethod
  def load(self, cell: grid.Cell, folder):
    """The model that the training left."""

  @abc.abstractmethod
  def examine(self, cell: grid.Cell, model, folder) -> dict:
    """The result of any other cell."""

  def measure(self, cell: grid.Cell) -> dict:
    """The work of one cell; the cells of one model load it once."""
    import tensorflow as tf

    from tf_privrob import run_folder

    folder = run_folder.RunFolder(self.folder.file(cell.model))
    if self._model[0] != cell.model:
      self._model = (None, None)
      tf.keras.backend.clear_session()  # days of cells would fill the memory
    if cell.part == "train":
      return self.train(cell, folder)
    if self._model[0] is None:
      self._model = (cell.model, self.load(cell, folder))
    return self.examine(cell, self._model[1], folder)

  # The page.

  title = ""

  def tables(self, results: Mapping[str, dict]) -> list[grid_page.Table]:
    """Those of the page; the ones without rows are left out."""
    raise NotImplementedError

  def figures(
    self, results: Mapping[str, dict]
  ) -> Iterable[tuple[str, str, Any]]:
    """File name, caption and figure of each; a figure may be None."""
    raise NotImplementedError

  def notes(self) -> list[str]:
    """How to read it all."""
    raise NotImplementedError

  def write(self) -> None:
    """results.json, table.md, the figures and index.html."""
    results = self.write_results()
    title = f"{self.title}: {self.record['dataset']}"
    tables = [table for table in self.tables(results) if table.rows]
    heading = f"{title}, scale {self.record['scale']}"
    self.folder.write_text(
      "table.md", grid_page.markdown(heading, tables, self.notes())
    )
    pictures = []
    for name, caption, figure in self.figures(results):
      if figure is not None:
        path = self.folder.file(f"{name}.svg")
        grid_plots.save(figure, path)
        svg = path.read_text(encoding="utf-8")
        pictures.append(grid_page.Picture(name, caption, svg))
    page = grid_page.html(
      self.record, title, len(results), pictures, tables, self.notes()
    )
    self.folder.write_text("index.html", page)
