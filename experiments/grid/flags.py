"""Flags, help and the main job that all studies over a grid of cells share."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Optional

from experiments.grid import engine as grid
from experiments.grid import records as grid_records
from tf_privrob.console import command


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of a study.

  Attributes:
    dataset: Name of a data set.
    scale: How much is done.
    data_dir: Folder with <name>.npz; default $TF_PRIVROB_DATA.
    out_dir: Folder to write.
    resume: Keep the cells that are done.
    records: Folder for a committed record of each cell that is done; none by
      default. --resume takes cells from it, or else from results/ of the
      checkout.
    cells: Run only cells whose names contain this, and their trainings; a whole
      name means that cell.
  """

  dataset: str = "mnist_5k"
  scale: str = "smoke"
  data_dir: Optional[str] = None
  out_dir: Optional[str] = None
  resume: bool = False
  records: Optional[str] = None
  cells: str = ""


@dataclasses.dataclass(frozen=True)
class OptionsOfSeveral(Options):
  """Flags of a study whose scales have several data sets.

  Attributes:
    dataset: Name of a data set of the scale, or all of them.
  """

  dataset: str = "all"


class Study:
  """A study as a command: what its flags may say, its help and its job.

  Args:
    experiment: Its class, a `models.ModelExperiment`.
  """

  def __init__(self, experiment):
    self.experiment = experiment
    self.scales = tuple(experiment.SCALES)

  def check(self, options: Options) -> list[grid.Cell]:
    """The cells that are wanted; bad flags are refused before any work."""
    from tf_privrob import validate

    validate.one_of(self.scales, scale=options.scale)
    known = self.experiment.datasets_of(options.scale)
    if known:
      validate.one_of(known, dataset=options.dataset)
    if not options.out_dir:
      raise ValueError(
        "Expected --out_dir, the folder for results and figures."
      )
    every = self.experiment.cells_of(options.scale, options.dataset)
    return grid.select(every, options.cells)

  def cells(self, scale: str) -> Sequence[grid.Cell]:
    """Those of a scale, for its first data set."""
    dataset = (*self.experiment.datasets_of(scale), "")[0]
    return self.experiment.cells_of(scale, dataset)

  def minutes(self, scale: str) -> str:
    """What a scale takes, as far as it is measured or guessed."""
    from experiments.grid import estimates

    return estimates.of_scale(self.experiment, scale)

  def about(self) -> str:
    """Scales, data sets and cells, for --help."""
    parts = []
    for scale in self.scales:
      known = self.experiment.datasets_of(scale)
      names = [cell.name for cell in self.cells(scale)]
      parts += [
        f"--scale={scale}: {len(names)} cells, {self.minutes(scale)}",
        f"  data sets: {', '.join(known) or 'made up by the study'}",
        f"  cells: {' '.join(names)}",
      ]
    return "\n".join(parts)

  def main(self, options: Options, call: command.Call) -> None:
    """Runs the cells that the flags ask for, and prints the page."""
    wanted = self.experiment.possible(options, self.check(options))

    import tensorflow as tf  # not before the flags are known to be good

    tf.get_logger().setLevel("ERROR")  # each cell traces its own graphs
    experiment = self.experiment.made(options, call.line)
    experiment.open(options.resume)
    store = grid_records.Store(options.records or grid_records.COMMITTED)
    if options.resume:
      found = store.matching(experiment).items()
      experiment.adopt({name: record.result for name, record in found})
    if options.records:
      experiment.keep(store)
    experiment.run(wanted)
    experiment.write()
    path = experiment.folder.file("table.md")
    print(path.read_text(encoding="utf-8"))
    print(f"Page: {path.resolve()}")


def start(module) -> None:
  """Runs the module of a study, `python -m experiments.<study>`."""
  name = module.__spec__.name.removesuffix(".__main__")
  command.run(f"python -m {name}", module, sys.argv[1:])
