import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import models

_layers = tf.keras.layers


@pytest.mark.parametrize(
  ("name", "shape", "weights"),
  [
    ("scattering_linear", (28, 28, 1), 8_340),
    ("tutorial_cnn", (28, 28, 1), 26_010),
    ("tutorial_cnn_tanh", (28, 28, 1), 26_010),
    ("dpal_mnist", (28, 28, 1), 317_066),  # facts 1.2
    ("dpal_cifar10", (28, 28, 3), 5_268_746),  # facts 1.3
    # Standardisation has no weights; moving statistics are two a channel.
    ("dpal_mnist_released", (28, 28, 1), 317_066),
    ("dpal_mnist_tanh", (28, 28, 1), 317_066),
    ("dpal_mnist_bn", (28, 28, 1), 317_066 + 2 * (32 + 256)),
    ("dpal_cifar10_released", (28, 28, 3), 5_268_746),
    # Patches of 9 pixels in place of 16.
    ("dpal_cifar10_3x3", (28, 28, 3), 5_268_746 - 7 * 3 * 128),
    ("dpal_cifar10_3x3_bn", (28, 28, 3), 5_266_058 + 2 * 896),
    # 28 * 32 + 801 * 32 + 1601 * 64 + 3137 * 256 + 257 * 10
    ("dpal_cifar10_narrow", (28, 28, 3), 934_634),
    ("dpal_cifar10_narrow_bn", (28, 28, 3), 934_634 + 2 * 416),
    ("dpal_cifar10_bn", (28, 28, 3), 5_268_746 + 2 * (128 + 256 + 256 + 256)),
    # 5*5*32 + 5*5*32*64 + 3136*1024 + 1024 + 1024*10 + 10.
    ("pixeldp_mnist", (28, 28, 1), 3_274_538),
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
  large = ("dpal_cifar10", "fashion_mnist", "ibp_large", "vgg", "wide_resnet")
  for name in (n for n in models.NAMES if not n.startswith(large)):
    network = models.by_name(name, (28, 28, 1), 10)
    network.save(tmp_path / "x.keras")
    loaded = tf.keras.models.load_model(tmp_path / "x.keras")
    x = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
    np.testing.assert_array_equal(loaded(x), network(x))


_DPAL = [
  "dpal_mnist",
  "dpal_mnist_released",
  "dpal_mnist_bn",
  "dpal_mnist_tanh",
]


@pytest.mark.parametrize("name", _DPAL)
def test_dpal_networks_end_in_a_bounded_layer(name):
  """What the sensitivity of the labels rests on, for every weight."""
  network = models.by_name(name, (8, 8, 1), 4)
  network.set_weights([30 * w for w in network.get_weights()])
  inside = tf.keras.Model(network.input, network.layers[-2].output)
  x = np.random.default_rng(0).uniform(-1, 1, (9, 8, 8, 1))
  hidden = inside(x).numpy()
  assert hidden.shape == (9, 256)
  assert np.abs(hidden).max() == 1
  assert isinstance(network.layers[-1], _layers.Dense)


@pytest.mark.parametrize("name", _DPAL)
def test_only_the_released_form_ties_the_inputs_of_a_batch(name):
  network = models.by_name(name, (8, 8, 1), 4)
  x = np.random.default_rng(0).uniform(-1, 1, (5, 8, 8, 1)).astype("float32")
  gap = np.abs(network(x[:1]).numpy() - network(x).numpy()[:1]).max()
  assert gap < 1e-5 if name != "dpal_mnist_released" else gap > 1e-3


def test_moving_statistics_are_those_of_the_last_batch():
  network = models.by_name("dpal_mnist_bn", (8, 8, 1), 4)
  rng = np.random.default_rng(0)
  x = rng.uniform(-1, 1, (50, 8, 8, 1)).astype("float32")
  network(rng.uniform(0, 1, (50, 8, 8, 1)), training=True)
  before = network(x).numpy()
  trained = network(x, training=True).numpy()
  assert np.abs(before - trained).max() > 0.1
  # A moving variance is divided by n - 1, that of a batch by n.
  np.testing.assert_allclose(network(x), trained, atol=5e-3)
  assert len(network.trainable_variables) == 8  # neither centre nor scale


def test_released_and_plain_network_start_with_the_same_weights():
  plain, released = (models.by_name(n, (8, 8, 1), 4, seed=3) for n in _DPAL[:2])
  for a, b in zip(plain.get_weights(), released.get_weights()):
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
  ("build", "message"),
  [
    (lambda: models.dpal_mnist((28, 28)), "network='mlp'"),
    (lambda: models.dpal_cifar10((4, 4, 3)), "at least 8 x 8"),
    (lambda: models.dpal_mnist(standardization="bach"), "Did you mean 'batch'"),
  ],
)
def test_bad_dpal_networks_are_refused(build, message):
  with pytest.raises(ValueError, match=message):
    build()


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
  with pytest.raises(ValueError, match="softmax or sigmoid inside a nested"):
    models.as_logits(outer)


def test_unknown_name_offers_the_nearest():
  with pytest.raises(ValueError, match="Did you mean 'tutorial_cnn'"):
    models.by_name("tutorial_cn", (28, 28, 1), 10)


def test_small_images_are_refused_with_the_remedy():
  with pytest.raises(ValueError, match="network='mlp'"):
    models.by_name("tutorial_cnn", (8, 8, 1), 10)
