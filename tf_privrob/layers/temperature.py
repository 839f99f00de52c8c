"""Temperature scaling: logits that are less sure of themselves."""

from __future__ import annotations

import tensorflow as tf

from tf_privrob import validate


@tf.keras.saving.register_keras_serializable("tf_privrob")
class Temperature(tf.keras.layers.Layer):
  """Divides logits by a temperature T (Guo et al. 2017).

  softmax(z / T)_i = exp(z_i / T) / sum_j exp(z_j / T), Eq. 21 of Song et al.
  2019. The order of the classes does not change, hence no prediction does.
  No guarantee: the outputs for members and non-members come closer in scale,
  but whoever sees all of them can undo the division up to a shift.

  Args:
    temperature: T > 0; above 1, confidences fall.
    **kwargs: Keras' own.
  """

  row_wise = True  # for `gradients`

  def __init__(self, temperature: float = 1.0, **kwargs):
    super().__init__(**kwargs)
    validate.positive(temperature=temperature)
    self.temperature = float(temperature)

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """The divided logits."""
    return inputs / tf.cast(self.temperature, inputs.dtype)

  def compute_output_shape(self, input_shape):
    """Shape of the inputs."""
    return input_shape

  def get_config(self) -> dict:
    """The settings, for saving."""
    return {**super().get_config(), "temperature": self.temperature}
