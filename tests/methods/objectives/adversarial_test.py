"""PGD, TRADES and WRM: examples and losses by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tests.methods.objectives import robust_cases as cases
from tf_privrob import attacks
from tf_privrob import losses
from tf_privrob import methods
from tf_privrob.methods.objectives import content_hash
from tf_privrob.methods.objectives import trades

WEIGHTS = [[1.0, -2.0, 0.5], [-0.5, 1.5, 1.0]]
SEED = tf.constant([7, 8])


def points(count=6):
  rng = np.random.default_rng(3)
  x = rng.random((count, 2)).astype("float32")
  return tf.constant(x), tf.constant(rng.integers(0, 3, count))


def on_linear(case, **changes):
  return cases.prepared(case, cases.linear(WEIGHTS), **changes)


def row_losses(method, x, y, **chosen):
  return cases.row_losses(method, x, y, SEED, **chosen)


def moved_by(method, x, *labels_and_seed):
  """What a training step makes of these examples."""
  objective = method.objective
  return objective.adversarial_examples(method.context, x, *labels_and_seed)


def input_gradients(x, y):
  """Of the cross-entropy of the linear network."""
  weights = np.array(WEIGHTS, np.float32)
  return (cases.softmax(x @ weights) - np.eye(3)[y]) @ weights.T


# PGD.


@pytest.mark.parametrize("step_size", [None, 0.03])
def test_examples_are_those_of_the_attack(step_size):
  method = cases.prepared(
    "pgd", attack_steps=4, random_start=False, step_size=step_size
  )
  x, y = cases.tensors(8)
  attack = attacks.PGD(0.1, steps=4, random_start=False, step_size=step_size)
  expected = attack(method.network, x, y, seed=0)
  found = moved_by(method, x, y, SEED)
  np.testing.assert_allclose(found, expected, atol=1e-6)
  assert np.abs(found - x).max() > 0.09


@pytest.mark.parametrize("clip_start", [True, False])
def test_first_gradient_is_taken_at_the_start(clip_start):
  """One step from a uniform point, before or after it is clipped."""
  method = on_linear(
    "pgd", attack_eps=0.6, attack_steps=1, step_size=0.1, clip_start=clip_start
  )
  x, y = points(400)
  start = x + 0.6 * tf.random.stateless_uniform(x.shape, SEED, -1, 1)
  start = start.numpy()
  assert np.any((start < 0) | (start > 1))
  low, high = np.maximum(x - 0.6, 0), np.minimum(x + 0.6, 1)
  if clip_start:
    start = np.clip(start, low, high)
  moved = start + 0.1 * np.sign(input_gradients(start, y))
  expected = np.clip(moved, low, high)
  found = moved_by(method, x, y, SEED)
  np.testing.assert_allclose(found, expected, atol=1e-6)


def test_default_step_follows_the_radius_of_the_moment():
  method = on_linear(
    "pgd",
    attack_steps=1,
    step_factor=0.5,
    random_start=False,
    ramp=methods.Ramp(length="10"),
    attack_eps=0.2,
  )
  x, y = tf.constant([[0.5, 0.5]]), tf.constant([0])
  for step, radius in ((0, 0.0), (5, 0.1), (10, 0.2)):
    method.set_step([0, 0], step)
    moved = moved_by(method, x, y, SEED) - x
    np.testing.assert_allclose(np.abs(moved), radius / 2, atol=1e-6)


def test_mixed_loss_by_hand():
  method = on_linear("pgd", natural_share=0.3, attack_eps=0.1)
  x, y = points()
  chosen = tf.constant([True, False, True, True, False, True])
  found, metrics = row_losses(method, x, y, chosen=chosen)
  moved = moved_by(method, x, y, SEED).numpy()
  moved = np.where(chosen[:, None], moved, x)
  weights = np.array(WEIGHTS, np.float32)
  clean = cases.cross_entropy(x.numpy() @ weights, y.numpy())
  robust = cases.cross_entropy(moved @ weights, y.numpy())
  np.testing.assert_allclose(found, 0.3 * clean + 0.7 * robust, rtol=1e-5)
  assert np.all(robust[chosen] > clean[chosen])
  predictions = np.argmax(moved @ weights, 1)
  np.testing.assert_array_equal(metrics["robust_correct"], predictions == y)


def test_warm_up_is_natural():
  method = on_linear("pgd", ramp=methods.Ramp(warmup="3"), natural_share=0.0)
  x, y = points()
  weights = np.array(WEIGHTS, np.float32)
  clean = cases.cross_entropy(x.numpy() @ weights, y.numpy())
  method.set_step([0, 0], 2)
  np.testing.assert_allclose(row_losses(method, x, y)[0], clean, rtol=1e-5)
  method.set_step([0, 0], 3)
  assert np.all(row_losses(method, x, y)[0] > clean + 1e-3)


# The share of the training set.


def test_the_same_examples_are_always_chosen():
  x, y = cases.arrays(2000)
  half, more = (
    content_hash.chosen(tf.constant(x), tf.constant(y), share).numpy()
    for share in (0.5, 0.75)
  )
  # Five standard deviations of a binomial share.
  assert abs(half.mean() - 0.5) < 5 * np.sqrt(0.25 / 2000)
  assert abs(more.mean() - 0.75) < 5 * np.sqrt(0.1875 / 2000)
  assert np.all(more[half])
  order = np.random.default_rng(1).permutation(2000)[:50]
  again = content_hash.chosen(tf.constant(x[order]), tf.constant(y[order]), 0.5)
  np.testing.assert_array_equal(again, half[order])
  for share, expected in ((0.0, False), (1.0, True)):
    found = content_hash.chosen(tf.constant(x), tf.constant(y), share)
    assert set(found.numpy()) == {expected}


def test_every_pixel_and_the_label_count():
  x, y = cases.arrays(400)
  before = content_hash.chosen(tf.constant(x), tf.constant(y), 0.5).numpy()
  for place in ((0, 0, 0), (3, 3, 0)):
    other = x.copy()
    other[(slice(None), *place)] = np.nextafter(other[(slice(None), *place)], 2)
    after = content_hash.chosen(tf.constant(other), tf.constant(y), 0.5)
    assert 0.3 < np.mean(after != before) < 0.7
  after = content_hash.chosen(tf.constant(x), tf.constant(y + 1), 0.5)
  assert 0.3 < np.mean(after != before) < 0.7


def test_the_other_examples_have_the_natural_loss():
  method = cases.prepared("pgd_half")
  x, y = cases.tensors(40)
  found, _ = cases.example_losses(method, x, y, SEED)
  clean = cases.cross_entropy(method.network(x).numpy(), y.numpy())
  chosen = content_hash.chosen(x, y, 0.5).numpy()
  assert 5 < chosen.sum() < 35
  np.testing.assert_allclose(found.numpy()[~chosen], clean[~chosen], rtol=1e-4)
  assert np.all(found.numpy()[chosen] > clean[chosen] + 1e-4)


def test_domain_adaptation_is_added_to_every_example():
  plain = on_linear("pgd", natural_share=0.0)
  adapted = on_linear("pgd", natural_share=0.0, domain_adaptation_weight=2.0)
  x, y = points()
  moved = moved_by(plain, x, y, SEED)
  term = losses.domain_adaptation(plain.network(x), plain.network(moved))
  gaps = row_losses(adapted, x, y)[0] - row_losses(plain, x, y)[0]
  assert float(term) > 1e-3
  np.testing.assert_allclose(gaps, 2 * float(term) * np.ones(6), rtol=1e-4)


# TRADES.


def test_trades_loss_has_the_clean_law_first():
  method = on_linear("trades", beta=3.0, attack_eps=0.3)
  x, y = points()
  found, _ = row_losses(method, x, y)
  weights = np.array(WEIGHTS, np.float32)
  moved = moved_by(method, x, SEED).numpy()
  p, q = (cases.softmax(z @ weights) for z in (x.numpy(), moved))
  clean = cases.cross_entropy(x.numpy() @ weights, y.numpy())
  forward = np.sum(p * np.log(p / q), axis=1)
  backward = np.sum(q * np.log(q / p), axis=1)
  np.testing.assert_allclose(found, clean + 3 * forward, rtol=1e-4)
  assert np.abs(forward - backward).max() > 1e-3


def test_trades_examples_by_a_plain_loop():
  method = on_linear("trades", attack_eps=0.2, attack_steps=3, step_size=0.1)
  x, _ = points()
  weights = np.array(WEIGHTS, np.float32)
  p = cases.softmax(x.numpy() @ weights)
  noise = tf.random.stateless_normal(x.shape, SEED).numpy()
  moved = x.numpy() + 0.001 * noise
  for _ in range(3):
    gradient = (cases.softmax(moved @ weights) - p) @ weights.T
    moved = np.clip(moved + 0.1 * np.sign(gradient), x - 0.2, x + 0.2)
    moved = np.clip(moved, 0, 1)
  found = moved_by(method, x, SEED)
  np.testing.assert_allclose(found, moved, atol=1e-6)


def test_detaching_the_clean_side_changes_the_gradient():
  x, y = points()
  weights = np.array(WEIGHTS, np.float32)
  gradients = {}
  for detach in (False, True):
    method = on_linear("trades", attack_eps=0.3, detach_clean=detach)
    with tf.GradientTape() as tape:
      total = tf.reduce_sum(row_losses(method, x, y)[0])
    gradients[detach] = tape.gradient(total, method.network.weights[0]).numpy()
  moved = moved_by(method, x, SEED).numpy()
  p, q = (cases.softmax(z @ weights) for z in (x.numpy(), moved))
  natural = x.numpy().T @ (p - np.eye(3)[y])
  expected = natural + 3 * moved.T @ (q - p)  # p(x) is a constant
  np.testing.assert_allclose(gradients[True], expected, atol=1e-4)
  assert np.abs(gradients[True] - gradients[False]).max() > 1e-2


def test_divergence_of_equal_laws_is_zero():
  logits = tf.constant([[1.0, 2.0, 3.0]])
  assert float(trades.kl(logits, logits + 5)[0]) == pytest.approx(0, abs=1e-6)


# WRM.


@pytest.mark.parametrize("mean_over", ["batch", "example"])
def test_linf_update_by_a_plain_loop(mean_over):
  method = on_linear(
    "wrm_linf", attack_steps=4, step_scale=0.2, mean_over=mean_over
  )
  x, y = points()
  moved = x.numpy()
  for _ in range(4):
    change = 0.2 * input_gradients(moved, y)
    mean = np.abs(change).mean()
    if mean_over == "example":
      mean = np.abs(change).mean(1, keepdims=True)
    moved = moved + change - mean * np.sign(moved + change - x)
    moved = np.clip(moved, 0, 1)
  found = moved_by(method, x, y)
  np.testing.assert_allclose(found, moved, atol=1e-5)
  weights = np.array(WEIGHTS, np.float32)
  expected = cases.cross_entropy(moved @ weights, y.numpy())
  np.testing.assert_allclose(row_losses(method, x, y)[0], expected, rtol=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_l2_update_by_a_plain_loop(smoothing):
  method = on_linear(
    "wrm_l2", attack_steps=3, step_scale=1.3, label_smoothing=smoothing
  )
  x, y = points()
  weights = np.array(WEIGHTS, np.float32)
  target = (1 - smoothing) * np.eye(3)[y] + smoothing / 3

  def gradient(at):
    return (cases.softmax(at @ weights) - target) @ weights.T

  moved = x.numpy() + 1.3 * gradient(x.numpy())
  for t in range(3):
    step = 1.3 * gradient(moved) - (moved - x.numpy())
    moved = moved + step / np.sqrt(t + 2)
  found = moved_by(method, x, y)
  np.testing.assert_allclose(found, moved, rtol=1e-4, atol=1e-5)
  assert np.any((moved < 0) | (moved > 1))  # free to leave the range
  expected = -np.sum(target * np.log(cases.softmax(moved @ weights)), axis=1)
  np.testing.assert_allclose(row_losses(method, x, y)[0], expected, rtol=1e-4)
