"""How much noise Algorithm 1 adds to a step: lines 12 to 23."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.papers.transdenoiser import transdenoiser_cases as cases
from tf_privrob import data
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob import randomness

pytestmark = pytest.mark.usefixtures("checked_once")


def test_the_rule_of_line_16_with_numbers_from_a_naive_loop():
  """sigma_bar of a batch = the formula on S_min of Jacobians one by one."""
  found = cases.prepared(
    noise_per="batch", units="sum", amplification="steps", l2_clip_norm=0.8
  )
  rows = cases.batch()
  total = cases.total(found, rows)
  non = _non_negative(found, rows, total)
  smallest = []
  for part in found.rule.slices:
    coefficient = tf.function(functools.partial(_coefficient, found, part))
    derivative = tf.function(functools.partial(_mixed, found.denoiser, part))
    matrix = 0
    for row in np.flatnonzero(non):
      a = coefficient(rows, tf.constant(row)).numpy()
      jacobian = derivative(rows[0][0, row]).numpy().astype(np.float64)
      matrix = matrix + a**2 * jacobian @ jacobian.T
    smallest.append(np.linalg.svd(matrix, compute_uv=False).min())
  expected = papers.extra_stddev(
    np.array(smallest) / 0.8**2, 0.25, 0.0, 1.5, found.planned_steps
  )
  # What is saved is small beside 1.5: compared by itself.
  saved = 1.5**2 - expected**2
  assert (saved > 0).all()
  np.testing.assert_allclose(
    1.5**2 - found.rule.extra_stddev(total).numpy() ** 2, saved, rtol=0.02
  )


def _non_negative(found, rows, total):
  """Which examples have a remainder >= 0, for the noise of this step."""
  seed = randomness.fold_in(found.run_state.seed(1), 0)
  metrics = found.example_losses((rows[0][0], rows[1][0]), seed)[1]
  non = metrics["non_negative"].numpy()
  assert non.sum() == total.members[0].numpy()
  return non


def _coefficient(found, part, rows, row):
  """min(1, C / |slice of the gradient|) of one example."""
  seed = randomness.fold_in(found.run_state.seed(1), 0)
  with tf.GradientTape() as tape:
    losses = found.example_losses((rows[0][0], rows[1][0]), seed)[0]
    loss = losses[row]
  norm = tf.linalg.global_norm(tape.gradient(loss, part))
  return tf.minimum(1.0, found.config.l2_clip_norm / norm)


def _mixed(denoiser, part, target):
  """d/dtheta grad_x |g(x) - target|^2 at x = target, one row a parameter."""
  x = target[None]
  with tf.GradientTape(persistent=True) as outer:
    with tf.GradientTape() as inner:
      inner.watch(x)
      loss = tf.reduce_sum((denoiser(x) - target) ** 2)
    slope = inner.gradient(loss, x)[0]
  found = [outer.jacobian(slope, variable) for variable in part]
  flat = [tf.reshape(j, [slope.shape[0], -1]) for j in found]
  return tf.transpose(tf.concat(flat, axis=1))


def _identity(count, **changes):
  """g(z) = z, and `count` of each unit vector: sum A A^T = 4 count I.

  With l(z) = |W z - x|^2 at W = 1, grad_x l(x) = 2 W^T (W x - x), and its
  derivative by W in a direction D is 2 D x: A b = 2 b x^T.
  """
  inputs = tf.keras.Input((4,))
  outputs = tf.keras.layers.Dense(
    4, use_bias=False, kernel_initializer="identity"
  )(inputs)
  classifier = tf.keras.Sequential(
    [tf.keras.layers.Input((4,)), tf.keras.layers.Dense(2)]
  )
  records = np.tile(np.eye(4, dtype=np.float32), (count, 1))
  config = cases.PAPER.changed(
    sampler="full_batch",
    epochs=1,
    num_slices=1,
    l2_clip_norm=50.0,  # so that all coefficients are 1
    amplification="none",
    xi_up=1.0,
    noise_per="batch",
    **changes,
  )
  network = models.denoised_classifier(
    tf.keras.Model(inputs, outputs), classifier
  )
  found = papers.TransDenoiser(network, config)
  found.simulate(len(records))
  rows = tf.constant(records[None]), tf.zeros([1, len(records)], tf.int64)
  rows = *rows, tf.ones([1, len(records)])
  return found, cases.total(found, rows)


@pytest.mark.parametrize(
  ("units", "divisor"), [("sum", 1), ("mean", 80**2), ("mixed", 80**2)]
)
def test_units_of_the_matrix_by_hand(units, divisor):
  """20 of each unit vector: S_min = 80 of the sum, 80 / B^2 of the mean.

  xi_up is on the sum by default, and so must be M_t: sigma_bar^2 = xi_up^2 -
  S_min sigma^2 / C^2. Beside it an M_t of the mean saves B^2 times less.
  """
  found, total = _identity(20, units=units)
  smallest = 80 / divisor / 50.0**2
  np.testing.assert_allclose(found.rule.smallest(total), smallest, rtol=1e-5)
  left = found.rule.extra_stddev(total).numpy() ** 2
  np.testing.assert_allclose(1 - left, smallest * 0.25**2, rtol=1e-5)
  assert papers.Reading().units == "sum"


def test_amplification_is_the_number_of_planned_steps_or_passes_or_none():
  """The budget ends this training long before the 10,000 passes asked for."""
  found = {
    kind: cases.prepared(amplification=kind, dp_epsilon=4.0, epochs=1e4).rule
    for kind in ("steps", "epochs", "none")
  }
  steps = found["steps"].amplification
  assert 1 < steps < 100
  assert found["epochs"].amplification == steps * cases.BATCH / cases.COUNT
  assert found["none"].amplification == 1


def test_a_kept_s_min_is_used_until_the_next_is_due():
  """Computed at steps 0, 3, 6, ...; in between no batch has a say."""
  found = cases.prepared(refresh_every=3, amplification="none")
  one, other = (cases.total(found, cases.batch(seed=seed)) for seed in (0, 1))
  fresh = [cases.prepared().rule.smallest(total) for total in (one, other)]
  assert np.all(fresh[0] != fresh[1])
  for step, total, expected in (
    (0, one, fresh[0]),
    (1, other, fresh[0]),
    (2, other, fresh[0]),
    (3, other, fresh[1]),
    (4, one, fresh[1]),
  ):
    found.set_step(np.array([1, 2]), step)
    np.testing.assert_allclose(found.rule.smallest(total), expected)
  idle = cases.total(found, cases.batch())  # at step 4
  assert all(np.all(matrix == 0) for matrix in idle.statistics)
  assert all(np.any(matrix != 0) for matrix in one.statistics)


# The size of the paper.

_PRIVATE = 30_000  # images of MNIST, the other half being public


def _on_mnist():
  image = (28, 28, 1)
  network = models.denoised_classifier(
    models.smooth_denoiser(image, seed=0), models.mlp(image, 10, (4,), seed=0)
  )
  preset = methods.preset("transdenoiser", "mnist_paper")
  return methods.build("transdenoiser", network, preset)


def test_a_claimed_budget_of_1_pays_for_46769_steps():
  """xi_up 2, B 64, N 30,000, by Renyi divergences; a pass has 469 steps."""
  assert _on_mnist().plan(_PRIVATE).steps == 46_769
  prob = 64 / _PRIVATE
  costs = [
    privacy.dp_epsilon([privacy.poisson_sgd(2.0, prob, steps)], 1e-5, "rdp")
    for steps in (46_769, 46_770)
  ]
  assert costs[0] <= 1 < costs[1]


def _trained_a_little(found, images):
  """A few plain steps on one batch."""
  optimizer = tf.keras.optimizers.Adam(5e-3)
  variables = found.denoiser.trainable_variables

  @tf.function
  def step(seed):
    noisy = images + found.input_noise(images.shape, seed)
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean((found.denoiser(noisy) - images) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

  optimizer.build(variables)
  for number in range(30):
    step(tf.constant([7, number]))


@pytest.mark.slow
def test_at_the_steps_that_the_claim_pays_for_two_slices_lose_all_noise():
  """After a pass the same rule leaves out a few percent, in other units none.

  What is left out is min(1, T S_min sigma^2 / xi_up^2) of the variance. How
  much S_min is depends on the weights: these are early ones, where it is large.
  """
  found, images = _on_mnist(), tf.constant(data.load("mnist_5k").x_train[:64])
  found.simulate(_PRIVATE)
  _trained_a_little(found, images)
  rows = images[None], tf.zeros([1, 64], tf.int64), tf.ones([1, 64])
  total = cases.total(found, rows)
  assert found.rule.amplification == 46_769
  left = found.rule.extra_stddev(total).numpy()
  assert left[0] == left[2] == 0
  assert 0.9 * 2 < left[1] < 2
  smallest = found.rule.smallest(total).numpy()
  pass_alone = papers.extra_stddev(smallest, 0.25, 0.0, 2.0, 469)
  saved = 1 - (pass_alone / 2) ** 2
  assert 0.005 < saved[0] < 0.1
  assert 0.005 < saved[2] < 0.1
  mixed = papers.extra_stddev(smallest / 64**2, 0.25, 0.0, 2.0, 46_769)
  assert np.all(1 - (mixed / 2) ** 2 < 1e-2)
