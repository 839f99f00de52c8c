"""Flags and the main job that all experiments over a grid of cells share."""

from __future__ import annotations

import shlex
import sys

from absl import flags

from experiments.grid import engine as grid
from experiments.grid import records as grid_records

EVERY = "all"  # data sets, where an experiment has several
DATASET = flags.DEFINE_string("dataset", "mnist_5k", "Name of a data set.")
SCALE = flags.DEFINE_string(
  "scale", "smoke", "smoke, small or full; smoothing also has ablation."
)
DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Folder with <name>.npz; default $TF_PRIVROB_DATA."
)
_OUT_DIR = flags.DEFINE_string("out_dir", None, "Folder to write.")
_RESUME = flags.DEFINE_bool("resume", False, "Keep the cells that are done.")
_RECORDS = flags.DEFINE_string(
  "records",
  None,
  "Folder for a committed record of each cell that is done; none by default."
  " --resume takes cells from it, or else from results/ of the checkout.",
)
_CELLS = flags.DEFINE_string(
  "cells",
  "",
  "Run only cells whose names contain this, and their trainings; a whole name"
  " means that cell.",
)


def check(scales, datasets, cells_of) -> list[grid.Cell]:
  """The cells that are wanted; bad flags are refused before any work.

  Args:
    scales: known names.
    datasets: known names.
    cells_of: gives all cells once the names are known to be good.
  """
  from tf_privrob import validate

  validate.one_of(scales, scale=SCALE.value)
  validate.one_of(datasets, dataset=DATASET.value)
  if not _OUT_DIR.value:
    raise ValueError("Expected --out_dir, the folder for results and figures.")
  return grid.select(cells_of(), _CELLS.value)


def check_each(scales, cells_of) -> list[grid.Cell]:
  """As `check`, where a scale has several data sets, or "all" of them.

  Args:
    scales: by name, each with `datasets`.
    cells_of: gives the cells of a scale and of one of its data sets; of all of
      them, for None.
  """
  from tf_privrob import validate

  def cells():
    scale, name = scales[SCALE.value], DATASET.value
    if name == EVERY:
      return cells_of(scale, None)
    validate.one_of(scale.datasets, dataset=name)
    return cells_of(scale, name)

  known = {name for scale in scales.values() for name in scale.datasets}
  return check(scales, sorted({EVERY, *known}), cells)


def run(make, wanted: list[grid.Cell]) -> None:
  """Runs the wanted cells, writes the page and prints the table.

  Args:
    make: the experiment, from its folder and the command line.
    wanted: from `check`.
  """
  import tensorflow as tf

  tf.get_logger().setLevel("ERROR")  # each cell traces its own graphs
  module = sys.modules["__main__"].__spec__
  name = module.name.replace(".__main__", "") if module else "experiments"
  experiment = make(
    _OUT_DIR.value, f"python -m {name} {shlex.join(sys.argv[1:])}"
  )
  experiment.open(_RESUME.value)
  store = grid_records.Store(_RECORDS.value or grid_records.COMMITTED)
  if _RESUME.value:
    found = store.matching(experiment).items()
    experiment.adopt({name: record.figures for name, record in found})
  if _RECORDS.value:
    experiment.keep(store)
  experiment.run(wanted)
  experiment.write()
  print(experiment.folder.file("table.md").read_text(encoding="utf-8"))
  print(f"Page: {experiment.folder.file('index.html').resolve()}")
