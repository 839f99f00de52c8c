"""Activations that never decrease: their range over [l, u] is [f(l), f(u)]."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import tensorflow as tf

from tf_privrob.models import graph
from tf_privrob.models import precision

_keras = tf.keras.layers
_LAYERS = (_keras.Activation, _keras.ELU, _keras.LeakyReLU, _keras.ReLU)
_SMOOTH = (
  "elu",
  "hard_sigmoid",
  "selu",
  "sigmoid",
  "softplus",
  "softsign",
  "tanh",
)


@dataclasses.dataclass(frozen=True)
class Activation:
  """A non-decreasing function of each value.

  Attributes:
    name: Keras' name.
    function: computes it.
    slope: for max(z, slope z) with 0 <= slope <= 1, which has rules of its own
      (0 is the ReLU); None for every other function.
    rounding: what float32 makes of f(z) differs from it by at most
      rounding * (|f(z)| + 1): 2^-20, about 16 units in the last place, for
      functions that a library approximates. Where float32 rounds nothing it is
      2^-48, enough for the float64 arithmetic of the bounds themselves.
  """

  name: str
  function: Callable[[tf.Tensor], tf.Tensor]
  slope: float | None = None
  rounding: float = 2.0**-20


_EXACT = 2.0**-48
_PRODUCT = 2.0**-23  # one product with a rounded constant
RELU = Activation("relu", tf.nn.relu, 0.0, _EXACT)


def is_activation(layer: tf.keras.layers.Layer) -> bool:
  """Whether the layer is an activation of its own."""
  return type(layer) in _LAYERS


def is_softmax(layer: tf.keras.layers.Layer) -> bool:
  """Whether the layer is a softmax or ends in one."""
  function = getattr(layer, "activation", None)
  return isinstance(layer, _keras.Softmax) or any(
    function is known for known in (tf.keras.activations.softmax, tf.nn.softmax)
  )


def of_layer(layer: tf.keras.layers.Layer) -> Activation | None:
  """The activation that a layer is or has; None: the identity.

  Raises:
    ValueError: it is unknown here, or it may decrease.
  """
  if type(layer) is _keras.ReLU:
    return _of_relu(layer)
  if type(layer) is _keras.LeakyReLU:
    return _leaky(float(layer.alpha), layer.name)
  if type(layer) is _keras.ELU:
    return _of_elu(layer)
  function = layer.activation
  if isinstance(function, tf.keras.layers.Layer) and is_activation(function):
    graph.require_layer(function)
    return of_layer(function)
  if function is None or function is tf.keras.activations.linear:
    return None
  if function is tf.keras.activations.relu or function is tf.nn.relu:
    return RELU
  if function is tf.nn.leaky_relu:
    return _leaky(0.2, layer.name)
  if function is tf.nn.relu6:
    return Activation("relu6", function, rounding=_EXACT)
  for name in _SMOOTH:
    known = getattr(tf.keras.activations, name)
    if function is known or function is getattr(tf.nn, name, None):
      return Activation(name, known)
  name = getattr(function, "__name__", type(function).__name__)
  raise ValueError(
    f"Expected an activation that never decreases in layer {layer.name!r} of"
    f" type {type(layer).__name__}, received {name!r}, whose bounds are not"
    f" known. Use one of leaky_relu, linear, relu, relu6, {', '.join(_SMOOTH)}."
  )


def _of_relu(layer) -> Activation:
  if layer.threshold:
    raise ValueError(
      f"Expected ReLU {layer.name!r} with threshold=0, received"
      f" {float(layer.threshold)!r}: it jumps there. Use threshold=0."
    )
  plain = _leaky(float(layer.negative_slope), layer.name)
  if layer.max_value is None:
    return plain
  ceiling = float(layer.max_value)
  return Activation(
    "clipped_relu",
    lambda z: tf.minimum(plain.function(z), tf.cast(ceiling, z.dtype)),
    rounding=_PRODUCT,
  )


def _leaky(slope: float, name: str) -> Activation:
  if slope == 0:
    return RELU
  precision.require_normal_slope(slope, name)
  if not 0 < slope <= 1:
    raise ValueError(
      f"Expected a slope in [0, 1] below zero in {name!r}, received {slope!r}."
      " Use a slope in that interval."
    )
  function = functools.partial(tf.nn.leaky_relu, alpha=slope)
  return Activation("leaky_relu", function, slope, _PRODUCT)


def _of_elu(layer) -> Activation:
  alpha = float(layer.alpha)
  if not 0 <= alpha < math.inf:
    raise ValueError(
      f"Expected ELU {layer.name!r} with alpha >= 0, received {alpha!r}: it"
      " decreases below zero. Use alpha >= 0."
    )
  function = functools.partial(tf.keras.activations.elu, alpha=alpha)
  return Activation("elu", function, rounding=2.0**-20 * max(1.0, alpha))
