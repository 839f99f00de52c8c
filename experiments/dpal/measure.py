"""Trains the models of `experiments.dpal`, and measures them.

Pipelines that draw noise for every prediction are attacked through the mean
over draws (EOT) and judged by the majority of fresh ones. The others are
attacked as they are. Nothing here calls a claimed size proven.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from experiments.dpal import cells as dpal_cells
from experiments.grid import work
from tf_privrob import papers
from tf_privrob.runs import train as training

# Formulas that DPAL's papers and code have for the size of an image.
COMPOSITIONS = {
  "paper": "paper: kappa + phi",
  "harmonic": "harmonic",
  "released_v0": "released code V0",
  "released_v1": "released code V1",
}
_L2_RADII = tuple(round(0.05 * i, 2) for i in range(61))
_LINF_RADII = tuple(round(0.005 * i, 3) for i in range(21))  # and the paper's
_BATCH = 100

VALUE_RANGE = (-1.0, 1.0)
_CROP = 28  # the paper's CIFAR-10 network takes 28 x 28 pixels
# AdLM's own numbers of bounded units: its noise on labels grows with their
# square, and drowns everything with DPAL's 256.
_ADLM_UNITS = {"mnist": 25, "cifar10": 30}
# DPAL has the paper's network; DP-SGD does better with a small one, whose noise
# has fewer dimensions, and both private methods have the same.
_NETWORKS = {
  ("dpal", "mnist"): "dpal_mnist_bn",
  ("dpal", "cifar10"): "dpal_cifar10_bn",
  ("dp_sgd", "mnist"): "tutorial_cnn_tanh",
  ("dp_sgd", "cifar10"): "dpal_cifar10",
  ("sound_dpal", "mnist"): "tutorial_cnn_tanh",
  ("sound_dpal", "cifar10"): "dpal_cifar10",
  ("secure_sgd", "mnist"): "secure_sgd_mnist",
  ("pixeldp", "mnist"): "pixeldp_mnist",
}


def load_dataset(name: str, data_dir: str | None):
  """The data in [-1, 1]; CIFAR-10 cut to the paper's size, at the centre."""
  from tf_privrob import data
  from tf_privrob import validate

  validate.one_of(dpal_cells.FAMILIES, dataset=name)
  dataset = data.load(name, data_dir, VALUE_RANGE)
  if dpal_cells.FAMILIES[name] != "cifar10":
    return dataset
  start = (dataset.input_shape[0] - _CROP) // 2
  inside = slice(start, start + _CROP)
  return dataclasses.replace(
    dataset,
    x_train=dataset.x_train[:, inside, inside],
    x_test=dataset.x_test[:, inside, inside],
    split=f"{dataset.split} Centre crops of {_CROP} x {_CROP}.",
  )


def train_cell(cell, scale, dataset, folder) -> dict:
  """Trains, or goes on with a training that was killed; the result.

  Args:
    cell: a "train" cell.
    scale: its settings.
    dataset: in [-1, 1].
    folder: `RunFolder` of the model; the run folder is inside.
  """
  family = dpal_cells.FAMILIES[dataset.name]
  settings = dpal_cells.settings(cell, scale, family, dataset.num_train)
  name = _network_name(cell, family, dataset)
  value_range = ",".join(f"{v:g}" for v in VALUE_RANGE)
  _, found = work.train(
    lambda config: _build(cell, family, name, config, dataset),
    settings,
    dataset,
    name,
    folder,
    {"value_range": value_range},
  )
  return {
    **found,
    "clean": work.clean(load_model(cell, dataset, folder), dataset),
  }


def load_model(cell, dataset, folder):
  """The trained model of a cell."""
  model = training.load_run(folder)
  if cell.method == "adlm":
    # It was trained under noise and is deployed without: the moving statistics
    # become those of clean training images. (The released code standardises by
    # the test batch at hand, which would classify images in company only.)
    model.network(dataset.x_train[: model.config.batch_size], training=True)
  return model


def _network_name(cell, family: str, dataset) -> str:
  if cell.method == "adlm":
    return f"adlm_{family}"
  name = _NETWORKS[cell.method, family]
  if name.startswith("tutorial") and min(dataset.input_shape[:2]) < 16:
    return "dpal_mnist_tanh"  # which takes smaller images
  return name


def _build(cell, family: str, name: str, config, dataset):
  """The method of a cell."""
  if cell.method != "adlm":
    method = dpal_cells.registered_name(cell.method)
    return work.build(method, name, dataset, config)
  network, other = (
    _adlm_network(family, dataset, standardized)
    for standardized in (True, False)
  )
  _train_openly(other, dataset, config.relevance_steps)
  return papers.AdLM(network, config, relevance_network=other)


