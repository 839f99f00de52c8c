"""Cutting a network for noise: nothing is lost, nothing slips around it."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import layers
from tf_privrob import models
from tf_privrob.methods import noise_place

_keras = tf.keras.layers
X = tf.random.stateless_normal([3, 12, 12, 1], [1, 2])


def fused():
  return tf.keras.Sequential(
    [
      _keras.Input((12, 12, 1)),
      _keras.Conv2D(3, 3, 2, activation="tanh"),
      _keras.MaxPooling2D(2),
      _keras.Conv2D(4, 2, activation="relu"),
      _keras.Flatten(),
      _keras.Dense(5),
    ]
  )


def separate():
  inputs = tf.keras.Input((12, 12, 1))
  hidden = layers.BoundedActivation(0.3)(_keras.Conv2D(3, 3, 2)(inputs))
  hidden = _keras.Flatten()(hidden)
  joined = _keras.Concatenate()(
    [_keras.Dense(4)(hidden), _keras.Dense(3)(hidden)]
  )
  return tf.keras.Model(inputs, _keras.Dense(5)(joined))


@pytest.mark.parametrize("position", noise_place.POSITIONS)
@pytest.mark.parametrize(
  ("network", "noise_after"),
  [(fused, 0), (fused, 1), (fused, 2), (separate, 0), (separate, 1)],
)
def test_the_pieces_make_the_network(network, noise_after, position):
  network = network()
  place = noise_place.find(network, noise_after, position)
  hidden = place.before(X)
  assert hidden.shape[1:] == place.noise_shape
  np.testing.assert_array_equal(place.after(hidden), network(X))
  # The weights are the network's own.
  network.set_weights([weight + 0.1 for weight in network.get_weights()])
  np.testing.assert_array_equal(place.after(place.before(X)), network(X))
  assert network.layers[-1].activation is tf.keras.activations.linear


def test_noise_at_the_input_is_the_network_itself():
  network = fused()
  place = noise_place.find(network, 0)
  assert (place.layers, place.rest) == ((), network)
  assert place.noise_shape == (12, 12, 1)
  assert place.norms().bound("linf", "l2") == pytest.approx(12)


@pytest.mark.parametrize(
  ("network", "position", "largest"),
  [
    (fused, "before_activation", None),
    (fused, "after_activation", 1.0),
    (separate, "before_activation", None),
    (separate, "after_activation", 0.3),
  ],
)
def test_position_by_hand(network, position, largest):
  """Before the activation it is the convolution, after it it is bounded."""
  network = network()
  conv = next(la for la in network.layers if isinstance(la, _keras.Conv2D))
  hidden = noise_place.find(network, 1, position).before(100 * X).numpy()
  if position == "before_activation" and conv.activation is not None:
    front = noise_place.find(network, 1, position).front
    assert (front is None) == (conv.activation is tf.keras.activations.tanh)
  linear = tf.nn.conv2d(100 * X, conv.kernel, 2, "VALID") + conv.bias
  if largest is None:
    np.testing.assert_allclose(hidden, linear, rtol=1e-3, atol=1e-3)
    assert np.abs(hidden).max() > 10
  else:
    assert np.abs(hidden).max() == pytest.approx(largest, rel=1e-6)


def test_own_activation_is_put_back_even_after_an_error():
  network = fused()
  place = noise_place.find(network, 1)
  with pytest.raises(Exception, match="incompatible"):
    place.before(tf.zeros([1, 5]))
  assert network.layers[0].activation is tf.keras.activations.tanh


def test_norms_are_those_of_the_trained_weights():
  network = fused()
  place = noise_place.find(network, 1)
  before = place.norms().bound("l2", "l2")
  network.layers[0].kernel.assign(2 * network.layers[0].kernel)
  assert place.norms().bound("l2", "l2") == pytest.approx(2 * before, rel=1e-6)
  stddev = np.full(place.noise_shape, 0.5)
  white = place.norms(stddev).bound("l2", "l2")
  assert white == pytest.approx(4 * before, rel=1e-6)


def test_dropout_before_the_noise_acts_in_training_only():
  network = tf.keras.Sequential(
    [
      _keras.Input((4,)),
      _keras.Dropout(0.5),
      _keras.Dense(6),
      _keras.Dense(2),
    ]
  )
  place = noise_place.find(network, 1)
  x = tf.ones([2, 4])
  np.testing.assert_array_equal(place.before(x), place.before(x))
  assert np.any(place.before(x, training=True) != place.before(x))


def _skip():
  inputs = tf.keras.Input((6,))
  first = _keras.Dense(5)(inputs)
  return tf.keras.Model(
    inputs, _keras.Dense(3)(_keras.Concatenate()([first, inputs]))
  )


def _twice():
  inputs, shared = tf.keras.Input((6,)), _keras.Dense(6)
  return tf.keras.Model(inputs, _keras.Dense(3)(shared(shared(inputs))))


def _used_elsewhere():
  """In the other network there is nothing between the two layers."""
  first, second = _keras.Dense(6), _keras.Dense(6)
  tf.keras.Sequential([_keras.Input((6,)), first, second])
  return tf.keras.Sequential(
    [
      _keras.Input((6,)),
      first,
      _keras.Lambda(lambda x: 100 * x),
      second,
      _keras.Dense(3),
    ]
  )


def _normalised():
  return tf.keras.Sequential(
    [
      _keras.Input((6,)),
      _keras.Dense(4),
      _keras.LayerNormalization(),
      _keras.Dense(3),
    ]
  )


@pytest.mark.parametrize(
  ("network", "arguments", "message"),
  [
    (fused, (3,), r"noise_after=3 .* in \[0, 2\].*3 layers with weights"),
    (fused, (-1,), "noise_after=-1"),
    (fused, (1.5,), "noise_after=1.5"),
    (fused, (1, "before"), "Did you mean 'before_activation'"),
    (_normalised, (2,), "LayerNormalization.*sensitivity is unknown"),
    (separate, (2,), "only way|branches|chain"),
    (separate, (3,), "joins 2 of them|branches"),
    (_skip, (1,), "only way"),
    (_twice, (1,), "only once"),
    (_used_elsewhere, (2,), "used only once, received 2 calls.*clone_model"),
    (
      lambda: tf.keras.Sequential([_keras.Dense(3)]),
      (0,),
      "Give a Sequential an Input layer",
    ),
  ],
)
def test_places_that_are_refused(network, arguments, message):
  with pytest.raises(ValueError, match=message):
    noise_place.find(network(), *arguments)


@pytest.mark.parametrize("name", ["dpal_mnist", "tutorial_cnn", "mlp"])
def test_the_house_networks_have_a_place(name):
  network = models.by_name(name, (28, 28, 1), 10)
  place = noise_place.find(network, 1)
  assert place.norms().bound("l2", "l2") > 0
