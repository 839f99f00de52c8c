"""Activations with a bound that sensitivities and certificates rely on."""

from __future__ import annotations

import tensorflow as tf

from tf_privrob import validate


@tf.keras.saving.register_keras_serializable("tf_privrob")
class BoundedActivation(tf.keras.layers.Layer):
  """Clips every unit to [-bound, bound].

  Guarantee: |h| <= bound element by element, for every input and every weight
  before it; 1-Lipschitz in every norm.

  Args:
    bound: Largest absolute value of an output.
    **kwargs: Keras' own.
  """

  row_wise = True  # for `gradients`

  def __init__(self, bound: float = 1.0, **kwargs):
    super().__init__(**kwargs)
    validate.positive(bound=bound)
    self.bound = float(bound)

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """The clipped inputs."""
    return tf.clip_by_value(inputs, -self.bound, self.bound)

  def compute_output_shape(self, input_shape):
    """Shape of the inputs."""
    return input_shape

  def get_config(self) -> dict:
    """The settings, for saving."""
    return {**super().get_config(), "bound": self.bound}
