"""Trains, asks and attacks the models of `experiments.membership`."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np

from experiments import grid_rows
from experiments import membership_cells
from experiments import robust_training_cells
from experiments import robust_training_measure
from experiments import training

# Scores that strategies threshold; the first three are the paper's.
CONFIDENCES = {
  "I_B": "benign_confidence",
  "I_A": "adversarial_confidence",
  "I_V": "verified_confidence",
}
_KINDS = {"I_B": "benign", "I_A": "adversarial", "I_V": "verified"}
# Names of accuracies in results, after the kind of input.
_COLUMNS = {"benign": "", "adversarial": "adv-", "verified": "ver-"}
_NOISE_DRAWS = 20  # of PixelDP's score
_RETRAININGS = 6  # at most, of one model
_SHOWN = 60  # bins of a histogram


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


# Training.


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
    dataset = without(dataset, left_out_rows(dataset.y_train, _number(model)))
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
  """What experiments.robust_training wrote of its training."""
  from tf_privrob import run_folder

  found = folder.read_json("train.json")
  for key in ("num_train", "num_test"):
    if found[key] != getattr(dataset, key):
      raise ValueError(
        f"Expected {name} in {folder.path} to be trained on this data set,"
        f" received {key}={found[key]} there and {getattr(dataset, key)} here:"
        " members would be the wrong examples. Pass the same --data_dir."
      )
  privacy = run_folder.RunFolder(folder.file(training.RUN)).privacy or {}
  audited = privacy.get("audited")
  return {
    **{key: value for key, value in found.items() if key != "recipe"},
    "audited": found["audited"] if audited is None else audited,
    "label": label(scale.models[name].recipe),
    "studies": dict(scale.models[name].studies),
    "origin": str(folder.path),
  }


def label(recipe: robust_training_cells.Recipe) -> str:
  """In tables."""
  return recipe.label or robust_training_cells.LABELS[recipe.trainer]


def _number(model: membership_cells.Model) -> int:
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


# Outputs, each computed once and kept beside the model.


def points(dataset, count: int | None):
  """Members and non-members, evenly spread; None: all.

  Test examples that are training examples, too, are left out.
  """
  from tf_privrob import membership

  rows = membership.distinct(dataset.x_train, dataset.x_test)
  nonmembers = dataset.x_test[rows], dataset.y_test[rows]
  members = dataset.x_train, dataset.y_train
  if count is None:
    return members, nonmembers
  most = min(count, len(members[0]), len(nonmembers[0]))
  return _spread(members, most), _spread(nonmembers, most)


def _spread(part, count: int):
  rows = np.linspace(0, len(part[0]) - 1, count).round().astype(int)
  return tuple(array[rows] for array in part)


def _outputs(task: Task, key: str, count: int | None, **asked: Any):
  """Outputs of a model, from its folder if they are there."""
  from tf_privrob import membership

  members, nonmembers = points(task.dataset, count)
  asked = {"value_range": task.dataset.value_range, **asked}
  return membership.cached_outputs(
    task.folder,
    key,
    membership.Request(task.trained, members, nonmembers, **asked),
  )


def _attack(task: Task, radius: float | None = None):
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
  return _outputs(task, "attacked", task.scale.num_points, attack=_attack(task))


def verified_outputs(task: Task):
  """Worst-case logits, by the bounds that the model was trained on.

  Intervals with outward rounding, or the exact dual; None where that is not
  affordable, or where the trainer has no bounds. The ball is cut to the value
  range where training did so.
  """
  from tf_privrob import bounds

  if not task.recipe.has_bounds:
    return None
  config = task.trained.config
  domain = dataclasses.replace(config.sound_domain, arithmetic="outward")
  count = task.scale.num_points
  if isinstance(domain, bounds.Dual):
    domain = dataclasses.replace(domain, rows_at_once=task.scale.rows_at_once)
    count = task.scale.num_dual
    if not count:
      return None
  inside = config.clip_to_range
  return _outputs(
    task,
    "verified",
    count,
    domain=domain,
    attack_eps=task.recipe.attack_eps,
    value_range=task.dataset.value_range if inside else grid_rows.NO_BOX,
  )


def _smoothed_outputs(task: Task):
  """Log of PixelDP's score: the mean of softmax over draws of its noise."""
  import tensorflow as tf

  from tf_privrob import data
  from tf_privrob import membership

  size = data.default_physical_batch_size(task.dataset.input_shape)

  @tf.function(reduce_retracing=True)
  def score(x):
    seeds = range(_NOISE_DRAWS)
    draws = [tf.nn.softmax(task.trained.noisy_logits(x, (7, s))) for s in seeds]
    return tf.math.log(tf.add_n(draws) / _NOISE_DRAWS + 1e-30)

  found, labels = [], []
  for x, y in points(task.dataset, task.scale.num_points):
    rows = range(0, len(x), size)
    found.append(np.concatenate([score(x[r : r + size]) for r in rows]))
    labels.append(y)
  about = {"noise_draws": _NOISE_DRAWS}
  return membership.Outputs(*labels, tuple(found), about=about)


