"""What the layers before a noise layer compute, in float64 and how exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob.certify import rounding
from tf_privrob.certify.norms import keras_norms

_keras = tf.keras.layers
_MEANS = (_keras.AveragePooling2D, _keras.GlobalAveragePooling2D)
_MAXIMA = (_keras.MaxPooling2D, _keras.GlobalMaxPooling2D)
_FUNCTION = 2.0**-48  # tanh and the like: 16 units in the last place


def prefix_values(
  layers: Sequence[tf.keras.layers.Layer],
  x: np.ndarray,
  last_activation: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
  """Outputs of a chain of layers at inference, and a bound on their error.

  The error is carried along value by value. A sum of n products |w| |v| is off
  by g(n) times the sum of their sizes (`rounding.growth`), and passes on what
  its terms are off by; an activation passes on its slope times as much.

  Args:
    layers: Layers for which `prefix_norms` are known, in order; empty: the
      identity.
    x: Inputs [B, ...].
    last_activation: False leaves out the activation that the last layer has of
      its own.

  Returns:
    Two float64 arrays of one shape.
  """
  value = tf.constant(x, tf.float64)
  error = tf.zeros_like(value)
  for number, layer in enumerate(layers):
    if keras_norms.is_linear(layer):
      value, error = _linear(layer, value, error)
      if not last_activation and number == len(layers) - 1:
        break
      value, error = _activated(layer, layer.activation, value, error)
    elif keras_norms.is_activation(layer):
      value, error = _activated(layer, layer.call, value, error)
    elif type(layer) in _MEANS:
      size = tf.reduce_prod(value.shape[1:-1])  # at least that of a window
      off = rounding.growth(int(size) + 1, rounding.FLOAT64)
      error = layer.call(error + off * tf.abs(value)) * (1 + off)
      value = layer.call(value)
    elif type(layer) in (*_MAXIMA, *keras_norms.MOVING):
      value, error = layer.call(value), layer.call(error)
    elif type(layer) not in keras_norms.IDENTITIES:
      raise ValueError(
        f"Expected layers of known sensitivity before the noise, received"
        f" {type(layer).__name__} {layer.name!r}."
      )
  return value.numpy(), error.numpy()


def _linear(layer, value, error) -> tuple[tf.Tensor, tf.Tensor]:
  """The affine part of Dense or Conv2D."""
  kernel = tf.cast(layer.kernel, tf.float64)
  terms = int(np.prod(kernel.shape[:-1])) + 2
  off = rounding.growth(terms, rounding.FLOAT64)

  def apply(inputs, kernel):
    if type(layer) is _keras.Dense:
      return tf.linalg.matmul(inputs, kernel)
    return tf.nn.conv2d(inputs, kernel, layer.strides, layer.padding.upper())

  found = apply(value, kernel)
  spread = apply(error + off * tf.abs(value), tf.abs(kernel))
  if layer.use_bias:
    bias = tf.cast(layer.bias, tf.float64)
    found, spread = found + bias, spread + off * tf.abs(bias)
  # The bound itself is a sum of positive terms, as exact as the value.
  return found, spread * (1 + 2 * off) + rounding.SUBNORMAL


def _activated(layer, function, value, error) -> tuple[tf.Tensor, tf.Tensor]:
  """An activation, which is right within a few units in the last place.

  Of the output, or of 1: elu and hard_sigmoid are differences.
  """
  slope = keras_norms.activation_slope(layer)
  if function is None or function is tf.keras.activations.linear:
    return value, error
  found = function(value)
  return found, slope * error + _FUNCTION * (tf.abs(found) + max(1.0, slope))
