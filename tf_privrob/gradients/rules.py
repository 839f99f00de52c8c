"""How each kind of layer turns (input, output gradient) into factors.

A rule receives one recorded call and the loss gradient at the call's output
(before the activation where `pre_activation` says so) and returns the
variable's factor for each trainable variable of the layer. Layers without a
rule go through `any_layer`, which differentiates the call example by example.
"""

from __future__ import annotations

import math
from typing import Any
from typing import Callable
from typing import NamedTuple

import tensorflow as tf

from tf_privrob.gradients import factors
from tf_privrob.gradients import patches

_layers = tf.keras.layers


class Call(NamedTuple):
  """One call of one layer while the loss was computed."""

  layer: tf.keras.layers.Layer
  args: tuple
  kwargs: dict[str, Any]
  output: tf.Tensor
  original: Callable[..., tf.Tensor]
  patches: tf.Tensor | None = None
  """Rows of the input, where the call was computed from them."""


Contribution = tuple[tf.Variable, factors.Factor]


def _trainable(pairs) -> list[Contribution]:
  return [
    (variable, factor)
    for variable, factor in pairs
    if variable is not None and variable.trainable
  ]


def _rows(tensor: tf.Tensor) -> tf.Tensor:
  """[batch, ..., channels] as [batch, positions, channels]."""
  count = 1
  for size in tensor.shape[1:-1]:
    count *= size
  return tf.reshape(tensor, [-1, count, tensor.shape[-1]])


def sum_of_rows(deltas: tf.Tensor) -> factors.Materialised:
  """A bias: d loss / d b = sum_t d_t."""
  return factors.Materialised(factors.over_positions(_rows(deltas)))


def dense(call: Call, deltas: tf.Tensor) -> list[Contribution]:
  """Y = x W + b."""
  layer = call.layer
  inputs = _rows(tf.cast(call.args[0], deltas.dtype))
  kernel = factors.OuterProduct(
    inputs, _rows(deltas), tuple(layer.kernel.shape)
  )
  return _trainable([(layer.kernel, kernel), (layer.bias, sum_of_rows(deltas))])


def _patches(layer: _layers.Layer, inputs: tf.Tensor) -> tf.Tensor:
  return patches.extract(
    inputs,
    layer.kernel_size,
    layer.strides,
    layer.padding,
    layer.dilation_rate,
  )


def computes_from_patches(layer: _layers.Layer) -> bool:
  """Whether a convolution is cheaper as a product with patches.

  The patches are needed for the gradient's norm anyway, and with few channels
  (the first layer) they cost more than the product.
  """
  return (
    rule_for(layer) is conv2d
    and layer.groups == 1
    and layer.kernel.shape[2] < patches.MANY_CHANNELS
    and layer.compute_dtype == "float32"
  )


