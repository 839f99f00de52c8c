"""TransDenoiser, its ablations, heir and baselines: certified and attacked.

python -m experiments.transdenoiser --scale=smoke --out_dir=runs/trans_smoke
python -m experiments.transdenoiser --scale=full --dataset=mnist \
  --out_dir=runs/trans --cells=sound-1/

Figures 2, 3, 4 and 7 of the paper, claimed beside proven beside audited: the
certified accuracy against the l_2 radius, the accuracy under attacks crafted
on the classifier alone and through all that is deployed, and against the
budget; what the input noise saved; and audits of a step. What is done is on
disk cell by cell; a killed run goes on with the same command and --resume.
"""

from __future__ import annotations

import sys

from experiments.grid import flags as grid_flags
from experiments.grid import models as grid_models
from experiments.grid import plots as grid_plots
from experiments.transdenoiser import cells as transdenoiser_cells
from experiments.transdenoiser import page as transdenoiser_page
from tf_privrob.console import command
from tf_privrob.runs import train as training


class Experiment(grid_models.ModelExperiment):
  """A public classifier, models around it, and audits.

  Args: see `ModelExperiment`; `parts` are the public and the private data.
  """

  study = "transdenoiser"
  title = "TransDenoiser"
  axes = ("dp_epsilons", "attack_norms", "swept_norm")
  choices = ("recipes",)

  def __init__(self, out_dir, scale_name, scale, parts, command_line=""):
    self.parts = parts
    super().__init__(out_dir, scale_name, scale, parts.private, command_line)
    self._public = None

  def all_cells(self, scale: transdenoiser_cells.Scale):
    """The public classifier, the models, the audits."""
    return transdenoiser_cells.cells(scale)

  def config(self, cell: transdenoiser_cells.Cell):
    """The settings of the method, as for a large training set."""
    if cell.recipe not in self.scale.recipes:
      return None
    return transdenoiser_cells.settings(cell, self.scale, grid_models.LARGE)

  @property
  def classifier(self):
    """The public classifier, loaded when it is needed."""
    from experiments.transdenoiser import measure as transdenoiser_measure

    if self._public is None:
      self._public = transdenoiser_measure.load_public(self.folder)
    return self._public

  def train(self, cell: transdenoiser_cells.Cell, folder) -> dict:
    """The classifier on public data, a model on private ones."""
    from experiments.transdenoiser import measure as transdenoiser_measure

    self._public = None  # the session that it was loaded in is gone
    if cell.recipe == transdenoiser_cells.PUBLIC:
      return transdenoiser_measure.public_cell(self.scale, self.parts, folder)
    return transdenoiser_measure.train_cell(
      cell, self.scale, self.parts, folder, self.classifier
    )

  def load(self, cell: transdenoiser_cells.Cell, folder):
    """The trained model; audits need none."""
    self._public = None
    if cell.recipe == transdenoiser_cells.AUDIT:
      return None
    if cell.recipe == transdenoiser_cells.PUBLIC:
      return self.classifier
    return training.load_run(folder)

  def examine(self, cell: transdenoiser_cells.Cell, model, folder) -> dict:
    """Certificates, attacks, or an audit."""
    from experiments.transdenoiser import audit as transdenoiser_audit
    from experiments.transdenoiser import measure as transdenoiser_measure

    if cell.recipe == transdenoiser_cells.AUDIT:
      return transdenoiser_audit.audit_cell(cell, self.scale)
    if cell.part == "certify":
      return transdenoiser_measure.certify_cell(
        cell, self.scale, self.parts, model, folder
      )
    return transdenoiser_measure.attack_cell(
      cell, self.scale, self.parts, model, self.classifier
    )

  def tables(self, results):
    """Certificates, attacks, savings, audits and trainings."""
    return transdenoiser_page.tables(self.record, results)

  def figures(self, results):
    """As in the paper."""
    for name, caption, make in transdenoiser_page.FIGURES:
      yield name, caption, grid_plots.draw(make, self.record, results)

  def notes(self) -> list[str]:
    """How to read it all."""
    return transdenoiser_page.notes(self.record)


def described(scale_name: str, dataset: str, out_dir: str) -> Experiment:
  """The experiment without its data."""
  from experiments.transdenoiser import measure as transdenoiser_measure

  scale = transdenoiser_cells.SCALES[scale_name]
  named = grid_models.Named(dataset)
  parts = transdenoiser_measure.Parts(named, named)
  return Experiment(out_dir, scale_name, scale, parts)


STUDY = grid_flags.Study(
  dict.fromkeys(("smoke", "small", "full"), grid_flags.NOT_TIMED),
  dict.fromkeys(transdenoiser_cells.SCALES, transdenoiser_cells.DATASETS),
  lambda scale, dataset: transdenoiser_cells.cells(
    transdenoiser_cells.SCALES[scale]
  ),
)
Options = grid_flags.Options
about = STUDY.about


def main(options: Options, call: command.Call) -> None:
  """Runs as the flags say and prints the table."""
  wanted = STUDY.check(options)

  def make():
    from experiments.transdenoiser import measure as transdenoiser_measure

    parts = transdenoiser_measure.load_parts(options.dataset, options.data_dir)
    scale = transdenoiser_cells.SCALES[options.scale]
    return Experiment(options.out_dir, options.scale, scale, parts, call.line)

  grid_flags.run(make, wanted, options)


if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
