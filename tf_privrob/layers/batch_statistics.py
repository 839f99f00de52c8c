"""Standardisation by the batch at hand, as DPAL's released code does it."""

from __future__ import annotations

import tensorflow as tf

from tf_privrob import validate


@tf.keras.saving.register_keras_serializable("tf_privrob")
class BatchStandardization(tf.keras.layers.Layer):
  """Subtracts the batch's mean and divides by its deviation, channel-wise.

  No parameters and no moving averages: the statistics are those of the batch,
  in training and at inference. There for reproduction only, since it couples
  the examples of a batch: one changed example moves the outputs of all others,
  so neither a sensitivity nor a certificate for one input survives it.
  `gradients` shows it one example at a time, as a batch of one.

  Args:
    variance_floor: Added to the variance.
    **kwargs: Keras' own.
  """

  def __init__(self, variance_floor: float = 1e-3, **kwargs):
    super().__init__(**kwargs)
    validate.positive(variance_floor=variance_floor)
    self.variance_floor = float(variance_floor)
    self.bypassed = False  # read while tracing: DPAL's code attacks without it

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """The standardised batch."""
    if self.bypassed:
      return inputs
    axes = list(range(len(inputs.shape) - 1))
    mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
    return (inputs - mean) * tf.math.rsqrt(variance + self.variance_floor)

  def compute_output_shape(self, input_shape):
    """Shape of the inputs."""
    return input_shape

  def get_config(self) -> dict:
    """The settings, for saving."""
    return {**super().get_config(), "variance_floor": self.variance_floor}
