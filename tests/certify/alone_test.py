"""What is certified is f on a batch of one, whatever f makes of company."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import certify
from tf_privrob import layers as privrob_layers
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob.certify import alone
from tf_privrob.certify import gate
from tf_privrob.certify.smoothing import smoothing

_layers = tf.keras.layers
STDDEV = 0.25
RNG = np.random.default_rng(0)
# Far apart along one direction, so that a mixed batch has a wide range.
DIRECTION = 10 * np.eye(6)[0]
X = RNG.normal(0, 0.05, size=(12, 6)).astype(np.float32)
X[:, 0] += np.linspace(-2, 2, len(X))


def _set(model, **values):
  for name, arrays in values.items():
    model.get_layer(name).set_weights(
      [np.array(array, np.float32) for array in arrays]
    )


def among_copies():
  """Class 1 in company of noisy copies of one input, class 0 otherwise.

  Plain layers of Keras. Softmax(axis=0) runs over the batch: the product of
  the shares of c s and -c s tells how many rows there are and how far they are
  apart.
  """
  inputs = tf.keras.Input((6,))
  both = _layers.Dense(2, use_bias=False, name="both")(inputs)
  shares = _layers.Softmax(axis=0)(both)
  product = _layers.Multiply()(
    [
      _layers.Dense(1, use_bias=False, name=name)(shares)
      for name in ("first", "second")
    ]
  )
  ends = [
    _layers.ReLU(max_value=1.0)(_layers.Dense(1, name=name)(product))
    for name in ("few", "far")
  ]
  inside = _layers.Dense(1, "relu", name="inside")(_layers.Concatenate()(ends))
  model = tf.keras.Model(inputs, _layers.Dense(2, name="logits")(inside))
  c = 0.3 * DIRECTION
  _set(
    model,
    both=[np.stack([c, -c], 1)],
    first=[[[1], [0]]],
    second=[[[0], [1]]],
    few=[[[1e7]], [-30.0]],
    far=[[[-1e4]], [11.0]],
    inside=[[[1], [1]], [-1]],
    logits=[[[0, 1.0]], [0.5, 0]],
  )
  return model


SMOOTHING = certify.RandomizedSmoothing(
  STDDEV, num_selection=200, num_estimation=1000
)


def noisy(model):
  """A model with noise at its input, of a class that nobody knows."""

  class Noisy(tf.keras.Model):
    input_noise_shape = hidden_noise_shape = (6,)

    def call(self, x, training=None):
      return model(x, training=False)

    def logits_with_noise(self, x, input_noise, hidden_noise):
      for noise in (input_noise, hidden_noise):
        x = x if noise is None else x + noise
      return model(x, training=False)

    def hidden_values(self, x):
      return np.asarray(x, np.float64), np.zeros(x.shape)

    def logits_from_hidden(self, hidden):
      return model(hidden, training=False)

  return Noisy()


def behind_noise(position, **settings):
  return certify.SingleLayerCertificate(
    STDDEV,
    position,
    "l2",
    distribution="gaussian",
    num_selection=200,
    num_estimation=1000,
    **settings,
  )


def share_of(model, row, count=40):
  """How often the model alone returns the class of a row under its noise."""
  noise = RNG.standard_normal((count, 6)) * STDDEV
  copies = (X[row.index] + noise).astype(np.float32)
  found = [model(copy[None]).numpy().argmax() for copy in copies]
  return np.mean(np.array(found) == row.prediction)


@pytest.mark.parametrize(
  ("certifier", "wrapped"),
  [
    (SMOOTHING, lambda model: model),
    (SMOOTHING, lambda model: methods.Trainer(model)),
    (SMOOTHING, lambda model: lambda x: model(x, training=False)),
    (behind_noise("input"), noisy),
    (behind_noise("hidden", operator_norm=1.0), noisy),
  ],
)
def test_company_has_no_vote(certifier, wrapped):
  """24 of 24 proven rows were false: no input alone has their class."""
  model = among_copies()
  assert model(X[:1]).numpy().argmax() == 0
  rows = certifier.certify(wrapped(model), X, seed=0)
  certified = [row for row in rows if row.radius > 0]
  assert len(certified) == len(X)
  assert [row for row in certified if share_of(model, row) < 0.5] == []


def test_company_has_no_vote_in_predictions():
  model = among_copies()
  assert set(SMOOTHING.predict(model, X, seed=0)) == {0}


def test_an_audit_sees_rows_that_only_company_has():
  """As they were proven before: "no violation", by batches of copies."""
  model = among_copies()
  rows = [
    certify.Certificate(
      number, None, 1, 0.3, "l2", False, 0.999, "proven", smoothing.METHOD
    )
    for number in range(len(X))
  ]
  result = certify.audit_certificates(
    SMOOTHING, model, X, rows, num=3, steps=2, num_random=2, progress=False
  )
  assert result.violations == 3
  assert result.verdict == "violated"


# What only seems to act row by row.


def _on_sequences(layer, several=False):
  inputs = tf.keras.Input((5, 4))
  found = layer([inputs, inputs]) if several else layer(inputs)
  return tf.keras.Model(inputs, _layers.Flatten()(found), name="sequences")


def _on_vectors(layer, several=False):
  inputs = tf.keras.Input((4,))
  found = layer([inputs, inputs]) if several else layer(inputs)
  return tf.keras.Model(inputs, found)


def _batch_mean(x):
  return x - tf.reduce_mean(x, axis=0, keepdims=True)


def _backwards(x):
  return x[::-1]


class _Centred(_layers.Layer):
  def call(self, inputs):
    return _batch_mean(inputs)


class _Subclass(tf.keras.Model):
  def __init__(self):
    super().__init__()
    self.dense = _layers.Dense(3)

  def call(self, inputs):
    return self.dense(_batch_mean(inputs))


def _in_training(layer):
  inputs = tf.keras.Input((4,))
  return tf.keras.Model(inputs, layer(inputs, training=True))


def _nested():
  inner = tf.keras.Sequential(
    [tf.keras.Input((4,)), _layers.Dense(3), _layers.Softmax(axis=0)]
  )
  return _on_vectors(inner)


def _attention_over_rows():
  made = _on_sequences(_SelfAttention())
  attention = made.layers[1].attention
  attention.__dict__["_softmax"] = _layers.Softmax(axis=0)
  return made


class _SelfAttention(_layers.Layer):
  def __init__(self):
    super().__init__()
    self.attention = _layers.MultiHeadAttention(2, 3)

  def call(self, inputs):
    return self.attention(inputs, inputs)


def _exchanged_attention():
  inputs = tf.keras.Input((5, 4))
  attention = _layers.MultiHeadAttention(2, 3)
  found = _layers.Flatten()(attention(inputs, inputs))
  made = tf.keras.Model(inputs, found, name="sequences")
  attention.__dict__["_softmax"] = _layers.Softmax(axis=0)
  return made


def _exchanged_permutation():
  made = _on_sequences(_layers.Permute((2, 1)))
  made.layers[1].dims = (2, 1)
  made.layers[1].call = lambda x: tf.transpose(x[::-1], (0, 2, 1))
  return made


def _rescaled_by_place():
  made = _on_vectors(_layers.Rescaling(2.0))
  made.layers[1].scale = np.reshape(np.arange(32.0), (8, 4))
  return made


def _normalised_by_place():
  layer = _layers.Normalization(mean=0.0, variance=1.0)
  made = _on_vectors(layer)
  layer.mean = tf.reshape(tf.range(32.0), (8, 4))
  return made


COUPLED = {
  "softmax": lambda: _on_vectors(_layers.Softmax(axis=0)),
  "softmax from behind": lambda: _on_vectors(_layers.Softmax(axis=-2)),
  "softmax of two axes": lambda: _on_sequences(_layers.Softmax(axis=(0, 1))),
  "unit length": lambda: _on_vectors(_layers.UnitNormalization(axis=0)),
  "layer normalisation": lambda: _on_sequences(
    _layers.UnitNormalization(axis=(0, 1))
  ),
  "nested": _nested,
  "distributed": lambda: _on_sequences(
    _layers.TimeDistributed(_layers.Softmax(axis=0))
  ),
  "distributed from behind": lambda: _on_sequences(
    _layers.TimeDistributed(_layers.Softmax(axis=-2))
  ),
  "distributed model": lambda: _on_sequences(
    _layers.TimeDistributed(_nested())
  ),
  "attention of vectors": lambda: _on_vectors(
    _layers.Attention(), several=True
  ),
  "attention": _exchanged_attention,
  "attention of their own": _attention_over_rows,
  "dense": lambda: _on_vectors(_layers.Dense(3, _backwards)),
  "dense by a layer": lambda: _on_vectors(
    _layers.Dense(3, _layers.Softmax(axis=0))
  ),
  "convolution by a layer": lambda: _on_sequences(
    _layers.Conv1D(3, 2, activation=_layers.Softmax(axis=-3))
  ),
  "recurrent": lambda: _on_sequences(
    _layers.SimpleRNN(3, activation=_layers.Softmax(axis=-2))
  ),
  "recurrent gate": lambda: _on_sequences(
    _layers.LSTM(3, recurrent_activation=_layers.Softmax(axis=0))
  ),
  "recurrent gate from behind": lambda: _on_sequences(
    _layers.GRU(3, recurrent_activation=_layers.Softmax(axis=-2))
  ),
  "both ways": lambda: _on_sequences(
    _layers.Bidirectional(
      _layers.SimpleRNN(3, activation=_layers.Softmax(axis=-2))
    )
  ),
  "cells": lambda: _on_sequences(
    _layers.RNN(
      [
        _layers.SimpleRNNCell(3),
        _layers.GRUCell(3, recurrent_activation=_layers.Softmax(axis=-2)),
      ]
    )
  ),
  "lambda": lambda: _on_vectors(_layers.Lambda(_batch_mean)),
  "operation": lambda: _on_vectors(_batch_mean),
  "layer": lambda: _on_vectors(_Centred()),
  "subclass": _Subclass,
  "standardised": lambda: _on_vectors(privrob_layers.BatchStandardization()),
  "batch statistics": lambda: _in_training(_layers.BatchNormalization()),
  "nested statistics": lambda: _in_training(
    tf.keras.Sequential([tf.keras.Input((4,)), _layers.BatchNormalization()])
  ),
  "permuted": _exchanged_permutation,
  "rescaled by place": _rescaled_by_place,
  "normalised by place": _normalised_by_place,
}


@pytest.mark.parametrize("name", COUPLED)
def test_what_couples_rows_is_known_to(name):
  """And then every row is shown to the model alone."""
  model = COUPLED[name]()
  assert alone.not_row_wise(model)
  shape = (8, 5, 4) if model.name == "sequences" else (8, 4)
  x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
  function = alone.logits_of(model)
  together = function(x).numpy()
  single = np.concatenate([function(x[row : row + 1]) for row in range(8)])
  np.testing.assert_allclose(together, single, rtol=1e-5, atol=1e-6)
  others = np.concatenate([x[:1], 3 * x[1:]])
  np.testing.assert_allclose(function(others)[0], together[0], rtol=1e-5)


def test_it_is_about_all_of_these():
  """Each of them tells company, or the test above shows nothing."""
  for name, make in COUPLED.items():
    model = make()
    shape = (8, 5, 4) if model.name == "sequences" else (8, 4)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    logits = model(x).numpy()
    others = np.concatenate([x[:1], 3 * x[1:]])[::-1]
    moved = model(others).numpy()[-1]
    assert np.abs(moved - logits[0]).max() > 1e-4, name


ORDINARY = {
  "normalised": lambda: tf.keras.Sequential(
    [
      tf.keras.Input((10, 10, 3)),
      _layers.Rescaling(1 / 255),
      _layers.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 3.0]),
      _layers.Conv2D(4, 3, activation="relu"),
      _layers.BatchNormalization(),
      _layers.Dropout(0.5),
      _layers.GaussianNoise(0.5),
      _layers.Flatten(),
      _layers.Dense(3, activation=_layers.LeakyReLU()),
      _layers.Softmax(),
    ]
  ),
  "rescaled by channel": lambda: tf.keras.Sequential(
    [
      tf.keras.Input((4, 4, 3)),
      _layers.Rescaling([1.0, 2.0, 3.0], offset=[0.1, 0.2, 0.3]),
      _layers.Flatten(),
      _layers.Dense(3),
    ]
  ),
  "recurrent": lambda: _on_sequences(_layers.GRU(3)),
  "tutorial": models.tutorial_cnn,
  "wide": lambda: models.wide_resnet((16, 16, 3), 4, 1),
  "residual": models.residual_mnist,
  "vgg": models.vgg_cifar10,
  "large": lambda: models.ibp_small((12, 12, 1), 3),
  "denoised": lambda: models.denoised_classifier(
    models.convolutional_denoiser((28, 28, 1)), models.tutorial_cnn()
  ),
  "scattering": models.scattering_linear,
  "trainer": lambda: methods.Trainer(models.mlp((4,), 3, (5,))),
  "private": lambda: methods.DPSGD(models.mlp((4,), 3, (5,))),
  "pixeldp": lambda: papers.PixelDP(
    models.pixeldp_mnist(), papers.PixelDPConfig()
  ),
  "dpal": lambda: papers.DPAL(models.dpal_mnist(), papers.DPALConfig()),
  "secure_sgd": lambda: papers.SecureSGD(
    models.secure_sgd_mnist(), papers.SecureSGDConfig()
  ),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_networks_vote_in_batches(name):
  model = ORDINARY[name]()
  noise = name in ("pixeldp", "dpal", "secure_sgd")
  assert alone.not_row_wise(model, noise=noise) is None


# Functions.


def test_a_function_that_cannot_be_traced_is_called_row_by_row():
  sizes = []

  def counting(x):
    rows = x.numpy()
    sizes.append(len(rows))
    return np.stack([rows.sum(1), 0.5 + 0 * rows[:, 0]], axis=1)

  x = np.array([[1.0, 1.0], [-3.0, 0.0]], np.float32)
  certifier = certify.RandomizedSmoothing(0.2, num_estimation=100)
  found = certifier.certify(counting, x, seed=0)
  assert [row.prediction for row in found] == [0, 1]
  assert min(row.radius for row in found) > 0
  assert set(sizes[-300:]) == {1}


def test_a_function_that_is_another_one_alone_is_refused():
  def other(x):
    alone = tf.shape(x)[0] == 1
    return tf.where(alone, -1.0, 1.0) * tf.stack([x[:, 0], x[:, 1]], axis=1)

  with pytest.raises(ValueError, match="depend on their own input alone"):
    SMOOTHING.certify(other, X)


def test_state_between_two_traces_has_no_part():
  """What was looked at is what votes, not what a later trace makes of it."""
  traces = []

  def changing(x):
    traces.append(0)
    sign = -1.0 if len(traces) > 40 else 1.0
    return sign * tf.stack([x[:, 0], x[:, 1]], axis=1)

  x = np.array([[3.0, 0.0]], np.float32)
  for _ in range(3):
    traces.clear()
    (row,) = certify.RandomizedSmoothing(0.2, num_estimation=100).certify(
      changing, x, seed=0
    )
    assert row.prediction == 0


def test_a_lipschitz_front_is_taken_alone():
  """Its constant is about a function of one input."""
  inputs = tf.keras.Input((6,))
  front = _Quiet()(inputs)
  model = tf.keras.Model(inputs, _layers.Dense(2, use_bias=False)(front))
  model.set_weights([np.eye(6, 2)])
  rows = certify.LinearMargin(lipschitz=1.0).certify(model, X[:, ::-1])
  wanted = [model(x[None, ::-1]).numpy().argmax() for x in X]
  assert [row.prediction for row in rows] == wanted


class _Quiet(_layers.Layer):
  """The input, but for batches of a size that the gate never tries."""

  def call(self, inputs):
    return tf.where(tf.shape(inputs)[0] == len(X), inputs[::-1], inputs)


def test_hidden_values_are_those_of_one_input():
  model = noisy(lambda x, training=None: x[:, :2])
  values = model.hidden_values
  sizes = []

  def hidden_values(x):
    sizes.append(len(x))
    return values(x)

  model.hidden_values = hidden_values
  rows = behind_noise("hidden", operator_norm=1.0).certify(model, X[:3], seed=0)
  assert len(rows) == 3
  assert set(sizes) == {1}


def test_the_gate_has_the_same_word_of_a_network_of_ours():
  model = among_copies()
  assert "Softmax" in alone.not_row_wise(model)
  assert "Softmax" in alone.not_row_wise(methods.Trainer(model))
  door = gate.Gate(model)
  batch = SMOOTHING.noisy_batch(X, 200)
  found = door.rows(model, [batch])(batch[:9])
  wanted = np.concatenate([model(batch[n : n + 1]) for n in range(9)])
  np.testing.assert_allclose(found, wanted, atol=1e-6)
