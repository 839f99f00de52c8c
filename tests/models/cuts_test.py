import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import layers
from tf_privrob import models
from tf_privrob import papers
from tf_privrob.models import cuts as splitting

_layers = tf.keras.layers


def _dense_after_flatten():
  return models.mlp((4, 3, 2), 3, hidden=(5, 4), activation="tanh")


def _dense_on_vectors():
  return _sequential(_layers.Dense(5, "tanh"), _layers.Dense(3))


def _conv_after_reshape():
  return tf.keras.Sequential(
    [
      _layers.Input((36,)),
      _layers.Reshape((6, 6, 1)),
      _layers.Conv2D(2, 3, activation="relu"),
      _layers.Flatten(),
      _layers.Dense(4, "sigmoid"),
      _layers.Dense(3),
    ]
  )


def _dropout_and_branches():
  """A directed graph behind the first layer, with a layer that trains."""
  inputs = tf.keras.Input((6,))
  first = _layers.Dense(5, "relu")(inputs)
  left = _layers.Dropout(0.5)(_layers.Dense(4, "relu")(first))
  joined = _layers.Concatenate()([left, first])
  hidden = layers.BoundedActivation(0.5)(_layers.Dense(4)(joined))
  return tf.keras.Model(inputs, _layers.Dense(3)(hidden))


def _composed(parts, x, training=False):
  x = x if parts.before is None else parts.before(x)
  return parts.rest(parts.first(x), training=training)


_NETWORKS = {
  "conv": lambda: models.dpal_mnist((8, 8, 1), 3),
  "batch statistics": lambda: models.dpal_mnist(
    (8, 8, 1), 3, standardization="batch"
  ),
  "dense after flatten": _dense_after_flatten,
  "dense": _dense_on_vectors,
  "conv after reshape": _conv_after_reshape,
  "graph": _dropout_and_branches,
  "dpal_cifar10": lambda: models.dpal_cifar10((8, 8, 3), 3),
}


@pytest.mark.parametrize("name", _NETWORKS)
def test_parts_compose_to_the_networks_own_logits(name):
  network = _NETWORKS[name]()
  parts = splitting.split(network)
  x = np.random.default_rng(0).normal(size=(4, *network.input_shape[1:]))
  x = tf.constant(x, tf.float32)
  np.testing.assert_allclose(_composed(parts, x), network(x), atol=1e-6)
  assert (parts.before is None) == ("after" not in name)


@pytest.mark.parametrize("name", _NETWORKS)
def test_parts_share_the_weights_and_miss_none(name):
  network = _NETWORKS[name]()
  parts = splitting.split(network)
  found = [*parts.first.weights, *parts.rest.weights]
  assert {id(v) for v in found} == {id(v) for v in network.weights}
  assert len(found) == len(network.weights)
  assert any(parts.last.kernel is v for v in parts.rest.trainable_variables)
  x = tf.ones([2, *network.input_shape[1:]])
  before = network(x).numpy()
  for variable in (parts.first.kernel, parts.last.bias):
    variable.assign_add(tf.ones_like(variable))
  after = network(x).numpy()
  assert (before != after).any()
  np.testing.assert_allclose(_composed(parts, x), after, atol=1e-5)


def test_the_rest_knows_training_from_inference():
  network = _dropout_and_branches()
  for variable in network.weights:  # no unit is dead
    variable.assign(tf.fill(variable.shape, 0.1))
  parts, x = splitting.split(network), tf.ones([64, 6])
  quiet = _composed(parts, x).numpy()
  assert (quiet == quiet[:1]).all()
  assert (_composed(parts, x, training=True).numpy() != quiet).any()


def test_splitting_twice_gives_the_same_parts():
  """A network can be wrapped by several methods, one after the other."""
  network = _dense_after_flatten()
  first, second = splitting.split(network), splitting.split(network)
  assert first.first is second.first
  assert first.last is second.last
  x = tf.ones([2, 4, 3, 2])
  np.testing.assert_array_equal(_composed(first, x), _composed(second, x))
  papers.DPAL(network)
  np.testing.assert_array_equal(_composed(first, x), network(x))


def _sequential(*chain, shape=(6,)):
  return tf.keras.Sequential([_layers.Input(shape), *chain])