def convolve(
  layer: _layers.Layer, inputs: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """The layer's output before the activation, and the patches it came from."""
  rows = _patches(layer, tf.stop_gradient(inputs))
  shape = layer.compute_output_shape(inputs.shape)
  stride = {"strides": layer.strides, "padding": layer.padding.upper()}

  @tf.custom_gradient
  def product(inputs, kernel):
    matrix = tf.reshape(kernel, [-1, kernel.shape[-1]])
    outputs = tf.linalg.matmul(tf.reshape(rows, [-1, matrix.shape[0]]), matrix)

    def gradient(deltas):
      by_input = tf.nn.conv2d_transpose(
        deltas,
        kernel,
        tf.shape(inputs),
        dilations=layer.dilation_rate,
        **stride,
      )
      flat = tf.reshape(deltas, [-1, kernel.shape[-1]])
      by_kernel = tf.linalg.matmul(
        tf.reshape(rows, [-1, matrix.shape[0]]), flat, transpose_a=True
      )
      return by_input, tf.reshape(by_kernel, kernel.shape)

    return tf.reshape(outputs, [-1, *shape[1:]]), gradient

  outputs = product(inputs, tf.convert_to_tensor(layer.kernel))
  if layer.use_bias:
    outputs = tf.nn.bias_add(outputs, layer.bias)
  return outputs, rows


def conv2d(call: Call, deltas: tf.Tensor) -> list[Contribution]:
  """A convolution is a dense layer on patches, shared by all positions."""
  layer = call.layer
  if layer.groups > 1:
    kernel = _grouped(call, deltas, layer.groups, tuple(layer.kernel.shape))
  else:
    rows = call.patches
    if rows is None:
      rows = _patches(layer, tf.cast(call.args[0], deltas.dtype))
    shape = tuple(layer.kernel.shape)
    kernel = factors.OuterProduct(rows, _rows(deltas), shape)
  return _trainable([(layer.kernel, kernel), (layer.bias, sum_of_rows(deltas))])


def conv2d_transpose(call: Call, deltas: tf.Tensor) -> list[Contribution]:
  """The adjoint of a convolution: patches are those of the output's gradient.

  Y_s = sum_t K_(s - stride t) x_t, so d loss / d K = sum_t patch_t(d) x_t^T.
  """
  layer = call.layer
  kernel = factors.OuterProduct(
    _patches(layer, deltas),
    _rows(tf.cast(call.args[0], deltas.dtype)),
    tuple(layer.kernel.shape),
  )
  return _trainable([(layer.kernel, kernel), (layer.bias, sum_of_rows(deltas))])


def depthwise_conv2d(call: Call, deltas: tf.Tensor) -> list[Contribution]:
  """A convolution with as many groups as input channels."""
  layer = call.layer
  shape = tuple(layer.depthwise_kernel.shape)
  kernel = _grouped(call, deltas, shape[2], shape)
  return _trainable(
    [(layer.depthwise_kernel, kernel), (layer.bias, sum_of_rows(deltas))]
  )


def _grouped(
  call: Call, deltas: tf.Tensor, groups: int, shape: tuple[int, ...]
) -> factors.Materialised:
  """Each group of channels has a convolution of its own."""
  rows = _patches(call.layer, tf.cast(call.args[0], deltas.dtype))
  positions, area = rows.shape[1], shape[0] * shape[1]
  rows = tf.reshape(
    rows, [-1, positions, area, groups, rows.shape[2] // area // groups]
  )
  deltas = tf.reshape(
    deltas, [-1, positions, groups, deltas.shape[-1] // groups]
  )
  gradients = tf.einsum("btkgi,btgo->bkigo", rows, deltas)
  return factors.Materialised(tf.reshape(gradients, [-1, *shape]))


def _scale_and_shift(
  call: Call, normalised: tf.Tensor, deltas: tf.Tensor, axes: tuple[int, ...]
) -> list[Contribution]:
  """Y = gamma n + beta: gradients are sums over all but the given axes."""
  others = [a for a in range(1, deltas.shape.rank) if a not in axes]
  order, shape = [0, *others, *axes], [deltas.shape[a] for a in axes]

  def total(tensor):
    if order != sorted(order):
      tensor = tf.transpose(tensor, order)
    rows = tf.reshape(tensor, [tensor.shape[0], -1, math.prod(shape)])
    found = tf.reshape(factors.over_positions(rows), [-1, *shape])
    return factors.Materialised(found)

  layer = call.layer
  gamma, beta = total(deltas * normalised), total(deltas)
  return _trainable([(layer.gamma, gamma), (layer.beta, beta)])


def layer_normalization(call: Call, deltas: tf.Tensor) -> list[Contribution]:
  """Normalises each example over `layer.axis`."""
  inputs = tf.cast(call.args[0], deltas.dtype)
  axis = call.layer.axis
  rank = inputs.shape.rank
  axes = tuple(
    a % rank for a in (axis if isinstance(axis, (list, tuple)) else [axis])
  )
  mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
  normalised = (inputs - mean) * tf.math.rsqrt(variance + call.layer.epsilon)
  return _scale_and_shift(call, normalised, deltas, axes)


def group_normalization(call: Call, deltas: tf.Tensor) -> list[Contribution]:
  """Normalises each example over groups of the last axis."""
  layer = call.layer
  inputs = tf.cast(call.args[0], deltas.dtype)
  channels = inputs.shape[-1]
  groups = channels if layer.groups == -1 else layer.groups
  grouped = tf.reshape(
    inputs, [-1, *inputs.shape[1:-1], groups, channels // groups]
  )
  axes = [
    a for a in range(1, grouped.shape.rank) if a != grouped.shape.rank - 2
  ]
  mean, variance = tf.nn.moments(grouped, axes, keepdims=True)
  normalised = (grouped - mean) * tf.math.rsqrt(variance + layer.epsilon)
  normalised = tf.reshape(normalised, [-1, *inputs.shape[1:]])
  return _scale_and_shift(call, normalised, deltas, (inputs.shape.rank - 1,))


def any_layer(call: Call, deltas: tf.Tensor) -> list[Contribution]:
  """One vector-Jacobian product per example, for layers without a rule."""
  variables = call.layer.trainable_weights

  def gradient_of_one(example):
    args, kwargs, delta = example
    with tf.GradientTape() as tape:
      output = call.original(*args, **{**fixed, **kwargs})
    return tape.gradient(
      output,
      variables,
      output_gradients=delta[tf.newaxis],
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )

  def one_row_batches(tree):
    return tf.nest.map_structure(lambda t: tf.expand_dims(t, 1), tree)

  tensors = {k: v for k, v in call.kwargs.items() if tf.is_tensor(v)}
  fixed = {k: v for k, v in call.kwargs.items() if k not in tensors}
  rows = (one_row_batches(call.args), one_row_batches(tensors), deltas)
  if isinstance(call.layer, _layers.RNN):  # loops cannot be vectorised
    signature = [tf.TensorSpec(v.shape, v.dtype) for v in variables]
    gradients = tf.map_fn(gradient_of_one, rows, fn_output_signature=signature)
  else:
    gradients = tf.vectorized_map(gradient_of_one, rows)
  return [
    (variable, factors.Materialised(tf.convert_to_tensor(gradient)))
    for variable, gradient in zip(variables, gradients)
  ]


_RULES = {
  _layers.Dense: dense,
  _layers.Conv2D: conv2d,
  _layers.Conv2DTranspose: conv2d_transpose,
  _layers.DepthwiseConv2D: depthwise_conv2d,
  _layers.LayerNormalization: layer_normalization,
  _layers.GroupNormalization: group_normalization,
}


def rule_for(layer: tf.keras.layers.Layer):
  """The rule of exactly this class; a subclass may compute otherwise."""
  rule = _RULES.get(type(layer), any_layer)
  if getattr(layer, "data_format", "channels_last") != "channels_last":
    return any_layer
  if rule is group_normalization and layer.axis != -1:
    return any_layer
  if rule is conv2d_transpose and (
    layer.output_padding is not None or max(layer.dilation_rate) > 1
  ):
    return any_layer
  return rule


def pre_activation(layer: tf.keras.layers.Layer) -> bool:
  """Whether the rule wants the gradient before the layer's activation."""
  return rule_for(layer) in (
    dense,
    conv2d,
    conv2d_transpose,
    depthwise_conv2d,
  )
