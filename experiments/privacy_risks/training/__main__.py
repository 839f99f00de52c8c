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

import dataclasses
import sys

from experiments.grid import flags as grid_flags
from experiments.grid import models as grid_models
from experiments.grid import plots as grid_plots
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import page as robust_training_page
from experiments.privacy_risks.training import scales as robust_training_scales
from tf_privrob.console import command
from tf_privrob.runs import train as training


class Experiment(grid_models.ModelExperiment):
  """Trainers and what their models withstand; `dataset` is a `Datasets`."""

  study = "training"
  title = "Robust training"
  choices = ("recipes",)

  def about_data(self, dataset) -> dict[str, str]:
    """Names only: what was found of each is in its trainings."""
    names = ", ".join(dataset.names)
    return {"dataset": names, "data": "What was found of each is below."}

  def all_cells(self, scale: robust_training_cells.Scale):
    """Model by model."""
    return robust_training_cells.cells(scale)

  def config(self, cell: robust_training_cells.Cell):
    """The settings of the method, as for the training set of the preset."""
    recipe = self.scale.recipes[cell.recipe]
    return robust_training_cells.settings(recipe, recipe.preset_size)

  def train(self, cell: robust_training_cells.Cell, folder) -> dict:
    """A model, with the settings of its recipe."""
    from experiments.privacy_risks.training import (
      measure as robust_training_measure,
    )

    recipe = self.scale.recipes[cell.recipe]
    return robust_training_measure.train_cell(
      recipe, self.dataset.of(recipe), folder
    )

  def load(self, cell: robust_training_cells.Cell, folder):
    """The trained model."""
    return training.load_run(folder)

  def examine(self, cell: robust_training_cells.Cell, model, folder) -> dict:
    """Clean accuracy, accuracy under attack, or verified accuracy."""
    from experiments.privacy_risks.training import (
      measure as robust_training_measure,
    )

    recipe = self.scale.recipes[cell.recipe]
    dataset = self.dataset.of(recipe)
    if cell.part == "clean":
      return robust_training_measure.clean_cell(recipe, dataset, model)
    measure = {
      "attack": robust_training_measure.attack_cell,
      "verify": robust_training_measure.verify_cell,
    }[cell.part]
    return measure(recipe, self.scale, dataset, model)

  def tables(self, results):
    """One for each data set, and the trainings."""
    return robust_training_page.tables(results)

  def figures(self, results):
    """Clean, attacked and verified accuracy by trainer."""
    name, caption, make = robust_training_page.FIGURE
    yield name, caption, grid_plots.draw(make, results)

  def notes(self) -> list[str]:
    """How to read it all."""
    return robust_training_page.notes(self.record, self.results())


def described(scale_name: str, dataset: str, out_dir: str) -> Experiment:
  """The experiment without its data; one folder has all data sets."""
  del dataset
  scale = robust_training_scales.SCALES[scale_name]
  named = grid_models.Named(names=scale.datasets)
  return Experiment(out_dir, scale_name, scale, named)


@dataclasses.dataclass(frozen=True)
class Options(grid_flags.Options):
  """Flags of the study.

  Attributes:
    dataset: Name of a data set of the scale, or all of them.
  """

  dataset: str = grid_flags.EVERY


STUDY = grid_flags.each(
  dict.fromkeys(("smoke", "small", "full"), grid_flags.NOT_TIMED),
  robust_training_scales.SCALES,
  robust_training_cells.cells,
)
about = STUDY.about


def main(options: Options, call: command.Call) -> None:
  """Runs as the flags say and prints the table."""
  wanted = STUDY.check(options)

  def make():
    from experiments.privacy_risks.training import (
      measure as robust_training_measure,
    )

    scale = robust_training_scales.SCALES[options.scale]
    datasets = robust_training_measure.Datasets(
      scale.datasets, options.data_dir
    )
    return Experiment(
      options.out_dir, options.scale, scale, datasets, call.line
    )

  grid_flags.run(make, wanted, options)


if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
