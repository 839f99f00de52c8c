"""Layers and models from a checked description, and from nothing else."""

from __future__ import annotations

import contextlib
import copy
import math
import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tf_privrob.models import graph
from tf_privrob.models.files import description
from tf_privrob.models.files import known

MAX_ACTIVATIONS = 2**26  # numbers in the outputs of all layers for one example
_MAX_PASSES = 500
_MAX_STACK = 500  # each layer that Keras adds takes longer than the one before
_MAX_WORK = 2**28  # numbers that a layer goes through for one example
_CONSTANT = 2**6  # a number that is kept counts for more
_MAX_PRODUCTS = 2**36  # of all layers for one example
_CALL, _STEP = 2**12, 2**23  # products that take as long as a call, or a step
# How many products a model that was rebuilt computes for one example.
_PRODUCTS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def rebuild(value: Any) -> tf.keras.layers.Layer:
  """The layer or model of a description, with weights as they start.

  The whole description is checked before anything of it is made
  (`description.checked`); then every layer is made by the constructor of its
  own class, with objects that were looked up here. No part of the description
  reaches a function that would import, evaluate or open what it names.

  Args:
    value: as `tf.keras.saving.serialize_keras_object` gives it, or the
      `model_config` of an HDF5 file.

  Raises:
    ValueError: something in it is not known, or it cannot be built.
  """
  return _build(description.checked(value))


@contextlib.contextmanager
def limited(most: int) -> Iterator[None]:
  """While it lasts, layers get weights of at most `most` bytes, all zero.

  The size of a weight is known before it is made, so one that is too large is
  never allocated, and no initialiser runs: the weights are in the file.
  """
  left = most

  def create(make, **kwargs):
    nonlocal left
    shape, start = kwargs.get("shape"), kwargs.get("initial_value")
    if shape is not None and callable(start):
      dtype = tf.as_dtype(kwargs.get("dtype") or tf.float32)
      shape = tf.TensorShape(shape)
      left -= math.prod(shape.as_list()) * dtype.size
      if left < 0:
        raise known.RefusedError(
          f"describes more weights than it holds: {kwargs.get('name')} of shape"
          f" {tuple(shape)} comes on top of others. Write it by"
          " model.save(path)."
        )
      kwargs["initial_value"] = lambda: tf.zeros(shape, dtype)
    return make(**kwargs)

  with tf.variable_creator_scope(create):
    yield


def _build(value: dict[str, Any]) -> tf.keras.layers.Layer:
  """A layer; whatever its class makes of wrong settings is one refusal."""
  try:
    return _make(value)
  except known.RefusedError:
    raise
  except Exception as error:
    name, said = value["config"].get("name"), " ".join(str(error).split())
    raise known.RefusedError(
      f"cannot be loaded: {value['class_name']} {name!r} raised"
      f" {type(error).__name__}: {said[:300]}. Write it by model.save(path)."
    ) from error


def _make(value: dict[str, Any]) -> tf.keras.layers.Layer:
  found = known.find(
    "layer", value["class_name"], value["module"], value["registered_name"]
  )
  config = value["config"]
  made = known.made_of_layers(found, config)
  if made:
    return (_functional if made == "graph" else _sequential)(config, found)
  if not known.is_registered(found):
    return found(**{key: _setting(key, part) for key, part in config.items()})
  layer = found.from_config(copy.deepcopy(config))
  if not isinstance(layer, tf.keras.layers.Layer):
    raise known.needs_code(f"{value['registered_name']}, which is no layer")
  if value.get("build_config"):
    layer.build_from_config(copy.deepcopy(value["build_config"]))
  return layer


def _setting(key: str, value: Any) -> Any:
  """A setting of a layer of Keras, as the object that its name stands for."""
  kind = description.kind_of(key)
  if kind is None or value is None or kind == "dtype":
    return value
  if isinstance(value, str):
    found = known.find(kind, value, None, None)
    return found() if isinstance(found, type) else found
  if value["class_name"] == "function":
    return known.find("activation", value["config"], "builtins", None)
  if kind == "layer" or value["class_name"] in known.ACTIVATION_LAYERS:
    return _build(value)
  found = known.find(
    kind, value["class_name"], value["module"], value["registered_name"]
  )
  if value["registered_name"]:
    return found.from_config(copy.deepcopy(value["config"]))
  return found(**value["config"])