def _skip():
  inputs = tf.keras.Input((6,))
  first = _layers.Dense(5)(inputs)
  joined = _layers.Concatenate()([first, inputs])
  return tf.keras.Model(
    inputs, _layers.Dense(3)(_layers.Dense(4, "tanh")(joined))
  )


def _used_twice():
  inputs, shared = tf.keras.Input((6,)), _layers.Dense(6, "relu")
  hidden = _layers.Dense(4, "tanh")(shared(shared(inputs)))
  return tf.keras.Model(inputs, _layers.Dense(3)(hidden))


class _Subclassed(tf.keras.Model):
  def __init__(self):
    super().__init__()
    self.hidden = _layers.Dense(4, "tanh")
    self.head = _layers.Dense(3)

  def call(self, inputs):
    return self.head(self.hidden(inputs))


def _built_subclass():
  network = _Subclassed()
  network(tf.zeros([1, 6]))
  return network


@pytest.mark.parametrize(
  ("network", "message"),
  [
    (lambda: models.mlp((6,), 3), "last hidden layer .* bounded by 1"),
    (
      lambda: _sequential(
        _layers.Dense(5), layers.BoundedActivation(1.5), _layers.Dense(3)
      ),
      r"bounded by 1.*BoundedActivation\(1\.0\)",
    ),
    (
      lambda: _sequential(
        _layers.Dense(5, "tanh"), _layers.Dropout(0.5), _layers.Dense(3)
      ),
      "bounded by 1.*Dropout",
    ),
    (lambda: _sequential(_layers.Dense(3)), "ends in a Dense layer of logits"),
    (
      lambda: _sequential(
        _layers.Dense(4, "tanh"), _layers.Dense(3), _layers.LeakyReLU()
      ),
      "ends in a Dense layer of logits, received LeakyReLU",
    ),
    (
      lambda: _sequential(_layers.LayerNormalization(), _layers.Dense(3)),
      "begins with a Conv2D or Dense layer.*LayerNormalization",
    ),
    (
      lambda: _sequential(_layers.ReLU(), _layers.Dense(3)),
      "begins with a Conv2D or Dense layer.*ReLU",
    ),
    (
      lambda: _sequential(_layers.Conv1D(4, 2), shape=(6, 1)),
      "begins with a Conv2D or Dense layer.*Conv1D",
    ),
    (
      lambda: _sequential(_layers.Conv2DTranspose(4, 2), shape=(6, 6, 1)),
      "begins with a Conv2D or Dense layer.*Conv2DTranspose",
    ),
    (
      lambda: _sequential(_layers.DepthwiseConv2D(2), shape=(6, 6, 1)),
      "begins with a Conv2D or Dense layer.*DepthwiseConv2D",
    ),
    (
      lambda: _sequential(_layers.Conv2D(4, 2, groups=2), shape=(6, 6, 2)),
      "without groups and dilation.*Conv2D",
    ),
    (
      lambda: _sequential(_layers.Dense(5), shape=(4, 4, 1)),
      "Flatten",
    ),
    (
      lambda: _sequential(models.mlp((6,), 4), _layers.Dense(3)),
      "begins with a Conv2D or Dense layer.*Sequential",
    ),
    (lambda: _sequential(_layers.Flatten()), "begins with a Conv2D or Dense"),
    (_skip, "only way from the input"),
    (_used_twice, "only once"),
    (_Subclassed, "functional or sequential Keras model.* _Subclassed"),
    (_built_subclass, "functional or sequential Keras model.* _Subclassed"),
    (
      lambda: tf.keras.Sequential([_layers.Dense(3)]),
      "Give a Sequential an Input layer",
    ),
  ],
)
def test_networks_that_cannot_be_split(network, message):
  with pytest.raises(ValueError, match=message):
    splitting.split(network())


@pytest.mark.parametrize(
  "name", ["tanh", "sigmoid", "softsign", "hard_sigmoid"]
)
def test_bounded_activations_are_bounded(name):
  network = _sequential(_layers.Dense(4, name), _layers.Dense(3))
  parts = splitting.split(network)
  x = 1e4 * tf.random.stateless_normal([9, 6], seed=[1, 2])
  assert np.abs(parts.first(x)).max() <= 1


def test_first_layer_alone_does_not_ask_for_a_bound():
  """The sound variant needs no bounded layer."""
  network = models.tutorial_cnn((16, 16, 1), 3)
  assert splitting.first_layer(network) is network.layers[0]
