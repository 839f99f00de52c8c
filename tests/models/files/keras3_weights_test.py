"""Weights of Keras 3 go to the layers that they are of, and to no others."""

import io

import h5py
import numpy as np
import pytest
import tensorflow as tf

from tests.models.files import hostile_files
from tests.models.files import keras3_files
from tf_privrob import models

_ENTRY = "model.weights.h5"


def _keras(change, name="small.keras"):
  """A .keras file of Keras 3 with other weights."""

  def write(folder):
    files = hostile_files.entries(keras3_files.FOLDER / name)
    content = io.BytesIO(files[_ENTRY])
    with h5py.File(content, "a") as file:
      change(file)
    files[_ENTRY] = content.getvalue()
    return hostile_files.write_entries(folder / "model.keras", files)

  return write


def _h5(change):
  def write(folder):
    path = keras3_files.small(folder, ".h5")
    with h5py.File(path, "a") as file:
      change(file)
    return path

  return write


def _names(*names):
  """The names of the weights of a layer."""

  def change(file):
    file["model_weights/middle"].attrs["weight_names"] = list(names)

  return change


def _replaced(path, make):
  def change(file):
    value = file[path][()]
    del file[path]
    make(file, path, value)

  return change


def _set(path, value):
  return lambda file: file.create_dataset(path, data=value)


def _swapped(file):
  """The groups of two layers, each with the name of the other."""
  one, two = (file[f"layers/dense{end}/vars"].attrs for end in ("", "_1"))
  one["name"], two["name"] = two["name"], one["name"]


_KERNEL = "layers/dense/vars/0"
_OLD = "model_weights/middle/middle/kernel"
_ONE = np.ones((1,), np.float32)
# What the weights do -> what the refusal must name.
STORED = {
  "missing": (_keras(_replaced(_KERNEL, lambda *_: None)), "has no weight"),
  "missing of .h5": (_h5(_replaced(_OLD, lambda *_: None)), "has no weight"),
  "another shape": (
    _keras(_replaced(_KERNEL, lambda f, p, v: f.create_dataset(p, data=v[:2]))),
    r"shape \(2, 4\)",
  ),
  "another type": (
    _keras(
      _replaced(
        _KERNEL, lambda f, p, v: f.create_dataset(p, data=v.astype("f8"))
      )
    ),
    "float64",
  ),
  "huge shape": (
    _keras(
      _replaced(
        _KERNEL, lambda f, p, v: f.create_dataset(p, (2**20, 2**20), "f4")
      )
    ),
    r"shape \(1048576, 1048576\)",
  ),
  "link elsewhere": (
    _keras(
      _replaced(
        _KERNEL,
        lambda f, p, v: f.__setitem__(p, h5py.ExternalLink("/tmp/x.h5", "x")),
      )
    ),
    "leads elsewhere",
  ),
  "extra number": (_keras(_set("layers/dense/vars/2", _ONE)), "vars/2"),
  "extra layer": (_keras(_set("layers/lambda/vars/0", _ONE)), "lambda"),
  "extra inside": (_keras(_set("layers/dense/lora/vars/0", _ONE)), "lora"),
  "extra of the model": (_keras(_set("vars/0", _ONE)), "'vars/0'"),
  "extra of .h5": (
    _h5(_set("model_weights/middle/middle/lora", _ONE)),
    "middle/lora",
  ),
  "extra on top of .h5": (
    _h5(_set("model_weights/top_level_model_weights/x", _ONE)),
    "top_level_model_weights/x",
  ),
  "swapped names": (_keras(_swapped), "'last' in the place of .*'middle'"),
  "swapped weights": (
    _h5(_names("middle/bias", "middle/kernel")),
    "'bias' in the place of .*'kernel'",
  ),
  "names of others": (
    _h5(_names("last/kernel", "last/bias")),
    "'last' in the place of .*'middle'",
  ),
  "few names": (_h5(_names("middle/kernel")), "has 1 weights of 'middle'"),
  "many names": (
    _h5(_names(*["middle/kernel"] * 3)),
    "has 3 weights of 'middle'",
  ),
  "upwards": (
    _h5(_names("../last/middle/kernel", "middle/bias")),
    r"has no weight|is no whole HDF5",
  ),
  "deep groups": (
    _keras(lambda file: file.create_group("layers/" + "a/" * 100)),
    "more than",
  ),
}


@pytest.mark.parametrize("name", STORED)
def test_hostile_weights_are_refused(tmp_path, name):
  write, named = STORED[name]
  path = write(tmp_path)
  with pytest.raises(ValueError, match=named) as caught:
    models.load_model(path)
  assert str(path) in str(caught.value)
  assert type(caught.value) is ValueError


def test_many_groups_are_refused(tmp_path, monkeypatch):
  monkeypatch.setattr("tf_privrob.models.files.hdf5._MOST_PARTS", 50)

  def change(file):
    for number in range(100):
      file.create_group(f"layers/g{number}")

  with pytest.raises(ValueError, match="more than 50 groups"):
    models.load_model(_keras(change)(tmp_path))


def test_what_others_keep_is_not_read(tmp_path):
  """An optimizer, metrics, and what random layers draw from."""

  def change(file):
    file.create_dataset("optimizer/vars/0", data=_ONE)
    file.create_dataset("metrics/mean/vars/0", data=_ONE)
    file.create_dataset(
      "layers/dropout/seed_generator/vars/0", data=np.ones(2, np.uint32)
    )

  models.load_model(_keras(change)(tmp_path))


def test_earlier_versions_named_no_groups(tmp_path):
  def change(file):
    file.visititems(lambda name, item: item.attrs.pop("name", None) and None)

  path = _keras(change, "shared.keras")(tmp_path)
  x, y = keras3_files.arrays(keras3_files.FOLDER / "shared.keras")
  model = models.load_model(path)
  assert max(keras3_files.differences(model, x, y)) < 1e-6


def test_weights_are_given_all_at_once(tmp_path):
  """Where the last one is missing, no model comes out at all."""
  path = _keras(_replaced("layers/dense_1/vars/1", lambda *_: None))(tmp_path)
  with pytest.raises(ValueError, match="layers/dense_1/vars/1"):
    models.load_model(path)


def test_shapes_do_not_tell_layers_apart_but_names_do():
  """Both dense layers of the frozen model are 4 by 4."""
  model = models.load_model(keras3_files.FOLDER / "frozen.h5")
  kernels = [
    layer.kernel.numpy()
    for part in model.layers[1:3]
    for layer in part.layers
    if isinstance(layer, tf.keras.layers.Dense)
  ]
  assert all(
    not np.array_equal(one, two)
    for number, one in enumerate(kernels)
    for two in kernels[:number]
  )
