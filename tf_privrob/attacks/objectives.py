"""What an attack maximises: one value per example, larger is worse."""

from __future__ import annotations

import tensorflow as tf

LOSSES = ("cross_entropy", "dlr", "margin")


def cross_entropy(logits: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
  """-log softmax(logits)[label]."""
  return tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)


def margin(logits: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
  """max_{i != label} z_i - z_label (Carlini and Wagner 2017, without kappa).

  Positive exactly where the prediction is not `label`. Its gradient does not
  fade when the softmax saturates.
  """
  classes = logits.shape[-1]
  is_label = tf.one_hot(label, classes, on_value=True, off_value=False)
  lowest = tf.constant(logits.dtype.min, logits.dtype)
  other = tf.reduce_max(tf.where(is_label, lowest, logits), axis=-1)
  return other - tf.gather(logits, label, axis=-1, batch_dims=1)


def dlr(logits: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
  """Difference of logits ratio (Croce and Hein 2020, Eq. 6).

  margin / (z_(1) - z_(3)) with z_(k) the k-th largest logit: invariant to
  shifts and to the scale of the logits, which DP training often makes tiny.
  """
  top = tf.math.top_k(logits, 3).values
  spread = top[:, 0] - top[:, 2]
  return margin(logits, label) / (spread + 1e-12)


def value(
  loss: str, logits: tf.Tensor, label: tf.Tensor, targeted: bool
) -> tf.Tensor:
  """The objective of an attack; a targeted one climbs the negated loss.

  Targeted DLR is -dlr(target): the numerator of Croce and Hein's targeted
  variant needs the true label too, which a targeted attack is not given.
  """
  logits = _checked(logits, at_least=3 if loss == "dlr" else 2)
  functions = {"cross_entropy": cross_entropy, "dlr": dlr, "margin": margin}
  result = functions[loss](logits, label)
  return -result if targeted else result


def score(logits: tf.Tensor, label: tf.Tensor, targeted: bool) -> tf.Tensor:
  """Orders candidates: by success first, then by margin.

  The sign of the margin is the success of the attack, so that one number
  orders both, and it is comparable between attacks that climb other losses.
  """
  return value("margin", logits, label, targeted)


def _checked(logits: tf.Tensor, at_least: int) -> tf.Tensor:
  if logits.shape.rank != 2 or (logits.shape[-1] or 0) < at_least:
    raise ValueError(
      f"Expected logits of shape [batch, classes] with at least {at_least}"
      f" classes, received shape {logits.shape}. A binary model needs two"
      " logits, e.g. tf.concat([-z, z], axis=1), and loss='dlr' needs three."
    )
  return tf.cast(logits, tf.float32) if logits.dtype.size < 4 else logits
