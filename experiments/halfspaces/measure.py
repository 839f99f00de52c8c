"""Trains and measures what `experiments.halfspaces` compares."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from experiments.grid import work
from experiments.halfspaces import cells as halfspaces_cells
from tf_privrob import papers
from tf_privrob.runs import train as training

_BATCH = 100
_COMPOSITIONS = {
  "joint": "independent_batches",
  "literal": "independent_batches",
  "shared": "shared_batch",
  "kesler": "kesler",
}


def noise(
  accounting: str,
  budget: tuple[float, float],
  num_examples: int,
  batch_size: int,
  num_classes: int,
) -> dict[str, Any]:
  """The standard deviation of a step's noise, and what it really costs.

  Args:
    accounting: a name from `halfspaces_cells.ACCOUNTINGS`.
    budget: (dp_epsilon, dp_delta), of all classes or, literally, of one.
    num_examples: n.
    batch_size: expected size of a Poisson batch.
    num_classes: K.

  Returns:
    stddev, claimed (what the paper's reading of it would say), proven, the
    joint figure of all releases by PLD, and its condition: the noise of
    `methods.Trials` comes from a public seed.
  """
  from tf_privrob import privacy
  from tf_privrob.privacy import run_facts

  dp_epsilon, dp_delta = budget
  prob = batch_size / num_examples
  steps = max(1, round(1 / prob))
  own = _COMPOSITIONS[accounting] == "independent_batches"
  releases = steps * num_classes if own else steps
  literal = accounting == "literal"
  multiplier = privacy.calibrate_noise_multiplier(
    dp_epsilon,
    dp_delta,
    prob,
    steps if literal else releases,
    "rdp" if literal else "pld",
  )
  release = privacy.poisson_sgd(multiplier, prob, releases)
  proven = privacy.dp_epsilon([release], dp_delta)
  sensitivity = {"shared": math.sqrt(num_classes), "kesler": math.sqrt(2)}
  return {
    "stddev": multiplier * sensitivity.get(accounting, 1.0),
    "claimed": dp_epsilon if literal else proven,
    "proven": proven,
    "condition": run_facts.CONDITION,
  }


def unit_rows(images: np.ndarray) -> np.ndarray:
  """Flat examples of norm 1, which the sensitivity rests on."""
  flat = images.reshape(len(images), -1)
  return flat / np.linalg.norm(flat, axis=1, keepdims=True)


def scores(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
  """<w_k, x> by one product: [..., d, K] and [n, d] give [..., n, K]."""
  *lead, dimension, classes = weights.shape
  flat = np.moveaxis(weights, -2, 0).reshape(dimension, -1)
  found = (x @ flat).reshape(len(x), *lead, classes)
  return np.moveaxis(found, 0, -2)


def margins(weights: np.ndarray, found: np.ndarray, y: np.ndarray):
  """Exact l_2 radius of each test image, negative where it is misclassified.

  min over j != y of <w_y - w_j, x> / |w_y - w_j| (section 4 of the paper).

  Args:
    weights: [..., d, K].
    found: [..., n, K], from `scores` of images that are not normalised.
    y: [n].

  Returns:
    [..., n].
  """
  y = np.asarray(y)
  gram = np.swapaxes(weights, -1, -2) @ weights
  square = np.diagonal(gram, axis1=-2, axis2=-1)
  distance = square[..., :, None] + square[..., None, :] - 2 * gram
  distance = np.sqrt(np.maximum(distance, 0))
  radii = np.empty(found.shape[:-1])
  for k in np.unique(y):
    rows, others = np.flatnonzero(y == k), np.arange(found.shape[-1]) != k
    mine = found[..., rows, :]
    gaps = (mine[..., k, None] - mine)[..., others]
    apart = distance[..., None, k, others]
    ratio = np.divide(gaps, apart, out=np.zeros_like(gaps), where=apart > 0)
    radii[..., rows] = ratio.min(axis=-1)
  return radii


def perceptron_cell(cell, scale, dataset) -> dict:
  """All trials, margins and budgets of one accounting and batch size."""
  started = time.monotonic()
  budgets = halfspaces_cells.budgets(scale, dataset.name)
  count, classes = dataset.num_train, dataset.num_classes
  found = [
    noise(cell.accounting, budget, count, cell.batch_size, classes)
    for budget in budgets
  ]
  trials = papers.Trials(
    num_classes=classes,
    batch_size=cell.batch_size,
    margins=scale.margins,
    stddevs=[0.0, *(row["stddev"] for row in found)],
    trials=scale.trials,
    composition=_COMPOSITIONS[cell.accounting],
  )
  calibrated = time.monotonic()
  weights = trials.train(
    unit_rows(dataset.x_train), dataset.y_train, progress=True
  )
  trained = time.monotonic()
  rows = []
  for i, margin in enumerate(scale.margins):
    for j in range(weights.shape[2]):
      row = {"margin": margin, "dp_epsilon": None, "dp_delta": None}
      if j:
        dp_epsilon, dp_delta = budgets[j - 1]
        row.update(dp_epsilon=dp_epsilon, dp_delta=dp_delta, **found[j - 1])
      row.update(_accuracies(weights[:, i, j], scale, dataset))
      rows.append(row)
  runs = scale.trials * classes * trials.steps(count)
  updates = runs * len(scale.margins) * weights.shape[2]
  return {
    "rows": rows,
    "steps": trials.steps(count),
    "updates_per_second": updates / (trained - calibrated),
    "calibration_seconds": round(calibrated - started, 2),
    "training_seconds": round(trained - calibrated, 2),
  }


def _accuracies(weights: np.ndarray, scale, dataset) -> dict:
  """Of all trials: clean, robust by radius, and with weights of norm 1."""
  x, y = dataset.x_test.reshape(dataset.num_test, -1), dataset.y_test
  logits = scores(weights, x)
  found = margins(weights, logits, y)
  clean = (found > 0).mean(axis=1)
  robust = np.stack([(found > r).mean(axis=1) for r in scale.radii], axis=1)
  norms = np.linalg.norm(weights, axis=1, keepdims=True)
  unit = (logits / np.maximum(norms, 1e-30)).argmax(axis=-1)
  unit_accuracy = (unit == y).mean(axis=1)
  root = math.sqrt(max(1, len(weights)))
  return {
    "accuracy": float(clean.mean()),
    "standard_error": float(clean.std(ddof=len(clean) > 1) / root),
    "accuracies": clean.tolist(),
    "unit_accuracy": float(unit_accuracy.mean()),
    "robust": robust.mean(axis=0).tolist(),
    "robust_error": (robust.std(axis=0, ddof=len(clean) > 1) / root).tolist(),
  }


def train_cell(cell, scale, dataset, folder) -> dict:
  """DP-SGD as in the paper: batch 250, rate 0.15, clip 1.0."""
  from tf_privrob import methods

  config = methods.DPSGDConfig(
    dp_epsilon=cell.dp_epsilon,
    dp_delta=halfspaces_cells.dp_delta(dataset.name),
    batch_size=min(250, dataset.num_train // 4),
    epochs=scale.cnn_epochs,
    learning_rate=0.15,
    l2_clip_norm=1.0,
    checkpoint_every=200,
    seed=0,
  )
  network = "tutorial_cnn" if dataset.input_shape[0] >= 16 else "mlp"
  model, found = work.train(
    lambda config: training.build("dp_sgd", config, dataset, network),
    config,
    dataset,
    network,
    folder,
  )
  return {**found, "clean": work.clean(model, dataset)}


def attack_cell(scale, dataset, model) -> dict:
  """Accuracy under targeted PGD in l_2, towards every other class.

  What falls at one radius counts as fallen at all larger ones. Without a box,
  as the perceptron's radius has none, and inside the value range.
  """
  rows = work.chosen_rows(dataset, scale.num_attacked)
  x, y = dataset.x_test[rows], dataset.y_test[rows]
  boxes = {"free": work.NO_BOX, "boxed": dataset.value_range}
  return {
    "count": len(rows),
    "attack_steps": scale.attack_steps,
    "radii": list(scale.attack_radii),
    **{
      name: _robust(model, x, y, scale, dataset.num_classes, box)
      for name, box in boxes.items()
    },
  }


def _robust(model, x, y, scale, classes, box) -> list[float]:
  """Shares that no attack felled, by radius."""
  from tf_privrob import attacks

  attack = attacks.PGD(0.0, "l2", box, targeted=True, steps=scale.attack_steps)
  run = attack.compile(model)
  standing = _predicted(model, x) == y
  found = []
  for radius in scale.attack_radii:
    for shift in range(1, classes if radius else 1):
      left = np.flatnonzero(standing)
      for start in range(0, len(left), _BATCH):
        some = left[start : start + _BATCH]
        full = np.resize(some, _BATCH)  # one shape is traced once
        moved = run(x[full], (y[full] + shift) % classes, shift, radius)
        predicted = _predicted(model, moved)[: len(some)]
        standing[some] = predicted == y[some]
    found.append(float(standing.mean()))
  return found


def _predicted(model, x) -> np.ndarray:
  return np.asarray(model(x, training=False)).argmax(axis=1)
