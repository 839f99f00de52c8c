"""Users' classifiers often end in a softmax; losses and attacks want logits.

A sigmoid for each class is taken for one: it orders classes as its logits do.
"""

from __future__ import annotations

import tensorflow as tf

from tf_privrob.models import marks

_PROBABILITIES = (tf.keras.activations.softmax, tf.keras.activations.sigmoid)


def _last_layer(model: tf.keras.Model) -> tf.keras.layers.Layer | None:
  layers = getattr(model, "layers", None)
  return layers[-1] if layers else None


def returns_probabilities(model: tf.keras.Model) -> bool:
  """Whether the last layer is a softmax or sigmoid, or has it as activation."""
  last = _last_layer(model)
  if isinstance(last, tf.keras.Model):
    return returns_probabilities(last)
  return (
    isinstance(last, tf.keras.layers.Softmax)
    or getattr(last, "activation", None) in _PROBABILITIES
  )


def as_logits(model: tf.keras.Model) -> tf.keras.Model:
  """The same classifier without a final softmax; itself if it has none.

  All layers but a last one with a softmax activation are shared with `model`;
  that one is copied.

  Raises:
    ValueError: the softmax cannot be taken off, because the model is not a
      functional or sequential one.
  """
  if not returns_probabilities(model):
    return model
  last = _last_layer(model)
  if isinstance(last, tf.keras.Model) or not _is_graph(model):
    raise ValueError(
      f"Expected a model that returns logits, received {model.name!r}, which"
      " ends in a softmax or sigmoid inside a nested or subclassed model. Build"
      " it without that and load its weights."
    )
  if isinstance(last, tf.keras.layers.Softmax):
    return tf.keras.Model(model.inputs, last.input, name=f"{model.name}_logits")
  config = {**last.get_config(), "activation": "linear"}
  head = type(last).from_config({**config, "name": f"{last.name}_logits"})
  logits = tf.keras.Model(
    model.inputs, head(last.input), name=f"{model.name}_logits"
  )
  head.set_weights(last.get_weights())
  marks.carry_marks(last.weights, head.weights)
  return logits


def _is_graph(model: tf.keras.Model) -> bool:
  try:
    return bool(model.inputs) and model.layers[-1].input is not None
  except AttributeError:
    return False
