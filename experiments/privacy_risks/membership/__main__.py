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
from experiments.privacy_risks.membership import cells as membership_cells
from experiments.privacy_risks.membership import measure as membership_measure
from experiments.privacy_risks.membership import outputs as membership_outputs
from experiments.privacy_risks.membership import page as membership_page
from experiments.privacy_risks.membership import scales as membership_scales
from experiments.privacy_risks.training import measure as training_measure
from tf_privrob.runs import train as training


class Experiment(grid_models.SeveralDatasets):
  """Models and who is inferred from them; `dataset` is a `Datasets`.

  Args:
    *arguments: of `ModelExperiment`.
    robust_dir: where the models are that are not trained here.
  """

  study = "membership"
  title = "Membership inference"
  choices = ("models",)
  page = membership_page
  plan = membership_cells
  work = membership_measure
  SCALES = membership_scales.SCALES

  def __init__(self, *arguments, robust_dir: str | None = None):
    self.robust_dir = robust_dir
    super().__init__(*arguments)

  @classmethod
  def load_data(cls, options, scale: membership_cells.Scale):
    """Data sets that are loaded when they are needed."""
    return training_measure.Datasets(scale.datasets, options.data_dir)

  @classmethod
  def described(cls, scale_name: str, dataset: str, out_dir: str):
    """The experiment without its data.

    The models of privacy_risks.training are where the queue trains them.
    """
    found = super().described(scale_name, dataset, out_dir)
    if found.scale.robust is not None:
      studies = pathlib.Path(out_dir).parent.parent
      found.robust_dir = str(studies / "training" / found.scale.robust)
    return found

  @classmethod
  def made(cls, options, command_line: str):
    """With the folder of the models that are not trained here."""
    found = super().made(options, command_line)
    found.robust_dir = options.robust_dir
    return found

  @classmethod
  def possible(cls, options, wanted):
    """Models that are trained elsewhere must be there."""
    scale = cls.SCALES[options.scale]
    return membership_cells.available(
      scale, wanted, options.robust_dir, options.skip_missing
    )

  def config(self, cell: membership_cells.Cell):
    """The settings of the method, as for the training set of the preset."""
    recipe = self.scale.models[cell.model].recipe
    return membership_measure.settings(recipe, recipe.preset_size)

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
    model = self.scale.models[cell.model]
    work = (cell.model, self.scale, self.dataset.of(model.recipe))
    if model.own:
      return membership_measure.train_cell(*work, folder)
    return membership_measure.adopt_cell(*work, self.home(cell))

  def home(self, cell: membership_cells.Cell):
    """That of privacy_risks.training, if the model is not trained here."""
    from tf_privrob import run_folder

    if self.scale.models[cell.model].own or not self.robust_dir:
      return super().home(cell)
    return run_folder.RunFolder(f"{self.robust_dir}/{cell.model}")

  def examine(self, cell: membership_cells.Cell, model, folder) -> dict:
    """What is inferred from the model."""
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
    more = []
    if cell.part == "left_out":
      original = membership_cells.Cell(known.original, "train")
      more.append(self.load(original, folder))
    found = getattr(membership_measure, f"{cell.part}_cell")(task, *more)
    return {**membership_measure.identity(known), **found}


@dataclasses.dataclass(frozen=True)
class Options(grid_flags.OptionsOfSeveral):
  """Flags of the study.

  Attributes:
    robust_dir: The out_dir of privacy_risks.training at this scale; not for
      smoke.
    skip_missing: Leave out models that are not in --robust_dir.
  """

  robust_dir: Optional[str] = None
  skip_missing: bool = False


STUDY = grid_flags.Study(Experiment)
about, main = STUDY.about, STUDY.main

if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
