"""Exported networks are models of plain Keras with the same predictions."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.models.files import keras3_files
from tf_privrob import layers
from tf_privrob import methods
from tf_privrob import models

_layers = tf.keras.layers
_READ = keras3_files.FOLDER / "read.py"
_SUFFIXES = (".keras", ".h5")


def _stack(*parts, shape=(4,), dtype=None):
  inputs = _layers.Input(shape, dtype=dtype)
  return tf.keras.Sequential([inputs, *parts])


def _normalized():
  return _stack(
    layers.NormalizedConv2D(4, 3, activation="relu"),
    layers.NormalizedConv2D(3, 2, use_bias=False),
    _layers.Flatten(),
    layers.NormalizedDense(5, "tanh"),
    layers.LaplaceNoise(0.3, at_inference=False),
    layers.GaussianNoise(0.0, fixed=False),
    layers.NormalizedDense(3),
    layers.Temperature(3.0),
    shape=(7, 8, 2),
  )


def _bounded():
  """An activation that is called twice, on its own outputs too."""
  inputs = _layers.Input((4,))
  bounded = layers.BoundedActivation(0.3)
  outputs = bounded(_layers.Dense(5)(bounded(inputs)))
  return tf.keras.Model(inputs, _layers.Dense(3)(outputs))


def _nested():
  """A denoiser and a classifier, one of which is called twice."""
  inputs = _layers.Input((8, 8, 1))
  denoiser = models.smooth_denoiser((8, 8, 1))
  classifier = _stack(_layers.Flatten(), _layers.Dense(3), shape=(8, 8, 1))
  clean = denoiser(inputs)
  outputs = {"b": classifier(clean), "a": classifier(inputs)}
  return tf.keras.Model({"z": inputs}, outputs)


def _trained():
  """The network of a method, as it leaves a training."""
  network = models.tutorial_cnn((28, 28, 1), 10)
  method = methods.DPSGD(network)
  return method.network


def _names():
  """Layers of one name in several models."""
  inner = [
    _stack(_layers.Dense(4, "relu", name="same"), _layers.Dense(4))
    for _ in range(2)
  ]
  return _stack(*inner, _layers.Dense(3, name="same"))


NETWORKS = {
  "names": _names,
  "nested": _nested,
  "normalized": _normalized,
  "residual": lambda: models.residual_mnist(width=2),
  "bounded": _bounded,
  "mlp": lambda: models.mlp((4,), 3),
  "trained": _trained,
  "wide": lambda: models.wide_resnet((16, 16, 3), 4, scale=1, units=1),
}


def _drawn(name):
  """A network none of whose weights is as it starts."""
  network = NETWORKS[name]()
  rng = np.random.default_rng(3)
  for weight in network.weights:
    if weight.dtype.is_floating:  # and no counter
      drawn = rng.uniform(0.01, 0.05, weight.shape)
      weight.assign(weight * rng.uniform(0.8, 1.2) + drawn)
  return network


def write(folder, cases):
  """Exports, and inputs and outputs of each, as `keras3/write.py` does."""
  for name in NETWORKS:
    network = _drawn(name)
    rng = np.random.default_rng(4)
    x = tf.nest.map_structure(
      lambda part, rng=rng: rng.random((2, *part.shape[1:]), np.float32),
      network.input,
    )
    y = network(x, training=False)
    arrays = {f"x{i}": v for i, v in enumerate(tf.nest.flatten(x))}
    arrays |= {f"y{i}": v for i, v in enumerate(tf.nest.flatten(y))}
    np.savez(cases / f"{name}.npz", **arrays)
    for suffix in _SUFFIXES:
      models.export(network, folder / f"{name}{suffix}")


def read(python, cases, folder, **environment):
  """What another program finds in the files of a folder."""
  result = subprocess.run(
    [python, str(_READ), str(cases), str(folder)],
    cwd=cases,
    capture_output=True,
    text=True,
    check=True,
    env={**os.environ, **environment},
  )
  return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(name="folders", scope="module")
def _folders(tmp_path_factory):
  folders = tmp_path_factory.mktemp("cases"), tmp_path_factory.mktemp("files")
  write(folders[1], folders[0])
  return folders


def test_plain_keras_2_loads_what_is_exported(folders):
  found = read(sys.executable, *folders)
  assert found["keras"] == 2
  assert len(found["files"]) == len(NETWORKS) * len(_SUFFIXES)
  for name, difference in found["files"].items():
    assert isinstance(difference, float), (name, difference)
    assert difference < 1e-6, name


@pytest.mark.parametrize("suffix", _SUFFIXES)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_library_loads_what_is_exported(folders, name, suffix):
  cases, files = folders
  x, y = keras3_files.arrays(cases / name)
  model = models.load_model(files / f"{name}{suffix}")
  for found, expected in zip(keras3_files.outputs(model, x), y):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_network_is_left_alone(tmp_path):
  network = _drawn("normalized")
  before = models.fingerprint(network)
  config = network.get_config()
  models.export(network, tmp_path / "model.keras")
  assert models.fingerprint(network) == before
  assert network.get_config() == config


def _given_state():
  inputs = _layers.Input((5, 3))
  sequence, *states = _layers.LSTM(3, return_state=True)(inputs)
  outputs = _layers.LSTM(3)(_layers.RepeatVector(2)(sequence), states)
  return tf.keras.Model(inputs, outputs)


def _operation():
  inputs = _layers.Input((4,))
  return tf.keras.Model(inputs, 2 * inputs)


def _attention():
  inputs = _layers.Input((5, 4))
  return tf.keras.Model(
    inputs, _layers.MultiHeadAttention(2, 3)(inputs, inputs)
  )


def _always_in_training():
  inputs = _layers.Input((4,))
  return tf.keras.Model(inputs, _layers.Dropout(0.5)(inputs, training=True))


@tf.keras.saving.register_keras_serializable("exporting_test")
class _Own(_layers.Dense):
  """Of a program."""


@tf.keras.saving.register_keras_serializable("exporting_test")
def _cubed(x):
  return x**3


def _assigned_noise():
  network = _stack(layers.LaplaceNoise(0.0))
  network.layers[0].noise.assign([[0.0, 0.0, 0.1, 0.0]])
  return network


REFUSED = {
  "noise": (lambda: _stack(layers.LaplaceNoise(0.1)), "adds noise"),
  "fresh noise": (
    lambda: _stack(layers.GaussianNoise(0.1, fixed=False)),
    "adds noise",
  ),
  "features": (
    lambda: models.random_features_linear((4,), 3),
    "RandomFourierFeatures",
  ),
  "noise of a weight": (_assigned_noise, "adds noise"),
  "statistics": (
    lambda: _stack(layers.BatchStandardization(), shape=(4, 4, 1)),
    "BatchStandardization",
  ),
  "own layer": (lambda: _stack(_Own(3)), "_Own"),
  "own function": (lambda: _stack(_layers.Dense(3, _cubed)), "_cubed"),
  "operation": (_operation, "TFOpLambda"),
  "lambda": (lambda: _stack(_layers.Lambda(lambda x: x)), "Lambda"),
  "other function": (
    lambda: _stack(_layers.Dense(3, "hard_sigmoid")),
    "hard_sigmoid",
  ),
  "other function of an LSTM": (
    lambda: _stack(
      _layers.Bidirectional(
        _layers.LSTM(3, recurrent_activation="hard_sigmoid")
      ),
      shape=(4, 3),
    ),
    "hard_sigmoid",
  ),
  "other layer": (lambda: _stack(_layers.ThresholdedReLU()), "ThresholdedReLU"),
  "constraint": (
    lambda: _stack(
      _layers.Conv2D(3, 2, kernel_constraint="RadialConstraint"),
      shape=(4, 4, 1),
    ),
    "RadialConstraint",
  ),
  "padding": (
    lambda: _stack(
      _layers.Conv2DTranspose(3, 3, 2, output_padding=1), shape=(4, 4, 1)
    ),
    "output_padding",
  ),
  "mask": (
    lambda: _stack(_layers.Embedding(9, 3, mask_zero=True)),
    "mask_zero",
  ),
  "masking": (lambda: _stack(_layers.Masking(), shape=(4, 3)), "Masking"),
  "whole numbers": (
    lambda: _stack(
      _layers.GlobalAveragePooling1D(), shape=(4, 3), dtype="int32"
    ),
    "GlobalAveragePooling1D",
  ),
  "attention": (_attention, "more than its inputs"),
  "state": (_given_state, "a state to start from"),
  "training": (_always_in_training, "more than its inputs"),
  "time": (
    lambda: _stack(
      _layers.LSTM(3, time_major=True, return_sequences=True), shape=(4, 3)
    ),
    "time_major",
  ),
  "no input": (
    lambda: tf.keras.Sequential([_layers.Dense(3)]),
    "with an Input layer",
  ),
  "method": (
    lambda: methods.DPSGD(models.mlp((4,), 3)),
    r"DPSGD.*model\.network",
  ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exported_is_named(tmp_path, name):
  build, named = REFUSED[name]
  with pytest.raises(ValueError, match=named) as caught:
    models.export(build(), tmp_path / "model.keras")
  assert "Expected a network that plain Keras can load" in str(caught.value)
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model", "model.tf", "model.weights"])
def test_other_endings_are_refused(tmp_path, name):
  with pytest.raises(ValueError, match=r"ends in \.keras or \.h5"):
    models.export(_stack(_layers.Dense(3)), tmp_path / name)


def test_a_file_is_replaced_as_a_whole(tmp_path):
  path = tmp_path / "new" / "model.keras"
  models.export(_stack(_layers.Dense(3)), str(path))
  before = path.read_bytes()
  with pytest.raises(ValueError, match="adds noise"):
    models.export(_stack(layers.LaplaceNoise(0.1)), path)
  assert path.read_bytes() == before
  assert [p.name for p in pathlib.Path(path.parent).iterdir()] == [path.name]
