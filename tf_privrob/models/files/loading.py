"""Classifiers from users' files, without running code that a file brings."""

from __future__ import annotations

import os
import pathlib
from typing import Any
from typing import Union

import numpy as np
import tensorflow as tf

from tf_privrob.models import graph
from tf_privrob.models import logits
from tf_privrob.models.files import archive
from tf_privrob.models.files import hdf5
from tf_privrob.models.files import keras3
from tf_privrob.models.files import keras3_weights
from tf_privrob.models.files import known
from tf_privrob.models.files import rebuilding
from tf_privrob.models.files import saved_model
from tf_privrob.models.files import stored_weights

_COPIES = {  # of weights of a file of Keras 2, and of Keras 3
  ".keras": (stored_weights.copy_keras, keras3_weights.copy_keras),
  ".h5": (stored_weights.copy_hdf5, keras3_weights.copy_hdf5),
}
PathOrModel = Union[str, os.PathLike, tf.keras.Model]


def load_classifier(path_or_model: PathOrModel) -> tf.keras.Model:
  """A classifier that returns logits, from a model or a Keras file.

  A final softmax is taken off (`as_logits`). A file is read as by `load_model`.

  Args:
    path_or_model: a model, or the path of a file that `load_model` reads.

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
  """Any model of a Keras file, of which no code runs.

  Keras' own loading imports modules that a file names, calls functions that it
  names and unpickles what it holds. Here a file is data: it is read once, its
  description may name layers of Keras from a list (`files.known`) and classes
  that the program has registered by
  `tf.keras.saving.register_keras_serializable`, nothing else; the model is
  built anew from these, and gets the file's weights, every one of which must
  be there in its shape and type. A Lambda, an operation outside a layer or a
  class in some module is refused by its name before anything is built. Whoever
  trusts such a file loads it and passes the model. Sizes are limited: of the
  file, its description, its weights and what a layer returns for an example.

  Files of Keras 3 become models of Keras 2 that compute the same. Whatever
  Keras 2 does not have or computes otherwise is refused by its name, as are
  registered classes and operations outside of layers, masks among them.

  What HDF5, zip and checkpoint readers do with broken bytes is theirs: they
  are compiled libraries, and no list guards against their errors. The reader of
  checkpoints may allocate more than a SavedModel holds.

  Args:
    path: of a .keras or .h5 file of Keras 2 or Keras 3, or the folder of a
      SavedModel of Keras 2.

  Raises:
    ValueError: there is no such file, it is not a Keras file or needs code.
  """
  if not isinstance(path, (str, os.PathLike)):
    raise ValueError(
      f"Expected the path of a .keras or .h5 file, received {path!r}."
    )
  path = pathlib.Path(path)
  if not path.exists():
    raise ValueError(
      f"Expected a .keras or .h5 file, but there is no file {str(path)!r}."
    )
  try:
    model = saved_model.load(path) if path.is_dir() else _load_file(path)
  except known.RefusedError as error:
    raise ValueError(
      "Expected a model that is built of known layers only, but"
      f" {str(path)!r} {error}"
    ) from error
  if not isinstance(model, tf.keras.Model):
    raise ValueError(
      f"Expected a model in {str(path)!r}, received a layer"
      f" {type(model).__name__}. Write it by model.save(path)."
    )
  for part in (model, *model.submodules):
    if isinstance(part, tf.keras.layers.Normalization):
      part.finalize_state()  # what it computes with follows from its weights
    if isinstance(part, tf.keras.Model) and type(part) not in graph.MODELS:
      _require_built(part, path)
  return model


def _require_built(model: tf.keras.Model, path: pathlib.Path) -> None:
  """Refuses a program's own model that would make weights when called."""
  for layer in (model, *graph.held_by(model)):
    if not layer.built:
      raise ValueError(
        f"Expected a model whose weights are all in {str(path)!r}, received"
        f" {type(layer).__name__} {layer.name!r}, which would make its own at"
        " the first call. Load it yourself, call it once and save it again."
      )


def _load_file(path: pathlib.Path) -> tf.keras.Model:
  """By its first bytes, as a file may be an archive and HDF5 at once."""
  content = archive.read(path)
  if content.startswith(b"PK\x03\x04"):
    entries = archive.unzip(content)
    value = archive.parse(entries["config.json"])
    weights, copies = entries["model.weights.h5"], _COPIES[".keras"]
    version = _version(archive.parse(entries.get("metadata.json", b"{}")))
  elif content.startswith(hdf5.SIGNATURE):
    value, version = _description(content)
    weights, copies = content, _COPIES[".h5"]
  else:
    raise known.RefusedError(
      "is neither a .keras nor an .h5 file with a whole model. Write it by"
      " model.save(path)."
    )
  new = keras3.wrote(version)
  value = keras3.translated(value) if new else value
  with rebuilding.limited(2 * len(weights) + 2**16):  # no more than it can hold
    model = rebuilding.rebuild(value)
  if new:
    keras3.require_alike(model)
  with hdf5.opened(weights) as store:
    if new:
      copies[1](value, model, store)
    else:
      copies[0](model, store)
  return model


def _version(metadata: Any) -> Any:
  return metadata.get("keras_version") if isinstance(metadata, dict) else None


def _description(content: bytes) -> tuple[Any, str | None]:
  """The description in an .h5 file, and the version of Keras."""
  with hdf5.opened(content) as store:
    text = store.text(None, "model_config")
    version = store.text(None, "keras_version")
  if text is None:
    raise known.RefusedError(
      "holds weights without a model_config. Write it by model.save(path)."
    )
  return archive.parse(text), version


def _require_logits(model: tf.keras.Model) -> None:
  """Refuses a sigmoid, and a softmax that no layer shows."""
  shape = getattr(model, "input_shape", None)
  if not isinstance(shape, tuple) or None in shape[1:]:
    return  # built by its first call, or of any size
  last = model.layers[-1] if model.layers else None
  sigmoid = getattr(last, "activation", None) is tf.keras.activations.sigmoid
  x = np.random.default_rng(0).random((2, *shape[1:]), np.float32)
  try:
    outputs = np.asarray(model(x, training=False))
  except tf.errors.OpError as error:
    raise ValueError(
      f"Expected a classifier that can be called, but {model.name!r} raised"
      f" {type(error).__name__}: {str(error)[:200]}. Build a smaller one."
    ) from error
  sums = outputs.sum(axis=-1)
  if sigmoid or (outputs.min() >= 0 and np.allclose(sums, 1, atol=1e-4)):
    raise ValueError(
      f"Expected a classifier that returns logits, received {model.name!r},"
      " which returns probabilities by other means than a final softmax layer."
      " Build it without them and load its weights."
    )
