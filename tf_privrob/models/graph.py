"""Reads the graph of a Keras model where it is what the model computes.

A call of a functional or sequential model runs the layer of each node of its
graph on the tensors of that node. So whoever knows the layers knows the
function, as long as no model and no layer is called in another way: by a
subclass, by a method that was replaced on the object, with constants or
arguments in a call, or on numbers of another type. All of that is refused.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import tensorflow as tf

from tf_privrob.models.files import known

_FUNCTIONAL = tf.keras.Sequential.__bases__[0]  # Keras does not export it
MODELS = (_FUNCTIONAL, tf.keras.Sequential)
_EMPTY = (*MODELS, tf.keras.layers.InputLayer)
# What Keras makes of x + y; neither does it export these.
OPERATORS = ("TFOpLambda", "SlicingOpLambda")
_FLOATS = ("float32", "float64")
_PLAIN = (bool, int, float, str, tuple)
_WEIGHTS = frozenset(
  """beta bias depthwise_kernel embeddings gamma kernel moving_mean
  moving_variance pointwise_kernel recurrent_kernel""".split()
)
_OF_WEIGHTS = (tf.Variable, type(None))
# What changes when a layer is built, called or saved.
_BOOKKEEPING = (
  "_auto_config",
  "_auto_get_config",
  "_callable_losses",
  "_fused",
)
_BOOKKEEPING += ("_is_adapted", "_is_compiled", "_losses", "_name")
_BOOKKEEPING += ("_saved_model", "_self", "built", "fused", "synchronized")
_AT_REST = ("_constraint", "_initializer", "_regularizer")
_IN_EVERY_CALL = ("_activity_regularizer", "activity_regularizer")
# Where the classes of what a layer holds come from.
_HOMES = ("_thread", "builtins", "collections", "keras", "numpy", "tensorflow")
# Arguments of a call that change nothing at inference.
_IDLE = {"training": (None, False), "mask": (None,)}


def network_of(model: tf.keras.Model) -> tf.keras.Model:
  """The functional or sequential model that a call of `model` runs.

  That is the model itself, or the `bounded_network` of a class of this library
  whose calls are those of a network inside it. The word of such a class counts
  for its subclasses as long as they do not override `call`.

  Raises:
    ValueError: what the model computes cannot be read off a graph.
  """
  if not isinstance(model, tf.keras.Model):
    raise ValueError(
      "Expected a Keras network, whose layers can be read, received"
      f" {type(model).__name__}."
    )
  if type(model) not in MODELS and _says_network(type(model)):
    _require_own_methods(model)
    model = model.bounded_network
  require_graph(model)
  return model


def _says_network(kind: type) -> bool:
  calls, says = (_owner(kind, name) for name in ("call", "bounded_network"))
  if says is None or not is_ours(says):
    return False
  usual = _owner(kind, "__call__") is _owner(tf.keras.Model, "__call__")
  return usual and issubclass(says, calls)


def is_ours(kind: type) -> bool:
  """Whether a class is one of this library, and not merely called so."""
  return lives_in(kind, "tf_privrob.")


def lives_in(kind: type, packages: str | tuple[str, ...]) -> bool:
  """Whether a module whose name begins so has this very class."""
  home = sys.modules.get(kind.__module__)
  known = getattr(home, kind.__name__, None) is kind
  return known and kind.__module__.startswith(packages)


def _owner(kind: type, name: str) -> type | None:
  """The class in whose body a name stands."""
  return next((base for base in kind.__mro__ if name in vars(base)), None)


def require_graph(model: tf.keras.Model) -> None:
  """Refuses a model that is not exactly functional or sequential."""
  if not is_graph(model):
    raise ValueError(
      "Expected a functional or sequential Keras model with known input shape,"
      f" received {type(model).__name__} {getattr(model, 'name', '')!r}. Give a"
      " Sequential an Input layer or call it once; write a subclassed model"
      " with the functional API, since a class may compute anything."
    )
  _require_own_methods(model)
  for tensor in model.inputs:
    _require_float(tensor, f"at the input of {_named(model)}")


def is_graph(model: tf.keras.layers.Layer) -> bool:
  """Whether it is a model of exactly these classes, and built."""
  return type(model) in MODELS and bool(model.inputs and model.outputs)


def is_plain(layer: tf.keras.layers.Layer) -> bool:
  """Whether a call runs no Python but Keras' own: its trace is all of it.

  Layers that hold others, such as recurrent ones, are not looked into; those
  in half precision are left out, as a graph rounds fewer of their numbers.
  """
  if overridden(layer) or exchanged(layer):
    return False
  if layer.compute_dtype not in _FLOATS:
    return False
  if type(layer) in MODELS:
    return is_graph(layer) and all(map(is_plain, layer.layers))
  functions = [
    value
    for name, value in vars(layer).items()
    if name.endswith("activation") and value is not None
  ]
  layers = tf.keras.layers.Layer
  return (
    not any(isinstance(part, layers) for part in layer.submodules)
    and _stands_in("layer", type(layer))
    and all(_stands_in("activation", one) for one in functions)
  )


def _stands_in(kind: str, found: object) -> bool:
  return any(found is one for one in known.TABLES[kind].values())


def require_layer(layer: tf.keras.layers.Layer) -> None:
  """Refuses a layer that was changed as an object, or in low precision."""
  _require_own_methods(layer)
  if layer.compute_dtype not in _FLOATS:
    raise ValueError(
      f"Expected {_named(layer)} to compute in float32 or float64, received"
      f" {layer.compute_dtype}: it rounds what goes through it by more than a"
      " certificate has. Copy the weights into a float32 network."
    )


def _require_own_methods(layer: tf.keras.layers.Layer) -> None:
  replaced = overridden(layer) or exchanged(layer)
  if replaced:
    raise ValueError(
      f"Expected {_named(layer)} to compute what its class does, received one"
      f" whose {replaced} was replaced. Write a layer or a model of your own"
      " instead, or delete the attribute."
    )


def exchanged(layer: tf.keras.layers.Layer) -> str | None:
  """An attribute that is not what Keras makes of this layer's configuration.

  That is another function, number or name, an object of a class that is not
  Keras', or something else in the place of a weight. Regularisers, initialisers
  and constraints of weights may be the caller's own, since no call runs them.
  """
  if not _stands_in("layer", type(layer)) or type(layer) in _EMPTY:
    return None  # it says itself what it computes, or computes nothing
  try:
    fresh = vars(type(layer).from_config(layer.get_config()))
  except Exception:  # it cannot say what it is made of
    fresh = {}
  for name, value in vars(layer).items():
    if name.startswith(_BOOKKEEPING) or is_at_rest(name):
      continue
    if isinstance(value, _PLAIN) and fresh.get(name, value) != value:
      return name
    if name.endswith("activation"):
      continue  # readers know them by identity
    if _is_function(value) and fresh.get(name) is not value:
      return name
    if name in _WEIGHTS and not isinstance(value, _OF_WEIGHTS):
      return name
    if any(map(_is_foreign, _parts(value))):
      return name
  return None


def is_at_rest(name: str) -> bool:
  """Whether an attribute of this name has no part in a call."""
  return name.endswith(_AT_REST) and name not in _IN_EVERY_CALL


def _is_foreign(value: object) -> bool:
  return type(value).__module__.split(".")[0] not in _HOMES


def _parts(value: object) -> Iterator[object]:
  """A value, and what it holds if it is a list or a dictionary."""
  yield value
  if isinstance(value, (list, tuple, dict)):
    for part in value.values() if isinstance(value, dict) else value:
      yield from _parts(part)


def _is_function(value: object) -> bool:
  return isinstance(value, (types.FunctionType, types.BuiltinFunctionType))


def overridden(layer: tf.keras.layers.Layer) -> str | None:
  """A method that this one layer has instead of its class'."""
  for name in vars(layer):
    # Keras itself wraps the one that adapts a layer, which no call runs.
    if name != "reset_state" and callable(getattr(type(layer), name, None)):
      return name
  return None


