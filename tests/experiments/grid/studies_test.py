"""All studies are built alike, and are known without their data."""

import importlib
import pathlib

import pytest

from experiments.grid import models as grid_models
from experiments.grid import records as grid_records
from experiments.grid import studies

_FILES = {"__init__", "__main__", "cells", "measure", "page"}
# What a study has besides: an algorithm of its own, or what would make another
# file too long. A new module is not put here without need.
_MORE = {
  "dpal": "figures models",
  "halfspaces": "fit ideal instances pure rates rates_page search",
  "membership": "findings outputs plots rows scales studies",
  "training": "scales",
  "transdenoiser": "audit",
}


@pytest.mark.parametrize("study", studies.STUDIES)
def test_every_study_has_the_same_files(study):
  folder = grid_records.ROOT / studies.STUDIES[study].replace(".", "/")
  modules = {path.stem for path in folder.glob("*.py")}
  assert modules == _FILES | set(_MORE.get(study, "").split())
  others = {path.name for path in folder.iterdir() if path.is_file()}
  assert {name for name in others if not name.endswith(".py")} <= {
    "published.csv"
  }


@pytest.mark.parametrize("study", studies.STUDIES)
def test_every_study_is_known_without_its_data(study):
  module = importlib.import_module(f"{studies.STUDIES[study]}.__main__")
  made = module.STUDY.experiment
  assert issubclass(made, grid_models.ModelExperiment)
  assert made.study == study
  for scale in module.STUDY.scales:
    dataset = (*made.datasets_of(scale), "")[0]
    experiment = studies.described(study, scale, dataset, "runs")
    assert experiment.cells
    assert experiment.folder.path == pathlib.Path(
      "runs", study, experiment.group
    )
    # A page can be made before any cell is done.
    for table in experiment.tables({}):
      assert all(len(row) == len(table.head) for row in table.rows)
    assert not any(figure.shows_any for figure in experiment.figures({}))
    assert experiment.notes()


def test_an_unknown_study_gets_the_nearest_name():
  with pytest.raises(ValueError, match="Did you mean 'smoothing'"):
    studies.described("smothing", "full", "mnist", "runs")
