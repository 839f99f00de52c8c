"""All studies by name, and how to reach them without their data."""

from __future__ import annotations

import importlib
import os

from experiments.grid import engine as grid

# In the order of docs/results.md.
STUDIES = {
  "smoothing": "experiments.smoothing",
  "audits": "experiments.audits",
  "dpal": "experiments.dpal",
  "transdenoiser": "experiments.transdenoiser",
  "halfspaces": "experiments.halfspaces",
  "training": "experiments.privacy_risks.training",
  "membership": "experiments.privacy_risks.membership",
}


def described(
  study: str, scale: str, dataset: str, runs: str | os.PathLike
) -> grid.Experiment:
  """A study at a scale: its cells, fingerprints and page, but no data.

  Args:
    study: One of STUDIES.
    scale: The scale by name.
    dataset: The data set by name.
    runs: Its folder is <study>/<group> below this one.
  """
  from tf_privrob import validate

  validate.one_of(STUDIES, study=study)
  module = importlib.import_module(f"{STUDIES[study]}.__main__")
  made = module.STUDY.experiment.described
  group = made(scale, dataset, os.fspath(runs)).group
  return made(scale, dataset, os.path.join(runs, study, group))


def command(
  experiment: grid.Experiment, scale: str, dataset: str, cell: str
) -> list[str]:
  """The words behind `python` that measure one cell, or go on with it."""
  words = ["-m", STUDIES[experiment.study], f"--scale={scale}"]
  if dataset:
    words.append(f"--dataset={dataset}")
  words += [f"--cells={cell}", f"--out_dir={experiment.folder.path}"]
  return [*words, *experiment.flags(), "--resume"]
