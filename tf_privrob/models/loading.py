"""Classifiers from users' files, without running code that a file brings."""

from __future__ import annotations

import json
import os
import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any
from typing import Union

import h5py
import numpy as np
import tensorflow as tf

from tf_privrob.models import logits

PathOrModel = Union[str, os.PathLike, tf.keras.Model]

# Keras 2.15 imports any module that a file names, in safe mode too, and does
# not look at HDF5 files in safe mode at all. So the file's own description is
# read first: classes of these modules, and those registered by the program.
_MODULES = (
  "keras",
  "keras.activations",
  "keras.constraints",
  "keras.initializers",
  "keras.layers",
  "keras.regularizers",
  "keras.src.engine.functional",
  "keras.src.engine.sequential",
)


def load_classifier(path_or_model: PathOrModel) -> tf.keras.Model:
  """A classifier that returns logits, from a model or a Keras file.

  A final softmax is taken off (`as_logits`). Files may hold layers of Keras and
  classes that the program has registered by
  `tf.keras.saving.register_keras_serializable`, nothing else: a Lambda, an
  operation outside a layer or a class in some module would run code that the
  file chooses. Whoever trusts such a file loads it and passes the model.

  Args:
    path_or_model: a model, or the path of a .keras or .h5 file.

  Raises:
    ValueError: there is no such file, it is not a Keras file or needs code, or
      what the model returns are not logits and cannot be made so.
  """
  if isinstance(path_or_model, tf.keras.Model):
    model = path_or_model
  else:
    model = load_model(path_or_model)
  model = logits.as_logits(model)
  _require_logits(model)
  return model


def load_model(path: str | os.PathLike) -> tf.keras.Model:
  """Any model of a Keras file, under the same rule: no code from the file.

  Args:
    path: of a .keras or .h5 file.

  Raises:
    ValueError: there is no such file, it is not a Keras file or needs code.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise ValueError(
      f"Expected a .keras or .h5 file, but there is no file {str(path)!r}."
    )
  needed = sorted(set(_foreign(_description(path))))
  if needed:
    raise ValueError(
      f"Expected a file with layers of Keras only, but {str(path)!r} needs"
      f" code: {', '.join(needed)}. If you trust it, register these classes, or"
      " load it yourself and pass the model."
    )
  try:
    return tf.keras.models.load_model(str(path), compile=False)
  except Exception as error:  # whatever a broken file makes Keras raise
    raise ValueError(
      f"Expected a Keras model in {str(path)!r}, but it cannot be loaded:"
      f" {type(error).__name__}: {error}"
    ) from error


def _description(path: pathlib.Path) -> Any:
  """The JSON that tells Keras which objects to make."""
  try:
    # As Keras decides: a file may be an archive and HDF5 at once.
    if path.suffix == ".keras" and zipfile.is_zipfile(path):
      with zipfile.ZipFile(path) as archive:
        description = json.loads(archive.read("config.json"))
        # Not loaded under compile=False; often a loss of the user's own.
        return {**description, "compile_config": None}
    with h5py.File(path, "r") as file:
      return json.loads(file.attrs["model_config"])
  except (KeyError, OSError, ValueError) as error:
    raise ValueError(
      "Expected a .keras or .h5 file with a whole model, received"
      f" {str(path)!r} ({type(error).__name__}: {error}). Write it"
      " by model.save(path)."
    ) from error


def _foreign(description: Any) -> Iterator[str]:
  """Names of classes that are neither Keras' own nor registered here."""
  if isinstance(description, dict):
    name, module = description.get("class_name"), description.get("module")
    if name is not None:
      registered = description.get("registered_name") or name
      if name == "function":  # looked up by its own name
        registered = description.get("config")
      known = str(registered) in tf.keras.saving.get_custom_objects()
      builtin = module is None or module in _MODULES
      if not known and (not builtin or "lambda" in str(name).lower()):
        yield f"{module}.{name}" if module else str(name)
  if isinstance(description, (dict, list)):
    parts = (
      description.values() if isinstance(description, dict) else description
    )
    for part in parts:
      yield from _foreign(part)


def _require_logits(model: tf.keras.Model) -> None:
  """Refuses a sigmoid, and a softmax that no layer shows."""
  shape = getattr(model, "input_shape", None)
  if not isinstance(shape, tuple) or None in shape[1:]:
    return  # built by its first call, or of any size
  last = model.layers[-1] if model.layers else None
  sigmoid = getattr(last, "activation", None) is tf.keras.activations.sigmoid
  x = np.random.default_rng(0).random((4, *shape[1:]), np.float32)
  outputs = np.asarray(model(x, training=False))
  sums = outputs.sum(axis=-1)
  if sigmoid or (outputs.min() >= 0 and np.allclose(sums, 1, atol=1e-4)):
    raise ValueError(
      f"Expected a classifier that returns logits, received {model.name!r},"
      " which returns probabilities by other means than a final softmax layer."
      " Build it without them and load its weights."
    )
