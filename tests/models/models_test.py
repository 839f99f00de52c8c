import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import models

_layers = tf.keras.layers


@pytest.mark.parametrize(
  ("name", "shape", "weights"),
  [
    ("tutorial_cnn", (28, 28, 1), 26_010),
    ("tutorial_cnn_tanh", (28, 28, 1), 26_010),
    ("dpal_mnist", (28, 28, 1), 317_066),  # facts 1.2
    ("dpal_cifar10", (28, 28, 3), 5_268_746),  # facts 1.3
    ("mlp", (8, 8, 1), 64 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10),
  ],
)
def test_sizes_of_the_published_networks(name, shape, weights):
  network = models.by_name(name, shape, 10)
  assert network.count_params() == weights
  assert network.output_shape == (None, 10)
  assert not models.returns_probabilities(network)


def test_same_seed_same_weights():
  def weights(seed):
    return models.by_name("tutorial_cnn", (28, 28, 1), 10, seed).get_weights()

  for a, b in zip(weights(1), weights(1)):
    np.testing.assert_array_equal(a, b)
  assert not np.array_equal(weights(1)[0], weights(2)[0])


def test_layers_of_one_shape_start_differently():
  network = models.mlp((5,), 3, hidden=(5, 5))
  first, second = network.layers[1:3]
  assert not np.array_equal(first.kernel, second.kernel)


def test_every_network_is_saved_and_loaded(tmp_path):
  for name in set(models.NAMES) - {"dpal_cifar10"}:
    network = models.by_name(name, (28, 28, 1), 10)
    network.save(tmp_path / "x.keras")
    loaded = tf.keras.models.load_model(tmp_path / "x.keras")
    x = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
    np.testing.assert_array_equal(loaded(x), network(x))


@pytest.mark.parametrize("own_layer", [True, False])
def test_as_logits_takes_the_softmax_off(own_layer):
  ending = (
    [_layers.Dense(3), _layers.Softmax()]
    if own_layer
    else [_layers.Dense(3, activation="softmax")]
  )
  model = tf.keras.Sequential([_layers.Input((4,)), _layers.Dense(5), *ending])
  logits = models.as_logits(model)
  x = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
  assert models.returns_probabilities(model)
  assert not models.returns_probabilities(logits)
  np.testing.assert_allclose(
    tf.nn.softmax(logits(x)), model(x), rtol=1e-5, atol=1e-7
  )


def test_as_logits_of_logits_is_the_model_itself():
  model = models.mlp((4,), 3)
  assert models.as_logits(model) is model


def test_softmax_inside_a_nested_model_is_refused():
  inner = tf.keras.Sequential([_layers.Input((4,)), _layers.Softmax()])
  outer = tf.keras.Sequential([_layers.Input((4,)), _layers.Dense(4), inner])
  with pytest.raises(ValueError, match="without the softmax"):
    models.as_logits(outer)


def test_unknown_name_offers_the_nearest():
  with pytest.raises(ValueError, match="Did you mean 'tutorial_cnn'"):
    models.by_name("tutorial_cn", (28, 28, 1), 10)


def test_small_images_are_refused_with_the_remedy():
  with pytest.raises(ValueError, match="network='mlp'"):
    models.by_name("tutorial_cnn", (8, 8, 1), 10)
