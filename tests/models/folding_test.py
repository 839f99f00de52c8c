"""Batch normalisation that is folded away leaves the function as it is."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import models

_layers = tf.keras.layers
_BUILDERS = {
  "vgg": lambda: models.vgg_cifar10(
    (16, 16, 3), 4, width=2, batch_normalization=True, seed=0
  ),
  "residual": lambda: models.residual_mnist((8, 8, 3), 4, width=2, seed=0),
}


def _trained(network):
  """Every weight and every moving average is something of its own."""
  rng = np.random.default_rng(0)
  network.set_weights(
    [0.5 + rng.random(w.shape) for w in network.get_weights()]
  )
  return network


def _normalisations(network):
  kind = _layers.BatchNormalization
  return [layer for layer in network.layers if isinstance(layer, kind)]


@pytest.mark.parametrize("name", _BUILDERS)
def test_the_function_stays_and_the_layers_go(name):
  network = _trained(_BUILDERS[name]())
  before = network.get_weights()
  found = models.folded(network)
  assert _normalisations(network)
  assert not _normalisations(found)
  x = np.random.default_rng(1).random((5, *network.input_shape[1:]), np.float32)
  expected = network(x, training=False).numpy()
  np.testing.assert_allclose(found(x), expected, rtol=1e-4)
  for old, new in zip(before, network.get_weights()):
    np.testing.assert_array_equal(old, new)
  assert models.folded(found) is found


def test_by_hand():
  """3 (2 x + 1 - 5) / sqrt(3 + 1) + 7 = 3 x + 1."""
  network = tf.keras.Sequential(
    [
      _layers.Input((1,)),
      _layers.Dense(1),
      _layers.BatchNormalization(epsilon=1.0),
    ]
  )
  values = 2, 1, 3, 7, 5, 3  # kernel, bias, gamma, beta, mean, variance
  shapes = [w.shape for w in network.get_weights()]
  network.set_weights([np.full(s, v) for s, v in zip(shapes, values)])
  kernel, bias = models.folded(network).get_weights()
  np.testing.assert_allclose([kernel.item(), bias.item()], [3.0, 1.0])


def test_what_cannot_be_folded_stays():
  inputs = tf.keras.Input((3,))
  hidden = _layers.Dense(4)(inputs)
  normal = _layers.BatchNormalization()(hidden)
  bent = _layers.BatchNormalization()(_layers.Dense(4, "relu")(normal))
  outputs = _layers.Add()([hidden, bent])  # it is read twice
  network = _trained(tf.keras.Model(inputs, outputs))
  assert models.folded(network) is network
