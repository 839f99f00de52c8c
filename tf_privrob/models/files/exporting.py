"""Networks as files that plain Keras 2 and plain Keras 3 load.

The two read each other's files in parts only: a model within a model, or a call
with named tensors, has no form that both know. So the network is written as one
functional model of Keras' own layers, in settings that both have.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import zipfile
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import h5py
import tensorflow as tf

from tf_privrob import files
from tf_privrob import layers
from tf_privrob.layers import noise
from tf_privrob.models import graph
from tf_privrob.models.files import archive
from tf_privrob.models.files import description
from tf_privrob.models.files import keras3
from tf_privrob.models.files import keras3_settings
from tf_privrob.models.files import known

_layers = tf.keras.layers
_IDLE = {"training": (None, False), "mask": (None,)}
# Settings of Keras 2 alone, with what Keras 3 always does.
_KERAS_2 = {
  "implementation": (0, 1, 2),
  "input_length": (None,),
  "time_major": (False,),
}
_GROUPED = ("groups",)  # what Keras 2 writes of a convolution without groups
_KERNEL = ("kernel_constraint", "kernel_initializer", "kernel_regularizer")
_UNUSED = {
  "Conv1DTranspose": _GROUPED,
  "Conv2DTranspose": _GROUPED,
  "Conv3DTranspose": _GROUPED,
  "DepthwiseConv1D": _GROUPED,
  "DepthwiseConv2D": _GROUPED,
  "SeparableConv1D": (*_GROUPED, *_KERNEL),
  "SeparableConv2D": (*_GROUPED, *_KERNEL),
  "SpatialDropout1D": ("noise_shape", "trainable"),
  "SpatialDropout2D": ("noise_shape", "trainable"),
  "SpatialDropout3D": ("noise_shape", "trainable"),
}
# Layers of which one of the two reads no settings or calls of the other, or
# nothing at all: Keras 2 saves a SpectralNormalization and cannot load it.
_OTHERWISE = frozenset(
  """ConvLSTM1D ConvLSTM2D ConvLSTM3D MultiHeadAttention
  SpectralNormalization""".split()
)
# Functions and constraints that Keras 3 computes otherwise or does not have.
_OF_KERAS_2 = frozenset(
  """RadialConstraint ThresholdedReLU hard_sigmoid l1_l2
  radial_constraint""".split()
)
_RECURRENT = (_layers.Bidirectional, _layers.RNN)


def export(network: tf.keras.Model, path: str | os.PathLike) -> None:
  """Writes a network so that Keras 2 and Keras 3 load it without this library.

  `tf.keras.models.load_model(path)` gives, in both, a functional model with the
  same predictions to rounding. Models within the network are written as their
  layers. Weight normalisation is folded into kernels, `BoundedActivation` and
  `Temperature` become layers of Keras, and noise that is not added at inference
  is left out; the optimizer and losses are not written.

  Args:
    network: functional or sequential, as `model.network` of a trained method.
    path: of a .keras or .h5 file.

  Raises:
    ValueError: the network has a layer, a setting or a call that plain Keras
      does not have, or that its versions compute otherwise.
  """
  path = pathlib.Path(path)
  if path.suffix not in (".keras", ".h5"):
    raise ValueError(
      f"Expected a path that ends in .keras or .h5, received {str(path)!r}."
    )
  plain = _Plain().model(network)
  try:
    keras3.require_alike(plain)
    text = json.dumps(_described(plain))
  except known.RefusedError as error:
    raise ValueError(
      f"Expected a network that plain Keras can load, but {network.name!r}"
      f" {error}"
    ) from error
  with files.writing(path) as draft:
    plain.save(draft)
    if path.suffix == ".h5":
      with h5py.File(draft, "a") as file:
        file.attrs["model_config"] = text
    else:
      draft.write_bytes(_with_description(draft.read_bytes(), text))


def _with_description(content: bytes, text: str) -> bytes:
  entries = archive.unzip(content)
  entries["config.json"] = text.encode()
  found = io.BytesIO()
  with zipfile.ZipFile(found, "w") as store:
    for name, part in entries.items():
      store.writestr(name, part)
  return found.getvalue()


def _refusal(layer: tf.keras.layers.Layer, why: str) -> ValueError:
  return ValueError(
    f"Expected a network that plain Keras can load, but {layer.name!r}"
    f" ({type(layer).__name__}) {why}. Save it by model.save(path), for"
    " programs that import tf_privrob."
  )


class _Plain:
  """Makes one functional model of Keras' own layers."""

  def __init__(self):
    self._made: dict[int, tuple[Any, tf.keras.layers.Layer]] = {}
    self._names: set[str] = set()

  def model(self, network: tf.keras.Model) -> tf.keras.Model:
    """The same function as a new model, with weights of its own."""
    self._require_graph(network)
    inputs = [
      tf.keras.Input(
        batch_shape=tensor.shape,
        dtype=tensor.dtype,
        name=self._name(graph.maker(tensor).layer),
      )
      for tensor in network.inputs
    ]
    outputs = self._applied(network, inputs)
    return tf.keras.Model(
      tf.nest.pack_sequence_as(network.input, inputs),
      tf.nest.pack_sequence_as(network.output, outputs),
      name=network.name.replace("/", "_"),
    )

  def _require_graph(self, model: tf.keras.Model) -> None:
    if type(model) not in graph.MODELS or not graph.begins_with_input(model):
      raise _refusal(
        model,
        "is no functional or sequential model with an Input layer, as the"
        " model.network of a method is",
      )

  def _applied(self, model: tf.keras.Model, inputs: Sequence[Any]) -> list[Any]:
    values = dict(zip(map(id, model.inputs), inputs))
    for call in graph.calls(model):
      if not call.is_input:
        results = self._called(call, [values[id(part)] for part in call.inputs])
        values.update(zip(map(id, call.outputs), results))
    return [values[id(tensor)] for tensor in model.outputs]

  def _called(self, call: graph.Call, inputs: list[Any]) -> list[Any]:
    layer = call.layer
    if (
      len(call.args) != 1
      or len(tf.nest.flatten(call.args[0])) != len(inputs)
      or any(v not in _IDLE.get(k, ()) for k, v in call.kwargs.items())
    ):
      raise _refusal(layer, "is called with more than its inputs")
    if isinstance(layer, tf.keras.Model):
      self._require_graph(layer)
      tf.nest.assert_same_structure(call.args[0], layer.input)
      return self._applied(layer, inputs)
    if isinstance(call.args[0], dict):
      raise _refusal(layer, "is called on a dict")
    if isinstance(layer, _RECURRENT) and len(inputs) > 1:
      raise _refusal(layer, "is given a state to start from")
    inputs = inputs if isinstance(call.args[0], (list, tuple)) else inputs[0]
    return tf.nest.flatten(self._layer(layer, inputs))

  def _layer(self, layer: tf.keras.layers.Layer, inputs: Any) -> Any:
    """The outputs of what takes the place of a layer."""
    if id(layer) in self._made:
      return self._made[id(layer)][1](inputs)
    if type(layer) is layers.BoundedActivation:
      plain, weights = self._clipping(layer), None
    else:
      plain, weights = self._in_place_of(layer)
    outputs = plain(inputs)
    if weights is not None:
      plain.set_weights(weights)
    self._made[id(layer)] = layer, plain
    return outputs

  def _clipping(self, layer: layers.BoundedActivation) -> Callable[[Any], Any]:
    """min(max(x, 0), b) - min(max(-x, 0), b), one of which is always zero."""
    dtype, bound = layer.dtype, layer.bound
    parts = [
      kind(*settings, name=self._name(layer), dtype=dtype)
      for kind, *settings in (
        (_layers.ReLU, bound),
        (_layers.Rescaling, -1.0),
        (_layers.ReLU, bound),
        (_layers.Subtract,),
      )
    ]
    above, minus, below, difference = parts
    return lambda x: difference([above(x), below(minus(x))])

  def _in_place_of(
    self, layer: tf.keras.layers.Layer
  ) -> tuple[tf.keras.layers.Layer, list[Any]]:
    """A new layer of Keras' own, and its weights."""
    config = {**layer.get_config(), "name": self._name(layer)}
    common = {key: config[key] for key in ("name", "trainable", "dtype")}
    kind = type(layer)
    if kind in (layers.NormalizedDense, layers.NormalizedConv2D):
      bias = [layer.bias.numpy()] if layer.use_bias else []
      found = kind.computes_as.from_config(config)
      return found, [layer.kernel.numpy(), *bias]
    if kind is layers.Temperature:
      return _layers.Rescaling(1 / layer.temperature, **common), []
    if isinstance(layer, noise.Noise) and _is_silent(layer):
      return _layers.Activation("linear", **common), []
    if isinstance(layer, noise.Noise):
      raise _refusal(layer, "adds noise at inference")
    for part in graph.within(layer):
      if type(part) not in _KINDS and part.__module__ not in _CELLS:
        raise _refusal(
          part, "is of no class that Keras 2 and Keras 3 have alike"
        )
    return kind.from_config(config), layer.get_weights()

  def _name(self, layer: tf.keras.layers.Layer) -> str:
    """A name that no other layer has, of letters that Keras 3 takes."""
    start = name = layer.name.replace("/", "_")
    number = 0
    while name in self._names:
      number += 1
      name = f"{start}_{number}"
    self._names.add(name)
    return name


