import math

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import losses

LOG2 = math.log(2.0)


def softplus(z):
  return math.log1p(math.exp(z))


def derivatives(function, shape):
  """Value, gradient and second derivative at 0, elementwise, by autodiff."""
  z = tf.zeros(shape, tf.float64)
  with tf.GradientTape() as outer:
    outer.watch(z)
    with tf.GradientTape() as inner:
      inner.watch(z)
      value = function(z)
    first = inner.gradient(value, z)
  return value.numpy(), first.numpy(), outer.gradient(first, z).numpy()


# Reconstruction.


def test_reconstruction_by_hand():
  """(1/2 - x) r: (0.5)(2) + (-0.5)(3) + (1.5)(-1) = -2, and with log 2."""
  x, r = tf.constant([[0.0, 1.0, -1.0]]), tf.constant([[2.0, 3.0, -1.0]])
  found = losses.taylor_reconstruction(r, x)
  np.testing.assert_allclose(found, [1.0 - 1.5 - 1.5], rtol=1e-6)
  wanted = abs(LOG2 + 1) + abs(LOG2 - 1.5) + abs(LOG2 - 1.5)
  found = losses.taylor_reconstruction(r, x, "released_code")
  np.testing.assert_allclose(found, [wanted], rtol=1e-6)


def test_reconstruction_is_the_taylor_polynomial_of_equation_5():
  rng = np.random.default_rng(0)
  x, r = rng.uniform(-1, 1, (2, 3, 4, 2)), rng.normal(size=(2, 3, 4, 2))
  value, first, _ = derivatives(
    lambda z: tf.nn.sigmoid_cross_entropy_with_logits(tf.constant(x), z),
    x.shape,
  )
  exact = [  # Eq. 5 itself is that cross-entropy, for any real x
    a * softplus(-b) + (1 - a) * softplus(b) for a, b in zip(x.flat, r.flat)
  ]
  np.testing.assert_allclose(
    np.ravel(tf.nn.sigmoid_cross_entropy_with_logits(x, r)), exact, rtol=1e-12
  )
  np.testing.assert_allclose(value, LOG2)
  polynomial = value + first * r
  np.testing.assert_allclose(
    losses.taylor_reconstruction(tf.constant(r), tf.constant(x)),
    (polynomial - LOG2).sum((1, 2, 3)),
    rtol=1e-12,
  )
  np.testing.assert_allclose(
    losses.taylor_reconstruction(
      tf.constant(r), tf.constant(x), "released_code"
    ),
    np.abs(polynomial).sum((1, 2, 3)),
    rtol=1e-12,
  )


def test_only_the_released_reconstruction_is_bounded_below():
  x = tf.ones([1, 1])
  far = tf.constant([[1e6]])
  assert losses.taylor_reconstruction(far, x) < -4e5
  assert losses.taylor_reconstruction(far, x, "released_code") > 0


def test_reconstruction_of_another_shape_is_refused():
  """The released MNIST code broadcasts 32 channels against 1."""
  with pytest.raises(
    ValueError, match=r"\(2, 4, 4, 1\), received shape \(2, 4, 4, 32\)"
  ):
    losses.taylor_reconstruction(tf.ones([2, 4, 4, 32]), tf.ones([2, 4, 4, 1]))


# Labels.


def test_cross_entropy_by_hand():
  """K = 2, z = (2, -4), y = (0, 1)."""
  logits, labels = tf.constant([[2.0, -4.0]]), tf.constant([1])
  taylor = (LOG2 + 1 + 0.5) + (LOG2 - 2 + 4 + 2)
  paper = (2 - 1 + 0.5) + (-4 + 4 - 2 + 2)
  found = losses.taylor_cross_entropy(logits, labels)
  np.testing.assert_allclose(found, [taylor], rtol=1e-6)
  found = losses.taylor_cross_entropy(logits, labels, "paper")
  np.testing.assert_allclose(found, [paper], rtol=1e-6)


def test_taylor_form_is_the_taylor_polynomial():
  rng = np.random.default_rng(1)
  logits, labels = rng.normal(size=(6, 4)), rng.integers(0, 4, 6)
  one_hot = np.eye(4)[labels]
  value, first, second = derivatives(
    lambda z: tf.nn.sigmoid_cross_entropy_with_logits(tf.constant(one_hot), z),
    one_hot.shape,
  )
  np.testing.assert_allclose(first, 0.5 - one_hot)
  np.testing.assert_allclose(second, 0.25)
  wanted = (value + first * logits + second * logits**2 / 2).sum(axis=1)
  found = losses.taylor_cross_entropy(tf.constant(logits), labels)
  np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_taylor_form_has_a_remainder_of_fourth_order():
  z = np.linspace(-1.5, 1.5, 61)[:, None]
  for label in (0, 1):
    logits = np.concatenate([z, np.zeros_like(z)], axis=1)
    labels = np.full(61, 1 - label)
    exact = tf.nn.sigmoid_cross_entropy_with_logits(np.eye(2)[labels], logits)
    found = losses.taylor_cross_entropy(tf.constant(logits), labels)
    gap = found - tf.reduce_sum(exact, axis=1)
    assert np.all(np.abs(gap) <= z[:, 0] ** 4 / 192 + 1e-12)


