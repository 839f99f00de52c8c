"""Values before a noise layer, in float64, against exact fractions."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import certify
from tf_privrob import layers as privrob_layers

_keras = tf.keras.layers
RNG = np.random.RandomState(0)
X = (RNG.randn(3, 6, 6, 2) * 10.0 ** RNG.randint(-8, 8, [3, 6, 6, 2])).astype(
  "f"
)


def built(*layers, shape=(6, 6, 2)):
  model = tf.keras.Sequential([_keras.InputLayer(shape), *layers])
  model.set_weights([RNG.randn(*w.shape) for w in model.weights])
  return model


def exact_dense(x, layer):
  kernel, bias = (weight.numpy() for weight in layer.weights)
  return [
    [
      sum(Fraction(float(v)) * Fraction(float(w)) for v, w in zip(row, column))
      + Fraction(float(b))
      for column, b in zip(kernel.T, bias)
    ]
    for row in x.tolist()
  ]


def test_sums_that_cancel_are_within_their_bound():
  model = built(_keras.Flatten(), _keras.Dense(5))
  value, error = certify.prefix_values(model.layers, X)
  wanted = exact_dense(X.reshape(3, -1), model.layers[-1])
  off = [
    [abs(Fraction(v) - w) for v, w in zip(row, wants)]
    for row, wants in zip(value.tolist(), wanted)
  ]
  assert (np.array(off, float) <= error).all()
  assert np.array(off, float).max() > 0
  assert (error < 1e-11 * np.abs(X).max()).all()


@pytest.mark.parametrize(
  "layers",
  [
    [_keras.Conv2D(3, 3, strides=2, padding="same", activation="relu")],
    [_keras.ZeroPadding2D(1), _keras.Conv2D(3, 3), _keras.AveragePooling2D(2)],
    [_keras.Conv2D(3, 3), _keras.LeakyReLU(), _keras.MaxPooling2D(2)],
    [_keras.Conv2D(4, 3, activation="tanh"), _keras.GlobalAveragePooling2D()],
    [_keras.Permute((2, 1, 3)), _keras.Dropout(0.5), _keras.Reshape((72,))],
    [_keras.Flatten(), _keras.Dense(4, "softplus"), _keras.Dense(3, "sigmoid")],
    [_keras.Flatten(), _keras.Dense(4), privrob_layers.BoundedActivation()],
    [_keras.Conv2D(2, 3, activation="elu"), _keras.GlobalMaxPooling2D()],
  ],
  ids=lambda layers: "-".join(type(layer).__name__ for layer in layers),
)
def test_chain_is_what_the_model_computes(layers):
  model = built(*layers)
  x = RNG.randn(3, 6, 6, 2).astype(np.float32)
  value, error = certify.prefix_values(model.layers, x)
  assert value.dtype == error.dtype == np.float64
  np.testing.assert_allclose(value, model(x), rtol=1e-4, atol=1e-4)
  assert (error >= 0).all()
  assert error.max() < 1e-11


def test_last_activation_can_be_left_out():
  model = built(_keras.Flatten(), _keras.Dense(4, "relu"))
  value, _ = certify.prefix_values(model.layers, X[:, ::-1], False)
  assert value.min() < 0
  whole, _ = certify.prefix_values(model.layers, X[:, ::-1])
  np.testing.assert_array_equal(whole, np.maximum(value, 0))


def test_no_layers_are_the_identity():
  value, error = certify.prefix_values([], X)
  np.testing.assert_array_equal(value, X)
  assert not error.any()


def test_unknown_layers_are_refused():
  model = built(_keras.LayerNormalization())
  with pytest.raises(ValueError, match="received LayerNormalization"):
    certify.prefix_values(model.layers, X)


@pytest.mark.parametrize(
  ("activation", "exact"),
  [
    ("elu", lambda z: mpmath.expm1(z) if z < 0 else z),
    ("hard_sigmoid", lambda z: min(max(z * mpmath.mpf(2) / 10 + 0.5, 0), 1)),
    ("tanh", mpmath.tanh),
    ("softplus", lambda z: mpmath.log1p(mpmath.exp(z))),
    ("sigmoid", lambda z: 1 / (1 + mpmath.exp(-z))),
  ],
)
def test_small_values_of_activations_are_within_their_bound(activation, exact):
  """TensorFlow's elu is a difference: 2.5e-17 became 0."""
  x = np.float32(10.0) ** -np.arange(0, 30, dtype=np.float32)
  x = np.concatenate([x, -x])[:, np.newaxis]
  layer = _keras.Activation(activation)
  value, error = certify.prefix_values([layer], x)
  with mpmath.workdps(60):
    for row, point in enumerate(x[:, 0]):
      wanted = exact(mpmath.mpf(float(point)))
      off = abs(mpmath.mpf(float(value[row, 0])) - wanted)
      assert off <= error[row, 0]
