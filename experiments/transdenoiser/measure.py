"""Trains, certifies and attacks the models of `experiments.transdenoiser`."""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments.grid import work
from experiments.transdenoiser import cells as transdenoiser_cells
from tf_privrob.runs import train as training

CLASSIFIER = "classifier.keras"
_STEP = 0.05  # of the certified curve
_BATCH = 50
_NETWORK_SEED = 0  # public, of the initial weights


@dataclasses.dataclass(frozen=True)
class Parts:
  """A data set cut in two.

  Attributes:
    public: for the frozen classifier.
    private: for all else; the test images are the same.
  """

  public: object
  private: object


def load_parts(name: str, data_dir: str | None) -> Parts:
  """The declared-public part of the training images, and the private rest."""
  from tf_privrob import data
  from tf_privrob import validate

  validate.one_of(transdenoiser_cells.DATASETS, dataset=name)
  dataset = data.load(name, data_dir)
  return Parts(
    *data.split_public(dataset, transdenoiser_cells.PUBLIC_SHARE, seed=0)
  )


def train_public(scale, parts: Parts, folder) -> dict:
  """Trains the classifier on the public part, without privacy."""
  from tf_privrob import models
  from tf_privrob.runs import public_classifier as public_training

  dataset = parts.public
  network = models.by_name(
    scale.classifier, dataset.input_shape, dataset.num_classes, 0
  )
  public_training.train_public_classifier(
    network,
    dataset,
    scale.public_epochs,
    seed=0,
    augmentation=scale.public_augmentation,
    path=folder.file(CLASSIFIER),
  )
  network = models.load_model(folder.file(CLASSIFIER))
  return {
    "label": "public classifier, clean inputs",
    "weights": models.fingerprint(network),
    "clean": work.clean(network, dataset),
    "num_public": dataset.num_train,
    "parameters": network.count_params(),
  }


def load_public(folder):
  """The public classifier of an experiment."""
  from tf_privrob import models

  path = folder.file(f"{transdenoiser_cells.PUBLIC}/{CLASSIFIER}")
  return models.load_model(path)


def train_cell(cell, scale, parts: Parts, folder, classifier) -> dict:
  """Trains, or goes on with a training that was killed; the result."""
  recipe = scale.recipes[cell.recipe]
  dataset = _in_range(parts.private, recipe)
  name = recipe.denoiser or recipe.network
  model, found = work.train(
    lambda config: training.build(
      recipe.method,
      config,
      dataset,
      name,
      classifier if recipe.denoiser else None,
      parts.public,
      _NETWORK_SEED,
    ),
    transdenoiser_cells.settings(cell, scale, dataset.num_train),
    dataset,
    name,
    folder,
  )
  if recipe.method == "transdenoiser" and "tally" in model.run_record:
    found["tally"] = model.nonprivate_tally()
  return {"label": recipe.label, **found}


def certify_cell(cell, scale, parts: Parts, model, folder) -> dict:
  """The certified curve in l_2, in units of [0, 1]; proven for any weights."""
  from tf_privrob import certify

  recipe = scale.recipes.get(cell.recipe, transdenoiser_cells.ALONE)
  dataset = _in_range(parts.private, recipe)
  rows = work.chosen_rows(dataset, recipe.num_images or scale.num_images)
  certifier = _certifier(recipe, scale, model)
  found = certify.run(
    certifier,
    model,
    dataset.x_test[rows],
    dataset.y_test[rows],
    csv_path=folder.file("certificates.csv"),
    seed=work.DRAWS,
  )
  unit = unit_of(recipe)
  found = [dataclasses.replace(row, radius=row.radius / unit) for row in found]
  largest = max(row.radius for row in found)
  reach = _reach(certifier, dataset.x_test[0].size) / unit
  radii = np.arange(0, largest + _STEP, _STEP).round(2)
  return {
    "count": len(found),
    "abstained": sum(row.abstained for row in found),
    "confidence": found[0].confidence,
    "certificate": found[0].method,
    "draws": scale.draws,
    "mean_radius": certify.mean_certified_radius(found),
    "largest_radius": largest,
    "reach": reach,
    "curve": certify.certified_accuracy(found, radii[radii <= reach].tolist()),
  }


