"""Private halfspaces with exact margins, beside a private network.

python -m experiments.halfspaces --scale=smoke --out_dir=runs/halfspaces_smoke
python -m experiments.halfspaces --scale=full --dataset=mnist \
  --out_dir=runs/halfspaces --cells=perceptron/

Figures 1 and 2 of "Robust and Private Learning of Halfspaces": accuracy of the
DP Batch Perceptron against dp_epsilon and dp_delta, its robust accuracy against
the l_2 radius, exactly, and that of a DP-SGD network under attack; the budget
as the paper reads it beside the joint one of all classes; and how the samples
needed grow with the dimension. What is done is on disk cell by cell; a killed
run goes on with the same command and --resume.
"""

from __future__ import annotations

import dataclasses
import sys

from experiments.grid import flags as grid_flags
from experiments.grid import models as grid_models
from experiments.grid import plots as grid_plots
from experiments.halfspaces import cells as halfspaces_cells
from experiments.halfspaces import page as halfspaces_page
from experiments.halfspaces import plots as halfspaces_plots
from experiments.halfspaces import rates as halfspaces_rates
from experiments.halfspaces import rates_page as halfspaces_rates_page
from experiments.halfspaces import rates_plots as halfspaces_rates_plots
from tf_privrob.console import command
from tf_privrob.runs import train as training


class Experiment(grid_models.ModelExperiment):
  """Perceptrons, networks, and sample sizes."""

  study = "halfspaces"
  title = "Robust and private halfspaces"
  axes = ("batches", "cnn_dp_epsilons")

  def all_cells(self, scale: halfspaces_cells.Scale):
    """Perceptrons first."""
    return cells_of(scale)

  def train(self, cell: halfspaces_cells.Cell, folder) -> dict:
    """A network under DP-SGD."""
    from experiments.halfspaces import measure as halfspaces_measure

    return halfspaces_measure.cnn_cell(cell, self.scale, self.dataset, folder)

  def load(self, cell: halfspaces_cells.Cell, folder):
    """The trained network; the other cells have none."""
    if cell.recipe != halfspaces_cells.CNN:
      return None
    return training.load_run(folder)

  def examine(self, cell: halfspaces_cells.Cell, model, folder) -> dict:
    """Perceptrons, an attack, or sample sizes."""
    from experiments.halfspaces import measure as halfspaces_measure

    if cell.recipe == halfspaces_cells.PERCEPTRON:
      return halfspaces_measure.perceptron_cell(cell, self.scale, self.dataset)
    if cell.recipe == halfspaces_cells.RATES:
      scale = halfspaces_rates.SCALES[self.scale.rates]
      return halfspaces_rates.rates_cell(cell.part, scale)
    return halfspaces_measure.attack_cell(self.scale, self.dataset, model)

  def settings_of(self, cell: halfspaces_cells.Cell) -> dict:
    """Sample sizes depend on nothing but their own scale."""
    if cell.recipe != halfspaces_cells.RATES:
      return super().settings_of(cell)
    return dataclasses.asdict(halfspaces_rates.SCALES[self.scale.rates])

  def compact(self, result):
    """Means and errors in place of all trials; shares with four digits."""
    if result["recipe"] != halfspaces_cells.PERCEPTRON:
      return result
    return {**result, "rows": [_compact(row) for row in result["rows"]]}

  def tables(self, results):
    """Accuracies, robust accuracies, networks, sample sizes, speed."""
    return [
      *halfspaces_page.tables(self.record, results),
      *halfspaces_rates_page.tables(results),
    ]

  def figures(self, results):
    """Figures 1 and 2, and the sample sizes."""
    for name, caption, make in halfspaces_plots.FIGURES:
      yield name, caption, grid_plots.draw(make, self.record, results)
    for name, caption, make in halfspaces_rates_plots.FIGURES:
      yield name, caption, grid_plots.draw(make, results)

  def notes(self) -> list[str]:
    """How to read it all."""
    return halfspaces_page.notes(self.record) + halfspaces_rates_page.notes()


def _compact(row: dict) -> dict:
  """A row without its single trials; of the robust errors the largest."""
  dropped = ("accuracies", "robust_error")
  kept = {k: v for k, v in row.items() if k not in dropped}
  kept["robust"] = [round(value, 4) for value in row["robust"]]
  return {**kept, "largest_robust_error": max(row["robust_error"])}


def described(scale_name: str, dataset: str, out_dir: str) -> Experiment:
  """The experiment without its data."""
  scale = halfspaces_cells.SCALES[scale_name]
  return Experiment(out_dir, scale_name, scale, grid_models.Named(dataset))


def cells_of(scale: halfspaces_cells.Scale):
  """Perceptrons, networks and sample sizes of a scale."""
  parts = halfspaces_rates.SCALES[scale.rates].parts()
  return halfspaces_cells.cells(scale, parts)


STUDY = grid_flags.Study(
  dict.fromkeys(("smoke", "small", "full"), grid_flags.NOT_TIMED),
  dict.fromkeys(halfspaces_cells.SCALES, halfspaces_cells.DATASETS),
  lambda scale, dataset: cells_of(halfspaces_cells.SCALES[scale]),
)
Options = grid_flags.Options
about = STUDY.about


def main(options: Options, call: command.Call) -> None:
  """Runs as the flags say and prints the table."""
  wanted = STUDY.check(options)

  def make():
    from tf_privrob import data

    dataset = data.load(options.dataset, options.data_dir)
    scale = halfspaces_cells.SCALES[options.scale]
    return Experiment(options.out_dir, options.scale, scale, dataset, call.line)

  grid_flags.run(make, wanted, options)


if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