def _require_small(tensors: Any, who: str, before: int = 0) -> int:
  """Refuses outputs that are too many together; how many there are so far."""
  for tensor in tf.nest.flatten(tensors):
    shape = tensor.shape.as_list() if tensor.shape.rank is not None else []
    before += math.prod(side or 1 for side in shape)
    if before > MAX_ACTIVATIONS:
      raise known.RefusedError(
        f"has a layer {who!r} with outputs of shape {tuple(shape)}, by which"
        f" the outputs of all layers are more than {MAX_ACTIVATIONS} numbers"
        " for an example. Load it yourself and pass the model."
      )
  return before


def _require_cheap(layer: tf.keras.layers.Layer, inputs: Any) -> None:
  """Refuses what would cost far more than its output, now or when called."""
  shapes = [
    [side or 1 for side in tensor.shape.as_list()[1:]]
    for tensor in tf.nest.flatten(inputs)
    if tensor.shape.rank
  ]
  work = 1
  if isinstance(layer, tf.keras.layers.Normalization):
    given = getattr(layer, "input_mean", None) is not None
    work = _CONSTANT * given * math.prod(shapes[0])
  elif "pool_size" in vars(layer):
    work = math.prod(tf.nest.flatten(layer.pool_size)) * math.prod(shapes[0])
  elif max(tf.nest.flatten(getattr(layer, "dilation_rate", 1))) > 1:
    work = _padded(layer, shapes[0])
  elif "Attention" in type(layer).__name__:
    heads = getattr(layer, "_num_heads", 1)
    work = heads * math.prod(max(shape[:-1], default=1) for shape in shapes[:2])
    work *= shapes[0][0] if len(shapes) == 1 else 1
  if work > _MAX_WORK:
    raise known.RefusedError(
      f"has a layer {layer.name!r} that computes {work} numbers for an example,"
      f" more than {_MAX_WORK}. Load it yourself and pass the model."
    )


def _padded(layer: tf.keras.layers.Layer, shape: list[int]) -> int:
  """Numbers of an input with what dilation may pad it by.

  The sides of a dilated kernel grow with the rate, whatever the input's are.
  """
  first = getattr(layer, "data_format", None) == "channels_first"
  sides = shape[1:] if first else shape[:-1]
  kernel, rates = (
    tf.nest.flatten(part) for part in (layer.kernel_size, layer.dilation_rate)
  )
  longer = [
    side + (size - 1) * rate for side, size, rate in zip(sides, kernel, rates)
  ]
  return math.prod(longer) * (shape[0] if first else shape[-1])


def _forget_masks(layer: tf.keras.layers.Layer) -> None:
  """Recurrent cells remember a mask for each graph, which no walk can sort."""
  for part in graph.within(layer):
    if hasattr(part, "reset_recurrent_dropout_mask"):
      part.reset_dropout_mask()
      part.reset_recurrent_dropout_mask()


class _Work:
  """How many products the layers that were called so far compute, at least."""

  def __init__(self):
    self.products = 0

  def before(self, layer: tf.keras.layers.Layer, inputs: Any) -> None:
    """Adds what is known before a call: inner models, and steps of loops."""
    self._add(layer, _PRODUCTS.get(layer, _CALL))
    for part in (layer, *layer.submodules):
      if isinstance(part, tf.keras.layers.RNN):
        steps = tf.nest.flatten(inputs)[0].shape[1] or 1
        cells = len(getattr(part.cell, "cells", ())) or 1
        self._add(layer, _STEP * steps * cells)

  def after(self, layer: tf.keras.layers.Layer, outputs: Any) -> None:
    """Adds each weight at each place of the output."""
    _forget_masks(layer)
    if layer in _PRODUCTS or isinstance(layer, tf.keras.layers.Embedding):
      return
    first = getattr(layer, "data_format", None) == "channels_first"
    for tensor in tf.nest.flatten(outputs):
      shape = tensor.shape.as_list() if tensor.shape.rank is not None else []
      places = shape[2:] if first else shape[1:-1]
      places = math.prod(side or 1 for side in places)
      for weight in layer.weights:
        if weight.shape.rank > 1:
          self._add(layer, places * math.prod(weight.shape))

  def _add(self, layer: tf.keras.layers.Layer, products: int) -> None:
    self.products += products
    if self.products > _MAX_PRODUCTS:
      raise known.RefusedError(
        f"has a layer {layer.name!r} by which an example takes as long as"
        f" {self.products} products, more than {_MAX_PRODUCTS}. Load it"
        " yourself and pass the model."
      )


