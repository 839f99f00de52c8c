"""Trains the models of `experiments.dpal` into run folders, and loads them."""

from __future__ import annotations

import dataclasses
import time

from experiments.dpal import cells as dpal_cells
from tf_privrob import papers
from tf_privrob.runs import train as training

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


def run_cell(cell, scale, dataset, folder) -> dict:
  """Trains, or goes on with a training that was killed; the result.

  Args:
    cell: a "train" cell.
    scale: its settings.
    dataset: in [-1, 1].
    folder: `RunFolder` of the model; the run folder is inside.
  """
  from tf_privrob import binomial
  from tf_privrob import run_folder

  started = time.monotonic()
  run = run_folder.RunFolder(folder.file(training.RUN))
  # Without this cell's result the file may be half of one.
  run.file("model.keras").unlink(missing_ok=True)
  family = dpal_cells.FAMILIES[dataset.name]
  config = training.repeatable(
    dpal_cells.settings(cell, scale, family, dataset.num_train)
  )
  name, model = _build(cell, family, config, dataset)
  training.fit(
    model,
    dataset,
    name,
    run,
    None,
    {"value_range": ",".join(f"{v:g}" for v in VALUE_RANGE)},
  )
  model = load_model(cell, dataset, folder)
  correct = int((predict(model, dataset.x_test) == dataset.y_test).sum())
  statement = model.privacy_statement()
  return {
    **training.stated(statement),
    "caveats": list(statement.caveats),
    "clean": {
      "accuracy": correct / dataset.num_test,
      "count": dataset.num_test,
      "interval": binomial.interval(correct, dataset.num_test),
    },
    "network": name,
    "steps": model.run_record["steps"],
    "sessions": model.run_record["sessions"],
    "config": dataclasses.asdict(config),
    "seconds": round(time.monotonic() - started, 2),
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


def predict(model, x):
  """Classes by the largest logit, with the noise of training if it has any."""
  return model.predict(x, batch_size=500, verbose=0).argmax(axis=1)


def _build(cell, family, config, dataset):
  """The network's name and the method around it."""
  from tf_privrob import methods
  from tf_privrob import models

  if cell.method == "adlm":
    network, other = (
      _adlm_network(family, dataset, standardized)
      for standardized in (True, False)
    )
    _train_openly(other, dataset, config.relevance_steps)
    return network.name, papers.AdLM(network, config, relevance_network=other)
  name = _NETWORKS[cell.method, family]
  if name.startswith("tutorial") and min(dataset.input_shape[:2]) < 16:
    name = "dpal_mnist_tanh"  # which takes smaller images
  network = models.by_name(
    name,
    dataset.input_shape,
    dataset.num_classes,
    training.network_seed(config),
  )
  return name, methods.build(
    dpal_cells.registered_name(cell.method), network, config
  )


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
