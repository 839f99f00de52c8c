"""A short name for what a network computes at the moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tf_privrob.models import graph

# Parts of a configuration that change nothing at inference.
_IDLE = ("build_config", "compile_config", "trainable")
# Functions are written down by their name, which says nothing of them.
_FUNCTIONS = ("__lambda__", "Lambda", "function")


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
    "class": f"{kind.__module__}.{kind.__qualname__}",
    "config": config,
    "id": model_id,
    "weights": fingerprint_of(getattr(model, "weights", ())),
  }
  return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _config(model: Any) -> str | None:
  """The configuration as text; None where it does not say what is computed."""
  if not isinstance(model, tf.keras.Model):
    return None
  parts = [model, *model.submodules]
  if not all(_is_known(part) for part in parts):
    return None
  try:
    return json.dumps(_essential(model.get_config()), sort_keys=True)
  except (NotImplementedError, TypeError, ValueError):
    return None


def _is_known(part: tf.Module) -> bool:
  if not isinstance(part, tf.keras.layers.Layer):
    return True  # an optimizer, a metric
  kind = type(part)
  if not graph.lives_in(kind, ("keras.", "tf_privrob.")):
    return False
  if kind.__name__ in graph.OPERATORS:  # their `call` is their own
    return True
  if graph.overridden(part):
    return False
  if isinstance(part, tf.keras.Model):  # its functions are those of training
    return True
  return all(map(_comes_with_it, vars(part).values()))


def _comes_with_it(value: Any) -> bool:
  """No function of the caller's, no tensor in the place of a weight."""
  home = getattr(value, "__module__", None) or ""
  known = home.startswith(("keras.", "tensorflow.", "tf_privrob."))
  return not isinstance(value, tf.Tensor) and (known or not callable(value))


def _essential(config: Any) -> Any:
  if isinstance(config, dict):
    if config.get("class_name") in _FUNCTIONS:
      raise ValueError("a function says nothing of itself but its name")
    return {
      name: _essential(value)
      for name, value in config.items()
      if name not in _IDLE
    }
  if isinstance(config, (list, tuple)):
    return [_essential(value) for value in config]
  if hasattr(config, "tolist"):  # of NumPy
    return [str(config.dtype), config.tolist()]
  return config
