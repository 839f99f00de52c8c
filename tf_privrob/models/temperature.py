"""A classifier whose confidences are cooled down by a temperature."""

from __future__ import annotations

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.layers import temperature as temperature_layer
from tf_privrob.models import logits as logits_lib


def with_temperature(
  model: tf.keras.Model, temperature: float
) -> tf.keras.Model:
  """The classifier with logits divided by `temperature`; weights are shared.

  Predictions stay the same, confidences fall for a temperature above 1 (Song
  et al. 2019, Section 7.2.1). A final softmax of `model` is taken off before,
  so that logits are returned either way.

  Args:
    model: any Keras classifier with a known input shape.
    temperature: T > 0.
  """
  validate.positive(temperature=temperature)
  network = logits_lib.as_logits(model)
  shape = getattr(network, "input_shape", None)
  if not isinstance(shape, tuple):
    raise ValueError(
      f"Expected a model with one input of known shape, received"
      f" {model.name!r}. Call it once on a batch, or build it with an Input."
    )
  inputs = tf.keras.Input(shape[1:])
  outputs = temperature_layer.Temperature(temperature)(network(inputs))
  return tf.keras.Model(inputs, outputs, name=f"{model.name}_temperature")