def _adlm_network(family: str, dataset, standardized: bool):
  """DPAL's convolutions as a plain chain, with AdLM's bounded layer.

  AdLM standardises before the bounded layer; without that its noise saturates
  the layer and nothing is learnt. Relevances are propagated through a network
  without it.
  """
  import tensorflow as tf

  from tf_privrob import layers as privrob_layers

  layers = tf.keras.layers
  filters = {"mnist": [(32, 5, 2), (64, 5, 2)]}
  filters["cifar10"] = [(128, 4, 2), (128, 5, 1), (256, 5, 1)]
  glorot = (tf.keras.initializers.GlorotUniform(i) for i in range(9))
  chain = [layers.Input(dataset.input_shape)]
  for count, size, stride in filters[family]:
    chain.append(
      layers.Conv2D(
        count,
        size,
        stride,
        "same",
        activation="relu",
        kernel_initializer=next(glorot),
      )
    )
    if len(chain) == (2 if family == "mnist" else 4):
      chain.append(layers.AveragePooling2D(2))
  units = _ADLM_UNITS[family]
  chain += [
    layers.Flatten(),
    layers.Dense(units, kernel_initializer=next(glorot)),
  ]
  if standardized:
    chain.append(
      layers.BatchNormalization(momentum=0.0, center=False, scale=False)
    )
  chain += [
    privrob_layers.BoundedActivation(1.0),
    layers.Dense(dataset.num_classes, kernel_initializer=next(glorot)),
  ]
  return tf.keras.Sequential(chain, name=f"adlm_{family}")