# Cells.


def infer_cell(task: Task) -> dict[str, Any]:
  """Accuracies, and what every strategy infers."""
  from tf_privrob import membership

  outputs = {"I_B": attacked_outputs(task)}
  if outputs["I_B"].adversarial is not None:
    outputs["I_A"] = outputs["I_B"]
  verified = verified_outputs(task)
  if verified is not None:
    outputs["I_V"] = verified
  accuracies, strategies = {}, []
  for name, found in outputs.items():
    kind = _KINDS[name]
    correct = membership.score(found, f"{kind}_correct")
    for part, values in (
      ("train", correct.members),
      ("test", correct.nonmembers),
    ):
      accuracies[_COLUMNS[kind] + part] = robust_training_measure.accuracy(
        values
      )
    confidence = membership.score(found, CONFIDENCES[name])
    margin = membership.score(found, f"{kind}_margin")
    strategies += [
      membership.oracle(confidence),
      membership.held_out(confidence),
      membership.fixed(correct, 1.0, strategy="gap"),
      membership.oracle(margin),
      membership.held_out(margin),
    ]
  return {
    "attack_eps": task.recipe.attack_eps,
    "about": dict(outputs["I_B"].about),
    "verified_about": None if verified is None else dict(verified.about),
    "accuracies": accuracies,
    "strategies": [shown(found) for found in strategies],
  }


def shown(inference) -> dict[str, Any]:
  """Without the curve, which outputs give at any time."""
  return {k: v for k, v in inference.to_json().items() if k != "roc"}


def losses_cell(task: Task) -> dict[str, Any]:
  """Histograms of losses, and those of secure and insecure test examples.

  A test example is called secure as in Figure 7, here: right under the attack,
  which finds no proof.
  """
  from tf_privrob import membership

  outputs = attacked_outputs(task)
  correct = membership.score(outputs, "adversarial_correct")
  secure = correct.nonmembers.astype(bool)
  found = {}
  for kind in ("benign", "adversarial"):
    scores = membership.score(outputs, f"{kind}_loss")
    groups = {
      "members": -scores.members,
      "non-members": -scores.nonmembers,
      "secure non-members": -scores.nonmembers[secure],
      "insecure non-members": -scores.nonmembers[~secure],
    }
    found[kind] = {name: _histogram(part) for name, part in groups.items()}
  return {"attack_eps": task.recipe.attack_eps, "losses": found}


def _histogram(losses: np.ndarray) -> dict[str, Any]:
  """Shares by log10 of the loss, what is beyond in the outermost bins."""
  edges = np.linspace(-8, 2, _SHOWN + 1)
  count = len(losses)
  logs = np.log10(np.clip(losses, 1e-8, 1e2))
  counts, _ = np.histogram(logs, edges)
  return {
    "log10_edges": edges.round(6).tolist(),
    "counts": counts.tolist(),
    "count": count,
    "mean": float(np.mean(losses)) if count else None,
    "standard_error": (
      float(np.std(losses) / math.sqrt(count)) if count else None
    ),
  }


def radii_cell(task: Task) -> dict[str, Any]:
  """I_A by the radius of the inference; radius 0 is I_B."""
  from tf_privrob import membership

  rows = []
  for factor in task.scale.radii:
    radius = factor * task.recipe.attack_eps
    asked = {"attack": _attack(task, radius)} if radius else {}
    found = _outputs(
      task, f"radius_{radius:.6f}", task.scale.num_swept, **asked
    )
    name = "I_A" if radius else "I_B"
    scores = membership.score(found, CONFIDENCES[name])
    rows.append({"radius": radius, **shown(membership.oracle(scores))})
  return {"attack_eps": task.recipe.attack_eps, "radii": rows}


