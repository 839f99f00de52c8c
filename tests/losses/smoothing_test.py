import numpy as np
import pytest
import tensorflow as tf
from scipy import special
from scipy import stats

from tf_privrob.losses import smoothing

LABELS = np.array([2, 0, 1])


def _logits(count=3, copies=4, classes=3, seed=0, scale=2.0):
  rng = np.random.default_rng(seed)
  values = scale * rng.standard_normal((count, copies, classes))
  return values.astype(np.float32)


def _naive(logits, labels, function):
  """One example at a time, in numpy."""
  probs = special.softmax(logits.astype(float), axis=-1)
  return np.array([function(p, y) for p, y in zip(probs, labels)])


def _divergence(p, q):
  return float((p * np.log(p / q)).sum())


def test_mean_cross_entropy_is_the_mean_over_copies():
  logits = _logits()
  expected = _naive(logits, LABELS, lambda p, y: -np.log(p[:, y]).mean())
  found = smoothing.mean_cross_entropy(logits, LABELS)
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_stability_is_the_divergence_from_the_clean_prediction():
  logits, clean = _logits(), _logits(copies=1, seed=1)[:, 0]
  q = special.softmax(clean.astype(float), axis=-1)
  expected = _naive(
    logits,
    range(3),
    lambda p, i: np.mean([_divergence(q[i], row) for row in p]),
  )
  found = smoothing.stability(logits, clean)
  np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_stability_vanishes_for_equal_predictions_only():
  logits = _logits()
  equal = np.repeat(logits[:, :1], 4, axis=1)
  np.testing.assert_allclose(
    smoothing.stability(equal, logits[:, 0]), 0, atol=1e-6
  )
  assert np.all(smoothing.stability(logits, logits[:, 0]).numpy() > 0.01)


@pytest.mark.parametrize("entropy_weight", [0.0, 0.5])
def test_consistency_by_definition(entropy_weight):
  logits = _logits()

  def one(p, _):
    mean = p.mean(axis=0)
    spread = np.mean([_divergence(mean, row) for row in p])
    return spread + entropy_weight * stats.entropy(mean)

  found = smoothing.consistency(logits, entropy_weight)
  np.testing.assert_allclose(found, _naive(logits, LABELS, one), rtol=1e-4)


def test_macer_is_the_hinge_on_the_radius_of_right_examples():
  logits = _logits(count=40, seed=3, scale=0.3)
  labels = np.random.default_rng(4).integers(0, 3, 40)
  stddev, margin, sharpness = 0.5, 2.0, 3.0

  def one(p, y):
    q = special.softmax(sharpness * np.log(p), axis=-1).mean(axis=0)
    if q.argmax() != y:
      return 0.0
    gap = stats.norm.ppf(q[y]) - stats.norm.ppf(np.delete(q, y).max())
    return stddev / 2 * max(0.0, margin - gap)

  expected = _naive(logits, labels, one)
  assert 0 < (expected > 0).sum() < 40  # both sides of the condition are met
  found = smoothing.macer(logits, labels, stddev, margin, sharpness)
  np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_macer_pushes_the_radius_up_and_stays_finite_when_sure():
  logits = tf.constant([[[40.0, 0.0, 0.0]] * 4, [[0.3, 0.1, 0.0]] * 4])
  with tf.GradientTape() as tape:
    tape.watch(logits)
    loss = smoothing.macer(logits, np.array([0, 0]), 0.5)
  slope = tape.gradient(loss, logits).numpy()
  assert np.isfinite(slope).all()
  assert (slope[1, :, 0] < 0).all()  # more of the true class, less loss


def test_soft_vote_has_the_mean_of_the_copies_as_its_softmax():
  logits = _logits()
  expected = special.softmax(logits.astype(float), axis=-1).mean(axis=1)
  found = tf.nn.softmax(smoothing.soft_vote(logits))
  np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
  "loss",
  [
    lambda z: smoothing.mean_cross_entropy(z, LABELS),
    lambda z: smoothing.stability(z, z[:, 0]),
    smoothing.consistency,
    lambda z: smoothing.macer(z, LABELS, 0.5),
    lambda z: smoothing.soft_vote(z)[:, 0],
  ],
)
def test_each_example_stands_alone(loss):
  logits = _logits()
  changed = logits.copy()
  changed[1] += 5 * _logits(1, seed=9)[0]
  before, after = loss(logits).numpy(), loss(changed).numpy()
  np.testing.assert_allclose(before[[0, 2]], after[[0, 2]], rtol=1e-6)
