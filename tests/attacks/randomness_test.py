import functools

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob.attacks import randomness


def _noisy(network, stddev):
  def logits(x, seed):
    noise = tf.random.stateless_normal(tf.shape(x), seed, stddev=stddev)
    return network(x + noise)

  return logits


def test_seed_reaches_only_who_asks(network):
  assert randomness.takes_seed(_noisy(network, 0.1))
  assert randomness.takes_seed(tf.function(_noisy(network, 0.1)))
  assert randomness.takes_seed(attacks.eot(_noisy(network, 0.1), 2))
  assert not randomness.takes_seed(network)
  fixed = functools.partial(_noisy(network, 0.1), seed=tf.constant([1, 2]))
  assert not randomness.takes_seed(fixed)

  class Layer(tf.keras.layers.Layer):
    def call(self, inputs, seed=None):
      return inputs + tf.random.stateless_normal(tf.shape(inputs), seed)

  assert randomness.takes_seed(Layer())
  x = tf.zeros((2, 3))
  first, second = (
    randomness.seeded(Layer())(x, randomness.as_seed(seed)) for seed in (1, 2)
  )
  assert np.abs(first - second).max() > 0.01


def test_every_step_gets_a_fresh_seed():
  """Records the seeds through the logits themselves: x_adv holds them."""
  seen = []

  def model(x, seed):
    tf.py_function(lambda s: seen.append(tuple(s.numpy())), [seed], [])
    return tf.concat([-x, x], axis=1)

  x, y = np.array([[0.5]], np.float32), np.array([1])
  run = attacks.PGD(0.1, steps=6, restarts=3, keep_best=True).compile(model)
  run(x, y, 0)
  assert len(seen) == 3 * 7  # Six steps and the last iterate, three times.
  assert len(set(seen)) == len(seen)
  first = list(seen)
  seen.clear()
  run(x, y, 0)
  assert seen == first
  seen.clear()
  run(x, y, 1)
  assert not set(seen) & set(first)


def test_eot_averages_probabilities(network, batch):
  x = tf.constant(batch[0][:4])
  model = _noisy(network, 0.5)
  seed = randomness.as_seed(3)
  got = attacks.eot(model, 5)(x, seed=seed)
  draws = [
    tf.nn.softmax(model(x, randomness.fold(seed, number))).numpy()
    for number in range(5)
  ]
  np.testing.assert_allclose(np.exp(got), np.mean(draws, axis=0), atol=1e-6)
  assert np.std(draws, axis=0).max() > 0.01


def test_eot_averages_noise_that_a_batch_shares(network, batch):
  """Draws that were one tiled batch would all be equal for such a model."""
  x = tf.constant(batch[0][:4])

  def shared(x, seed):
    noise = tf.random.stateless_normal((1, 64), seed, stddev=0.5)
    return network(x + noise)

  many = attacks.eot(shared, 64)
  spread = {}
  for draws, model in ((1, attacks.eot(shared, 1)), (64, many)):
    run = tf.function(model)
    seeds = [randomness.as_seed(number) for number in range(12)]
    outputs = [np.exp(run(x, seed=seed)) for seed in seeds]
    spread[draws] = np.std(outputs, axis=0).mean()
  assert 0.5 < 8 * spread[64] / spread[1] < 2  # 1 / sqrt(draws).


def test_one_draw_changes_no_loss(network, batch):
  x, y = batch
  for loss in ("cross_entropy", "margin", "dlr"):
    attack = attacks.BIM(0.1, steps=4, loss=loss)
    plain = attack(network, x, y, 0)
    wrapped = attack(attacks.eot(network, 1), x, y, 0)
    np.testing.assert_allclose(plain, wrapped, atol=1e-5)


def test_eot_gradient_approaches_the_expected_one():
  """E softmax of a linear model under noise has a known gradient direction."""
  weights = np.array([0.6, -0.8], np.float32)

  def model(x, seed):
    noise = tf.random.stateless_normal(tf.shape(x), seed, stddev=3.0)
    # Orthogonal noise of large gain: a single draw mostly sees the noise.
    z = tf.linalg.matvec(x, weights)
    z += tf.reduce_sum(noise, axis=1) * tf.linalg.matvec(x, [0.8, 0.6])
    return tf.stack([-z, z], axis=1)

  x = np.full((32, 2), [0.5, 0.4], np.float32)
  y = np.ones(32, np.int64)
  fall = {}
  for draws in (1, 256):
    attack = attacks.FGSM(0.1, "l2", loss="margin")
    x_adv = attack.compile(attacks.eot(model, draws))(x, y, 0).numpy()
    fall[draws] = np.mean((x - x_adv) @ weights)
  assert fall[256] > 1.5 * fall[1]


def test_eot_inside_graph_loops(network, batch):
  x, y = batch[0][:16], batch[1][:16]
  wrapped = attacks.eot(_noisy(network, 0.1), 4)
  attack = attacks.PGD(0.2, steps=5, restarts=2)
  eager = attack(wrapped, x, y, 0)
  np.testing.assert_allclose(eager, attack.compile(wrapped)(x, y, 0), atol=1e-5)


def test_failures(network):
  with pytest.raises(ValueError, match="draws=0"):
    attacks.eot(network, 0)
  with pytest.raises(ValueError, match="wrapped already"):
    attacks.eot(attacks.eot(network, 2), 2)
