"""Layers whose weights have their length apart from their direction."""

from __future__ import annotations

import tensorflow as tf

_layers = tf.keras.layers


class _Normalized:
  """Makes `kernel` the product g v / ||v|| of two variables.

  v, `direction`, is what Keras would call the kernel, and g, `length`, one
  number for all of it, ||v|| at first (Salimans and Kingma, 2016, Eq. 2, there
  with one g per unit). An optimiser whose steps have a size of their own, such
  as Adam, then moves the length of a large kernel far more slowly than it would
  by moving all of its entries.

  The norm is computed in float64, so that two computations of the kernel agree
  to within 4 roundings of float32, whatever the order of their sums.
  """

  kernel_roundings = 4

  def build(self, input_shape):
    """Both variables; g takes the norm of v."""
    if isinstance(self.kernel_initializer, tf.keras.initializers.Zeros):
      raise ValueError(
        f"Expected weights with a direction for layer {self.name!r}, received"
        " kernel_initializer='zeros'. Use another, e.g. 'glorot_uniform'."
      )
    super().build(input_shape)
    self.length = self.add_weight(
      "length",
      shape=(),
      initializer=lambda shape, dtype=None: tf.cast(self._norm(), dtype),
    )

  @property
  def kernel(self) -> tf.Tensor:
    """G v / ||v||."""
    scale = tf.cast(self.length, tf.float64) / self._norm()
    return self.direction * tf.cast(scale, self.direction.dtype)

  @kernel.setter
  def kernel(self, direction: tf.Variable) -> None:
    self.direction = direction

  def _norm(self) -> tf.Tensor:
    squares = tf.square(tf.cast(self.direction, tf.float64))
    return tf.sqrt(tf.reduce_sum(squares))


@tf.keras.saving.register_keras_serializable("tf_privrob")
class NormalizedDense(_Normalized, _layers.Dense):
  """A dense layer with weight normalisation; arguments are those of Dense."""

  computes_as = _layers.Dense  # for `bounds`
  row_wise = True


@tf.keras.saving.register_keras_serializable("tf_privrob")
class NormalizedConv2D(_Normalized, _layers.Conv2D):
  """A convolution with weight normalisation; arguments are those of Conv2D."""

  computes_as = _layers.Conv2D
  row_wise = True