def temperatures_cell(task: Task) -> dict[str, Any]:
  """I_B and I_A by temperature, applied after the attack."""
  from tf_privrob import membership

  outputs, rows = attacked_outputs(task), []
  for temperature in task.scale.temperatures:
    cooled = outputs.with_temperature(temperature)
    found = {
      name: shown(membership.oracle(membership.score(cooled, score)))
      for name, score in CONFIDENCES.items()
      if name != "I_V"
    }
    rows.append({"temperature": temperature, **found})
  return {"attack_eps": task.recipe.attack_eps, "temperatures": rows}


def classes_cell(task: Task) -> dict[str, Any]:
  """Table 7: thresholds and inference models, class by class."""
  from tf_privrob import membership

  outputs = _outputs(
    task, "targeted", task.scale.num_swept, attack=_attack(task), targeted=True
  )
  num_fit = _num_fit(outputs, task.scale.num_fit)

  def threshold(score):
    scores = membership.score(outputs, score)
    return membership.class_dependent(scores, num_fit=num_fit)

  def learnt(features):
    return membership.model_inference(
      outputs, features=features, num_fit=num_fit
    )

  found = {
    "confidence, benign": threshold("benign_confidence"),
    "model, benign": learnt("benign"),
    "confidence, untargeted": threshold("adversarial_confidence"),
    "model, untargeted": learnt("adversarial"),
    "model, targeted": learnt("targeted"),
  }
  return {
    "attack_eps": task.recipe.attack_eps,
    "num_fit": num_fit,
    "class_names": task.dataset.class_names,
    "strategies": {name: shown(each) for name, each in found.items()},
  }


def _num_fit(outputs, wanted: int) -> int:
  """At most half of the smallest class, of members and of non-members."""
  counts = [
    np.bincount(labels, minlength=outputs.num_classes)
    for labels in (outputs.member_labels, outputs.nonmember_labels)
  ]
  smallest = min(int(found[found > 0].min()) for found in counts)
  return max(1, min(wanted, smallest // 2))


def left_out_cell(task: Task, original) -> dict[str, Any]:
  """Confidences of left-out examples, before and after; and of kept ones.

  Sensitivity is the original model's confidence in the true class minus that of
  the model trained without the example (Figure 2).
  """
  labels, number = task.dataset.y_train, _number(task.model)
  found = {}
  for group, rows in (
    ("left_out", left_out_rows(labels, number)),
    ("kept", kept_rows(labels, number)),
  ):
    x, y = task.dataset.x_train[rows], labels[rows]
    before, after = (
      _confidence(model, x, y) for model in (original, task.trained)
    )
    found[group] = {
      "rows": rows.tolist(),
      "original": before.tolist(),
      "retrained": after.tolist(),
      "sensitivity": (before - after).tolist(),
    }
  return {"original": task.model.original, **found}


def _confidence(model, x: np.ndarray, y: np.ndarray) -> np.ndarray:
  logits = model.predict(x, verbose=0).astype(np.float64)
  weights = np.exp(logits - logits.max(axis=1, keepdims=True))
  return weights[np.arange(len(y)), y] / weights.sum(axis=1)


def timed(task: Task, measure, *arguments) -> dict[str, Any]:
  """The result of a cell with what identifies its model."""
  started = time.monotonic()
  found = measure(task, *arguments)
  return {
    "dataset": task.recipe.dataset,
    "trainer": task.recipe.trainer,
    "label": label(task.recipe),
    "studies": dict(task.model.studies),
    **found,
    "seconds": round(time.monotonic() - started, 2),
  }


def standard_error(inference) -> float:
  """Of a balanced accuracy, from its two rates."""
  tpr, fpr = inference["tpr"], inference["fpr"]
  members, nonmembers = inference["num_members"], inference["num_nonmembers"]
  spread = tpr * (1 - tpr) / members + fpr * (1 - fpr) / nonmembers
  return math.sqrt(spread) / 2
