"""Signs of training: seen on trained networks, never on fresh ones."""

import numpy as np
import pytest
import tensorflow as tf

from tests.models import fresh_test
from tf_privrob import models

_layers = tf.keras.layers
_initializers = tf.keras.initializers


@pytest.mark.parametrize(("name", "build"), fresh_test.all_networks())
def test_no_false_alarm_on_our_networks(name, build, tmp_path):
  for seed in (None, 0):
    assert models.signs_of_training(build(name, seed)) is None
  network = build(name)
  network.save(tmp_path / "x.keras")
  loaded = tf.keras.models.load_model(tmp_path / "x.keras")
  assert models.signs_of_training(loaded) is None


_DRAWS = [
  _initializers.RandomUniform(-2.0, 5.0),
  _initializers.RandomNormal(1.0, 0.5),
  _initializers.TruncatedNormal(1.0, 0.5),
  _initializers.Orthogonal(1.5),
  *(
    _initializers.VarianceScaling(2.0, mode, law)
    for mode in ("fan_in", "fan_out", "fan_avg")
    for law in ("uniform", "truncated_normal", "untruncated_normal")
  ),
]


def _network(initializer, shape=(30,)):
  layer = _layers.Dense(20, use_bias=False, kernel_initializer=initializer)
  return tf.keras.Sequential([_layers.Input(shape), layer])


def _copies(initializer, count):
  for _ in range(count):
    config = initializer.get_config()
    yield _network(type(initializer).from_config(config))


@pytest.mark.parametrize("initializer", _DRAWS)
def test_every_law_is_known(initializer):
  for network in _copies(initializer, 10):
    assert models.signs_of_training(network) is None
  (kernel,) = network.get_weights()
  middle = kernel.mean()
  for factor, shift in ((0.7, 0), (1.5, 0), (1, 7), (0, 0)):
    network.set_weights([factor * (kernel - middle) + middle + shift])
    assert models.signs_of_training(network) is not None
  kernel[0, 0] = np.nan
  network.set_weights([kernel])
  assert models.signs_of_training(network) is not None


def test_values_outside_the_bounds():
  network = _network("glorot_uniform")
  kernel = network.get_weights()[0]
  kernel[0, 0] = 1.01 * np.sqrt(6 / 50)
  network.set_weights([kernel])
  assert "outside the bounds" in models.signs_of_training(network)


def test_spread_of_small_layers_is_judged_gently():
  for _ in range(200):
    layer = _layers.Dense(1, kernel_initializer="random_normal")
    small = tf.keras.Sequential([_layers.Input((1,)), layer])
    assert models.signs_of_training(small) is None


@pytest.mark.parametrize("seed", [None, 0])
def test_a_step_of_training_is_seen_without_counters(seed):
  network = models.mlp((6,), 3, seed=seed)
  x = np.random.default_rng(0).normal(size=(20, 6)).astype("float32")
  optimizer = tf.keras.optimizers.SGD(0.01)
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(network(x)[:, 0])
  gradient = tape.gradient(loss, network.trainable_variables)
  optimizer.apply_gradients(zip(gradient, network.trainable_variables))
  found = models.signs_of_training(network)
  assert "has left its initial value" in found or "outside the bounds" in found


def test_moving_averages_are_seen():
  network = tf.keras.Sequential(
    [_layers.Input((6,)), _layers.BatchNormalization()]
  )
  assert models.signs_of_training(network) is None
  network(np.ones([3, 6], "float32"), training=True)
  assert "moving_mean" in models.signs_of_training(network)


def test_counters_are_seen():
  network = _network("glorot_uniform")
  start = network.get_weights()
  network.compile(tf.keras.optimizers.SGD(0.01), "mse")
  network.fit(np.zeros([6, 30]), np.zeros([6, 20]), batch_size=2, verbose=0)
  network.set_weights(start)
  assert models.signs_of_training(network).endswith("trained for 3 steps")
  outer = tf.keras.Sequential([_layers.Input((30,)), network])
  assert "trained for 3 steps" in models.signs_of_training(outer)


def test_what_cannot_be_made_again_is_left_out():
  network = fresh_test.owner()
  assert models.signs_of_training(network) is None
  unbuilt = tf.keras.Sequential([_layers.Dense(3)])
  assert models.signs_of_training(unbuilt) is None