def _is_silent(layer: noise.Noise) -> bool:
  """Whether it returns its inputs at inference; a fixed draw is a weight."""
  drawn = layer.fixed and layer.noise.numpy().any()
  return not layer.at_inference or not (layer.scale or drawn)


_CELLS = frozenset(
  cell.__module__
  for cell in (_layers.GRUCell, _layers.LSTMCell, _layers.SimpleRNNCell)
)
_KINDS = frozenset(
  known.TABLES["layer"][name] for name in keras3_settings.LAYERS - _OTHERWISE
)


def _described(model: tf.keras.Model) -> dict[str, Any]:
  """The description that both read."""
  value = tf.keras.saving.serialize_keras_object(model)
  config = description.checked(value)["config"]
  for part in config["layers"]:
    layer = model.get_layer(part["name"])
    part["config"] = _common(layer, part["class_name"], part["config"])
    part["inbound_nodes"] = [
      [[*leaf[:3], {}] for leaf in description.leaves(node)]
      for node in part["inbound_nodes"]
    ]
  return {
    "module": "keras",
    "class_name": "Model",
    "config": config,
    "registered_name": None,
  }


def _common(
  layer: tf.keras.layers.Layer, kind: str, config: dict[str, Any]
) -> dict[str, Any]:
  """Settings that both know, with the same meaning."""
  found = {}
  for key, value in config.items():
    if key in _UNUSED.get(kind, ()) or (
      key == "batch_input_shape" and kind != "InputLayer"
    ):
      continue
    if key in _KERAS_2:
      if value not in _KERAS_2[key]:
        raise _refusal(layer, f"has {key}={value!r}, unknown to Keras 3")
      continue
    if keras3_settings.is_limited(kind, key):
      keras3_settings.require_agreement(kind, key, value)
    if kind == "BatchNormalization" and key == "axis":
      (value,) = value if isinstance(value, list) else [value]
    found[key] = _object(layer, key, value)
  return found


def _object(layer: tf.keras.layers.Layer, key: str, value: Any) -> Any:
  """A setting that may be an object, which both must have."""
  kind = description.kind_of(key)
  if kind in (None, "dtype") or value is None:
    return value
  if isinstance(value, str):
    name, own = value, value not in known.TABLES[kind]
  else:
    name, own = value["class_name"], bool(value["registered_name"])
    name = value["config"] if name == "function" else name
  if own or name in _OF_KERAS_2:
    raise _refusal(layer, f"has {key} {name!r}, unlike or unknown in Keras 3")
  if kind == "layer" or name in known.ACTIVATION_LAYERS:
    return {**value, "config": _common(layer, name, value["config"])}
  return value
