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
from experiments.halfspaces import cells as halfspaces_cells
from experiments.halfspaces import measure as halfspaces_measure
from experiments.halfspaces import page as halfspaces_page
from experiments.halfspaces import rates as halfspaces_rates


class Experiment(grid_models.ModelExperiment):
  """Perceptrons, networks, and sample sizes."""

  study = "halfspaces"
  title = "Robust and private halfspaces"
  axes = ("batches", "cnn_dp_epsilons")
  page = halfspaces_page
  work = halfspaces_measure
  SCALES = halfspaces_cells.SCALES
  DATASETS = halfspaces_cells.DATASETS

  @classmethod
  def all_cells(cls, scale: halfspaces_cells.Scale):
    """Perceptrons, networks and sample sizes."""
    parts = halfspaces_rates.SCALES[scale.rates].parts()
    return halfspaces_cells.cells(scale, parts)

  def load(self, cell: halfspaces_cells.Cell, folder):
    """The trained network; the other cells have none."""
    if cell.recipe != halfspaces_cells.CNN:
      return None
    return super().load(cell, folder)

  def examine(self, cell: halfspaces_cells.Cell, model, folder) -> dict:
    """Perceptrons, an attack, or sample sizes."""
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


def _compact(row: dict) -> dict:
  """A row without its single trials; of the robust errors the largest."""
  dropped = ("accuracies", "robust_error")
  kept = {k: v for k, v in row.items() if k not in dropped}
  kept["robust"] = [round(value, 4) for value in row["robust"]]
  return {**kept, "largest_robust_error": max(row["robust_error"])}


STUDY = grid_flags.Study(Experiment)
Options, about, main = grid_flags.Options, STUDY.about, STUDY.main

if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
