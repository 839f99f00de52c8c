"""A layer made a second time: its class, its shapes, its draws."""

import numpy as np
import tensorflow as tf

from tf_privrob import randomness
from tf_privrob.models import remaking

_layers = tf.keras.layers


def _built(layer, shape=(6,)):
  layer(tf.keras.Input(shape))
  return layer


def _remade(layer, seed=1, **changes):
  settings = {**layer.get_config(), **changes}
  return remaking.remade(layer, settings, randomness.Key.of(seed))


def test_the_copy_has_the_shapes_and_no_weight_in_common():
  layer = _built(_layers.Dense(3))
  copy = _remade(layer)
  assert type(copy) is _layers.Dense
  assert copy.kernel.shape == layer.kernel.shape
  assert not {w.ref() for w in copy.weights} & {w.ref() for w in layer.weights}
  assert _remade(layer, units=5).kernel.shape == (6, 5)


def test_the_key_decides_what_is_drawn():
  layer = _built(_layers.Dense(3))
  first, same, other = (
    _remade(layer, seed).get_weights() for seed in (1, 1, 2)
  )
  np.testing.assert_array_equal(first[0], same[0])
  assert np.abs(first[0] - other[0]).min() > 0


def test_inner_layers_of_one_configuration_start_apart():
  layer = _built(_layers.Bidirectional(_layers.LSTM(2)), (3, 4))
  forward, *_ = _remade(layer).forward_layer.get_weights()
  backward, *_ = _remade(layer).backward_layer.get_weights()
  assert np.abs(forward - backward).min() > 0


def test_keras_own_seeds_go_on_as_if_nothing_was_made():
  layer = _built(_layers.Dense(3))
  initializer = tf.keras.initializers.GlorotUniform

  def drawn(remakes):
    tf.keras.utils.set_random_seed(7)
    for _ in range(remakes):
      _remade(layer)
    return initializer()((4, 4)).numpy()

  np.testing.assert_array_equal(drawn(0), drawn(2))


def test_a_layer_that_was_not_built_is_not_built_again():
  assert not _remade(_layers.Dense(3)).built
