"""Networks that are known to act row by row, and those that are not."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import gradients
from tf_privrob import layers
from tf_privrob import models
from tf_privrob.methods import adlm_sound

_layers = tf.keras.layers


def _sequential(*parts, shape=(6, 6, 2)):
  return tf.keras.Sequential([_layers.Input(shape), *parts])


def _functional(function, shape=(6, 4), **settings):
  inputs = tf.keras.Input(shape, **settings)
  return tf.keras.Model(inputs, function(inputs))


def _two_states(inputs):
  output, state = _layers.GRU(3, return_sequences=True, return_state=True)(
    inputs
  )
  return _layers.Concatenate()([_layers.Flatten()(output), state])


def _attention(inputs):
  return _layers.MultiHeadAttention(2, 3)(inputs, inputs, use_causal_mask=True)


_ROW_WISE = {
  "convolutions": lambda: _sequential(
    _layers.Conv2D(4, 3, activation="relu"),
    _layers.MaxPooling2D(2),
    _layers.SeparableConv2D(3, 2, activation=tf.nn.relu),
    _layers.Flatten(),
    _layers.Dropout(0.5),
    _layers.Dense(3, activation="softmax"),
  ),
  "normalised": lambda: _sequential(
    _layers.LayerNormalization([1, 2, 3]),
    _layers.GroupNormalization(2),
    _layers.UnitNormalization(-1),
    _layers.Softmax(),
    _layers.BatchNormalization(trainable=False),
  ),
  "ours": lambda: _sequential(
    layers.NormalizedConv2D(3, 2, activation="relu"),
    layers.BoundedActivation(1.0),
    layers.LaplaceNoise(0.1),
    adlm_sound.FeatureScaling(),
    layers.Scattering(),
    _layers.Flatten(),
    layers.RandomFourierFeatures(5),
    layers.Temperature(2.0),
  ),
  "activation_layer": lambda: _sequential(
    _layers.Dense(3, activation=_layers.LeakyReLU())
  ),
  "operators": lambda: _functional(
    lambda x: tf.nn.relu(2.0 * x - tf.tanh(x)) / 3 + x**2
  ),
  "merged": lambda: _functional(
    lambda x: _layers.Add()([x, _layers.Dense(4)(x), _layers.ReLU()(x)])
  ),
  "states": lambda: _functional(_two_states),
  "bidirectional": lambda: _functional(_layers.Bidirectional(_layers.LSTM(3))),
  "stacked": lambda: _functional(
    _layers.RNN([_layers.LSTMCell(3), _layers.GRUCell(2)])
  ),
  "time_distributed": lambda: _functional(
    _layers.TimeDistributed(_layers.Dense(2))
  ),
  "nested": lambda: _functional(
    _layers.TimeDistributed(_sequential(_layers.Dense(3), shape=(4,)))
  ),
  "attention": lambda: _functional(_attention),
  "dot": lambda: _functional(lambda x: _layers.Dot(axes=2)([x, x])),
  "words": lambda: _functional(_layers.Embedding(9, 3), (5,), dtype="int32"),
}


class _Dense(_layers.Dense):
  """May do anything."""


class _Bounded(layers.BoundedActivation):
  """Inherits `row_wise`, which is no statement about itself."""

  def call(self, inputs):
    return super().call(inputs - tf.reduce_mean(inputs, 0))


class _Model(tf.keras.Model):
  """May do anything."""


def _overridden():
  network = _sequential(_layers.Dense(3, name="late"))
  network.layers[0].call = lambda x: x - tf.reduce_mean(x, 0)
  return network


def _centred(x):
  return x - tf.reduce_mean(x, 0, keepdims=True)


def _constant_input():
  inputs = tf.keras.Input((4,))
  return tf.keras.Model(inputs, _layers.Add()([inputs, tf.ones([3, 4])]))


_UNKNOWN = {
  "lambda": (
    lambda: _sequential(_layers.Lambda(_centred, name="mean")),
    "Lambda",
  ),
  "activation": (
    lambda: _sequential(_layers.Dense(3, _centred)),
    "an activation",
  ),
  "activation_alone": (
    lambda: _sequential(_layers.Activation(_centred)),
    "activation",
  ),
  "recurrent_activation": (
    lambda: _functional(_layers.GRU(3, recurrent_activation=_centred)),
    "recurrent activation",
  ),
  "subclass": (lambda: _sequential(_Dense(3)), "_Dense"),
  "subclass_of_ours": (lambda: _sequential(_Bounded()), "_Bounded"),
  "model": (lambda: _Model(), "_Model"),
  "replaced": (lambda: _overridden(), "'late', whose call"),
  "batch_normalisation": (
    lambda: _sequential(_layers.BatchNormalization()),
    "BatchNormalization",
  ),
  "standardised": (
    lambda: _sequential(layers.BatchStandardization()),
    "BatchStandardization",
  ),
  "softmax_over_batch": (lambda: _sequential(_layers.Softmax(0)), "Softmax"),
  "softmax_over_batch_2": (lambda: _sequential(_layers.Softmax(-4)), "Softmax"),
  "layer_norm_over_batch": (
    lambda: _sequential(
      _layers.LayerNormalization([0, 1], center=False, scale=False)
    ),
    "LayerNormalization",
  ),
  "unit_norm_over_batch": (
    lambda: _sequential(_layers.UnitNormalization(0)),
    "UnitNormalization",
  ),
  "concatenated_rows": (
    lambda: _functional(lambda x: _layers.Concatenate(0)([x, x])),
    "Concatenate",
  ),
  "stateful": (
    lambda: _functional(_layers.GRU(3, stateful=True), batch_size=2),
    "fixed batch",
  ),
  "custom_cell": (
    lambda: _functional(_layers.RNN(_layers.GRUCell(3, activation=_centred))),
    "GRUCell",
  ),
  # Attention between two-dimensional inputs is attention between examples.
  "attention_between_rows": (
    lambda: _functional(lambda x: _layers.Attention()([x, x]), (4,)),
    "Attention",
  ),
  # A mask of [batch, steps] may be broadcast against other axes.
  "masked": (
    lambda: _functional(
      _layers.Embedding(9, 3, mask_zero=True), (5,), dtype="int32"
    ),
    "Embedding",
  ),
  "transposed": (
    lambda: _functional(lambda x: tf.transpose(x, [1, 0, 2])),
    "tf",
  ),
  "reduced": (
    lambda: _functional(lambda x: x - tf.reduce_mean(x, 0)),
    "reduce_mean",
  ),
  "reshaped": (
    lambda: _functional(lambda x: tf.reshape(x, [-1, 2])),
    "reshape",
  ),
  "sliced": (lambda: _functional(lambda x: x[:1] + x), "getitem|slice"),
  "ranks": (
    lambda: _functional(lambda x: x + _layers.GlobalMaxPooling1D()(x)),
    "several or unknown ranks",
  ),
  "constant": (lambda: _constant_input(), "further arguments|constant"),
  "constant_operand": (
    lambda: _functional(lambda x: x * tf.ones([3, 1, 1])),
    "constant tensor",
  ),
  "time_distributed": (
    lambda: _functional(_layers.TimeDistributed(_layers.Dense(2, _centred))),
    "activation",
  ),
  "nested": (
    lambda: _sequential(
      _sequential(_layers.Lambda(_centred)), _layers.Dense(2)
    ),
    "Lambda",
  ),
  "regularised": (
    lambda: _sequential(_layers.Dense(2, activity_regularizer="l2")),
    "activity",
  ),
}


@pytest.mark.parametrize("name", _ROW_WISE)
def test_known_networks(name):
  network = _ROW_WISE[name]()
  assert gradients.not_row_wise(network) is None
  # The words are kept: other rows change nothing.
  shape = (3, *network.input_shape[1:])
  rng = np.random.default_rng(0)
  a, b = rng.integers(1, 9, (2, *shape))
  b[1] = a[1]
  np.testing.assert_allclose(network(a)[1], network(b)[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", _UNKNOWN)
def test_others_are_named(name):
  build, words = _UNKNOWN[name]
  assert re.search(words, gradients.not_row_wise(build()))


@pytest.mark.parametrize(
  "network",
  [
    models.tutorial_cnn,
    models.scattering_linear,
    lambda: models.random_features_linear((28, 28, 1), 10),
    lambda: models.smooth_denoiser((8, 8, 1)),
    lambda: models.paper_denoiser((8, 8, 1)),
    lambda: models.with_temperature(models.mlp((28, 28, 1), 10), 2.0),
    lambda: models.denoised_classifier(
      models.convolutional_denoiser((28, 28, 1)), models.tutorial_cnn()
    ),
  ],
)
def test_the_networks_of_the_house_are_known(network):
  assert gradients.not_row_wise(network()) is None


def test_a_trained_network_is_still_known():
  network = _sequential(_layers.Flatten(), _layers.Dense(2))
  network.compile("sgd", "mse")
  network.fit(np.ones([4, 6, 6, 2]), np.ones([4, 2]), verbose=0)
  network.predict(np.ones([4, 6, 6, 2]), verbose=0)
  assert gradients.not_row_wise(network) is None


def test_row_by_row_is_the_network_where_it_is_known():
  network = _ROW_WISE["convolutions"]()
  x = np.random.default_rng(1).normal(size=(3, 6, 6, 2)).astype("float32")
  np.testing.assert_array_equal(gradients.row_by_row(network)(x), network(x))


@pytest.mark.parametrize("in_graph", [False, True])
def test_row_by_row_isolates_whatever_the_network_does(in_graph):
  """Before, a Lambda's batch mean moved the features of all others."""
  network = _sequential(_layers.Lambda(_centred), _layers.Flatten())
  function = gradients.row_by_row(network)
  function = tf.function(function) if in_graph else function
  a, b = np.random.default_rng(2).normal(size=(2, 5, 6, 6, 2)).astype("float32")
  b[3] = a[3]
  np.testing.assert_array_equal(function(a)[3], function(b)[3])
  np.testing.assert_array_equal(function(a), np.zeros([5, 72]))
  assert np.abs(network(a)[3] - network(b)[3]).max() > 0.1


def test_row_by_row_of_a_recurrent_network():
  network = _functional(lambda x: _layers.GRU(3)(_layers.Lambda(_centred)(x)))
  x = np.random.default_rng(3).normal(size=(3, 6, 4)).astype("float32")
  expected = tf.concat([network(x[i : i + 1]) for i in range(3)], 0)
  found = gradients.row_by_row(network)(tf.constant(x))
  np.testing.assert_allclose(found, expected, atol=1e-6)
