"""An experiment about trained models: a training, then measurements of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from experiments.grid import engine as grid
from tf_privrob.runs import train as training

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

  What is done in a cell is said by the module `work`: a cell whose part begins
  with the word "certify" is the work of its function `certify_cell`.

  Args:
    out_dir: where everything goes.
    scale_name: for the page.
    scale: its sizes, a dataclass; None: those of SCALES.
    dataset: training and test data, or whatever `about_data` describes.
    command_line: for the page.

  Attributes:
    plan: The module with the `cells` of a scale.
    work: The module with the work of the cells.
    SCALES: All scales by name.
    DATASETS: Names of data sets, where all scales have the same.
  """

  plan: Any = None
  work: Any = None
  SCALES: Mapping[str, Any]
  DATASETS: Sequence[str] = ()

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

  # What there is, without any data.

  @classmethod
  def scale_of(cls, scale_name: str, dataset: str) -> Any:
    """The sizes of a scale for a data set."""
    del dataset
    return cls.SCALES[scale_name]

  @classmethod
  def datasets_of(cls, scale_name: str) -> Sequence[str]:
    """Names that --dataset may have at a scale; none where it is not used."""
    del scale_name
    return cls.DATASETS

  @classmethod
  def cells_of(cls, scale_name: str, dataset: str) -> Sequence[grid.Cell]:
    """The cells of a scale and of one of its data sets."""
    return cls.all_cells(cls.scale_of(scale_name, dataset))

  @classmethod
  def all_cells(cls, scale: Any) -> Sequence[grid.Cell]:
    """In the order they run: model by model, training first."""
    return cls.plan.cells(scale)

  @classmethod
  def stand_in(cls, scale_name: str, dataset: str) -> Any:
    """What is known of the data before they are loaded."""
    del scale_name
    return Named(dataset)

  @classmethod
  def load_data(cls, options, scale: Any) -> Any:
    """The data that the flags name."""
    from tf_privrob import data

    del scale
    return data.load(options.dataset, options.data_dir)

  @classmethod
  def described(cls, scale_name: str, dataset: str, out_dir: str):
    """The experiment without its data."""
    scale = cls.scale_of(scale_name, dataset)
    return cls(out_dir, scale_name, scale, cls.stand_in(scale_name, dataset))

  @classmethod
  def made(cls, options, command_line: str):
    """The experiment that the flags ask for, with its data."""
    scale = cls.scale_of(options.scale, options.dataset)
    data = cls.load_data(options, scale)
    return cls(options.out_dir, options.scale, scale, data, command_line)

  @classmethod
  def possible(
    cls, options, wanted: Sequence[grid.Cell]
  ) -> Sequence[grid.Cell]:
    """Of the wanted cells those that can be run; refuses what is missing."""
    del options
    return wanted

  def about_data(self, dataset) -> dict[str, str]:
    """The record's "dataset", a name, and "data", a sentence."""
    sentence = f"{dataset.num_train:,} training images. {dataset.split}"
    return {"dataset": dataset.name, "data": sentence}

  # The work of a cell.

  def train(self, cell: grid.Cell, folder) -> dict:
    """Trains, or goes on with a training that was killed."""
    return self.work.train_cell(cell, self.scale, self.dataset, folder)

  def home(self, cell: grid.Cell):
    """The folder that the model of a cell was trained in."""
    from tf_privrob import run_folder

    return run_folder.RunFolder(self.folder.file(cell.model))

  def weights(self, cell: grid.Cell) -> Optional[str]:
    """The hash of the model in run.json, which loading it compares."""
    described = self.home(cell).read_json(f"{training.RUN}/run.json")
    return described and described.get("weights")

  def load(self, cell: grid.Cell, folder):
    """The model that the training left."""
    del folder
    return training.load_run(self.home(cell))

  def examine(self, cell: grid.Cell, model, folder) -> dict:
    """The result of a cell that is no training."""
    work = getattr(self.work, f"{cell.part.split('-')[0]}_cell")
    return work(cell, self.scale, self.dataset, model, folder)

  def measure(self, cell: grid.Cell) -> dict:
    """The work of one cell; the cells of one model load it once."""
    import tensorflow as tf

    from tf_privrob import run_folder

    folder = run_folder.RunFolder(self.folder.file(cell.model))
    if self._model[0] != cell.model or cell.part == "train":
      self._model = (None, None)
      tf.keras.backend.clear_session()  # days of cells would fill the memory
    if cell.part == "train":
      return self.train(cell, folder)
    if self._model[0] is None:
      self._model = (cell.model, self.load(cell, folder))
    return self.examine(cell, self._model[1], folder)


class SeveralDatasets(ModelExperiment):
  """A study whose scales have several data sets each, all in one folder.

  `dataset` has their `names`, and --dataset is one of them or EVERY.
  """

  EVERY = "all"

  @classmethod
  def datasets_of(cls, scale_name: str) -> Sequence[str]:
    """Those of the scale, or all of them."""
    return (cls.EVERY, *cls.SCALES[scale_name].datasets)

  @classmethod
  def cells_of(cls, scale_name: str, dataset: str) -> Sequence[grid.Cell]:
    """The cells of one data set, or of all."""
    chosen = None if dataset == cls.EVERY else dataset
    return cls.plan.cells(cls.SCALES[scale_name], chosen)

  @classmethod
  def stand_in(cls, scale_name: str, dataset: str) -> Any:
    """Names; one folder has all data sets."""
    del dataset
    return Named(names=cls.SCALES[scale_name].datasets)

  def about_data(self, dataset) -> dict[str, str]:
    """Names only: what was found of each is in its trainings."""
    names = ", ".join(dataset.names)
    return {"dataset": names, "data": "What was found of each is below."}
