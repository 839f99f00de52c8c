"""Trains, attacks and verifies the models of `privacy_risks.training`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from experiments.grid import work
from experiments.privacy_risks.training import cells as robust_training_cells
from tf_privrob.runs import train as training

PARTS = ("train", "test")
_MOST = 10_000  # training examples that are attacked or verified


class Datasets:
  """Data sets by name, loaded when they are needed; the last one is kept.

  Args:
    names: those of the scale.
    data_dir: as in `data.load`.
  """

  def __init__(self, names: list[str], data_dir: str | None = None):
    self.names = list(names)
    self._data_dir = data_dir
    self._last = (None, None)

  def of(self, recipe: robust_training_cells.Recipe):
    """The data of a recipe, cut to its training examples."""
    from tf_privrob import data

    if self._last[0] != recipe.dataset:
      self._last = (recipe.dataset, data.load(recipe.dataset, self._data_dir))
    dataset = self._last[1]
    if recipe.num_train is None or recipe.num_train >= dataset.num_train:
      return dataset
    return dataset.take(recipe.num_train)


def train_cell(recipe, dataset, folder, config=None) -> dict[str, Any]:
  """Trains, or goes on with a training that was killed; the result.

  Args:
    recipe: what is trained.
    dataset: cut to the recipe's training examples.
    folder: of the model.
    config: settings of the method; None: those of the recipe.
  """
  from tf_privrob import methods

  if config is None:
    config = robust_training_cells.settings(recipe, dataset.num_train)
  name = describe_network(recipe)

  def make(config):
    seed = training.network_seed(config)
    network = robust_training_cells.network(recipe, dataset, seed)
    return methods.build(recipe.method, network, config)

  model, found = work.train(make, config, dataset, name, folder)
  return {
    **_identity(recipe),
    **found,
    "data": f"{dataset.split} From {dataset.source}.",
    "num_train": dataset.num_train,
    "num_test": dataset.num_test,
    "parameters": model.network.count_params(),
    "factor": recipe.factor,
    "changes": dict(recipe.changes),
    "epochs": config.epochs,
    "trained_attack_eps": getattr(
      getattr(config, "objective", None), "attack_eps", None
    ),
  }


def describe_network(recipe) -> str:
  """Its name, and what differs from the published form."""
  changed = ", ".join(f"{k} {v}" for k, v in recipe.network_settings.items())
  return f"{recipe.network} ({changed})" if changed else recipe.network


def _identity(recipe) -> dict[str, Any]:
  return {
    "dataset": recipe.dataset,
    "trainer": recipe.trainer,
    "label": recipe.label or robust_training_cells.LABELS[recipe.trainer],
    "attack_eps": recipe.attack_eps,
  }


def clean_cell(recipe, scale, dataset, model) -> dict[str, Any]:
  """Accuracy on all training and all test examples."""
  del scale
  found = {}
  for part in PARTS:
    x, y = _arrays(dataset, part)
    logits = model.predict(x, _batch_size(dataset), verbose=0)
    found[part] = work.share(logits.argmax(axis=1) == y)
  return {**_identity(recipe), **found}


def attack_cell(recipe, scale, dataset, model) -> dict[str, Any]:
  """Accuracy under the paper's evaluation attack.

  PGD in l_inf from the example itself, 20 steps of 2.5 * attack_eps / 20, in
  the value range. As in the paper, an adversarial example counts by itself;
  "strict" also asks that the clean one is classified correctly, since it is
  within the attacker's reach.
  """
  from tf_privrob import attacks

  attack = evaluation_attack(recipe, dataset.value_range)
  found, warnings = {}, []
  for part in PARTS:
    x, y = _arrays(dataset, part)
    rows = chosen_rows(dataset, part, scale.num_attacked)
    x, y = x[rows], y[rows]
    size = min(_batch_size(dataset), len(x))
    warnings += attacks.checks.quick(model, x[:size], y[:size], 0)
    clean = model.predict(x, size, verbose=0).argmax(axis=1) == y
    moved = _attacked(attack, model, x, y, size)
    right = model.predict(moved, size, verbose=0).argmax(axis=1) == y
    found[part] = {**work.share(right), "strict": float((right & clean).mean())}
  return {
    **_identity(recipe),
    **found,
    "attack": repr(attack),
    "warnings": sorted(set(warnings)),
  }


def evaluation_attack(recipe, value_range: tuple[float, float]):
  """The same for every model."""
  from tf_privrob import attacks

  steps = robust_training_cells.ATTACK_STEPS
  return attacks.PGD(
    recipe.attack_eps,
    norm="linf",
    value_range=value_range,
    steps=steps,
    step_size=2.5 * recipe.attack_eps / steps,
    random_start=False,
  )


def _attacked(attack, model, x, y, size: int) -> np.ndarray:
  """Adversarial examples, in batches of one shape."""
  run = attack.compile(model)
  found = []
  for start in range(0, len(x), size):
    rows = np.minimum(np.arange(start, start + size), len(x) - 1)
    found.append(run(x[rows], y[rows], 0).numpy()[: len(x) - start])
  return np.concatenate(found)


def verify_cell(recipe, scale, dataset, model) -> dict[str, Any]:
  """Share of examples that are right and proven so within attack_eps."""
  from tf_privrob import bounds

  domain = model.objective.sound_domain
  count, size = scale.num_verified, None
  if isinstance(domain, bounds.Dual):
    domain = dataclasses.replace(domain, rows_at_once=scale.rows_at_once)
    count, size = scale.num_dual, 1
  if recipe.num_verified is not None:
    count = recipe.num_verified
  certifier = model.certifier(
    attack_eps=recipe.attack_eps, domain=domain, batch_size=size
  )
  found, kinds = {}, set()
  for part in PARTS:
    x, y = _arrays(dataset, part)
    rows = chosen_rows(dataset, part, count)
    certificates = certifier.certify(model, x[rows], y[rows])
    kinds |= {row.kind for row in certificates}
    found[part] = work.share(is_verified(certificates, recipe.attack_eps))
  return {
    **_identity(recipe),
    **found,
    "certifier": certifier.settings(),
    "certificate": certifier.method,
    "kinds": sorted(kinds),
  }


def is_verified(certificates, attack_eps: float) -> np.ndarray:
  """Which rows are proven, right, and hold at this radius."""
  return np.array(
    [
      row.kind == "proven"
      and not row.abstained
      and row.prediction == row.label
      and row.radius >= attack_eps
      for row in certificates
    ]
  )


def chosen_rows(dataset, part: str, count: int | None) -> np.ndarray:
  """At most so many, evenly spread; None: all, of training up to 10,000.

  Or up to the number of test examples, if these are more: all 1,900 faces.
  """
  total = dataset.num_train if part == "train" else dataset.num_test
  most = max(dataset.num_test, _MOST) if count is None else count
  return np.linspace(0, total - 1, min(most, total)).round().astype(int)


def _arrays(dataset, part: str) -> tuple[np.ndarray, np.ndarray]:
  return getattr(dataset, f"x_{part}"), getattr(dataset, f"y_{part}")


def _batch_size(dataset) -> int:
  from tf_privrob import data

  return data.default_physical_batch_size(dataset.input_shape)