def _certifier(recipe, scale, model):
  from tf_privrob import certify

  if recipe is transdenoiser_cells.ALONE:
    return certify.RandomizedSmoothing(
      transdenoiser_cells.SMOOTHING_STDDEV, num_estimation=scale.draws
    )
  if recipe.method == "dpal":
    return model.proven_certifier("l2", num_estimation=scale.draws)
  if recipe.certificate == "own":
    return model.certifier(norm="l2", num_estimation=scale.draws)
  return model.certifier(num_estimation=scale.draws)


def _reach(certifier, num_features: int) -> float:
  """The radius of a unanimous vote: so many draws certify no larger one."""
  from tf_privrob import binomial

  if hasattr(certifier, "largest_radius"):
    return certifier.largest_radius
  # Half of what may fail for the class, half for its rival: single_layer.
  failing = (1 - certifier.confidence) / 2
  least = binomial.unanimous(certifier.num_estimation, failing)
  return certifier.radius(least, 1 - least, num_features)


def attack_cell(cell, scale, parts: Parts, model, classifier) -> dict:
  """Accuracy of the majority of draws under four attacks of one l_2 size.

  "transfer": crafted on the public classifier alone, as in the paper.
  "adaptive": crafted through all that is deployed, by EOT.
  """
  from tf_privrob import attacks
  from tf_privrob import binomial
  from tf_privrob.attacks import verdict

  recipe = scale.recipes[cell.recipe]
  dataset = parts.private
  rows = work.chosen_rows(dataset, scale.num_attacked)
  x, y = dataset.x_test[rows], dataset.y_test[rows]
  noisy = noisy_logits(recipe, model)
  judge = verdict.judge(noisy, scale.verdict_draws)
  target = attacks.eot(noisy, scale.eot_draws)
  found = []
  for name in transdenoiser_cells.ATTACKS:
    attack = attacks.by_name(
      name,
      norm="l2",
      value_range=dataset.value_range,
      **attacks.accepted(
        name, attack_eps=cell.attack_norm, steps=scale.attack_steps
      ),
    )
    moved = attacks.evaluate(
      attack, classifier, x, y, 0, _BATCH, progress=False
    )
    right = _judged(judge, moved.x_adv, y)
    through = attacks.evaluate(
      attack, target, x, y, 0, _BATCH, scale.verdict_draws, progress=False
    )
    found.append(
      {
        "name": name,
        "classifier": moved.accuracy,
        "transfer": float(right.mean()),
        "transfer_interval": binomial.interval(int(right.sum()), len(x)),
        "adaptive": through.accuracy,
        "adaptive_interval": through.interval,
        "warnings": through.warnings,
      }
    )
  return {
    "attack_norm": cell.attack_norm,
    "count": len(x),
    "attack_steps": scale.attack_steps,
    "eot_draws": scale.eot_draws,
    "verdict_draws": scale.verdict_draws,
    "clean_accuracy": float(_judged(judge, x, y).mean()),
    "attacks": found,
  }


def noisy_logits(recipe, model):
  """One draw of what is deployed, as a function of (x in [0, 1], seed)."""
  low, high = recipe.value_range

  def logits(x, seed):
    return model.noisy_logits(low + (high - low) * x, seed)

  return logits


def _judged(judge, x, y) -> np.ndarray:
  import tensorflow as tf

  found = [
    judge(
      tf.constant(x[start : start + _BATCH]),
      y[start : start + _BATCH],
      tf.constant([1, start]),
    ).numpy()
    for start in range(0, len(x), _BATCH)
  ]
  return np.concatenate(found)


def unit_of(recipe) -> float:
  """How long a unit of [0, 1] is for this model."""
  low, high = recipe.value_range
  return high - low


def _in_range(dataset, recipe):
  if tuple(recipe.value_range) == tuple(dataset.value_range):
    return dataset
  return dataset.rescaled(recipe.value_range)
