"""What models of `privacy_risks.membership` answer, kept beside each model."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from experiments.grid import work
from experiments.privacy_risks.membership import cells as membership_cells
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import (
  measure as robust_training_measure,
)

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


def points(dataset, count: int | None):
  """Members and non-members, drawn with a fixed seed; None: all.

  Not every k-th one: where classes take turns, that could leave out classes.
  Test examples that are training examples, too, are left out.
  """
  from tf_privrob import membership

  rows = membership.distinct(dataset.x_train, dataset.x_test)
  nonmembers = dataset.x_test[rows], dataset.y_test[rows]
  members = dataset.x_train, dataset.y_train
  if count is None:
    return members, nonmembers
  most = min(count, len(members[0]), len(nonmembers[0]))
  return _drawn(members, most), _drawn(nonmembers, most)


def _drawn(part, count: int):
  order = np.random.default_rng(0).permutation(len(part[0]))
  rows = np.sort(order[:count])
  return tuple(array[rows] for array in part)


def outputs_of(task: Task, key: str, count: int | None, **asked: Any):
  """Outputs of a model, from its folder if they are there."""
  from tf_privrob import membership

  request = _request(task, count, **asked)
  return membership.cached_outputs(task.folder, key, request)


def _request(task: Task, count: int | None, **asked: Any):
  from tf_privrob import membership

  asked = {"value_range": task.dataset.value_range, **asked}
  return membership.Request(task.trained, *points(task.dataset, count), **asked)


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
  """Worst-case logits, by the bounds that the model was trained on.

  Intervals with outward rounding, or the exact dual; None where that is not
  affordable, or where the trainer has no bounds. The ball is cut to the value
  range where training did so.
  """
  from tf_privrob import bounds

  if not task.recipe.has_bounds:
    return None
  objective = task.trained.objective
  domain = dataclasses.replace(objective.sound_domain, arithmetic="outward")
  count = task.scale.num_points
  if isinstance(domain, bounds.Dual):
    domain = dataclasses.replace(domain, rows_at_once=task.scale.rows_at_once)
    count = task.scale.num_dual
    if not count:
      return None
  inside = objective.clip_to_range
  return outputs_of(
    task,
    "verified",
    count,
    domain=domain,
    attack_eps=task.recipe.attack_eps,
    value_range=task.dataset.value_range if inside else work.NO_BOX,
  )


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
