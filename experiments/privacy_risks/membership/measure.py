"""Trains the models of `privacy_risks.membership`, and infers from them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from experiments.grid import work
from experiments.privacy_risks.membership import cells as membership_cells
from experiments.privacy_risks.membership import outputs as asked
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import measure as training_measure
from tf_privrob.runs import train as training

# Those of Table 7, and what they look at.
CLASS_STRATEGIES = (
  "confidence, benign",
  "model, benign",
  "confidence, untargeted",
  "model, untargeted",
  "model, targeted",
)
# Scores that strategies threshold; the first three are the paper's.
CONFIDENCES = {
  "I_B": "benign_confidence",
  "I_A": "adversarial_confidence",
  "I_V": "verified_confidence",
}
_KINDS = {"I_B": "benign", "I_A": "adversarial", "I_V": "verified"}
# Names of accuracies in results, after the kind of input.
_COLUMNS = {"benign": "", "adversarial": "adv-", "verified": "ver-"}
_SHOWN = 60  # bins of a histogram
_RETRAININGS = 6  # at most, of one model


# Trainings.


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
  found = training_measure.train_cell(model.recipe, dataset, folder, config)
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


# Inferences.


def infer_cell(task: asked.Task) -> dict[str, Any]:
  """Accuracies, and what every strategy infers."""
  from tf_privrob import membership

  outputs = {"I_B": asked.attacked_outputs(task)}
  if outputs["I_B"].adversarial is not None:
    outputs["I_A"] = outputs["I_B"]
  verified = asked.verified_outputs(task)
  if verified is not None:
    outputs["I_V"] = verified
  accuracies, strategies, best = {}, [], {}
  for name, found in outputs.items():
    kind = _KINDS[name]
    correct = membership.score(found, f"{kind}_correct")
    for part, values in (
      ("train", correct.members),
      ("test", correct.nonmembers),
    ):
      accuracies[_COLUMNS[kind] + part] = work.share(values)
    confidence = membership.score(found, CONFIDENCES[name])
    margin = membership.score(found, f"{kind}_margin")
    best[name] = confidence, membership.oracle(confidence)
    strategies += [
      best[name][1],
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
    "paired": {
      name: paired_error(best[name], best[other])
      for name, other in (("I_A", "I_B"), ("I_V", "I_A"))
      if name in best and _are_paired(best[name], best[other])
    },
  }


def _are_paired(first, second) -> bool:
  """Whether both are about the same points."""
  counts = [(len(s.members), len(s.nonmembers)) for s, _ in (first, second)]
  return counts[0] == counts[1]


def paired_error(first, second) -> float:
  """Standard error of the difference of two accuracies on the same points.

  With d_i = 1{first says member} - 1{second says member}, the difference is
  (mean of d over members - mean of d over non-members) / 2.

  Args:
    first: scores, and what a threshold of them inferred.
    second: the same of other scores.
  """
  spread = 0.0
  for part in ("members", "nonmembers"):
    said = [
      getattr(scores, part) >= inference.threshold
      for scores, inference in (first, second)
    ]
    differences = said[0].astype(float) - said[1].astype(float)
    spread += differences.var() / len(differences)
  return math.sqrt(spread) / 2


def shown(inference) -> dict[str, Any]:
  """Without the curve, which outputs give at any time."""
  return {k: v for k, v in inference.to_json().items() if k != "roc"}


def losses_cell(task: asked.Task) -> dict[str, Any]:
  """Histograms of losses, and those of secure and insecure test examples.

  A test example is called secure as in Figure 7, here: right under the attack,
  which finds no proof.
  """
  from tf_privrob import membership

  outputs = asked.attacked_outputs(task)
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


def radii_cell(task: asked.Task) -> dict[str, Any]:
  """I_A by the radius of the inference; radius 0 is I_B."""
  from tf_privrob import membership

  rows = []
  for factor in task.scale.radii:
    radius = factor * task.recipe.attack_eps
    changes = (
      {"attack": asked.evaluation_attack(task, radius)} if radius else {}
    )
    found = asked.outputs_of(
      task, f"radius_{radius:.6f}", task.scale.num_swept, **changes
    )
    name = "I_A" if radius else "I_B"
    scores = membership.score(found, CONFIDENCES[name])
    rows.append({"radius": radius, **shown(membership.oracle(scores))})
  return {"attack_eps": task.recipe.attack_eps, "radii": rows}


def temperatures_cell(task: asked.Task) -> dict[str, Any]:
  """I_B and I_A by temperature, applied after the attack."""
  from tf_privrob import membership

  outputs, rows = asked.attacked_outputs(task), []
  for temperature in task.scale.temperatures:
    cooled = outputs.with_temperature(temperature)
    found = {
      name: shown(membership.oracle(membership.score(cooled, score)))
      for name, score in CONFIDENCES.items()
      if name != "I_V"
    }
    rows.append({"temperature": temperature, **found})
  return {"attack_eps": task.recipe.attack_eps, "temperatures": rows}


def classes_cell(task: asked.Task) -> dict[str, Any]:
  """Table 7: thresholds and inference models, class by class."""
  from tf_privrob import membership

  outputs = asked.outputs_of(
    task,
    "targeted",
    task.scale.num_swept,
    attack=asked.evaluation_attack(task),
    targeted=True,
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
  present = sum(counts) > 0
  smallest = min(int(found[present].min()) for found in counts)
  return max(1, min(wanted, smallest // 2))


def left_out_cell(task: asked.Task, original) -> dict[str, Any]:
  """Confidences of left-out examples, before and after; and of kept ones.

  Sensitivity is the original model's confidence in the true class minus that of
  the model trained without the example (Figure 2).
  """
  labels, number = (
    task.dataset.y_train,
    retraining_number(task.model),
  )
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


def identity(model: membership_cells.Model) -> dict[str, Any]:
  """What a result says of the model that it is about."""
  return {
    "dataset": model.recipe.dataset,
    "trainer": model.recipe.trainer,
    "label": label(model.recipe),
    "studies": dict(model.studies),
  }


def standard_error(inference) -> float:
  """Of a balanced accuracy, from its two rates."""
  tpr, fpr = inference["tpr"], inference["fpr"]
  members, nonmembers = inference["num_members"], inference["num_nonmembers"]
  spread = tpr * (1 - tpr) / members + fpr * (1 - fpr) / nonmembers
  return math.sqrt(spread) / 2
