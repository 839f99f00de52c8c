"""Membership inference against robust models: the paper's tables and figures.

python -m experiments.privacy_risks.membership --scale=smoke \
  --out_dir=runs/membership_smoke
python -m experiments.privacy_risks.membership --scale=small --dataset=uci_har \
  --robust_dir=runs/robust --out_dir=runs/membership

Tables 2 to 12 and Figures 1 to 9 of "Privacy Risks of Securing Machine Learning
Models against Adversarial Examples" (CCS 2019) beside the published figures,
its findings checked one by one, and private models beside what their proven
budget allows. Models of `privacy_risks.training` are read from its folder,
--robust_dir, and never changed; those that a study needs besides are trained
here. Each model is asked once: its outputs are kept in <model>/run/membership.
What is done is on disk cell by cell; a killed run goes on with the same command
and --resume, and other data sets go into the same folder by --resume, too.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from typing import Optional

from experiments.grid import flags as grid_flags
from experiments.grid import models as grid_models
from experiments.grid import plots as grid_plots
from experiments.privacy_risks.membership import cells as membership_cells
from experiments.privacy_risks.membership import notes as membership_notes
from experiments.privacy_risks.membership import page as membership_page
from experiments.privacy_risks.membership import plots as membership_plots
from experiments.privacy_risks.membership import scales as membership_scales
from tf_privrob.console import command
from tf_privrob.runs import train as training


class Experiment(grid_models.ModelExperiment):
  """Models and who is inferred from them; `dataset` is a `Datasets`.

  Args:
    *arguments: of `ModelExperiment`.
    robust_dir: where the models are that are not trained here.
  """

  study = "membership"
  title = "Membership inference"
  choices = ("models",)

  def __init__(self, *arguments, robust_dir: str | None = None):
    self.robust_dir = robust_dir
    super().__init__(*arguments)

  def about_data(self, dataset) -> dict[str, str]:
    """Names only: what was found of each is in its trainings."""
    names = ", ".join(dataset.names)
    return {"dataset": names, "data": "What was found of each is below."}

  def all_cells(self, scale: membership_cells.Scale):
    """Model by model."""
    return membership_cells.cells(scale)

  def config(self, cell: membership_cells.Cell):
    """The settings of the method, as for the training set of the preset."""
    from experiments.privacy_risks.membership import train as membership_train

    recipe = self.scale.models[cell.model].recipe
    return membership_train.settings(recipe, recipe.preset_size)

  def missing(self, cell: membership_cells.Cell) -> str:
    """Models that are trained elsewhere must be there."""
    names = [name for name in (cell.model, cell.original) if name]
    needed = [membership_cells.Cell(name, "train") for name in names]
    try:
      membership_cells.available(self.scale, needed, self.robust_dir)
    except ValueError as error:
      return " ".join(str(error).split())
    return ""

  def flags(self) -> list[str]:
    """Where the models are that are not trained here."""
    return [f"--robust_dir={self.robust_dir}"] if self.robust_dir else []

  def train(self, cell: membership_cells.Cell, folder) -> dict:
    """A model that is trained here, or what is known of one that was."""
    from experiments.privacy_risks.membership import train as membership_train

    model = self.scale.models[cell.model]
    dataset = self.dataset.of(model.recipe)
    if model.own:
      return membership_train.train_cell(
        cell.model, self.scale, dataset, folder
      )
    return membership_train.adopt_cell(
      cell.model, self.scale, dataset, self._home(cell.model)
    )

  def _home(self, name: str):
    """The folder that a model was trained in."""
    from tf_privrob import run_folder

    if self.scale.models[name].own:
      return run_folder.RunFolder(self.folder.file(name))
    return run_folder.RunFolder(f"{self.robust_dir}/{name}")

  def load(self, cell: membership_cells.Cell, folder):
    """The trained model."""
    return training.load_run(self._home(cell.model))

  def examine(self, cell: membership_cells.Cell, model, folder) -> dict:
    """What is inferred from the model."""
    from experiments.privacy_risks.membership import measure
    from experiments.privacy_risks.membership import (
      outputs as membership_outputs,
    )
    from tf_privrob import run_folder

    known = self.scale.models[cell.model]
    task = membership_outputs.Task(
      cell.model,
      known,
      self.scale,
      self.dataset.of(known.recipe),
      model,
      run_folder.RunFolder(folder.file(training.RUN)),
    )
    if cell.part == "left_out":
      original = training.load_run(self._home(known.original))
      return measure.timed(task, measure.left_out_cell, original)
    return measure.timed(task, getattr(measure, f"{cell.part}_cell"))

  def tables(self, results):
    """Findings, the paper's tables, private models and the trainings."""
    return membership_page.tables(results)

  def figures(self, results):
    """The paper's figures, and private models."""
    for name, caption, make in membership_plots.FIGURES:
      yield name, caption, grid_plots.draw(make, results)

  def notes(self) -> list[str]:
    """How to read it all."""
    return membership_notes.notes(self.record, self.results())


def described(scale_name: str, dataset: str, out_dir: str) -> Experiment:
  """The experiment without its data; one folder has all data sets.

  The models of privacy_risks.training are where the queue trains them.
  """
  del dataset
  scale = membership_scales.SCALES[scale_name]
  named = grid_models.Named(names=scale.datasets)
  robust_dir = None
  if scale.robust is not None:
    studies = pathlib.Path(out_dir).parent.parent
    robust_dir = str(studies / "training" / scale.robust)
  return Experiment(out_dir, scale_name, scale, named, robust_dir=robust_dir)


@dataclasses.dataclass(frozen=True)
class Options(grid_flags.Options):
  """Flags of the study.

  Attributes:
    dataset: Name of a data set of the scale, or all of them.
    robust_dir: The out_dir of privacy_risks.training at this scale; not for
      smoke.
    skip_missing: Leave out models that are not in --robust_dir.
  """

  dataset: str = grid_flags.EVERY
  robust_dir: Optional[str] = None
  skip_missing: bool = False


STUDY = grid_flags.each(
  dict.fromkeys(("smoke", "small", "full"), grid_flags.NOT_TIMED),
  membership_scales.SCALES,
  membership_cells.cells,
)
about = STUDY.about


def main(options: Options, call: command.Call) -> None:
  """Runs as the flags say and prints the table."""
  scale = membership_scales.SCALES.get(options.scale)
  wanted = membership_cells.available(
    scale, STUDY.check(options), options.robust_dir, options.skip_missing
  )

  def make():
    from experiments.privacy_risks.training import (
      measure as robust_training_measure,
    )

    datasets = robust_training_measure.Datasets(
      scale.datasets, options.data_dir
    )
    return Experiment(
      options.out_dir,
      options.scale,
      scale,
      datasets,
      call.line,
      robust_dir=options.robust_dir,
    )

  grid_flags.run(make, wanted, options)


if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
