"""What models of `privacy_risks.membership` answer, kept beside each model."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from experiments.privacy_risks.membership import cells as membership_cells
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import (
  measure as robust_training_measure,
)
from tf_privrob.runs import infer as inferring

_NOISE_DRAWS = 20  # of PixelDP's score


@dataclasses.dataclass(frozen=True)
class Task:
  """A trained model and what it is asked about.

  Attributes:
    name: of the model.
    model: how it is trained, and its studies.
    scale: sizes.
    dataset: its data, cut to its training examples.
    trained: the Keras model.
    folder: where its outputs are kept.
  """

  name: str
  model: membership_cells.Model
  scale: membership_cells.Scale
  dataset: Any
  trained: Any
  folder: Any

  @property
  def recipe(self) -> robust_training_cells.Recipe:
    """How the model was trained."""
    return self.model.recipe


def outputs_of(task: Task, key: str, count: int | None, **asked: Any):
  """Outputs of a model, from its folder if they are there."""
  from tf_privrob import membership

  request = _request(task, count, **asked)
  return membership.cached_outputs(task.folder, key, request)


def _request(task: Task, count: int | None, **asked: Any):
  from tf_privrob import membership

  asked = {"value_range": task.dataset.value_range, **asked}
  members, nonmembers, _ = inferring.chosen_points(task.dataset, count)
  return membership.Request(task.trained, members, nonmembers, **asked)


def evaluation_attack(task: Task, radius: float | None = None):
  """The paper's, at the radius of the recipe or at another one."""
  recipe = task.recipe
  if radius is not None:
    recipe = dataclasses.replace(recipe, attack_eps=radius)
  return robust_training_measure.evaluation_attack(
    recipe, task.dataset.value_range
  )


def attacked_outputs(task: Task):
  """Benign and adversarial, of all points."""
  if task.recipe.trainer == "pixeldp":
    return _smoothed_outputs(task)
  return outputs_of(
    task, "attacked", task.scale.num_points, attack=evaluation_attack(task)
  )


def verified_outputs(task: Task):
  """Worst-case logits, as `membership.worst_cases` says.

  None where the exact dual is not affordable, or the trainer has no bounds.
  """
  from tf_privrob import bounds
  from tf_privrob import membership

  asked, count = membership.worst_cases(task.trained), task.scale.num_points
  if not asked:
    return None
  if isinstance(asked["domain"], bounds.Dual):
    rows, count = task.scale.rows_at_once, task.scale.num_dual
    asked["domain"] = dataclasses.replace(asked["domain"], rows_at_once=rows)
    if not count or task.recipe.num_verified == 0:
      return None
  asked["attack_eps"] = task.recipe.attack_eps
  return outputs_of(task, "verified", count, **asked)


def _smoothed_outputs(task: Task):
  """Log of PixelDP's score: the mean of softmax over draws of its noise."""
  import tensorflow as tf

  from tf_privrob import data
  from tf_privrob import membership

  size = data.default_physical_batch_size(task.dataset.input_shape)
  request = _request(task, task.scale.num_points)

  @tf.function(reduce_retracing=True)
  def score(x):
    seeds = range(_NOISE_DRAWS)
    draws = [tf.nn.softmax(task.trained.noisy_logits(x, (7, s))) for s in seeds]
    return tf.math.log(tf.add_n(draws) / _NOISE_DRAWS + 1e-30)

  def make():
    parts = (request.members, request.nonmembers)
    found = tuple(
      np.concatenate([score(x[r : r + size]) for r in range(0, len(x), size)])
      for x, _ in parts
    )
    return membership.Outputs(
      *(labels for _, labels in parts),
      found,
      about={**request.about, "noise_draws": _NOISE_DRAWS},
    )

  return membership.cached_outputs(
    task.folder,
    "smoothed",
    make,
    fingerprint=f"{request.fingerprint}-{_NOISE_DRAWS}",
  )
