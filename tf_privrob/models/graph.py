"""Reads the graph of a Keras model where it is what the model computes.

A call of a functional or sequential model runs the layer of each node of its
graph on the tensors of that node. So whoever knows the layers knows the
function, as long as no model and no layer is called in another way: by a
subclass, by a method that was replaced on the object, with constants or
arguments in a call, or on numbers of another type. `made_by` refuses all that.

This is the only file that knows how Keras keeps its graphs. `calls`, `maker`
and `calls_of` say what is there and judge nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_privrob.models import untouched
from tf_privrob.models.files import known

MODELS = (known.FUNCTIONAL, tf.keras.Sequential)
# What Keras makes of x + y; neither does it export these.
OPERATORS = ("TFOpLambda", "SlicingOpLambda")
_FLOATS = ("float32", "float64")
# Arguments of a call that change nothing at inference.
_IDLE = {"training": (None, False), "mask": (None,)}


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
  """One call of a layer on symbolic tensors.

  Attributes:
    layer: that was called.
    inputs: the symbolic tensors among its arguments, in order.
    outputs: the symbolic tensors that it returned.
    args: all positional arguments, as they were given.
    kwargs: all named arguments.
    is_input: whether it was called on nothing, as an InputLayer is.
  """

  layer: tf.keras.layers.Layer
  inputs: tuple
  outputs: tuple
  args: Sequence[Any]
  kwargs: Mapping[str, Any]
  is_input: bool

  @property
  def output(self) -> Any:
    """The only tensor that it returned; None if there are several."""
    return self.outputs[0] if len(self.outputs) == 1 else None


def calls(model: tf.keras.Model) -> tuple[Call, ...]:
  """Every call that a call of the model runs, makers before readers.

  Args:
    model: of a known graph; models inside it are layers like others.

  Raises:
    ValueError: a call reads what no call of the graph makes.
  """
  by_depth = sorted(model._nodes_by_depth.items())
  run = [node for _, nodes in by_depth for node in nodes]
  seen, order = set(), []

  def visit(node):
    if id(node) not in seen:
      seen.add(id(node))
      for tensor in node.keras_inputs:
        visit(_node(tensor))
      order.append(_call(node))

  for node in run:  # from the outputs back
    visit(node)
  if len(order) > len(run):
    raise ValueError(
      f"Expected a graph as Keras made it, received {_named(model)}, in which a"
      " layer reads what no layer makes. Build the model again."
    )
  return tuple(order)


def calls_of(layer: tf.keras.layers.Layer) -> tuple[Call, ...]:
  """All calls of a layer on symbolic tensors, be it in several models."""
  return tuple(map(_call, layer.inbound_nodes))


def maker(tensor) -> Call:
  """The call that makes a symbolic tensor.

  Raises:
    ValueError: the call that the tensor names did not make it.
  """
  return _call(_node(tensor))


def feeding(layer: tf.keras.layers.Layer) -> list[tf.keras.layers.Layer]:
  """The layers that feed a layer, at its first call."""
  return [maker(tensor).layer for tensor in calls_of(layer)[0].inputs]


def is_symbolic(value: Any) -> bool:
  """Whether it is a tensor of a graph that Keras records."""
  return hasattr(value, "_keras_history")


def held_by(layer: tf.keras.layers.Layer) -> list[tf.keras.layers.Layer]:
  """The layers that a layer or model holds, but not those that these hold."""
  return list(layer._flatten_layers(recursive=False, include_self=False))


def within(layer: tf.keras.layers.Layer) -> list[tf.keras.layers.Layer]:
  """The layer, and all layers that it is made of."""
  return list(layer._flatten_layers())


def begins_with_input(model: tf.keras.Model) -> bool:
  """Whether a functional or sequential model was made for one input shape."""
  explicit = getattr(model, "_has_explicit_input_shape", True)
  return bool(model._is_graph_network and explicit)


def applied(model: tf.keras.Model, inputs: Sequence[Any]) -> list[Any]:
  """The outputs of the model's layers, called one by one on other tensors.

  Args:
    model: of a known graph.
    inputs: symbolic tensors in the place of those of the model.
  """
  values = dict(zip(map(id, model.inputs), inputs))
  for call in calls(model):
    if not call.is_input:
      args, kwargs = tf.nest.map_structure(
        lambda value: values.get(id(value), value), (call.args, call.kwargs)
      )
      results = tf.nest.flatten(call.layer(*args, **kwargs))
      values.update(zip(map(id, call.outputs), results))
  return [values[id(tensor)] for tensor in model.outputs]


def _node(tensor):
  """Keras' own record of the call that makes a symbolic tensor."""
  layer, index, _ = tensor._keras_history
  node = layer.inbound_nodes[index]
  made = tf.nest.flatten(node.outputs)
  if node.layer is not layer or all(tensor is not found for found in made):
    raise ValueError(
      f"Expected a graph as Keras made it, received a tensor of {_named(layer)}"
      " that its call did not make. Build the model again."
    )
  return node


def _call(node) -> Call:
  return Call(
    node.layer,
    tuple(node.keras_inputs),
    tuple(tf.nest.flatten(node.outputs)),
    node.call_args,
    node.call_kwargs,
    node.is_input,
  )


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
  if says is None or not untouched.is_ours(says):
    return False
  usual = _owner(kind, "__call__") is _owner(tf.keras.Model, "__call__")
  return usual and issubclass(says, calls)


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
  if untouched.overridden(layer) or untouched.exchanged(layer):
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
    and untouched.is_known("layer", type(layer))
    and all(untouched.is_known("activation", one) for one in functions)
  )


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
  replaced = untouched.overridden(layer) or untouched.exchanged(layer)
  if replaced:
    raise ValueError(
      f"Expected {_named(layer)} to compute what its class does, received one"
      f" whose {replaced} was replaced. Write a layer or a model of your own"
      " instead, or delete the attribute."
    )


def made_by(tensor) -> tuple[tf.keras.layers.Layer, tuple]:
  """The layer that makes a symbolic tensor, and the tensors it is called on.

  An input is made by its InputLayer from nothing.

  Raises:
    ValueError: the layer was changed, or is called with anything but tensors
      of the graph.
  """
  call = maker(tensor)
  layer, sources = call.layer, call.inputs
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
  if call.is_input:
    return layer, ()
  wrong = _further_arguments(call) or _reshaped(layer, sources)
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


def _further_arguments(call: Call) -> str:
  """What a layer is called with besides the tensors of the graph."""
  for name, value in call.kwargs.items():
    if not any(value is idle for idle in _IDLE.get(name, ())):
      return f"{name}={value!r}"
  given = call.args
  if len(given) == 1 and isinstance(given[0], (list, tuple)):
    given = given[0]
  elif len(given) != 1:
    return f"{len(given)} arguments"
  same = list(map(id, given)) == list(map(id, call.inputs))
  return "" if same else "a constant beside them"


def _named(layer: tf.keras.layers.Layer) -> str:
  return f"{type(layer).__name__} {layer.name!r}"
