"""PixelDP's claims, one by one: docs/soundness.md has the verdicts."""

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_privrob import certify
from tf_privrob.certify.norms import linear_norms


def smoothed(f, positions, stddev, step):
  """E f(h + N(0, stddev^2)) at some grid points, f given on the grid."""
  grid = (np.arange(len(f)) - len(f) // 2) * step
  edges = np.append(grid - step / 2, grid[-1] + step / 2)
  return np.array(
    [np.diff(stats.norm.cdf(edges, h, stddev)) @ f for h in positions]
  )


@pytest.mark.parametrize("dp_epsilon", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("dp_delta", [0.01, 0.05, 0.25])
def test_lemma_1_expectations_are_stable(dp_epsilon, dp_delta):
  """E f(h) <= e^eps E f(h') + delta within the size of the construction."""
  size = 0.1
  stddev = size * certify.classic_multiplier(dp_epsilon, dp_delta)
  rng = np.random.RandomState(0)
  scores = [rng.rand(801) < level for level in (0.1, 0.5, 0.9)]
  scores += [np.arange(801) > cut for cut in (380, 400, 460)]
  for f in scores:
    at, moved = smoothed(f, (0.0, size), stddev, 0.02 * stddev)
    for a, b in ((at, moved), (moved, at)):
      assert a <= math.exp(dp_epsilon) * b + dp_delta


def test_lemma_1_is_not_idle():
  """Four times the size breaks it."""
  stddev = 0.1 * certify.classic_multiplier(0.5, 0.01)
  f = np.arange(801) > 450  # one stddev away
  at, moved = smoothed(f, (0.0, 0.4), stddev, 0.02 * stddev)
  assert moved > math.exp(0.5) * at + 0.01


def test_proposition_2_at_the_edge_of_the_search():
  """A half-line at the certified distance still has its class."""
  for p1 in (0.6, 0.9, 0.999):
    radius = certify.gaussian_search(p1, 1 - p1)
    moved = stats.norm.cdf(stats.norm.ppf(p1) - radius)
    assert moved > 0.5


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("taps", [2, 3, 5])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_released_bound_of_a_convolution_holds(taps, stride, padding):
  """ceil(k / stride) s_max: an upper bound, loose by up to that factor."""
  kernel = np.random.RandomState(taps).randn(taps, taps, 2, 3)
  found = linear_norms.conv2d_map(kernel, (9, 10, 2), stride, padding)
  overlap = math.ceil(taps / stride)
  largest = np.linalg.norm(kernel.reshape(-1, 3), 2)
  true = found.l2_bound() / 1.001  # the certified bound is as close as that
  assert true <= overlap * largest
  if overlap == 1:
    assert true == pytest.approx(largest, rel=0.01)


def test_released_bound_of_the_mnist_layer_is_loose():
  """What the radius gains from the norm of the real convolution."""
  kernel = np.random.RandomState(0).randn(5, 5, 1, 32)
  exact = linear_norms.conv2d_map(kernel, (28, 28, 1), 2).l2_bound()
  released = 3 * np.linalg.norm(kernel.reshape(25, 32), 2)
  assert released / exact == pytest.approx(1.58, rel=0.01)


def test_double_softmax_shrinks_the_gradients_of_the_released_attack():
  """Probabilities fed as logits: a bounded loss, gradients K times smaller."""
  logits = tf.zeros([1, 10])
  label = tf.constant([3])

  def gradient(transform):
    with tf.GradientTape() as tape:
      tape.watch(logits)
      loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
        label, transform(logits)
      )
    return tape.gradient(loss, logits).numpy()

  np.testing.assert_allclose(
    10 * gradient(tf.nn.softmax), gradient(tf.identity), atol=1e-6
  )
  wrong = tf.constant([[1e3] + [0.0] * 9])
  bounded = tf.nn.sparse_softmax_cross_entropy_with_logits(
    label, tf.nn.softmax(wrong)
  )
  assert float(bounded[0]) < 2.5  # the true loss is 1000


def test_a_finite_sample_at_the_edge_is_another_one():
  """The certificate is about the expectation, not about n draws elsewhere."""
  radius = certify.gaussian_tight(0.9, 0.1)
  prob = stats.norm.cdf(stats.norm.ppf(0.9) - radius)
  assert prob == pytest.approx(0.5)
  assert stats.binom.cdf(150, 300, prob) == pytest.approx(0.5, abs=0.05)
