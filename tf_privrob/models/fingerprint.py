"""A short name for what a network computes at the moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import compat
from tf_privrob.models import graph
from tf_privrob.models import untouched

# Parts of a configuration that change nothing at inference.
_IDLE = ("build_config", "compile_config", "trainable")
_USUAL = (("optional", False),)  # written by the newer of both Keras only
_SHAPES = ("batch_input_shape", "batch_shape", "build_input_shape")
_PLAIN = (bool, int, float, str, np.generic)
# Functions are written down by their name, which says nothing of them.
_FUNCTIONS = ("__lambda__", "Lambda", "function")
_HOMES = (f"{compat.keras_package()}.", "tensorflow.", "tf_privrob.")


def fingerprint(network: tf.keras.Model) -> str:
  """SHA-256 over shapes, types and bytes of all weights, in their order.

  Two networks of one architecture compute the same if it is equal; another
  value of a single weight makes it another one.
  """
  return fingerprint_of(network.weights)


def fingerprint_of(variables: Iterable[tf.Variable]) -> str:
  """The same of these variables."""
  digest = hashlib.sha256()
  for variable in variables:
    value = variable.numpy()
    digest.update(f"{value.dtype.str} {value.shape}".encode())
    digest.update(value.tobytes())
  return digest.hexdigest()


def model_hash(model: Any, model_id: str = "") -> str:
  """SHA-256 over class, configuration and weights; "" if they do not say all.

  Two models of one hash compute the same at inference. For that every part
  must be a layer of Keras or of this library, whose class and configuration say
  what is done with the weights. A layer, a model or a function of someone else
  may do anything, so `model_id`, the caller's own name for that code, has to
  stand for it; the weights are hashed all the same. Each is hashed wherever a
  layer has it, and so are layers inside layers: which weights are shared, and
  by whom, is part of the function.

  Args:
    model: a Keras model or any function.
    model_id: a name that the caller gives to this code and to no other.
  """
  config = _config(model)
  if config is None and not model_id:
    return ""
  kind = type(model)
  content = {
    "class": compat.qualified_name(kind),
    "config": config,
    "id": model_id,
    "weights": fingerprint_of(getattr(model, "weights", ())),
    "held": _held_by_all(model),
  }
  return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _config(model: Any) -> str | None:
  """The configuration as text; None where it does not say what is computed."""
  if not isinstance(model, tf.keras.Model):
    return None
  if not all(_is_known(part) for part in _layers(model)):
    return None
  try:
    return json.dumps(_essential(model.get_config()), sort_keys=True)
  except (NotImplementedError, TypeError, ValueError):
    return None


def _layers(model: Any) -> list[tf.keras.layers.Layer]:
  """The model and what it is made of; no optimizers, no metrics."""
  if not isinstance(model, tf.keras.layers.Layer):
    return []
  parts = (model, *model.submodules)
  return [part for part in parts if isinstance(part, tf.keras.layers.Layer)]


def _is_known(part: tf.keras.layers.Layer) -> bool:
  kind = type(part)
  if kind.__name__ in graph.OPERATORS:  # their `call` is their own
    return untouched.lives_in(kind, f"{compat.keras_package()}.")
  of_keras = untouched.is_known("layer", kind)
  if not (of_keras or untouched.is_ours(kind)) or untouched.overridden(part):
    return False
  if isinstance(part, tf.keras.Model):  # its functions are those of training
    return True
  in_calls = [
    value
    for name, value in vars(part).items()
    if not untouched.is_at_rest(name)
  ]
  return all(map(_comes_with_it, in_calls)) and not (
    of_keras and untouched.exchanged(part)
  )


def _comes_with_it(value: Any) -> bool:
  """No function of the caller's, no tensor in the place of a weight."""
  home = getattr(value, "__module__", None) or ""
  known = home.startswith(_HOMES)
  return not isinstance(value, tf.Tensor) and (known or not callable(value))


def _held_by_all(model: Any) -> list[list[str]]:
  """What the model and each of its layers hold, in their order."""
  parts = _layers(model)
  places = {id(part): place for place, part in enumerate(parts)}
  weights = {id(weight) for weight in getattr(model, "weights", ())}
  return [_held(part, places, weights) for part in parts]


def _held(
  part: tf.keras.layers.Layer, places: dict[int, int], weights: set[int]
) -> list[str]:
  """What each attribute of a layer holds: arrays, weights, other layers.

  Args:
    part: The layer; of a model only weights and layers are of interest.
    places: Of layers in the whole model, by their identities.
    weights: Identities of the weights of the whole model.
  """
  if graph.is_graph(part):  # its configuration says what calls what
    return [f"layer {places[id(layer)]}" for layer in graph.held_by(part)]
  is_model = isinstance(part, tf.keras.Model)
  found = [] if is_model else _ways(part)
  for name, value in sorted(vars(part).items()):
    if untouched.is_note(name):
      continue
    for leaf in _leaves(value):
      if id(leaf) in places:
        found.append(f"{name} layer {places[id(leaf)]}")
      elif isinstance(leaf, (np.ndarray, tf.Variable)):
        if id(leaf) in weights or not is_model:
          found.append(f"{name} {_described(leaf)}")
  return found


def _ways(part: tf.keras.layers.Layer) -> list[str]:
  """How a layer computes, where its configuration does not say it."""
  found = [f"masking {part.supports_masking}", f"autocast {part._autocast}"]
  if "BatchNormalization" in type(part).__name__:
    found.append(f"trainable {part.trainable}")  # it computes otherwise
  if untouched.is_ours(type(part)):  # of Keras' layers `exchanged` tells
    found += [
      f"{name} {value!r}"
      for name, value in sorted(vars(part).items())
      if isinstance(value, _PLAIN) and not name.startswith(("_", "seed"))
    ]
  return found


def _described(array: np.ndarray | tf.Variable) -> str:
  content = np.asarray(array)
  digest = hashlib.sha256(content.tobytes()).hexdigest()
  return f"{content.dtype.str} {content.shape} {digest}"


def _leaves(value: Any) -> Iterator[Any]:
  """What an attribute holds, in lists and dicts there too."""
  if not _is_nest(value):
    yield value
    return
  parts = value.values() if isinstance(value, dict) else value
  for part in list(parts):
    yield from _leaves(part)


def _any_batch(shape: Any) -> Any:
  """The shape without the size of the batch, which Keras forgets later."""
  if isinstance(shape, (list, tuple)) and shape and not _is_nest(shape[0]):
    return [None, *shape[1:]]
  return shape


def _is_nest(value: Any) -> bool:
  return isinstance(value, (list, tuple, dict))


def _essential(config: Any) -> Any:
  if isinstance(config, dict):
    if config.get("class_name") in _FUNCTIONS:
      raise ValueError("a function says nothing of itself but its name")
    return {
      name: _essential(_any_batch(value) if name in _SHAPES else value)
      for name, value in config.items()
      if name not in _IDLE and (name, value) not in _USUAL
    }
  if isinstance(config, (list, tuple)):
    return [_essential(value) for value in config]
  if hasattr(config, "tolist"):  # of NumPy
    return [str(config.dtype), config.tolist()]
  return config
