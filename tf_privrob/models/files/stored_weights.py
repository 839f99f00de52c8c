"""Weights of a rebuilt model, copied from the bytes of its file."""

from __future__ import annotations

import math
import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from tf_privrob import compat
from tf_privrob.models.files import hdf5
from tf_privrob.models.files import known
from tf_privrob.models.fingerprint import fingerprint

_saving = compat.keras_module("src.saving.saving_lib")
_AGAIN = " Write it by model.save(path)."


class _Groups:
  """What Keras would write for a model: groups by path, arrays by name."""

  def __init__(self):
    self.arrays: dict[str, dict[str, np.ndarray]] = {}

  def make(self, path: str) -> dict[str, np.ndarray]:
    return self.arrays.setdefault(path, {})

  get = make


def copy_keras(model: tf.keras.Model, store: hdf5.Store) -> None:
  """Gives a model the weights of a .keras file.

  Keras is asked what it would write for this model. All of that must be in the
  file, in shape and type, before any of it is read; then the file's values
  take its place. So every weight of the model is the file's.

  Raises:
    RefusedError: a weight is missing, another, or not among those that Keras
      saves.
  """
  groups = _Groups()
  _saving._save_state(model, groups, None, "", set())
  _require_all(model, groups)
  for path, arrays in groups.arrays.items():
    place = (path, "vars") if path else ("vars",)
    for name, array in arrays.items():
      arrays[name] = store.numbers(array.shape, array.dtype, *place, name)
  _saving._load_state(model, groups, None, "", visited_trackables=set())


def _require_all(model: tf.keras.Model, groups: _Groups) -> None:
  """Refuses a model with weights where Keras does not look."""
  layers = (
    part
    for part in (model, *model.submodules)
    if isinstance(part, tf.keras.layers.Layer)
  )
  own = sum(
    len(layer._trainable_weights) + len(layer._non_trainable_weights)
    for layer in layers
  )
  saved = sum(map(len, groups.arrays.values()))
  if saved < own:
    raise known.RefusedError(
      f"holds {saved} of {own} weights: Keras saves none of a layer that is"
      " kept under a hidden name. Keep it as an attribute of its model."
    )


def copy_hdf5(model: tf.keras.Model, store: hdf5.Store) -> None:
  """Gives a functional or sequential model the weights of an .h5 file.

  Raises:
    RefusedError: a weight is missing or another, or the file is of another
      time.
  """
  version = store.text(None, "keras_version") or ""
  backend = store.text(None, "backend")
  if not version.startswith("2.") or backend != "tensorflow":
    raise known.RefusedError(
      f"was written by Keras {version[:20]!r} for {str(backend)[:20]!r}, whose"
      " weights may be in another order. Save it again by Keras 2."
    )
  values = []
  for layer in model.layers:
    weights = layer.trainable_weights + layer.non_trainable_weights
    if not weights:
      continue
    place = ("model_weights", layer.name)
    names = store.texts(store.group(*place), "weight_names")
    if len(names) != len(weights):
      raise known.RefusedError(
        f"has {len(names)} weights of {layer.name!r}, expected {len(weights)}."
        + _AGAIN
      )
    for weight, name in zip(weights, names):
      values.append((weight, store.numbers(*_form(weight), *place, name)))
  for weight, value in values:
    weight.assign(value)


def _form(weight: tf.Variable) -> tuple[tuple[int, ...], np.dtype]:
  return tuple(weight.shape), np.dtype(weight.dtype.as_numpy_dtype)


def copy_checkpoint(model: tf.keras.Model, files: dict[str, bytes]) -> None:
  """Gives a model the weights of a SavedModel, none of whose graphs is read.

  Args:
    model: rebuilt from its description.
    files: the content of its folder `variables`, by name.

  Raises:
    RefusedError: a weight is missing or another.
  """
  with tempfile.TemporaryDirectory() as folder:
    for name, content in files.items():
      (pathlib.Path(folder) / name).write_bytes(content)
    prefix = f"{folder}/variables"
    try:
      require_size(prefix, sum(map(len, files.values())))
      first, second = (_restored(model, prefix, fill) for fill in (0, 1))
    except known.RefusedError:
      raise
    except Exception as error:  # whatever a broken checkpoint makes it raise
      raise known.RefusedError(
        "has variables that are not those of its layers"
        f" ({type(error).__name__}: {str(error)[:200]}). Save it as .keras."
      ) from error
  if first != second:
    raise known.RefusedError(
      "has a checkpoint without some of the weights. Save it as .keras."
    )


def _restored(model: tf.keras.Model, prefix: str, fill: int) -> str:
  """What the weights are afterwards, if each of them was `fill` before."""
  for weight in model.weights:
    weight.assign(tf.cast(tf.fill(weight.shape, fill), weight.dtype))
  restored = tf.train.Checkpoint(root=model).read(prefix)
  restored.assert_existing_objects_matched().expect_partial()
  return fingerprint(model)


def require_size(prefix: str, most: int) -> None:
  """Refuses shapes that the bytes cannot fill, before they are allocated."""
  reader = tf.train.load_checkpoint(prefix)
  shapes, total = reader.get_variable_to_shape_map(), 0
  for name, dtype in reader.get_variable_to_dtype_map().items():
    total += math.prod(shapes[name]) * max(dtype.size or 1, 1)
  if total > most:
    raise known.RefusedError(
      f"describes {total} bytes of variables in {most}. Save it as .keras."
    )