def _sequential(config: dict[str, Any], kind: type) -> tf.keras.Sequential:
  if len(config["layers"]) > _MAX_STACK:
    raise known.RefusedError(
      f"has a stack of {len(config['layers'])} layers, more than {_MAX_STACK},"
      " which takes long to build. Load it yourself and pass the model."
    )
  model, made, work = kind(name=config["name"]), 0, _Work()
  for value in config["layers"]:
    layer = _build(value)
    if model.outputs:
      _require_cheap(layer, model.outputs[0])
      work.before(layer, model.outputs[0])
    model.add(layer)
    made = _require_small(model.outputs, layer.name, made)
    work.after(layer, model.outputs or [])
  _PRODUCTS[model] = work.products
  return model


class _Graph:
  """Layers by name and what their calls returned, in the order of calls."""

  def __init__(self, layers: list[dict[str, Any]]):
    self.layers, self.outputs, self._waiting = {}, {}, {}
    self._made_so_far, self.work = 0, _Work()
    for value in layers:
      name = value["name"]
      layer = self.layers[name] = _build(value)
      self._waiting[name] = list(value["inbound_nodes"])
      # Keras counts a model's own inputs and outputs as its first call.
      self.outputs[name] = [None] * isinstance(layer, known.FUNCTIONAL)
      if isinstance(layer, tf.keras.layers.InputLayer):
        self.outputs[name] = [[layer.output]]
        self._count(layer.output, name)

  def _count(self, outputs: Any, name: str) -> None:
    self._made_so_far = _require_small(outputs, name, self._made_so_far)

  def connect(self) -> None:
    """Calls the layers, each as soon as what it is called on is there."""
    for _ in range(_MAX_PASSES):  # one for layers in the order of their calls
      moved = False
      for name, nodes in self._waiting.items():
        while nodes and self._has(nodes[0]):
          self._call(name, nodes.pop(0))
          moved = True
      if not any(self._waiting.values()):
        return
      if not moved:
        break
    for name, nodes in self._waiting.items():
      if nodes:
        raise known.RefusedError(
          f"calls a layer {name!r} on outputs that no layer has. Write it by"
          " model.save(path)."
        )

  def _has(self, node: Any) -> bool:
    return all(self._made(leaf) for leaf in _references(node))

  def _made(self, leaf: list[Any]) -> bool:
    found = self.outputs.get(leaf[0], [])
    return (
      leaf[1] < len(found)
      and found[leaf[1]] is not None
      and leaf[2] < len(found[leaf[1]])
    )

  def _call(self, name: str, node: Any) -> None:
    layer = self.layers[name]
    arguments = {}
    for leaf in description.leaves(node):
      arguments = leaf[3] if len(leaf) == 4 else {}
    inputs = self.tensors(node)
    if isinstance(inputs, list) and len(inputs) == 1:
      inputs = inputs[0]
    kwargs = {
      key: self.tensors(part) if isinstance(part, (list, dict)) else part
      for key, part in arguments.items()
    }
    _require_cheap(layer, inputs)
    self.work.before(layer, inputs)
    outputs = layer(inputs, **kwargs)
    self._count(outputs, name)
    self.work.after(layer, outputs)
    self.outputs[name].append(tf.nest.flatten(outputs))

  def tensors(self, value: Any) -> Any:
    """What the references in a nest stand for."""
    if description.is_leaf(value):
      if not self._made(value):
        raise known.RefusedError(
          f"refers to an output {str(value[:3])[:80]} that no layer has. Write"
          " it by model.save(path)."
        )
      return self.outputs[value[0]][value[1]][value[2]]
    if isinstance(value, dict):
      return {key: self.tensors(part) for key, part in value.items()}
    return [self.tensors(part) for part in value]


def _references(node: Any) -> Iterator[list[Any]]:
  """What a call needs: its inputs, and arguments that are tensors."""
  for leaf in description.leaves(node):
    yield leaf
    for part in (leaf[3] if len(leaf) == 4 else {}).values():
      if isinstance(part, (list, dict)):
        yield from description.leaves(part)


def _functional(config: dict[str, Any], kind: type) -> tf.keras.Model:
  graph = _Graph(config["layers"])
  graph.connect()
  inputs = graph.tensors(config["input_layers"])
  outputs = graph.tensors(config["output_layers"])
  model = kind(inputs=inputs, outputs=outputs, name=config["name"])
  _PRODUCTS[model] = graph.work.products
  lost = [
    name
    for name, layer in graph.layers.items()
    if all(layer is not used for used in model.layers)
  ]
  if lost:
    raise known.RefusedError(
      f"has layers that lead to no output: {', '.join(lost)[:200]}."
      " Save it without them."
    )
  return model
