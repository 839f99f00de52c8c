"""Reads a Keras network, once, into the steps that bounds go through."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import tensorflow as tf

from tf_privrob.bounds import activations
from tf_privrob.bounds import affine
from tf_privrob.models import graph
from tf_privrob.models import untouched

_keras = tf.keras.layers
# Nothing happens in these at inference.
_IDENTITIES = (
  _keras.Dropout,
  _keras.GaussianDropout,
  _keras.GaussianNoise,
  _keras.InputLayer,
  _keras.SpatialDropout2D,
)
_SMALL_VARIANCE = 1e-12
_MAPS = {
  _keras.AveragePooling2D: affine.AveragePooling2D,
  _keras.BatchNormalization: affine.BatchNormalization,
  _keras.Conv2D: affine.Conv2D,
  _keras.Dense: affine.Dense,
  _keras.Flatten: None,
  _keras.GlobalAveragePooling2D: affine.GlobalAveragePooling2D,
  _keras.Rescaling: affine.Rescaling,
  _keras.Reshape: None,
  _keras.ZeroPadding2D: affine.ZeroPadding2D,
}


@dataclasses.dataclass(frozen=True)
class Step:
  """One value made of earlier ones.

  Attributes:
    operation: an affine map or an activation of one value; None: the sum of
      all `inputs`.
    inputs: which values; 0 is the network's input, i + 1 what step i makes.
    shape: of the value, without the batch axis.
    layer: name of the Keras layer, for messages.
  """

  operation: affine.Affine | activations.Activation | None
  inputs: tuple[int, ...]
  shape: affine.Shape
  layer: str

  @property
  def is_affine(self) -> bool:
    """Whether it is an affine map of one value."""
    return isinstance(self.operation, affine.Affine)

  @property
  def is_activation(self) -> bool:
    """Whether it is an activation."""
    return isinstance(self.operation, activations.Activation)


@dataclasses.dataclass(frozen=True)
class Program:
  """A network as steps in order; the last value is its output."""

  input_shape: affine.Shape
  steps: tuple[Step, ...]
  name: str

  def shape(self, value: int) -> affine.Shape:
    """Shape of a value, without the batch axis."""
    return self.steps[value - 1].shape if value else self.input_shape

  @property
  def num_classes(self) -> int:
    """Number of outputs; requires a vector of them."""
    shape = self.shape(len(self.steps))
    if len(shape) != 1:
      raise ValueError(
        f"Expected network {self.name!r} to return one vector of logits an"
        f" input, received outputs of shape {shape}. Add a Flatten layer, or"
        " cut the network before its output."
      )
    return shape[0]


def read(network: tf.keras.Model) -> Program:
  """The steps of a network at inference.

  Args:
    network: functional or sequential, of one input and one output, returning
      logits. Models inside it are read too; a layer used twice is two steps.

  Raises:
    ValueError: the network or one of its layers cannot be bounded here, or a
      weight is not finite.
  """
  graph.require_graph(network)
  reader = _Reader(network)
  _check_finite(network)
  return Program(reader.input_shape, tuple(reader.steps), network.name)


class _Reader:
  """Walks from the output back to the input; every value is made once."""

  def __init__(self, network: tf.keras.Model):
    source = self._only(network.inputs, network, "input")
    self.input_shape = tuple(source.shape[1:])
    if None in self.input_shape:
      raise ValueError(
        f"Expected an input of known shape for network {network.name!r},"
        f" received {self.input_shape}. Fix it in the Input layer."
      )
    self._dtype = source.dtype
    self.steps: list[Step] = []
    target = self._only(network.outputs, network, "output")
    self._refuse_softmax(target)
    last = self._visit(target, {id(source): 0})
    if last != len(self.steps):
      raise AssertionError("the output is the last value by construction")

  def _only(self, tensors, model, what):
    if len(tensors) != 1:
      raise ValueError(
        f"Expected one {what} of network {model.name!r}, received"
        f" {len(tensors)}. Wrap the part to be bounded in a model of its own."
      )
    return tensors[0]

  def _refuse_softmax(self, tensor) -> None:
    layer = graph.maker(tensor).layer
    if activations.is_softmax(layer):
      raise ValueError(
        f"Expected a network that returns logits, received one that ends in a"
        f" softmax ({type(layer).__name__} {layer.name!r}). Pass"
        " models.as_logits(network), which takes the softmax off."
      )
    if isinstance(layer, tf.keras.Model) and layer.outputs:
      self._refuse_softmax(layer.outputs[0])

  def _visit(self, tensor, known: dict[int, int]) -> int:
    """Which value a symbolic tensor is; `known` holds those of its model."""
    if id(tensor) in known:
      return known[id(tensor)]
    layer, sources = graph.made_by(tensor)
    inputs = [self._visit(source, known) for source in sources]
    known[id(tensor)] = value = self._read_layer(layer, inputs)
    self._compare(layer, tensor, self._shape(value))
    return value

  def _compare(self, layer, tensor, shape: affine.Shape) -> None:
    """Refuses a value of another shape or type than Keras says it has."""
    if tuple(tensor.shape[1:]) != shape:
      raise ValueError(
        f"Expected values of shape {shape} behind {type(layer).__name__}"
        f" {layer.name!r}, but Keras makes {tuple(tensor.shape[1:])} of them."
        " Give its settings the shape of its inputs."
      )
    if tensor.dtype != self._dtype:
      raise ValueError(
        f"Expected {self._dtype.name} everywhere, as at the input, received"
        f" {tensor.dtype.name} behind {type(layer).__name__} {layer.name!r}:"
        " what the change rounds off is not bounded. Build the network in one"
        " precision."
      )

  def _read_layer(self, layer, inputs: list[int]) -> int:
    if graph.is_graph(layer):
      inner = self._only(layer.inputs, layer, "input")
      outer = self._only(inputs, layer, "input")
      target = self._only(layer.outputs, layer, "output")
      return self._visit(target, {id(inner): outer})
    if type(layer) is _keras.Add:
      return self._append_sum(layer, tuple(inputs))
    if len(inputs) != 1:
      raise _unknown(layer)
    if type(layer) in _IDENTITIES:
      return inputs[0]
    value = inputs[0]
    if _kind(layer) in _MAPS:
      value = self._append_affine(layer, value)
    elif not activations.is_activation(layer):
      raise _unknown(layer)
    if activations.is_activation(layer) or hasattr(layer, "activation"):
      activation = activations.of_layer(layer)
      if activation is not None:
        shape = self._shape(value)
        value = self._append(layer, activation, (value,), shape)
    return value

  def _append_sum(self, layer, inputs: tuple[int, ...]) -> int:
    shapes = sorted({self._shape(value) for value in inputs})
    if len(shapes) > 1:
      raise ValueError(
        f"Expected values of one shape in Add {layer.name!r}, received"
        f" {shapes}, which Keras would repeat. Give them one shape before."
      )
    return self._append(layer, None, inputs, shapes[0])

  def _append_affine(self, layer, value: int) -> int:
    shape = self._shape(value)
    _check_layer(layer, shape)
    made = _MAPS[_kind(layer)]
    if made is None:
      output_shape = tuple(layer.compute_output_shape((None, *shape))[1:])
      operation = affine.Reshape(shape, output_shape)
    else:
      operation = made(layer, shape)
    return self._append(layer, operation, (value,), operation.output_shape)

  def _append(self, layer, operation, inputs, shape) -> int:
    self.steps.append(Step(operation, inputs, tuple(shape), layer.name))
    return len(self.steps)

  def _shape(self, value: int) -> affine.Shape:
    return self.steps[value - 1].shape if value else self.input_shape


def _kind(layer) -> type:
  """The class whose rule applies: its own, or the one that it says.

  A class of this library may say that it `computes_as` Dense, say, with the
  kernel, bias and activation that it has. A subclass may compute otherwise, so
  what it inherits does not count.
  """
  kind = type(layer)
  return (
    vars(kind).get("computes_as", kind) if untouched.is_ours(kind) else kind
  )


def _unknown(layer) -> ValueError:
  hint = "Replace it"
  if isinstance(layer, (_keras.MaxPooling2D, _keras.GlobalMaxPooling2D)):
    hint = "Use AveragePooling2D or a convolution with strides"
  elif activations.is_softmax(layer):
    hint = "Take the softmax off"
  return ValueError(
    f"Expected layers whose bounds are known, received {layer.name!r} of type"
    f" {type(layer).__name__}. {hint}; known are"
    f" {', '.join(sorted(known.__name__ for known in _MAPS))}, Add, Dropout and"
    " activations that never decrease."
  )


def _check_deviations(layer) -> None:
  """Refuses statistics whose square root float32 may take for 0 or NaN."""
  variance = layer.moving_variance.numpy().astype(float)
  if variance.min() < 0 or variance.min() + layer.epsilon < _SMALL_VARIANCE:
    raise ValueError(
      f"Expected a moving variance >= 0 in {layer.name!r}, and with epsilon at"
      f" least {_SMALL_VARIANCE:g}, received {variance.min():g} and"
      f" {layer.epsilon:g}: float32 may divide by 0. Use a larger epsilon."
    )


def _check_layer(layer, shape) -> None:
  """Refuses settings that the affine maps do not have."""
  wrong = ""
  if getattr(layer, "data_format", "channels_last") != "channels_last":
    wrong = f"data_format={layer.data_format!r}"
  elif getattr(layer, "groups", 1) != 1:
    wrong = f"groups={layer.groups}"
  elif isinstance(layer, _keras.BatchNormalization):
    if list(layer.axis) != [len(shape)]:
      wrong = f"axis={list(layer.axis)}"
  if wrong:
    raise ValueError(
      f"Expected {type(layer).__name__} {layer.name!r} over channels in the"
      f" last axis, in one group, received {wrong}. Build it so."
    )


def _check_finite(network: tf.keras.Model) -> None:
  """Refuses NaN and infinite weights, as they are while this is traced."""
  with tf.init_scope():
    if not tf.executing_eagerly():
      return
    for weight in network.weights:
      if weight.dtype.is_floating:
        # A sum is finite only if all of its terms are.
        total = float(tf.reduce_sum(tf.abs(tf.cast(weight, tf.float64))))
        if not math.isfinite(total):
          bad = int(np.sum(~np.isfinite(weight.numpy())))
          raise ValueError(
            f"Expected finite weights, received {bad} NaN or infinite values in"
            f" {weight.name!r}. Restore the network from before it diverged."
          )
    for layer in network.submodules:
      if type(layer) is _keras.BatchNormalization:
        _check_deviations(layer)
