"""An experiment about trained models: a training, then measurements of it."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

from experiments.grid import engine as grid

# Fingerprints take settings as for a training set of this size.
LARGE = 1_000_000


@dataclasses.dataclass(frozen=True)
class Named:
  """Stands in for data that are not loaded: cells and pages need none.

  Attributes:
    name: The data set by name.
    names: The data sets of a scale, where it has several.
    num_train: Not known.
    split: Not known.
  """

  name: str = ""
  names: Sequence[str] = ()
  num_train: int = 0
  split: str = "Not loaded."


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
