"""Trains the models of `privacy_risks.membership`, or finds them trained."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from experiments.privacy_risks.membership import cells as membership_cells
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import (
  measure as robust_training_measure,
)
from tf_privrob.runs import train as training

_RETRAININGS = 6  # at most, of one model


def settings(recipe: robust_training_cells.Recipe, num_train: int):
  """Settings of a method; PixelDP has rates and length of natural training."""
  from tf_privrob import methods

  if recipe.trainer != "pixeldp":
    return robust_training_cells.settings(recipe, num_train)
  natural = robust_training_cells.settings(
    dataclasses.replace(recipe, trainer="natural"), num_train
  )
  names = ("optimizer", "learning_rate", "momentum", "batch_size", "epochs")
  names += ("sampler", "augmentation", "checkpoint_every", "seed")
  return dataclasses.replace(
    methods.preset("pixeldp", "mnist"),
    learning_rate_schedule="constant",
    **{name: getattr(natural, name) for name in names},
  )


def train_cell(name: str, scale, dataset, folder) -> dict[str, Any]:
  """Trains a model here; a retraining leaves examples out."""
  model = scale.models[name]
  if model.original:
    dataset = without(
      dataset, left_out_rows(dataset.y_train, retraining_number(model))
    )
  config = settings(model.recipe, dataset.num_train)
  found = robust_training_measure.train_cell(
    model.recipe, dataset, folder, config
  )
  return {
    **found,
    "dp_epsilon": model.recipe.dp_epsilon,
    "studies": dict(model.studies),
    "origin": "trained here",
  }


def adopt_cell(name: str, scale, dataset, folder) -> dict[str, Any]:
  """What experiments.privacy_risks.training wrote of its training."""
  from tf_privrob import run_folder
  from tf_privrob.report import counted

  found = folder.read_json("train.json")
  for key in ("num_train", "num_test"):
    if found[key] != getattr(dataset, key):
      raise ValueError(
        f"Expected {name} in {folder.path} to be trained on this data set,"
        f" received {key}={found[key]} there and {getattr(dataset, key)} here:"
        " members would be the wrong examples. Pass the same --data_dir."
      )
  stated = counted.read(run_folder.RunFolder(folder.file(training.RUN)))
  return {
    **{key: value for key, value in found.items() if key != "recipe"},
    **(training.stated(stated) if stated else {}),
    "condition": found.get("condition") or (stated and stated.condition) or "",
    "label": label(scale.models[name].recipe),
    "studies": dict(scale.models[name].studies),
    "origin": str(folder.path),
  }


def label(recipe: robust_training_cells.Recipe) -> str:
  """In tables."""
  return recipe.label or robust_training_cells.LABELS[recipe.trainer]


def retraining_number(model: membership_cells.Model) -> int:
  """Which examples it leaves out."""
  return int(model.studies["left_out"])


def left_out_rows(labels: np.ndarray, number: int) -> np.ndarray:
  """One training example of each class, others for each retraining."""
  from tf_privrob import membership

  return membership.leave_out_groups(labels, 2 * _RETRAININGS)[number]


def kept_rows(labels: np.ndarray, number: int) -> np.ndarray:
  """As many that are never left out, for comparison."""
  return left_out_rows(labels, _RETRAININGS + number)


def without(dataset, rows: np.ndarray):
  """The data set without some training examples."""
  return dataclasses.replace(
    dataset,
    x_train=np.delete(dataset.x_train, rows, axis=0),
    y_train=np.delete(dataset.y_train, rows),
    split=f"Without {len(rows)} training examples. {dataset.split}",
  )
