"""Certified accuracy of private models: the flagship beside its rivals.

python -m experiments.smoothing --scale=smoke --out_dir=runs/smoothing_smoke
python -m experiments.smoothing --scale=full --dataset=mnist \
  --out_dir=runs/smoothing --cells=dp_smooth-3

Ablation compares settings of the flagship on held-out training images. What is
done is on disk cell by cell; a killed run goes on with the same command and
--resume.
"""

from __future__ import annotations

import sys

from experiments.grid import flags as grid_flags
from experiments.grid import models as grid_models
from experiments.smoothing import cells as smoothing_cells
from experiments.smoothing import measure as smoothing_measure
from experiments.smoothing import page as smoothing_page


class Experiment(grid_models.ModelExperiment):
  """Trainings, certificates and attacks inside the radii."""

  study = "smoothing"
  title = "Private and certified"
  axes = ("dp_epsilons", "stddevs", "attacked")
  choices = ("recipes",)
  page = smoothing_page
  plan = smoothing_cells
  work = smoothing_measure
  SCALES = smoothing_cells.SCALES
  DATASETS = smoothing_cells.DATASETS

  @classmethod
  def load_data(cls, options, scale: smoothing_cells.Scale):
    """The data; some training images may stand in for the test images."""
    return smoothing_measure.load_dataset(
      options.dataset, options.data_dir, scale.holdout
    )

  def config(self, cell: smoothing_cells.Cell):
    """The settings of the method, as for a large training set."""
    return smoothing_cells.settings(cell, self.scale, grid_models.LARGE)


STUDY = grid_flags.Study(Experiment)
Options, about, main = grid_flags.Options, STUDY.about, STUDY.main

if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
