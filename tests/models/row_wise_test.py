"""What acts row by row at inference and not in training, and the other way.

`tests/gradients/isolation_test.py` tries what is known in training,
`tests/certify/alone_test.py` what couples rows at inference.
"""

import re

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob.models import row_wise

_layers = tf.keras.layers


def _network(*layers, shape=(4, 4, 3), **settings):
  return tf.keras.Sequential([tf.keras.Input(shape, **settings), *layers])


def _called_in_training(layer):
  inputs = tf.keras.Input((4,))
  return tf.keras.Model(inputs, layer(inputs, training=True))


@pytest.mark.parametrize(
  "layer",
  [
    _layers.BatchNormalization(),
    _layers.Normalization(mean=[0.0, 1.0, 2.0], variance=[1.0, 2.0, 3.0]),
    _layers.Normalization(axis=None, mean=0.5, variance=2.0),
    _layers.Rescaling([1.0, 2.0, 3.0]),
    _layers.Rescaling(1.0, offset=np.ones((1, 4, 4, 1))),
  ],
  ids=lambda layer: layer.name,
)
def test_known_at_inference_only(layer):
  network = _network(layer, _layers.Flatten(), _layers.Dense(2))
  assert row_wise.not_row_wise(network)
  assert row_wise.not_row_wise(network, inference=True) is None
  x = np.random.default_rng(0).normal(size=(5, 4, 4, 3)).astype(np.float32)
  alone = np.concatenate([network(x[n : n + 1]) for n in range(5)])
  np.testing.assert_allclose(network(x), alone, atol=1e-5)


def test_known_in_training_only():
  """Nobody looks inside of attention, and half precision goes by place."""
  inputs = tf.keras.Input((5, 4))
  attention = _layers.MultiHeadAttention(2, 3)(inputs, inputs)
  for network, words in (
    (tf.keras.Model(inputs, attention), "MultiHeadAttention"),
    (_network(_layers.Dense(2, dtype="mixed_bfloat16")), "bfloat16"),
    (_called_in_training(_layers.Dropout(0.5)), "further arguments"),
  ):
    assert row_wise.not_row_wise(network) is None
    assert re.search(words, row_wise.not_row_wise(network, inference=True))


def _exchanged(network, name, value):
  vars(network.layers[0])[name] = value
  return network


@pytest.mark.parametrize(
  ("make", "words"),
  [
    (
      lambda: _called_in_training(_layers.BatchNormalization()),
      "further arguments",
    ),
    (lambda: _network(_layers.BatchNormalization(axis=0), shape=(4,)), None),
    (
      lambda: _network(_layers.BatchNormalization(renorm=True)),
      "with its settings",
    ),
    (lambda: _network(_layers.Rescaling(np.ones((8, 4, 4, 3)))), "settings"),
    (
      lambda: _exchanged(
        _network(_layers.Dense(2), shape=(3,)), "kernel", tf.ones((3, 2))
      ),
      "kernel was replaced",
    ),
    (
      lambda: _exchanged(
        _network(_layers.Normalization(mean=0.0, variance=1.0), shape=(4,)),
        "mean",
        tf.ones((8, 4)),
      ),
      "with its settings",
    ),
  ],
)
def test_not_known_at_inference(make, words):
  try:
    network = make()
  except ValueError:  # Keras refuses it itself
    assert words is None
    return
  found = row_wise.not_row_wise(network, inference=True)
  assert found
  assert words is None or re.search(words, found)


def test_half_of_a_cut_network_is_known_at_inference():
  network = _network(_layers.Flatten(), _layers.Dense(5), _layers.Dense(2))
  rest = tf.keras.Model(network.layers[1].output, network.output)
  assert row_wise.not_row_wise(rest, inference=True) is None
