"""Domain adaptation: benign and adversarial logits are to look alike.

After Song et al., "Improving the Generalization of Adversarial Training with
Domain Adaptation" (2019), as the countermeasure of Song, Shokri and Mittal (CCS
2019, section 7.2.2 and Table 11) describes it. Neither divisors nor weight are
in that paper; the defaults are those of the former as remembered, without its
class-centre term.
"""

from __future__ import annotations

import tensorflow as tf

from tf_privrob import validate


def domain_adaptation(
  benign: tf.Tensor,
  adversarial: tf.Tensor,
  mean_divisor: float | None = None,
  covariance_divisor: float | None = None,
) -> tf.Tensor:
  """Distance of the laws of two batches of logits, one number.

    |mean_b - mean_a|_1 / mean_divisor + |Cov_b - Cov_a|_1 / covariance_divisor

  with the unbiased covariance of each batch, and the sum of absolute entries
  for the l1 norm of a matrix. It compares whole batches: it has no value for an
  example alone and cannot be part of a private loss.

  Args:
    benign: logits [B, C] of clean examples, B >= 2.
    adversarial: logits [B, C] of adversarial ones.
    mean_divisor: None: C.
    covariance_divisor: None: C^2.
  """
  count, classes = benign.shape
  if count is None or count < 2:
    raise ValueError(
      "Expected batches of at least 2 examples, which have a covariance,"
      f" received {count}. Raise batch_size."
    )
  mean_divisor = classes if mean_divisor is None else mean_divisor
  if covariance_divisor is None:
    covariance_divisor = classes**2
  validate.positive(
    mean_divisor=mean_divisor, covariance_divisor=covariance_divisor
  )
  means, covariances = zip(_moments(benign), _moments(adversarial))
  return (
    tf.reduce_sum(tf.abs(means[0] - means[1])) / mean_divisor
    + tf.reduce_sum(tf.abs(covariances[0] - covariances[1]))
    / covariance_divisor
  )


def _moments(logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  mean = tf.reduce_mean(logits, axis=0)
  centred = logits - mean
  spread = tf.matmul(centred, centred, transpose_a=True)
  return mean, spread / (logits.shape[0] - 1)
