"""What TransDenoiser's paper states, and what is true of it.

docs/soundness.md names these tests, claim by claim. Those about covariances
and moments are in tests/soundness/multivariate_test.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.papers.transdenoiser import transdenoiser_cases as cases
from tf_privrob import attacks
from tf_privrob import models
from tf_privrob import papers

STDDEV = 0.25


def _flat_gradient(denoiser, z, x):
  """grad_theta |g(z) - x|^2 of one example, as one vector."""
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum((denoiser(z[None]) - x[None]) ** 2)
  found = tape.gradient(loss, denoiser.trainable_variables)
  return np.concatenate([np.ravel(g) for g in found]).astype(float)


def _mixed_derivative(denoiser, x):
  """A = d/dtheta grad_x l, [w, v], with the target held fixed."""
  image, target = tf.Variable(x[None]), tf.constant(x[None])
  with tf.GradientTape(persistent=True) as outer:
    with tf.GradientTape() as inner:
      loss = tf.reduce_sum((denoiser(image) - target) ** 2)
    slope = inner.gradient(loss, image)[0]
  parts = [outer.jacobian(slope, v) for v in denoiser.trainable_variables]
  flat = [np.reshape(p, [len(x), -1]) for p in parts]
  return np.concatenate(flat, axis=1).T.astype(float)


def _noisy(x, count, seed=0):
  rng = np.random.default_rng(seed)
  noise = STDDEV * rng.normal(size=(count, len(x)))
  return (x + noise).astype("float32")


# Lemma 1.


@pytest.mark.slow
def test_lemma_1_the_remainder_of_the_loss_bounds_no_gradient():
  """o >= 0, yet grad l(z) < grad l(x) + A b along many parameters."""
  denoiser = cases.denoiser()
  errors, below = [], []
  for row, x in enumerate(cases.arrays(10)[0]):
    mixed, at_x = _mixed_derivative(denoiser, x), _flat_gradient(denoiser, x, x)
    z = _noisy(x, 40, row)
    remainder = papers.taylor_remainder(
      denoiser, tf.repeat(x[None], 40, axis=0), tf.constant(z)
    ).numpy()
    for noisy in z[remainder >= 0]:
      linear = at_x + mixed @ (noisy - x)
      found = _flat_gradient(denoiser, noisy, x)
      errors.append(
        np.linalg.norm(found - linear) / np.linalg.norm(linear - at_x)
      )
      below.append(np.mean(found < linear - 1e-6))
  assert len(errors) > 100
  assert np.median(errors) > 0.1
  assert 0.3 < np.mean(below) < 0.7


def test_lemma_1_the_mean_of_the_noisy_gradient_is_not_the_clean_one():
  """A Gaussian mechanism would leave the mean where it is."""
  denoiser = cases.denoiser()
  x = cases.arrays(1)[0][0]
  at_x = _flat_gradient(denoiser, x, x)
  found = np.stack(  # b and -b together: what is linear in b cancels
    [
      (_flat_gradient(denoiser, z, x) + _flat_gradient(denoiser, 2 * x - z, x))
      / 2
      for z in _noisy(x, 300)
    ]
  )
  error = np.linalg.norm(found.std(axis=0)) / np.sqrt(300)
  assert np.linalg.norm(found.mean(axis=0) - at_x) > 5 * error


# Lemma 2 and Theorem 2.


def test_theorem_2_a_longer_training_has_less_noise_in_each_step():
  """T S_min: with more steps, which cost more, every step is noised less."""
  rows, method = cases.batch(), cases.prepared()
  assert method.rule.amplification == method.planned_steps
  method.set_step(np.array([1, 2]), 0)
  total = method.clipped_gradients.over_chunks(
    rows[:2], rows[2], method.run_state.seed(1)
  )
  smallest = method.rule.smallest(total).numpy()
  found = [
    papers.extra_stddev(smallest, STDDEV, 0.0, method.config.xi_up, steps)
    for steps in (1, 1_000_000, 10_000_000_000)
  ]
  assert np.all(found[0] > found[1])
  assert np.all(found[1] > found[2])
  assert np.all(found[2] == 0)


def test_vanilla_sgd_an_absent_record_leaves_no_noise():
  """B = 1: without the record the update is 0 for certain."""
  method = cases.prepared(noise_per="group")
  step = cases.Stepper(method)
  alone, nobody = np.eye(cases.BATCH)[0], np.zeros(cases.BATCH)
  without = [step(cases.batch(mask=nobody), seed) for seed in range(5)]
  assert all(np.all(part == 0) for update in without for part in update)
  with_it = [step(cases.batch(mask=alone), seed) for seed in range(5)]
  assert all(np.any(part != 0) for update in with_it for part in update)


# Lemma 5.


def test_lemma_5_a_clipped_gradient_varies_less_than_a_times_A_b():
  """Its covariance has trace <= C^2; that of the lemma is far above."""
  clip, x = 0.05, cases.arrays(1)[0][0]
  denoiser = cases.denoiser()
  found = np.stack([_flat_gradient(denoiser, z, x) for z in _noisy(x, 500)])
  coefficients = np.minimum(1, clip / np.linalg.norm(found, axis=1))
  clipped = found * coefficients[:, None]
  true = np.trace(np.cov(clipped.T))
  mixed = _mixed_derivative(denoiser, x)
  claimed = np.mean(coefficients**2) * STDDEV**2 * np.trace(mixed @ mixed.T)
  assert true <= clip**2
  assert claimed > 1.2 * true
  # And a depends on b: it is no constant that scales a Gaussian.
  assert coefficients.std() > 0.1 * coefficients.mean()


# Appendix L.


def test_appendix_l_slices_hide_a_direction_that_the_whole_leaves_free():
  """ReLU: along (w_in, b_in, -w_out) no input noise reaches the gradient."""
  layers = tf.keras.layers
  inputs = tf.keras.Input((cases.SIZE,))
  init = tf.keras.initializers.GlorotNormal
  first = layers.Dense(4, "relu", kernel_initializer=init(1))
  last = layers.Dense(cases.SIZE, kernel_initializer=init(2))
  denoiser = tf.keras.Model(inputs, last(first(inputs)))
  first.bias.assign([0.3, 0.2, 0.1, 0.4])
  unit = np.eye(4)[1]
  direction = np.concatenate(
    [
      np.ravel(first.kernel.numpy() * unit),
      first.bias.numpy() * unit,
      -np.ravel(last.kernel.numpy() * unit[:, None]),
      np.zeros(cases.SIZE),
    ]
  )
  in_first = len(np.ravel(first.kernel)) + 4
  moved = alone = 0
  for x in cases.arrays(5)[0]:
    mixed = _mixed_derivative(denoiser, x)
    moved = max(moved, np.abs(direction @ mixed).max())
    alone = max(alone, np.abs(direction[:in_first] @ mixed[:in_first]).max())
  assert alone > 0.1
  assert moved < 1e-4 * alone


# The assumption of section 2.1.


def test_the_loss_is_not_lipschitz():
  """The gradient by the parameters grows with the input without bound."""
  denoiser = tf.keras.Sequential(
    [tf.keras.layers.Input((2,)), tf.keras.layers.Dense(2)]
  )
  sizes = [
    np.linalg.norm(
      _flat_gradient(denoiser, np.float32([s, s]), np.float32([0, 0]))
    )
    for s in (1, 10, 100)
  ]
  assert sizes[1] > 50 * sizes[0]
  assert sizes[2] > 50 * sizes[1]


# Section 3: attacks.


def test_attacks_on_the_classifier_alone_overrate_a_denoiser():
  """A denoiser that swaps pixels: transfer misses, the direct one hits."""
  size = 4
  rotate = np.zeros([size, size], "float32")
  rotate[[0, 1, 2, 3], [1, 0, 3, 2]] = 1
  denoiser = tf.keras.Sequential(
    [
      tf.keras.layers.Input((size,)),
      tf.keras.layers.Dense(size, use_bias=False),
    ]
  )
  denoiser.layers[0].kernel.assign(rotate)
  classifier = tf.keras.Sequential(
    [tf.keras.layers.Input((size,)), tf.keras.layers.Dense(2, use_bias=False)]
  )
  classifier.layers[0].kernel.assign([[1.0, -1], [-0.2, 0.2], [0, 0], [0, 0]])
  network = models.denoised_classifier(denoiser, classifier)
  rng = np.random.default_rng(0)
  x = rng.uniform(0.2, 0.8, (100, size)).astype("float32")
  y = network(x).numpy().argmax(axis=1)
  attack = attacks.PGD(0.6, "l2", (0.0, 1.0), steps=20)
  transferred = attacks.evaluate(
    attack, classifier, x, y, 0, progress=False
  ).x_adv
  kept = (network(transferred).numpy().argmax(axis=1) == y).mean()
  direct = attacks.evaluate(attack, network, x, y, 0, progress=False).accuracy
  assert kept > direct + 0.2
