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


def _attention(kind, value_rank):
  """Queries [B, None, 2] and values of three or four axes."""
  inputs = _layers.Input((None, 6))
  query = _layers.Dense(2)(inputs)
  shape = (-1, 2) if value_rank == 3 else (1, -1, 2)
  value = _layers.Reshape(shape)(_layers.Dense(2)(inputs))
  outputs = kind()([query, value])
  return tf.keras.Model(inputs, outputs)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("kind", [_layers.Attention, _layers.AdditiveAttention])
def test_attention_over_several_ranks_matches_one_batch_with_the_other(
  kind, inference
):
  """[batch, batch, T, D]: 12 of 12 certified rows were false, and 30 C."""
  assert row_wise.not_row_wise(_attention(kind, 3), inference) is None
  found = row_wise.not_row_wise(_attention(kind, 4), inference)
  assert found.startswith(kind.__name__)


@pytest.mark.parametrize("value", [(5, 3, 2), (1, 3, 2)])
def test_known_sizes_hide_a_batch_no_better(value):
  query, values = _layers.Input((4, 2)), _layers.Input(value)
  outputs = _layers.Attention()([query, values])
  model = tf.keras.Model([query, values], outputs)
  assert row_wise.not_row_wise(model) is not None


def test_sequences_in_several_axes_are_not_known():
  inputs = _layers.Input((4, 3, 2))
  cell = _layers.SimpleRNNCell(2)
  try:
    outputs = _layers.RNN(cell, unroll=True)(inputs)
  except ValueError:  # nor do all versions of Keras build one
    return
  assert row_wise.not_row_wise(tf.keras.Model(inputs, outputs)) is not None
