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
  stand for it; the weights are hashed all the same.

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
    "held": [_held(part) for part in _layers(model)],
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


def _held(part: tf.keras.layers.Layer) -> list[str]:
  """What a layer has besides settings and weights: arrays, and masking."""
  if isinstance(part, tf.keras.Model):
    return []
  arrays = [f"masking {part.supports_masking}", f"autocast {part._autocast}"]
  if "BatchNormalization" in type(part).__name__:
    arrays.append(f"trainable {part.trainable}")  # it computes otherwise
  tracked = {id(weight) for weight in part.weights}
  for name, value in sorted(vars(part).items()):
    for array in _arrays(value):
      if id(array) not in tracked:
        content = np.asarray(array)
        digest = hashlib.sha256(content.tobytes()).hexdigest()
        arrays.append(f"{name} {content.dtype.str} {content.shape} {digest}")
  return arrays


def _arrays(value: Any) -> Iterator[Any]:
  """Arrays and variables in an attribute, or in lists and dicts there."""
  if isinstance(value, (np.ndarray, tf.Variable)):
    yield value
  elif _is_nest(value):
    parts = value.values() if isinstance(value, dict) else value
    for part in list(parts):
      yield from _arrays(part)


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
