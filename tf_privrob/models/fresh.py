"""Initial weights that no data have seen: drawn anew by a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import randomness
from tf_privrob.models import graph
from tf_privrob.models import remaking

_Layer = tf.keras.layers.Layer
_DECLARE = (
  "declare public_weights='why they do not depend on the private data', which"
  " keeps them"
)


def redraw(
  network: tf.keras.Model,
  key: randomness.Key,
  redrawn_anyway: Sequence[tf.keras.layers.Layer] = (),
  kept: Sequence[tf.keras.layers.Layer] = (),
) -> None:
  """Gives every weight a new value, as the network's configuration draws it.

  Each layer is made a second time from its own `get_config` and built for the
  same shapes, as Keras does when it loads a file; the values of that copy are
  taken over, and the copy is dropped. So the weights are a function of the
  configuration and the key, whatever they were before, and the network keeps
  nothing of the key. If one layer is refused, none is changed.

  An initialiser with a seed of its own keeps it: that is a public choice. The
  others of Keras take theirs from `key`, so that the same key gives the same
  weights. Where a user's own initialiser draws by other means, its values are
  new each time.

  Args:
    network: a built network. Models and layers without a `build` of their own
      are redrawn part by part, all others as a whole; a shared layer once.
    key: `Key.of(None)` for weights that nobody can repeat.
    redrawn_anyway: layers that the caller has frozen and sets itself, and that
      may be redrawn all the same.
    kept: layers or models that stay as they are, since they are public.

  Raises:
    ValueError: a layer cannot be made again from its configuration, or has
      frozen weights which its configuration would not draw: a user who froze
      them wants to keep them. Layers with the attribute `weights_from_config`,
      whose frozen weights no user sets, are redrawn.
  """
  if not network.built:
    raise ValueError(
      f"Expected a network with weights, received {network.name!r}, which is"
      " not built yet. Give it an Input, or call it once on a batch."
    )
  allowed, public = (
    {id(part) for layer in layers for part in parts(layer)}
    for layers in (redrawn_anyway, kept)
  )
  pairs = []
  for place, layer in enumerate(parts(network)):
    if id(layer) in public:
      continue
    copy = rebuilt(layer, key.child("initial weights", place))
    if id(layer) not in allowed:
      _require_kept(layer, copy)
    pairs += zip(layer.weights, copy.weights)
  for weight, value in pairs:
    weight.assign(value)


def parts(layer: tf.keras.layers.Layer) -> list[tf.keras.layers.Layer]:
  """The layers that own the weights and make them in one piece, each once.

  Models are taken apart, and so are layers without a `build` of their own,
  whose inner layers make all weights; unless they own a weight themselves.
  """
  found: dict[int, tf.keras.layers.Layer] = {}

  def visit(layer):
    if isinstance(layer, tf.keras.Model) and not layer.built:
      return  # Keras draws its weights when it is first called
    inner = graph.held_by(layer)
    known = {id(weight) for part in inner for weight in _weights(part)}
    composed = (
      isinstance(layer, tf.keras.Model) or type(layer).build is _Layer.build
    )
    if composed and known.issuperset(map(id, layer.weights)):
      for part in inner:
        visit(part)
    elif layer.weights:
      found[id(layer)] = layer

  visit(layer)
  return list(found.values())


def rebuilt(
  layer: tf.keras.layers.Layer, key: randomness.Key
) -> tf.keras.layers.Layer:
  """The layer made again, with weights of the same shapes drawn from `key`.

  Raises:
    ValueError: its configuration does not give such a layer.
  """
  try:
    copy = _made_again(layer, key)
    difference = _difference(layer, copy)
  except Exception as error:  # whatever a class of the user raises
    said = " ".join(str(error).split())[:120]
    reason = f"{type(error).__name__}: {said}"
    raise ValueError(_refusal(layer, reason)) from error
  if difference:
    raise ValueError(_refusal(layer, difference))
  return copy


def _made_again(layer, key):
  config = layer.get_config()
  if _holds_values(config):
    raise ValueError("its configuration holds an array of initial values")
  return remaking.remade(layer, config, key)


def _refusal(layer, reason: str) -> str:
  return (
    f"Expected layer {layer.name!r} to be made again from its configuration,"
    f" which draws its initial weights, but {type(layer).__name__} does not"
    f" allow it ({reason}). Give the class a get_config, and make its weights"
    f" in build, or {_DECLARE}."
  )


def _difference(layer, copy) -> str | None:
  """What keeps the copy's weights from standing for the layer's."""
  for kind in ("trainable_weights", "non_trainable_weights"):
    own, found = (
      [(tuple(w.shape), tf.as_dtype(w.dtype).name) for w in getattr(each, kind)]
      for each in (layer, copy)
    )
    if own != found:
      return f"{kind} are {own}, those made again {found}"
  mine = {id(weight) for weight in layer.weights}
  if not mine.isdisjoint(map(id, copy.weights)):
    return "what is made again shares its weights"
  return None


def _require_kept(layer, copy) -> None:
  """Refuses to destroy weights that a user froze, mostly pre-trained ones."""
  if getattr(layer, "weights_from_config", False):
    return
  frozen = zip(layer.non_trainable_weights, copy.non_trainable_weights)
  for weight, value in frozen:
    if not np.array_equal(weight.numpy(), value.numpy()):
      raise ValueError(
        f"Expected weights that a new run may draw again, received layer"
        f" {layer.name!r} with the frozen weight {weight.name!r}. Make the"
        f" layer trainable, or {_DECLARE}."
      )


def _weights(layer) -> list:
  unbuilt = isinstance(layer, tf.keras.Model) and not layer.built
  return [] if unbuilt else layer.weights


def _holds_values(config: Any) -> bool:
  """Whether an initialiser's constant is more than one number."""
  if isinstance(config, (np.ndarray, tf.Tensor)):
    return np.ndim(config) > 0
  if isinstance(config, dict):
    if config.get("class_name") == "Constant":
      value = config["config"].get("value")
      return not isinstance(value, (bool, int, float, np.number))
    if config.get("class_name") in ("__numpy__", "__tensor__"):
      return True
    config = list(config.values())
  return isinstance(config, (list, tuple)) and any(map(_holds_values, config))
