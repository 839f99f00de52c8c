"""Regenerates the figures of the DPAL paper (2-9), claimed beside proven.

python -m experiments.dpal --scale=smoke --out_dir=runs/dpal_smoke
python -m experiments.dpal --scale=small --dataset=mnist --out_dir=runs/dpal

smoke takes minutes on mnist_5k, small an hour on MNIST, full days. What is
done is on disk cell by cell; a killed run goes on with the same command and
--resume. --cells=dpal-2/ runs the cells whose names contain that.
"""

from __future__ import annotations

import sys

from experiments.dpal import cells as dpal_cells
from experiments.dpal import page as dpal_page
from experiments.dpal import plots as dpal_plots
from experiments.grid import flags as grid_flags
from experiments.grid import models as grid_models
from experiments.grid import plots as grid_plots
from tf_privrob.console import command


class Experiment(grid_models.ModelExperiment):
  """The cells of one scale and data set, in one folder.

  Args:
    out_dir: where everything goes.
    scale_name: "smoke", "small" or "full".
    dataset: in [-1, 1].
    scale: its sizes; a test passes its own.
    command_line: for the page.
  """

  study = "dpal"
  title = "DPAL"
  axes = ("totals", "radii_total")
  choices = ("train",)

  def __init__(
    self,
    out_dir: str,
    scale_name: str,
    dataset,
    scale: dpal_cells.Scale | None = None,
    command_line: str = "",
  ):
    self.family = dpal_cells.FAMILIES[dataset.name]
    scale = scale or dpal_cells.SCALES[scale_name, self.family]
    super().__init__(out_dir, scale_name, scale, dataset, command_line)

  def all_cells(self, scale: dpal_cells.Scale):
    """Model by model, training first."""
    return dpal_cells.cells(scale)

  def payload(self) -> dict:
    """Adds what the paper says."""
    return {**super().payload(), "paper": dpal_cells.PAPER[self.family]}

  def train(self, cell: dpal_cells.Cell, folder) -> dict:
    """Trains, or goes on with a training that was killed."""
    from experiments.dpal import train as dpal_train

    return dpal_train.run_cell(cell, self.scale, self.dataset, folder)

  def load(self, cell: dpal_cells.Cell, folder):
    """The trained model of a cell."""
    from experiments.dpal import train as dpal_train

    return dpal_train.load_model(cell, self.dataset, folder)

  def examine(self, cell: dpal_cells.Cell, model, folder) -> dict:
    """Radii, or accuracies under attack."""
    from experiments.dpal import measure as dpal_measure

    if cell.part == "radii":
      return dpal_measure.radii_cell(
        cell, self.scale, self.dataset, model, folder
      )
    return dpal_measure.attack_cell(cell, self.scale, self.dataset, model)

  def config(self, cell: dpal_cells.Cell):
    """The settings of the method, as for a large training set."""
    return dpal_cells.settings(cell, self.scale, self.family, grid_models.LARGE)

  def tables(self, results):
    """Accuracies, radii, and what the paper says."""
    return dpal_page.tables(results, self.family)

  def figures(self, results):
    """As in the paper."""
    for size in dpal_cells.SIZES:
      yield (
        f"accuracy_linf_{size:g}",
        dpal_page.caption(size, self.family, self.record),
        grid_plots.draw(dpal_plots.accuracy_figure, results, size),
      )
    yield (
      "radii",
      dpal_page.caption("radii", self.family, self.record),
      grid_plots.draw(dpal_plots.radii_figure, results, self.family),
    )
    yield (
      "fallen",
      dpal_page.caption("fallen", self.family, self.record),
      grid_plots.draw(dpal_plots.fallen_figure, results),
    )

  def notes(self) -> list[str]:
    """How to read it all."""
    return dpal_page.notes(self.record)


def described(scale_name: str, dataset: str, out_dir: str) -> Experiment:
  """The experiment without its data."""
  return Experiment(out_dir, scale_name, grid_models.Named(dataset))


def _cells(scale: str, dataset: str):
  return dpal_cells.cells(
    dpal_cells.SCALES[scale, dpal_cells.FAMILIES[dataset]]
  )


STUDY = grid_flags.Study(
  {"smoke": "minutes", "small": "about 60 minutes", "full": "days"},
  dict.fromkeys(dpal_cells.SCALE_NAMES, tuple(dpal_cells.FAMILIES)),
  _cells,
)
Options = grid_flags.Options
about = STUDY.about


def main(options: Options, call: command.Call) -> None:
  """Runs as the flags say and prints the table."""
  wanted = STUDY.check(options)

  def make():
    from experiments.dpal import train as dpal_train

    dataset = dpal_train.load_dataset(options.dataset, options.data_dir)
    return Experiment(
      options.out_dir, options.scale, dataset, command_line=call.line
    )

  grid_flags.run(make, wanted, options)


if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