def made_by(tensor) -> tuple[tf.keras.layers.Layer, tuple]:
  """The layer that makes a symbolic tensor, and the tensors it is called on.

  An input is made by its InputLayer from nothing.

  Raises:
    ValueError: the layer was changed, or is called with anything but tensors
      of the graph.
  """
  layer, index, _ = tensor._keras_history
  node = layer.inbound_nodes[index]
  made = tf.nest.flatten(node.outputs)
  if node.layer is not layer or all(tensor is not found for found in made):
    raise ValueError(
      f"Expected a graph as Keras made it, received a tensor of {_named(layer)}"
      " that its call did not make. Build the model again."
    )
  if type(layer).__name__ in OPERATORS:
    raise ValueError(
      f"Expected layers, received the operation {_named(layer)}. Write it as a"
      " layer, e.g. layers.Add() for a sum, layers.Rescaling for a product."
    )
  if type(layer) in MODELS:
    require_graph(layer)
  else:
    require_layer(layer)
  _require_float(tensor, f"behind {_named(layer)}")
  if node.is_input:
    return layer, ()
  sources = tuple(node.keras_inputs)
  wrong = _further_arguments(node, sources) or _reshaped(layer, sources)
  if wrong:
    raise ValueError(
      f"Expected {_named(layer)} to be called on tensors of the network alone,"
      f" received {wrong}, with which it may compute something else than its"
      " class says of inference. Call it without; constants belong into the"
      " weights of a layer."
    )
  return layer, sources


def _require_float(tensor, where: str) -> None:
  if tensor.dtype.name not in _FLOATS:
    raise ValueError(
      f"Expected float32 or float64 {where}, received {tensor.dtype.name}, to"
      " which Keras rounds. Build the network with dtype='float32'."
    )


def _reshaped(layer, sources: tuple) -> str:
  """Shapes that Keras fits to the inputs of a model inside another."""
  inner = layer.inputs if type(layer) in MODELS else sources
  for own, given in zip(inner, sources):
    if own.shape[1:] != given.shape[1:]:
      return f"one of shape {given.shape} for an input of {own.shape}"
  return ""


def _further_arguments(node, sources: tuple) -> str:
  """What a layer is called with besides the tensors of the graph."""
  for name, value in node.call_kwargs.items():
    if not any(value is idle for idle in _IDLE.get(name, ())):
      return f"{name}={value!r}"
  given = node.call_args
  if len(given) == 1 and isinstance(given[0], (list, tuple)):
    given = given[0]
  elif len(given) != 1:
    return f"{len(given)} arguments"
  same = list(map(id, given)) == list(map(id, sources))
  return "" if same else "a constant beside them"


def _named(layer: tf.keras.layers.Layer) -> str:
  return f"{type(layer).__name__} {layer.name!r}"
