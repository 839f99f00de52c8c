"""Losses for classifiers that will be smoothed: K noisy copies, one value.

Every function takes the logits of the K noisy copies of each example,
[B, K, C], and returns one loss an example, [B]. An example's copies are never
compared with another example's, so that the loss can be clipped as one
gradient.
"""

from __future__ import annotations

import tensorflow as tf

REGULARIZERS = ("none", "stability", "consistency", "macer")
_LEAST_PROB = 1e-5  # Phi^-1 and its slope stay finite


def mean_cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
  """Cross-entropy averaged over the copies (Cohen et al. 2019, section 4)."""
  labels = tf.repeat(labels[:, tf.newaxis], logits.shape[1], axis=1)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  return tf.reduce_mean(losses, axis=1)


def stability(logits: tf.Tensor, clean_logits: tf.Tensor) -> tf.Tensor:
  """mean_k KL(p(x) || p(x + noise_k)), the noisy form of TRADES' term.

  Zhang et al. (2019), Eq. 3, with random noise for the worst one (Li et al.
  2019, section 5). Gradients flow through both sides.

  Args:
    logits: of the noisy copies, [B, K, C].
    clean_logits: of the clean example, [B, C].
  """
  clean = _to_copies(tf.nn.log_softmax(clean_logits), logits)
  divergence = _kl(clean, tf.nn.log_softmax(logits))
  return tf.reduce_mean(divergence, axis=1)


def consistency(logits: tf.Tensor, entropy_weight: float = 0.5) -> tf.Tensor:
  """mean_k KL(mean p || p_k) + entropy_weight * H(mean p).

  Jeong and Shin (2020), Eq. 8 and 9: the copies are to agree with their mean,
  and the mean is to be sure of itself.
  """
  log_probs = tf.nn.log_softmax(logits)
  log_mean = _log_mean(log_probs)
  spread = tf.reduce_mean(_kl(_to_copies(log_mean, logits), log_probs), axis=1)
  entropy = -tf.reduce_sum(tf.exp(log_mean) * log_mean, axis=-1)
  return spread + entropy_weight * entropy


def macer(
  logits: tf.Tensor,
  labels: tf.Tensor,
  smoothing_stddev: float,
  margin: float = 8.0,
  sharpness: float = 16.0,
) -> tf.Tensor:
  """Hinge on the soft certified radius of examples that are classified right.

  Zhai et al. (2020), section 4.3. With q = mean_k softmax(sharpness * z_k),

    stddev / 2 * max(0, margin - (Phi^-1(q_y) - Phi^-1(max_{c != y} q_c)))

  where q_y is the largest, and 0 elsewhere. The bracket, times stddev / 2, is
  the radius of Cohen et al.'s Theorem 1 for the soft classifier.

  Args:
    logits: of the noisy copies, [B, K, C].
    labels: sparse, [B].
    smoothing_stddev: of the noise.
    margin: gamma; radii beyond stddev * gamma / 2 are not asked for.
    sharpness: beta, the inverse temperature.
  """
  probs = _mean(tf.nn.softmax(sharpness * logits))
  own = tf.one_hot(labels, logits.shape[2], dtype=probs.dtype)
  top = tf.reduce_sum(own * probs, axis=1)
  runner_up = tf.reduce_max(probs - 2.0 * own, axis=1)  # never the own class
  gap = _quantile(top) - _quantile(runner_up)
  hinge = smoothing_stddev / 2 * tf.maximum(margin - gap, 0.0)
  return tf.where(top > runner_up, hinge, tf.zeros_like(hinge))


def soft_vote(logits: tf.Tensor) -> tf.Tensor:
  """Logits [B, C] of the soft smoothed classifier: log mean_k softmax(z_k).

  Their softmax is the mean of the copies' softmax, so that cross-entropy on
  them is SmoothAdv's objective (Salman et al. 2019, Eq. 6).
  """
  return _log_mean(tf.nn.log_softmax(logits))


def _mean(values: tf.Tensor) -> tf.Tensor:
  """Over the copies, by a product.

  A sum over an axis in the middle, and its gradient, would go by the place of
  an example in the batch.
  """
  count = tf.shape(values)[0]
  ones = tf.ones([count, 1, values.shape[1]], values.dtype)
  return tf.linalg.matmul(ones, values)[:, 0] / values.shape[1]


def _to_copies(values: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """[B, C] for every copy, [B, K, C]; a product, as in `_mean`."""
  ones = tf.ones([tf.shape(values)[0], logits.shape[1], 1], values.dtype)
  return tf.linalg.matmul(ones, values[:, tf.newaxis])


def _log_mean(log_probs: tf.Tensor) -> tf.Tensor:
  largest = tf.stop_gradient(tf.reduce_max(log_probs, axis=1))
  shares = tf.exp(log_probs - _to_copies(largest, log_probs))
  return largest + tf.math.log(_mean(shares))


def _kl(log_p: tf.Tensor, log_q: tf.Tensor) -> tf.Tensor:
  return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)


def _quantile(probs: tf.Tensor) -> tf.Tensor:
  return tf.math.ndtri(tf.clip_by_value(probs, _LEAST_PROB, 1 - _LEAST_PROB))
