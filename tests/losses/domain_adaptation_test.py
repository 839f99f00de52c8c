"""The distance of two batches of logits, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import losses


def _logits(seed, count=7, classes=3):
  rng = np.random.default_rng(seed)
  return rng.normal(size=(count, classes)).astype("float32")


@pytest.mark.parametrize("divisors", [(None, None), (1.0, 1.0), (2.0, 5.0)])
def test_means_and_covariances_by_numpy(divisors):
  benign, adversarial = _logits(0), 1.5 * _logits(1) + 0.3
  means = np.abs(benign.mean(0) - adversarial.mean(0)).sum()
  covariances = np.abs(np.cov(benign.T) - np.cov(adversarial.T)).sum()
  first, second = (
    given or default for given, default in zip(divisors, (3.0, 9.0))
  )
  found = losses.domain_adaptation(
    tf.constant(benign), tf.constant(adversarial), *divisors
  )
  expected = means / first + covariances / second
  assert float(found) == pytest.approx(expected, rel=1e-4)
  assert min(means, covariances) > 0.1


def test_order_within_a_batch_does_not_matter():
  benign = _logits(0)
  found = losses.domain_adaptation(
    tf.constant(benign), tf.constant(benign[::-1].copy())
  )
  assert float(found) == pytest.approx(0, abs=1e-6)


def test_shift_moves_means_alone_and_scale_covariances_alone():
  benign = _logits(0)
  centred = benign - benign.mean(0)
  shifted = losses.domain_adaptation(
    tf.constant(benign), tf.constant(benign + 2), 1.0, 1.0
  )
  assert float(shifted) == pytest.approx(6.0, rel=1e-4)
  scaled = losses.domain_adaptation(
    tf.constant(centred), tf.constant(2 * centred), 1.0, 1.0
  )
  expected = 3 * np.abs(np.cov(centred.T)).sum()
  assert float(scaled) == pytest.approx(expected, rel=1e-4)


def test_it_ties_the_examples_of_a_batch_together():
  """Why it is refused in private training: no row's gradient is its own."""
  benign, adversarial = (tf.constant(_logits(s)) for s in (0, 1))
  with tf.GradientTape() as tape:
    tape.watch(benign)
    value = losses.domain_adaptation(benign, adversarial)
  assert np.all(np.abs(tape.gradient(value, benign)) > 0)


def test_one_example_has_no_covariance():
  one = tf.constant(_logits(0, count=1))
  with pytest.raises(ValueError, match="Raise batch_size"):
    losses.domain_adaptation(one, one)
  two = tf.constant(_logits(0, count=2))
  with pytest.raises(ValueError, match="mean_divisor=0"):
    losses.domain_adaptation(two, two, mean_divisor=0)
