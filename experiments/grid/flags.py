"""Flags, help and the main job that all studies over a grid of cells share."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Callable
from typing import Optional

from experiments.grid import engine as grid
from experiments.grid import records as grid_records
from tf_privrob.console import command

EVERY = "all"  # data sets, where an experiment has several
NOT_TIMED = "whose minutes nobody has measured yet"


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
class Study:
  """What the flags of a study may say, for its checks and its help.

  Attributes:
    scales: By name, roughly how long all cells of the scale take.
    datasets: By scale, the names of its data sets; none where it makes its
      own.
    cells: Gives the cells of a scale and of one of its data sets, by name.
  """

  scales: Mapping[str, str]
  datasets: Mapping[str, Sequence[str]]
  cells: Callable[[str, str], Sequence[grid.Cell]]

  def check(self, options: Options) -> list[grid.Cell]:
    """The cells that are wanted; bad flags are refused before any work."""
    from tf_privrob import validate

    validate.one_of(self.scales, scale=options.scale)
    known = self.datasets[options.scale]
    if known:
      validate.one_of(known, dataset=options.dataset)
    if not options.out_dir:
      raise ValueError(
        "Expected --out_dir, the folder for results and figures."
      )
    every = self.cells(options.scale, options.dataset)
    return grid.select(every, options.cells)

  def about(self) -> str:
    """Scales, data sets and cells, for --help."""
    parts = []
    for scale, time in self.scales.items():
      known = self.datasets[scale]
      names = [cell.name for cell in self.cells(scale, (*known, "")[0])]
      parts += [
        f"--scale={scale}: {len(names)} cells, {time}",
        f"  data sets: {', '.join(known) or 'made up by the study'}",
        f"  cells: {' '.join(names)}",
      ]
    return "\n".join(parts)


def each(scales: Mapping[str, str], sizes: Mapping, cells_of) -> Study:
  """A study whose scales have several data sets, or "all" of them.

  Args:
    scales: By name, roughly how long all cells of the scale take.
    sizes: By name, the scale itself, with `datasets`.
    cells_of: Gives the cells of a scale and of one of its data sets; of all of
      them, for None.
  """
  return Study(
    scales,
    {name: (EVERY, *size.datasets) for name, size in sizes.items()},
    lambda scale, dataset: cells_of(
      sizes[scale], None if dataset == EVERY else dataset
    ),
  )


def start(module) -> None:
  """Runs the module of a study, `python -m experiments.<study>`."""
  name = module.__spec__.name.removesuffix(".__main__")
  command.run(f"python -m {name}", module, sys.argv[1:])


def run(make, wanted: list[grid.Cell], options: Options) -> None:
  """Runs the wanted cells, writes the page and prints the table.

  Args:
    make: gives the experiment.
    wanted: from `Study.check`.
    options: the flags.
  """
  import tensorflow as tf

  tf.get_logger().setLevel("ERROR")  # each cell traces its own graphs
  experiment = make()
  experiment.open(options.resume)
  store = grid_records.Store(options.records or grid_records.COMMITTED)
  if options.resume:
    found = store.matching(experiment).items()
    experiment.adopt({name: record.figures for name, record in found})
  if options.records:
    experiment.keep(store)
  experiment.run(wanted)
  experiment.write()
  print(experiment.folder.file("table.md").read_text(encoding="utf-8"))
  print(f"Page: {experiment.folder.file('index.html').resolve()}")
