"""Robust trainers side by side: clean, attacked and verified accuracy.

python -m experiments.privacy_risks.training --scale=smoke \
  --out_dir=runs/robust_smoke
python -m experiments.privacy_risks.training --scale=small --dataset=uci_har \
  --out_dir=runs/robust

The models of Tables 2, 3, 4, 8, 9 and 12 of "Privacy Risks of Securing Machine
Learning Models against Adversarial Examples" (CCS 2019) with the settings of
its code, beside the published figures; IBP on MNIST; and PGD training within a
privacy budget. Every model is kept: `training.load_run` loads it from the
folder <data set>-<trainer>. What is done is on disk cell by cell; a killed run
goes on with the same command and --resume, and other data sets go into the same
folder by --resume, too.
"""

from __future__ import annotations

import sys

from experiments.grid import flags as grid_flags
from experiments.grid import models as grid_models
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import measure as training_measure
from experiments.privacy_risks.training import page as robust_training_page
from experiments.privacy_risks.training import scales as robust_training_scales


class Experiment(grid_models.SeveralDatasets):
  """Trainers and what their models withstand; `dataset` is a `Datasets`."""

  study = "training"
  title = "Robust training"
  choices = ("recipes",)
  page = robust_training_page
  plan = robust_training_cells
  work = training_measure
  SCALES = robust_training_scales.SCALES

  @classmethod
  def load_data(cls, options, scale: robust_training_cells.Scale):
    """Data sets that are loaded when they are needed."""
    return training_measure.Datasets(scale.datasets, options.data_dir)

  def config(self, cell: robust_training_cells.Cell):
    """The settings of the method, as for the training set of the preset."""
    recipe = self.scale.recipes[cell.recipe]
    return robust_training_cells.settings(recipe, recipe.preset_size)

  def train(self, cell: robust_training_cells.Cell, folder) -> dict:
    """A model, with the settings of its recipe."""
    recipe = self.scale.recipes[cell.recipe]
    dataset = self.dataset.of(recipe)
    return training_measure.train_cell(recipe, dataset, folder)

  def examine(self, cell: robust_training_cells.Cell, model, folder) -> dict:
    """Clean accuracy, accuracy under attack, or verified accuracy."""
    recipe = self.scale.recipes[cell.recipe]
    work = getattr(training_measure, f"{cell.part}_cell")
    return work(recipe, self.scale, self.dataset.of(recipe), model)


STUDY = grid_flags.Study(Experiment)
Options = grid_flags.OptionsOfSeveral
about, main = STUDY.about, STUDY.main

if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
