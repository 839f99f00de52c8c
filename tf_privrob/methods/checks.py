"""What `fit` refuses before anything is paid: networks, data, callbacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def callback_list(callbacks) -> list[tf.keras.callbacks.Callback]:
  """A list of callbacks; refuses anything else before any cost."""
  found = list(callbacks) if isinstance(callbacks, (list, tuple)) else callbacks
  kind = tf.keras.callbacks.Callback
  if found is None:
    return []
  if not isinstance(found, list) or not all(isinstance(c, kind) for c in found):
    raise ValueError(
      f"Expected callbacks as a list of Keras callbacks, received"
      f" {callbacks!r}."
    )
  return found


def require_settings(config: Any, kind: type) -> None:
  """Refuses settings that are no dataclass, such as a dict or a class."""
  if config is None:
    return
  if isinstance(config, type) or not dataclasses.is_dataclass(config):
    said = (
      config.__name__ if isinstance(config, type) else type(config).__name__
    )
    raise ValueError(
      f"Expected settings, {kind.__name__}(...), received {said}. Pass"
      f" {kind.__name__}(**values)."
    )


def refuse_arguments(unknown: Mapping[str, Any], config: Any) -> None:
  """Refuses what Keras' fit would take and the settings have, or nobody."""
  for name in unknown:
    kind = type(config).__name__
    has = any(field.name == name for field in dataclasses.fields(config))
    remedy = f"Set {kind}({name}=...)." if has else f"{kind} has the settings."
    raise ValueError(
      f"Expected fit without {name!r}, which the budget would not know of."
      f" {remedy}"
    )


def require_one_input(network: tf.keras.Model) -> None:
  """Refuses networks that take several inputs."""
  count = len(getattr(network, "inputs", None) or [None])
  if count > 1:
    raise ValueError(
      f"Expected a network with one input, received {network.name!r} with"
      f" {count}. Join them into one array, and part it inside the network."
    )


def num_classes(network: tf.keras.Model, shape: Sequence[int]) -> int:
  """The number of logits; refuses networks without at least two of them."""
  logits = network(tf.zeros([1, *shape]))
  if not tf.is_tensor(logits):
    raise ValueError(
      f"Expected a network with one output, received {network.name!r} with"
      f" {len(logits)}. Train the one that classifies:"
      " tf.keras.Model(network.input, network.outputs[0])."
    )
  if logits.shape.rank != 2 or logits.shape[-1] < 2:
    raise ValueError(
      f"Expected one logit per class, at least two, received {network.name!r}"
      f" with outputs of shape {tuple(logits.shape[1:])}. End it in"
      " Dense(num_classes)."
    )
  return logits.shape[-1]


def input_shape(network: tf.keras.Model) -> tuple[int, ...] | None:
  """Shape of one input where the network knows it: a subclass may not."""
  shape = getattr(network, "input_shape", None)
  return tuple(shape[1:]) if isinstance(shape, tuple) else None


def require_shape(shape: Sequence[int], **arrays: np.ndarray) -> None:
  """Refuses inputs of another shape than the network's, before any cost."""
  for name, array in arrays.items():
    if tuple(np.shape(array)[1:]) != tuple(shape):
      raise ValueError(
        f"Expected {name} with examples of shape {tuple(shape)}, which the"
        f" network takes, received {tuple(np.shape(array)[1:])}."
      )


def require_float32(network: tf.keras.Model) -> None:
  """Refuses other precisions: clipping and its bounds are for float32."""
  for layer in [network, *network.submodules]:
    kind = getattr(layer, "compute_dtype", None) or "float32"
    if isinstance(layer, tf.keras.layers.Layer) and kind != "float32":
      raise ValueError(
        f"Expected a network that computes in float32, received {kind} in"
        f" {layer.name!r}. Build it under the default policy."
      )


def require_finite(network: tf.keras.Model) -> None:
  """Refuses weights to keep that are NaN or infinite."""
  for weight in network.weights:
    if not np.all(np.isfinite(weight.numpy())):
      raise ValueError(
        f"Expected finite weights, received NaN or infinity in"
        f" {weight.name!r}. Start from a fresh network."
      )


def require_new_optimizer(optimizer, variables) -> None:
  """Refuses an optimizer that remembers anything, or averages by itself."""
  if getattr(optimizer, "use_ema", False):
    raise ValueError(
      "Expected an optimizer without use_ema, which sets weights after the last"
      " step. Use ema_decay of the settings."
    )
  fresh = type(optimizer).from_config(optimizer.get_config())
  fresh.build(variables)
  pairs = zip(optimizer.variables, fresh.variables)
  if len(optimizer.variables) != len(fresh.variables) or not all(
    np.array_equal(own.numpy(), new.numpy()) for own, new in pairs
  ):
    raise ValueError(
      "Expected a new optimizer, received one that remembers an earlier"
      " training: that is in no figure. Compile with a new one."
    )


def refuse_replicas(model: tf.keras.Model) -> None:
  """Refuses several replicas, whichever strategy made them."""
  strategies = [tf.distribute.get_strategy(), model.distribute_strategy]
  weights = model.network.weights if model.network.built else ()
  strategies += [
    getattr(weight, "distribute_strategy", None) for weight in weights
  ]
  if any(s is not None and s.num_replicas_in_sync > 1 for s in strategies):
    raise ValueError(
      "Expected one replica: noise is added once per step. Build and train the"
      " network under the default strategy."
    )


def refuse_eager_functions() -> None:
  """Refuses functions that run as Python: each call may do something else."""
  if tf.config.functions_run_eagerly():
    raise ValueError(
      "Expected steps that run as graphs, which are checked once, received"
      " tf.config.run_functions_eagerly(True). Turn it off."
    )


def require_unit_range(value_range: tuple[float, float], name: str) -> None:
  """Refuses inputs beyond [-1, 1], where a sensitivity rests on |x| <= 1."""
  low, high = value_range
  if low < -1 or high > 1:
    raise ValueError(
      f"Expected inputs in [-1, 1], which {name}'s sensitivities rest on,"
      f" received value_range={tuple(value_range)}. Rescale the data set"
      " (Dataset.rescaled, or --value_range=-1,1)."
    )


def require_batch_size(x: tf.Tensor, batch_size: int) -> None:
  """Refuses a batch that noise per batch was not calibrated for."""
  if x.shape[0] != batch_size:
    raise ValueError(
      f"Expected batches of batch_size={batch_size}, which the noise was"
      f" calibrated for, received {x.shape[0]}."
    )
