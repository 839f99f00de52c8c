import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import bounds
from tf_privrob import layers
from tf_privrob import models
from tf_privrob import papers
from tf_privrob.bounds import program
from tf_privrob.models import cuts as splitting

_keras = tf.keras.layers


def _network(conv, dense):
  return tf.keras.Sequential(
    [
      _keras.Input((5, 6, 2)),
      conv(3, 3, 2, "same", activation="relu", bias_initializer="ones"),
      _keras.Flatten(),
      dense(4, "relu", bias_initializer="ones"),
      dense(3),
    ]
  )


def _normalized():
  """A network whose lengths are not those of its directions."""
  network = _network(layers.NormalizedConv2D, layers.NormalizedDense)
  for layer in network.layers:
    if layer.weights:
      layer.length.assign(1.5 * layer.length)
  return network


def _folded(network):
  """The same function in Keras' own layers."""
  twin = _network(_keras.Conv2D, _keras.Dense)
  for layer, source in zip(twin.layers, network.layers):
    if layer.weights:
      layer.set_weights([source.kernel.numpy(), source.bias.numpy()])
  return twin


def _images(count=3):
  return np.random.default_rng(0).random((count, 5, 6, 2)).astype("float32")


def test_kernel_by_hand():
  layer = layers.NormalizedDense(1)
  layer.build((None, 2))
  layer.direction.assign([[3.0], [4.0]])
  layer.length.assign(10.0)
  np.testing.assert_allclose(layer.kernel, [[6.0], [8.0]], rtol=1e-6)
  np.testing.assert_allclose(layer(tf.constant([[1.0, 2.0]])), [[22.0]])


def test_starts_as_the_plain_layer():
  normal = tf.keras.initializers.RandomNormal(seed=4)
  plain = _keras.Conv2D(3, 2, kernel_initializer=normal)
  layer = layers.NormalizedConv2D.from_config(plain.get_config())
  images = _images()
  np.testing.assert_allclose(layer(images), plain(images), atol=1e-6)
  assert float(layer.length) == pytest.approx(np.linalg.norm(plain.kernel))


def test_gradients_by_hand():
  # w = g v / |v| and a loss <c, w>: d/dg = <c, v> / |v|, and d/dv is
  # g / |v| times what c has across v.
  layer = layers.NormalizedDense(1, use_bias=False)
  layer.build((None, 2))
  layer.direction.assign([[3.0], [4.0]])
  layer.length.assign(10.0)
  with tf.GradientTape() as tape:
    loss = layer(tf.constant([[1.0, 0.0]]))[0, 0]
  length, direction = tape.gradient(loss, [layer.length, layer.direction])
  assert float(length) == pytest.approx(0.6)
  across = np.array([[1.0], [0.0]]) - 0.6 * np.array([[0.6], [0.8]])
  np.testing.assert_allclose(direction, 2 * across, rtol=1e-5)


def test_weights_without_a_direction_are_refused():
  with pytest.raises(ValueError, match="kernel_initializer='zeros'"):
    layers.NormalizedDense(2, kernel_initializer="zeros")(tf.ones([1, 2]))


@pytest.mark.parametrize(
  "domain",
  [bounds.Interval(), bounds.HybridZonotope(), bounds.Dual()],
  ids=lambda domain: domain.name,
)
def test_bounds_are_those_of_the_folded_network(domain):
  network, y = _normalized(), np.array([0, 1, 2])
  found = domain.worst_case_logits(network, _images(), y, 0.1)
  folded = domain.worst_case_logits(_folded(network), _images(), y, 0.1)
  np.testing.assert_allclose(found, folded, rtol=1e-4, atol=1e-5)


def test_rounding_counts_how_the_kernel_is_made():
  network = _normalized()
  ours, plain = program.read(network), program.read(_folded(network))
  more = [
    ours.operation.terms - plain.operation.terms
    for ours, plain in zip(ours.steps, plain.steps)
    if ours.is_affine
  ]
  assert more == [4, 0, 4, 4]  # the second is Flatten


def test_a_subclass_is_not_taken_for_a_dense_layer():
  class Doubled(layers.NormalizedDense):
    def call(self, inputs):
      return 2 * super().call(inputs)

  network = tf.keras.Sequential([_keras.Input((4,)), Doubled(3)])
  with pytest.raises(ValueError, match="of type Doubled"):
    program.read(network)


@pytest.mark.parametrize(
  "refuse",
  [
    lambda network: papers.Halfspaces(network),
    lambda network: splitting.first_layer(network),
    lambda network: papers.FunctionalMechanismAutoencoder(
      network.layers[-1], 1.0, 1.0
    ),
  ],
  ids=["halfspaces", "dpal", "autoencoder"],
)
def test_methods_that_write_a_kernel_refuse_a_normalized_layer(refuse):
  layer = layers.NormalizedDense(3, use_bias=False)
  network = tf.keras.Sequential([_keras.Input((4,)), layer])
  with pytest.raises(ValueError, match="Dense"):
    refuse(network)


def test_dpal_refuses_normalized_logits():
  network = models.mlp((4,), 3, hidden=(5,), activation="tanh")
  assert splitting.split(network).last is network.layers[-1]
  logits = layers.NormalizedDense(3)(network.layers[-1].input)
  with pytest.raises(ValueError, match="NormalizedDense"):
    splitting.split(tf.keras.Model(network.input, logits))


def test_pixeldp_refuses_a_normalized_layer_before_its_noise():
  network = tf.keras.Sequential(
    [_keras.Input((4,)), layers.NormalizedDense(5), _keras.Dense(3)]
  )
  with pytest.raises(ValueError, match="NormalizedDense"):
    papers.PixelDP(network)