def _train_openly(network, dataset, steps: int, rows: int = 256) -> None:
  """Trains AdLM's relevance network, without privacy, as its code does."""
  import numpy as np
  import tensorflow as tf

  network.compile(
    tf.keras.optimizers.Adam(1e-3),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  rng = np.random.default_rng(0)
  for _ in range(steps):
    chosen = rng.choice(dataset.num_train, min(rows, dataset.num_train), False)
    network.train_on_batch(dataset.x_train[chosen], dataset.y_train[chosen])


# Measurements.


def chosen_rows(dataset, count: int) -> np.ndarray:
  """Indices of so many test images, evenly spread."""
  count = min(count, dataset.num_test)
  return np.linspace(0, dataset.num_test - 1, count).round().astype(int)


def linf_cell(cell, scale, dataset, model, folder) -> dict:
  """Accuracy under the four attacks of one size, on the deployed pipeline."""
  del folder
  rows = chosen_rows(dataset, scale.num_attacked)
  x, y = dataset.x_test[rows], dataset.y_test[rows]
  found = []
  for name in dpal_cells.ATTACKS:
    result = _attack(name, cell.attack_eps, cell, scale, dataset, model, x, y)
    found.append(
      {
        "name": name,
        "accuracy": result.accuracy,
        "interval": result.interval,
        "warnings": result.warnings,
        "seconds": round(result.seconds, 2),
      }
    )
  randomised = cell.method in dpal_cells.NOISY
  return {
    "attack_eps": cell.attack_eps,
    "norm": "linf",
    "count": len(x),
    "attack_steps": scale.attack_steps,
    "eot_draws": scale.eot_draws if randomised else None,
    "verdict_draws": scale.verdict_draws if randomised else None,
    "clean_accuracy": result.clean_accuracy,
    "attacks": found,
  }


def radii_cell(cell, scale, dataset, model, folder) -> dict:
  """Proven radii and, for DPAL, the claimed ones and what became of them."""
  rows = chosen_rows(dataset, scale.num_radii)
  x, y = dataset.x_test[rows], dataset.y_test[rows]
  result = {
    "count": len(x),
    "proven": _proven(cell, scale, model, x, y, folder),
  }
  if cell.method in ("dpal", "secure_sgd"):
    result["claimed"] = _claimed(cell, scale, dataset, model, x, y)
  return result


def _attack(name, size, cell, scale, dataset, model, x, y):
  from tf_privrob import attacks

  attack = attacks.by_name(
    name,
    value_range=dataset.value_range,
    **attacks.accepted(name, attack_eps=size, steps=scale.attack_steps),
  )
  if cell.method in dpal_cells.NOISY:
    target = attacks.eot(model.noisy_logits, scale.eot_draws)
    draws = scale.verdict_draws
  else:
    target, draws = model, 1
  return attacks.evaluate(
    attack, target, x, y, 0, _BATCH, draws, progress=False
  )


def _proven(cell, scale, model, x, y, folder) -> dict:
  """Curves in l2 and, through ||.||_2 <= sqrt(d) ||.||_inf, in l_inf."""
  from tf_privrob import certify

  draws = {
    "num_selection": scale.num_selection,
    "num_estimation": scale.num_estimation,
  }
  if cell.method in ("dpal", "secure_sgd"):
    certifier = model.proven_certifier("l2", **draws)
  elif cell.method == "pixeldp":
    certifier = model.certifier("l2", **draws)
  else:
    certifier = dataclasses.replace(model.certifier(), **draws)
  rows = certify.run(
    certifier, model, x, y, csv_path=folder.file("certificates.csv")
  )
  in_linf = [
    dataclasses.replace(
      row, norm="linf", radius=row.radius / math.sqrt(x[0].size)
    )
    for row in rows
  ]
  return {
    "method": rows[0].method,
    "settings": certifier.settings(),
    "confidence": certifier.confidence,
    "abstained": sum(row.abstained for row in rows),
    "mean_l2_radius": certify.mean_certified_radius(rows),
    "largest_linf_radius": max(row.radius for row in in_linf),
    "l2": certify.certified_accuracy(rows, _L2_RADII),
    "linf": certify.certified_accuracy(
      in_linf, sorted({*_LINF_RADII, *dpal_cells.RADII})
    ),
  }


def _claimed(cell, scale, dataset, model, x, y) -> dict:
  """Claimed sizes, and attacks of each size.

  DPAL's by four formulas from one set of draws. The bounds are on votes, as in
  the released code: of the paper's and the code's bounds they allow the larger
  claims. SecureSGD's as its released code has them.
  """
  if cell.method == "dpal":
    verified = dataclasses.replace(
      model.certifier(), bound="clopper_pearson", num_draws=scale.num_draws
    )
    estimate = verified.estimate(model, x)
    correct = estimate.labels == y
    about = {"bound": verified.bound, "psi": verified.psi}
    sizes_of = {
      name: functools.partial(sizes_by, name, model, estimate)
      for name in COMPOSITIONS
    }
  else:
    verified = dataclasses.replace(model.certifier(), num_draws=scale.num_draws)
    rows = verified.certify(model, x, y)
    correct = np.array([row.correct for row in rows])
    sizes = np.array([row.radius for row in rows])
    about, sizes_of = {}, {"released": lambda size: sizes}
  attacked = [
    _attack("pgd", size, cell, scale, dataset, model, x, y)
    for size in dpal_cells.RADII
  ]
  return {
    "num_draws": scale.num_draws,
    **about,
    "accuracy": float(correct.mean()),
    "attack_steps": scale.attack_steps,
    "eot_draws": scale.eot_draws,
    "verdict_draws": scale.verdict_draws,
    "attacked": [
      {
        "attack_eps": size,
        "accuracy": result.accuracy,
        "interval": result.interval,
        "warnings": result.warnings,
      }
      for size, result in zip(dpal_cells.RADII, attacked)
    ],
    "curves": {
      name: [
        {
          "attack_eps": size,
          **count_fallen(
            correct & (sizes(size) >= size),
            result,
            x,
          ),
        }
        for size, result in zip(dpal_cells.RADII, attacked)
      ]
      for name, sizes in sizes_of.items()
    },
  }


def sizes_by(composition: str, model, estimate, attack_eps: float):
  """The size of each image by one formula, each with its own Delta_r^h."""
  verified = model.certifier(attack_eps, composition)
  if composition.startswith("released"):
    kernel = next(w for w in model.network.weights if len(w.shape) > 1)
    positions = math.prod(model.hidden_noise_shape[:-1])
    verified = dataclasses.replace(
      verified,
      hidden_sensitivity=papers.released_hidden_sensitivity(
        kernel.numpy(), positions
      ),
    )
  return verified.radius(estimate.p1_lower, estimate.p2_upper)


def count_fallen(claimed: np.ndarray, result, x: np.ndarray) -> dict:
  """How many images of those claimed to be robust an attack misclassified.

  An image that fresh draws misclassify without an attack is none of its
  successes; `evaluate` returns those as they were.
  """
  moved = np.any(result.x_adv != x, axis=tuple(range(1, x.ndim)))
  fallen = claimed & moved & result.success
  return {
    "accuracy": float(claimed.mean()),
    "claimed": int(claimed.sum()),
    "fallen": int(fallen.sum()),
  }
