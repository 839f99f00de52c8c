"""Certified accuracy of private models: the flagship beside its rivals.

python -m experiments.smoothing --scale=smoke --out_dir=runs/smoothing_smoke
python -m experiments.smoothing --scale=full --dataset=mnist \
  --out_dir=runs/smoothing --cells=dp_smooth-3

smoke takes minutes on mnist_5k, small about an hour on MNIST, full many hours;
ablation compares settings of the flagship on held-out training images. What is
done is on disk cell by cell; a killed run goes on with the same command and
--resume.
"""

from __future__ import annotations

import sys

from experiments.grid import flags as grid_flags
from experiments.grid import models as grid_models
from experiments.grid import plots as grid_plots
from experiments.smoothing import cells as smoothing_cells
from experiments.smoothing import page as smoothing_page
from experiments.smoothing import scales as smoothing_scales
from tf_privrob.console import command
from tf_privrob.runs import train as training


class Experiment(grid_models.ModelExperiment):
  """Trainings, certificates and attacks inside the radii."""

  study = "smoothing"
  title = "Private and certified"
  axes = ("dp_epsilons", "stddevs", "attacked")
  choices = ("recipes",)

  def all_cells(self, scale: smoothing_cells.Scale):
    """Model by model, training first."""
    return smoothing_cells.cells(scale)

  def config(self, cell: smoothing_cells.Cell):
    """The settings of the method, as for a large training set."""
    return smoothing_cells.settings(cell, self.scale, grid_models.LARGE)

  def payload(self) -> dict:
    """Adds what is published."""
    published = smoothing_cells.PUBLISHED.get(self.dataset.name)
    return {**super().payload(), "published": published}

  def train(self, cell: smoothing_cells.Cell, folder) -> dict:
    """Trains, or goes on with a training that was killed."""
    from experiments.smoothing import measure as smoothing_measure

    return smoothing_measure.train_cell(cell, self.scale, self.dataset, folder)

  def load(self, cell: smoothing_cells.Cell, folder):
    """The trained model of a folder."""
    return training.load_run(folder)

  def examine(self, cell: smoothing_cells.Cell, model, folder) -> dict:
    """Certificates, attacks inside them, or what a paper claims."""
    from experiments.smoothing import measure as smoothing_measure

    work = {
      "certify": smoothing_measure.certify_cell,
      "attack": smoothing_measure.attack_cell,
      "claimed": smoothing_measure.claimed_cell,
      "rules": smoothing_measure.rules_cell,
    }[cell.part.split("-")[0]]
    return work(cell, self.scale, self.dataset, model, folder)

  def tables(self, results):
    """Radii, accuracies, attacks and trainings."""
    return smoothing_page.tables(self.record, results)

  def figures(self, results):
    """Certified curves, one figure a budget."""
    for dp_epsilon in self.scale.dp_epsilons:
      figure = grid_plots.draw(
        smoothing_page.curves_figure, self.record, results, dp_epsilon
      )
      caption = f"Certified accuracy, proven dp_epsilon {dp_epsilon:g}"
      yield f"curves-{dp_epsilon:g}", caption, figure

  def notes(self) -> list[str]:
    """How to read it all."""
    return smoothing_page.notes(self.record)


def described(scale_name: str, dataset: str, out_dir: str) -> Experiment:
  """The experiment without its data."""
  scale = smoothing_scales.SCALES[scale_name]
  return Experiment(out_dir, scale_name, scale, grid_models.Named(dataset))


STUDY = grid_flags.Study(
  {
    "smoke": "about 5 minutes",
    "small": "about 60 minutes",
    "full": "many hours",
    "ablation": "hours",
  },
  dict.fromkeys(smoothing_scales.SCALES, smoothing_cells.DATASETS),
  lambda scale, dataset: smoothing_cells.cells(smoothing_scales.SCALES[scale]),
)
Options = grid_flags.Options
about = STUDY.about


def main(options: Options, call: command.Call) -> None:
  """Runs as the flags say and prints the table."""
  wanted = STUDY.check(options)

  def make():
    from experiments.smoothing import measure as smoothing_measure

    scale = smoothing_scales.SCALES[options.scale]
    dataset = smoothing_measure.load_dataset(
      options.dataset, options.data_dir, scale.holdout
    )
    return Experiment(options.out_dir, options.scale, scale, dataset, call.line)

  grid_flags.run(make, wanted, options)


if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
