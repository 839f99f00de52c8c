"""The data, networks and trainings of `experiments.dpal`."""

from __future__ import annotations

import dataclasses

from experiments.dpal import cells as dpal_cells
from experiments.grid import work
from tf_privrob import papers
from tf_privrob.runs import train as training

VALUE_RANGE = (-1.0, 1.0)
_CROP = 28  # the paper's CIFAR-10 network takes 28 x 28 pixels
# AdLM's own numbers of bounded units: its noise on labels grows with their
# square, and drowns everything with DPAL's 256.
_ADLM_UNITS = {"mnist": 25, "cifar10": 30}
_SAME_UNITS = 256  # of DPAL's network
_FILTERS = {"3x3": (128, 128, 256), "narrow": (32, 32, 64)}
# DPAL has the paper's network; DP-SGD does better with a small one, whose noise
# has fewer dimensions, and both private methods have the same. On CIFAR-10 all
# have the paper's, as it is or narrow.
_NETWORKS = {
  ("dpal", "mnist"): "dpal_mnist_bn",
  ("dpal", "cifar10"): "dpal_cifar10_{form}_bn",
  ("dp_sgd", "mnist"): "tutorial_cnn_tanh",
  ("dp_sgd_same", "mnist"): "dpal_mnist",
  ("dp_sgd_same", "cifar10"): "dpal_cifar10_{form}",
  ("sound_dpal", "mnist"): "tutorial_cnn_tanh",
  ("sound_dpal", "cifar10"): "dpal_cifar10_{form}",
  ("secure_sgd", "mnist"): "secure_sgd_mnist",
  ("pixeldp", "mnist"): "pixeldp_mnist",
  ("pixeldp_linf", "mnist"): "pixeldp_mnist",
  ("pixeldp_linf", "cifar10"): "dpal_cifar10_{form}",
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
  name = network_name(cell, family, scale.form, dataset)
  value_range = ",".join(f"{v:g}" for v in VALUE_RANGE)
  _, found = work.train(
    lambda config: _build(cell, family, name, scale.form, config, dataset),
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
  if dpal_cells.registered_name(cell.method) == "adlm":
    # It was trained under noise and is deployed without: the moving statistics
    # become those of clean training images. (The released code standardises by
    # the test batch at hand, which would classify images in company only.)
    model.network(dataset.x_train[: model.config.batch_size], training=True)
  return model


def network_name(cell, family: str, form: str, dataset) -> str:
  """What the network of a cell is called; `form` is that of the scale."""
  if dpal_cells.registered_name(cell.method) == "adlm":
    return f"{cell.method}_{family}"
  name = _NETWORKS[cell.method, family].format(form=form)
  if name.startswith("tutorial") and min(dataset.input_shape[:2]) < 16:
    return "dpal_mnist_tanh"  # which takes smaller images
  return name


def _build(cell, family: str, name: str, form: str, config, dataset):
  """The method of a cell."""
  method = dpal_cells.registered_name(cell.method)
  if method != "adlm":
    return work.build(method, name, dataset, config)
  same = cell.method != "adlm"
  units = _SAME_UNITS if same else _ADLM_UNITS[family]
  network, other = (
    _adlm_network(name, family, _FILTERS[form], units, dataset, standardized)
    for standardized in (True, False)
  )
  _train_openly(other, dataset, config.relevance_steps)
  return papers.AdLM(network, config, relevance_network=other)


def _adlm_network(name, family, filters, units, dataset, standardized: bool):
  """DPAL's convolutions as a plain chain, with AdLM's bounded layer.

  AdLM standardises before the bounded layer; without that its noise saturates
  the layer and nothing is learnt. Relevances are propagated through a network
  without it.
  """
  import tensorflow as tf

  from tf_privrob import layers as privrob_layers

  layers = tf.keras.layers
  sizes = [(32, 5, 2), (64, 5, 2)]
  if family == "cifar10":
    sizes = list(zip(filters, (3, 5, 5), (2, 1, 1)))
  glorot = (tf.keras.initializers.GlorotUniform(i) for i in range(9))
  chain = [layers.Input(dataset.input_shape)]
  for count, size, stride in sizes:
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
  return tf.keras.Sequential(chain, name=name)


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
