"""Norms of Keras layers, and of the chain of layers before a noise layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import layers as privrob_layers
from tf_privrob.certify.norms import linear_norms
from tf_privrob.certify.norms import operator_norms
from tf_privrob.models import graph
from tf_privrob.models import precision

_keras = tf.keras.layers
# Nothing happens in these, at inference; others only move values.
IDENTITIES = (
  _keras.InputLayer,
  _keras.Dropout,
  _keras.SpatialDropout2D,
  _keras.GaussianDropout,
  _keras.GaussianNoise,
)
MOVING = (
  _keras.Flatten,
  _keras.Reshape,
  _keras.Permute,
  _keras.ZeroPadding2D,
)
_POOLING = (
  _keras.MaxPooling2D,
  _keras.AveragePooling2D,
  _keras.GlobalAveragePooling2D,
  _keras.GlobalMaxPooling2D,
)
# The largest slope of each activation.
SLOPES = {
  "linear": 1.0,
  "relu": 1.0,
  "relu6": 1.0,
  "tanh": 1.0,
  "softsign": 1.0,
  "softplus": 1.0,
  "sigmoid": 0.25,
  "hard_sigmoid": 0.2,
  "elu": 1.0,
}


def linear_map(
  layer: tf.keras.layers.Layer, input_shape: Sequence[int] | None = None
) -> linear_norms.LinearMap:
  """The linear part of a built Dense or Conv2D layer, before its activation.

  Args:
    layer: The layer. Its present kernel counts; ask again after training.
    input_shape: The shape of one input of a convolution; None takes the shape
      that the layer was built with.
  """
  graph.require_layer(layer)
  if type(layer) is _keras.Dense:
    check_built(layer)
    if input_shape is not None and len(input_shape) != 1:
      raise ValueError(
        f"Expected vectors before Dense {layer.name!r}, received inputs of"
        f" shape {tuple(input_shape)}. Put a Flatten layer before it."
      )
    return linear_norms.dense_map(layer.kernel.numpy())
  if type(layer) is not _keras.Conv2D:
    raise ValueError(
      f"Expected a Dense or Conv2D layer, received {type(layer).__name__}. Its"
      " norms are not known here: pass its kernel to linear_norms.dense_map or"
      " conv2d_map if it is one of them in disguise."
    )
  check_built(layer)
  if (
    layer.groups != 1
    or tuple(layer.dilation_rate) != (1, 1)
    or layer.data_format != "channels_last"
  ):
    raise ValueError(
      "Expected a Conv2D with groups=1, dilation_rate=1 and"
      f" data_format='channels_last', received groups={layer.groups},"
      f" dilation_rate={layer.dilation_rate},"
      f" data_format={layer.data_format!r}."
    )
  if input_shape is None:
    input_shape = getattr(layer, "input_shape", (None, None))[1:]
    if None in input_shape:
      raise ValueError(
        "Expected the shape of one input, which this layer does not know."
        " Pass input_shape=(height, width, channels)."
      )
  return linear_norms.conv2d_map(
    layer.kernel.numpy(), input_shape, layer.strides, layer.padding
  )


def prefix_norms(
  layers: Sequence[tf.keras.layers.Layer],
  input_shape: Sequence[int],
  last_activation: bool = True,
  stddev: np.ndarray | None = None,
  quick: bool = False,
) -> operator_norms.OperatorNorms:
  """Norms of a chain of layers at inference, with their present weights.

  Args:
    layers: The layers in the order of application; empty: the identity.
    input_shape: Shape of one input of the first layer.
    last_activation: False leaves out the activation that the last layer has
      of its own, for noise before it.
    stddev: Standard deviation of the noise behind the chain, one value an
      output; the norms are then those of D^-1 f, D = diag(stddev).
    quick: Whether to bound convolutions roughly; see `LinearMap.norms`.

  Raises:
    ValueError: A layer's sensitivity is not known.
  """
  shape = tuple(input_shape)
  total = operator_norms.elementwise_norms(shape)
  chain = list(layers)
  # Noise is whitened at the last linear layer: coordinate by coordinate the
  # functions behind it move no further than what they are given.
  whitened_at = _last_linear(chain) if stddev is not None else None
  for number, layer in enumerate(chain):
    if is_linear(layer):
      found = linear_map(layer, shape)
      if number == whitened_at:
        found = found.whitened(np.reshape(stddev, found.output_shape))
      total = total.then(found.norms(quick))
      if last_activation or number < len(chain) - 1:
        slope = activation_slope(layer)
        total = total.then(
          operator_norms.elementwise_norms(found.output_shape, slope)
        )
    else:
      total = total.then(_norms_without_kernel(layer, shape))
    shape = total.output_shape
  if stddev is not None and whitened_at is None:
    least = float(np.min(np.broadcast_to(stddev, shape)))
    if not 0 < least < math.inf:
      raise ValueError(f"Expected stddev > 0, received {least!r}.")
    total = total.then(operator_norms.elementwise_norms(shape, 1 / least))
  return total


def is_linear(layer: tf.keras.layers.Layer) -> bool:
  """Whether it is a layer with a kernel whose norms are known."""
  return type(layer) in (_keras.Dense, _keras.Conv2D)


def _last_linear(chain) -> int | None:
  """The last layer with a kernel, if only functions of each value follow."""
  for number in reversed(range(len(chain))):
    if is_linear(chain[number]):
      return number
    if not is_activation(chain[number]):
      return None
  return None


_ACTIVATIONS = (
  _keras.Activation,
  _keras.ReLU,
  _keras.LeakyReLU,
  _keras.ELU,
  privrob_layers.BoundedActivation,
)


def is_activation(layer: tf.keras.layers.Layer) -> bool:
  """Whether the layer is an activation of its own, of each value."""
  return type(layer) in _ACTIVATIONS


def _norms_without_kernel(layer, shape) -> operator_norms.OperatorNorms:
  graph.require_layer(layer)
  if is_activation(layer):
    return operator_norms.elementwise_norms(shape, activation_slope(layer))
  if type(layer) in (*IDENTITIES, *MOVING):
    output_shape = tuple(layer.compute_output_shape((None, *shape))[1:])
    if isinstance(layer, _keras.InputLayer):
      output_shape = shape
    return operator_norms.elementwise_norms(shape, 1.0, output_shape)
  if type(layer) in _POOLING and layer.data_format == "channels_last":
    return _pooling(layer, shape)
  raise ValueError(
    f"Expected layers of known sensitivity before the noise, received"
    f" {type(layer).__name__} {layer.name!r}, whose sensitivity is unknown."
    " Put the noise before it (noise_after=0 is the input), or use Dense,"
    " Conv2D, pooling and the usual activations there."
  )


def activation_slope(layer) -> float:
  """The Lipschitz constant of an activation, alone or inside a layer."""
  if isinstance(layer, _keras.ReLU):
    if layer.threshold:
      raise ValueError(
        f"Expected ReLU {layer.name!r} with threshold=0 before the noise,"
        f" received {layer.threshold!r}: it jumps there, and its sensitivity is"
        " unbounded. Use threshold=0, or put the noise before it."
      )
    return _below_zero(layer, layer.negative_slope)
  if isinstance(layer, _keras.LeakyReLU):
    return _below_zero(layer, layer.alpha)
  if isinstance(layer, _keras.ELU):
    return max(1.0, abs(float(layer.alpha)))
  if isinstance(layer, privrob_layers.BoundedActivation):
    return 1.0
  function = layer.activation
  name = getattr(function, "__name__", type(function).__name__)
  known = SLOPES.get(name)
  if function is None:
    return 1.0
  same = getattr(tf.keras.activations, name, None) is function
  if known is None or not (same or function is getattr(tf.nn, name, None)):
    raise ValueError(
      f"Expected an activation of known slope before the noise, received"
      f" {name!r} in {layer.name!r}, whose sensitivity is unknown. Use one of"
      f" {', '.join(sorted(SLOPES))}, or put the noise before the activation"
      " (noise_position='before_activation')."
    )
  return known


def _below_zero(layer, slope) -> float:
  """The Lipschitz constant of max(z, 0) + slope min(z, 0)."""
  precision.require_normal_slope(float(slope), layer.name)
  return max(1.0, abs(float(slope)))


def _pooling(layer, shape) -> operator_norms.OperatorNorms:
  """Reads windows off the layer: of means for means, of sizes for maxima."""
  output_shape = tuple(layer.compute_output_shape((None, *shape))[1:])
  window = getattr(layer, "pool_size", shape[:2])
  if isinstance(layer, (_keras.MaxPooling2D, _keras.GlobalMaxPooling2D)):
    steps = getattr(layer, "strides", window)
    overlap = math.prod(
      math.ceil(size / step) for size, step in zip(window, steps)
    )
    return operator_norms.pooling_norms(shape, output_shape, overlap)
  ones = tf.ones([1, *shape], layer.compute_dtype)
  with tf.GradientTape() as tape:
    tape.watch(ones)
    total = tf.reduce_sum(layer(ones))
  overlap = float(tf.reduce_max(tape.gradient(total, ones))) * (1 + 1e-5)
  # A mean at the border is over the values inside only.
  inside = tf.nn.conv2d(
    tf.ones([1, *shape[:2], 1]),
    tf.ones([*window, 1, 1]),
    getattr(layer, "strides", window),
    getattr(layer, "padding", "valid").upper(),
  )
  largest_weight = 1 / float(tf.reduce_min(inside))
  return operator_norms.pooling_norms(
    shape, output_shape, overlap, largest_weight
  )


def check_built(layer: tf.keras.layers.Layer) -> None:
  """Refuses a layer that has no weights yet."""
  if not layer.built:
    raise ValueError(
      f"Expected the built layer {layer.name!r}: call it once, or load its"
      " weights, before asking for its constants."
    )