def test_taylor_form_equals_the_released_expression():
  """max(z, 0) - z y + log 2 - |z|/2 + z^2/8."""
  rng = np.random.default_rng(2)
  z, labels = rng.normal(scale=3, size=(20, 3)), rng.integers(0, 3, 20)
  wanted = (
    np.maximum(z, 0) - z * np.eye(3)[labels] + LOG2 - np.abs(z) / 2 + z**2 / 8
  ).sum(axis=1)
  found = losses.taylor_cross_entropy(tf.constant(z), labels)
  np.testing.assert_allclose(found, wanted, rtol=1e-12)


def one_logit(z, y, form):
  """The loss of a single logit; the other class has logit 0."""
  constant = LOG2 if form == "taylor" else 0.0
  logits = tf.stack([z, tf.zeros_like(z)], axis=1)
  labels = np.full(len(z), 0 if y else 1)
  return losses.taylor_cross_entropy(logits, labels, form) - constant


@pytest.mark.parametrize(
  ("form", "y", "minima"),
  [
    ("paper", 1, [-2.0, 2.0]),
    ("taylor", 1, [2.0]),
    ("paper", 0, [-6.0]),
    ("taylor", 0, [-2.0]),
  ],
)
def test_minima(form, y, minima):
  """Eq. 11 read literally is as content with z = -2 as with z = 2 at y = 1."""
  z = np.round(np.arange(-8, 8.001, 0.01), 2)
  values = one_logit(tf.constant(z), y, form).numpy()
  found = z[values < values.min() + 1e-9]
  np.testing.assert_allclose(found, minima)
  if form == "paper" and y:
    assert values.min() == pytest.approx(-0.5)


# The noise term.

NOISE = tf.constant([[1.0, -2.0], [3.0, 4.0]])
KERNEL = tf.constant([[0.5, 1.0], [-1.0, 2.0]])


@pytest.mark.parametrize(
  ("form", "wanted"),
  [
    ("paper", -(0.5 - 2 - 3 + 8)),
    ("released_mnist", -2 * (0.5 - 2 - 3 + 8)),
    ("released_cifar10", (0.5 + 2 + 3 + 8) / 4),
  ],
)
def test_noise_term_by_hand(form, wanted):
  found = losses.label_noise_term(NOISE, KERNEL, form)
  assert float(found) == pytest.approx(wanted)


def batch(count=7, units=3, classes=4):
  rng = np.random.default_rng(3)
  return (
    rng.uniform(-1, 1, (count, units)),
    rng.integers(0, classes, count),
    rng.normal(size=(units, classes)),
    rng.laplace(size=(units, classes)),
  )


def test_paper_term_is_noise_on_the_label_coefficients():
  """Eq. 11: the coefficient of W_k is sum_i (h_i y_ik + chi_3 / m)."""
  h, y, kernel, noise = batch()
  z, one_hot = h @ kernel, np.eye(4)[y]
  rest = (LOG2 + z / 2 + z**2 / 8).sum()
  coefficients = np.zeros_like(kernel)
  for hi, yi in zip(h, one_hot):
    coefficients += np.outer(hi, yi) + noise  # noise is chi_3 / m
  wanted = (rest - (coefficients * kernel).sum()) / len(h)
  found = tf.reduce_mean(losses.taylor_cross_entropy(tf.constant(z), y))
  found += losses.label_noise_term(noise, tf.constant(kernel))
  assert float(found) == pytest.approx(wanted, rel=1e-12)


def test_released_mnist_term_is_added_to_each_class():
  """The code subtracts the scalar S from [B, K] terms, then sums over both."""
  h, y, kernel, noise = batch()
  z, one_hot = h @ kernel, np.eye(4)[y]
  terms = (
    np.maximum(z, 0) - z * one_hot + LOG2 - np.abs(z) / 2 + z**2 / 8
  ) - np.sum(noise * kernel)
  found = tf.reduce_mean(losses.taylor_cross_entropy(tf.constant(z), y))
  found += losses.label_noise_term(noise, tf.constant(kernel), "released_mnist")
  assert float(found) == pytest.approx(terms.sum() / len(h), rel=1e-12)


def test_released_cifar10_term_is_a_penalty_and_no_zero_mean_noise():
  _, _, kernel, noise = batch()
  for sign in (-1, 1):
    found = losses.label_noise_term(
      sign * noise, tf.constant(kernel), "released_cifar10"
    )
    assert float(found) == pytest.approx(np.abs(noise * kernel).mean())


def test_noise_of_another_shape_is_refused():
  """A vector of |h| values would be copied to classes, or clash with them."""
  with pytest.raises(
    ValueError, match=r"noise of shape \(2, 2\), received shape \(2,\)"
  ):
    losses.label_noise_term(NOISE[:, 0], KERNEL)


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (
      lambda: losses.taylor_reconstruction(NOISE, KERNEL, "papr"),
      "Did you mean 'paper'",
    ),
    (
      lambda: losses.taylor_cross_entropy(NOISE, [0, 1], "tailor"),
      "Did you mean 'taylor'",
    ),
    (
      lambda: losses.label_noise_term(NOISE, KERNEL, "released_cifar"),
      "Did you mean 'released_cifar10'",
    ),
  ],
)
def test_unknown_forms(call, message):
  with pytest.raises(ValueError, match=message):
    call()
