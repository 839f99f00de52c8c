"""TransDenoiser, its ablations, heir and baselines: certified and attacked.

python -m experiments.transdenoiser --scale=smoke --out_dir=runs/trans_smoke
python -m experiments.transdenoiser --scale=full --dataset=mnist \
  --out_dir=runs/trans --cells=sound-1/

Figures 2, 3, 4 and 7 of the paper, claimed beside proven beside audited: the
certified accuracy against the l_2 radius, the accuracy under attacks crafted
on the classifier alone and through all that is deployed, and against the
budget; and what the input noise saved. Audits of a step are among those of
`experiments.audits`. What is done is on disk cell by cell; a killed run goes on
with the same command and --resume.
"""

from __future__ import annotations

import sys

from experiments.grid import flags as grid_flags
from experiments.grid import models as grid_models
from experiments.transdenoiser import cells as transdenoiser_cells
from experiments.transdenoiser import measure as transdenoiser_measure
from experiments.transdenoiser import page as transdenoiser_page


class Experiment(grid_models.ModelExperiment):
  """A public classifier and models around it.

  Its data are `Parts`: the public and the private ones.
  """

  study = "transdenoiser"
  title = "TransDenoiser"
  axes = ("dp_epsilons", "attack_norms", "swept_norm")
  choices = ("recipes",)
  page = transdenoiser_page
  plan = transdenoiser_cells
  work = transdenoiser_measure
  SCALES = transdenoiser_cells.SCALES
  DATASETS = transdenoiser_cells.DATASETS
  _public = None

  @classmethod
  def scale_of(cls, scale_name: str, dataset: str):
    """The sizes of a scale; images in colour have recipes of their own."""
    return transdenoiser_cells.scale_of(scale_name, dataset)

  @classmethod
  def stand_in(cls, scale_name: str, dataset: str):
    """Two parts of data that are not loaded."""
    named = grid_models.Named(dataset)
    return transdenoiser_measure.Parts(named, named)

  @classmethod
  def load_data(cls, options, scale: transdenoiser_cells.Scale):
    """The data in two parts."""
    return transdenoiser_measure.load_parts(options.dataset, options.data_dir)

  def about_data(self, dataset: transdenoiser_measure.Parts):
    """Of the private part, whose budgets are stated."""
    return super().about_data(dataset.private)

  def config(self, cell: transdenoiser_cells.Cell):
    """The settings of the method, as for a large training set."""
    if cell.recipe not in self.scale.recipes:
      return None
    return transdenoiser_cells.settings(cell, self.scale, grid_models.LARGE)

  @property
  def classifier(self):
    """The public classifier, loaded when it is needed."""
    if self._public is None:
      self._public = transdenoiser_measure.load_public(self.folder)
    return self._public

  def train(self, cell: transdenoiser_cells.Cell, folder) -> dict:
    """The classifier on public data, a model on private ones."""
    self._public = None  # the session that it was loaded in is gone
    work = (self.scale, self.dataset, folder)
    if cell.recipe == transdenoiser_cells.PUBLIC:
      return transdenoiser_measure.train_public(*work)
    return transdenoiser_measure.train_cell(cell, *work, self.classifier)

  def load(self, cell: transdenoiser_cells.Cell, folder):
    """The trained model."""
    self._public = None
    if cell.recipe == transdenoiser_cells.PUBLIC:
      return self.classifier
    return super().load(cell, folder)

  def examine(self, cell: transdenoiser_cells.Cell, model, folder) -> dict:
    """Certificates, or attacks."""
    if cell.part == "certify":
      return super().examine(cell, model, folder)
    return transdenoiser_measure.attack_cell(
      cell, self.scale, self.dataset, model, self.classifier
    )


STUDY = grid_flags.Study(Experiment)
Options, about, main = grid_flags.Options, STUDY.about, STUDY.main

if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
