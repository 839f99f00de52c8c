"""Audits of every claim: the papers' methods, their heirs, and DP-SGD.

python -m experiments.audits --scale=test --out_dir=runs/audits_test
python -m experiments.audits --scale=full --out_dir=runs/audits

Each cell repeats a method's own training step in two worlds, thousands of
times, and shows claimed beside proven beside audited for exactly that. What is
done is on disk cell by cell; a killed run goes on with the same command and
--resume.
"""

from __future__ import annotations

import dataclasses
import sys

from experiments.audits import cells as audits_cells
from experiments.audits import measure as audits_measure
from experiments.audits import page as audits_page
from experiments.grid import flags as grid_flags
from experiments.grid import models as grid_models

_SEEDS = 20_000  # apart from those that the rule for thresholds was chosen on


class Experiment(grid_models.ModelExperiment):
  """The audits of one scale; every case makes its own records."""

  study = "audits"
  title = "Audits"
  page = audits_page
  SCALES = audits_cells.SCALES

  @classmethod
  def all_cells(cls, scale: audits_cells.Scale):
    """The cases."""
    return audits_cells.cells()

  @classmethod
  def load_data(cls, options, scale: audits_cells.Scale):
    """None."""
    return grid_models.Named()

  def about_data(self, dataset) -> dict[str, str]:
    """They have no name."""
    data = "A few made-up records a case; every run is a training."
    return {"dataset": "", "data": data}

  def measure(self, cell: audits_cells.Cell) -> dict:
    """One audit."""
    import tensorflow as tf

    tf.keras.backend.clear_session()
    case = audits_cells.CASES[cell.part]
    return audits_measure.audit(case, self.scale, self.folder, self.seed(cell))

  def seed(self, cell: audits_cells.Cell) -> int:
    """One for each case."""
    return _SEEDS + list(audits_cells.CASES).index(cell.part)

  def settings_of(self, cell: audits_cells.Cell) -> dict:
    """Runs, and what is run."""
    case = audits_cells.CASES[cell.part]
    words = {"share": case.share, "scope": case.scope, "canary": case.canary}
    return {**super().settings_of(cell), **words}


@dataclasses.dataclass(frozen=True)
class Options(grid_flags.Options):
  """Flags of the study.

  Attributes:
    dataset: Not used; every case makes its own records.
  """

  scale: str = "test"


STUDY = grid_flags.Study(Experiment)
about, main = STUDY.about, STUDY.main

if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
