"""Regenerates the figures of the DPAL paper (2-9), claimed beside proven.

python -m experiments.dpal --scale=smoke --out_dir=runs/dpal_smoke
python -m experiments.dpal --scale=small --dataset=mnist --out_dir=runs/dpal

What is done is on disk cell by cell; a killed run goes on with the same command
and --resume. --cells=dpal-2/ runs the cells whose names contain that.
"""

from __future__ import annotations

import sys

from experiments.dpal import cells as dpal_cells
from experiments.dpal import measure as dpal_measure
from experiments.dpal import models as dpal_models
from experiments.dpal import page as dpal_page
from experiments.grid import flags as grid_flags
from experiments.grid import models as grid_models


class Experiment(grid_models.ModelExperiment):
  """The cells of one scale and data set, whose inputs are in [-1, 1]."""

  study = "dpal"
  title = "DPAL"
  axes = ("totals", "radii_total")
  choices = ("train",)
  page = dpal_page
  plan = dpal_cells
  work = dpal_measure
  SCALES = dict.fromkeys(dpal_cells.SCALE_NAMES)
  DATASETS = tuple(dpal_cells.FAMILIES)

  @classmethod
  def scale_of(cls, scale_name: str, dataset: str) -> dpal_cells.Scale:
    """That of the family of the data set."""
    return dpal_cells.SCALES[scale_name, dpal_cells.FAMILIES[dataset]]

  @classmethod
  def load_data(cls, options, scale):
    """The data in [-1, 1]; CIFAR-10 is cut."""
    return dpal_models.load_dataset(options.dataset, options.data_dir)

  def train(self, cell: dpal_cells.Cell, folder) -> dict:
    """Trains, or goes on with a training that was killed."""
    return dpal_models.train_cell(cell, self.scale, self.dataset, folder)

  def load(self, cell: dpal_cells.Cell, folder):
    """The trained model of a cell, as it is deployed."""
    return dpal_models.load_model(cell, self.dataset, folder)

  def config(self, cell: dpal_cells.Cell):
    """The settings of the method, as for a large training set."""
    family = dpal_cells.FAMILIES[self.dataset.name]
    return dpal_cells.settings(cell, self.scale, family, grid_models.LARGE)


STUDY = grid_flags.Study(Experiment)
Options, about, main = grid_flags.Options, STUDY.about, STUDY.main

if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
