"""Classifiers that are trained in public and frozen."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import models

_layers = tf.keras.layers


def _weight_layers(network):
  kinds = (_layers.Conv2D, _layers.Dense)
  return [layer for layer in network.layers if isinstance(layer, kinds)]


def _images(shape, count=5, seed=0):
  return np.random.default_rng(seed).random((count, *shape), np.float32)


def test_residual_mnist_has_twelve_weight_layers():
  network = models.by_name("residual_mnist", (28, 28, 1), 10)
  layers = _weight_layers(network)
  assert len(layers) == 12
  assert [layer.output_shape[1:3] for layer in layers[:-1]] == (
    [(28, 28)] + 4 * [(14, 14)] + 6 * [(7, 7)]
  )
  assert network.count_params() == 237_914
  assert network.output_shape == (None, 10)
  # Every block but the convolutions inside it is an addition.
  assert sum(isinstance(layer, _layers.Add) for layer in network.layers) == 5


def test_a_block_whose_convolutions_are_silent_passes_its_input_on():
  """Residual: without them, logits are a linear map of pooled features."""
  network = models.residual_mnist((8, 8, 1), 3, width=2)
  for layer in _weight_layers(network)[1:-1]:
    layer.set_weights([np.zeros_like(w) for w in layer.get_weights()])
  stem = tf.keras.Model(network.input, network.layers[3].output)
  x = _images((8, 8, 1))
  pooled = stem(x).numpy().mean((1, 2))  # averages of averages
  kernel, bias = network.layers[-1].get_weights()
  expected = np.concatenate(4 * [pooled], 1) @ kernel + bias
  np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-6)


def test_vgg_is_vgg16_with_a_new_top():
  network = models.by_name("vgg_cifar10", (32, 32, 3), 10)
  layers = _weight_layers(network)
  assert [layer.kernel.shape[-1] for layer in layers] == [
    *(2 * [64] + 2 * [128] + 3 * [256] + 6 * [512]),
    *(512, 10),
  ]
  convolutions = sum(layer.count_params() for layer in layers[:13])
  assert convolutions == 14_714_688  # VGG16 without its top
  assert network.output_shape == (None, 10)


def test_vgg_width_normalisation_and_top():
  network = models.vgg_cifar10(width=2, top=(7, 5), batch_normalization=True)
  widths = [layer.kernel.shape[-1] for layer in _weight_layers(network)]
  assert widths == [2, 2, 4, 4, 8, 8, 8, *(6 * [16]), 7, 5, 10]
  kinds = [type(layer) for layer in network.layers]
  assert kinds.count(_layers.BatchNormalization) == 13


def test_vgg_starts_from_a_file(tmp_path):
  models.vgg_cifar10(width=2, seed=5).save(tmp_path / "bottom.keras")
  bottom = tf.keras.models.load_model(tmp_path / "bottom.keras", compile=False)
  network = models.vgg_cifar10(num_classes=4, width=2, bottom=bottom, seed=1)
  pairs = list(zip(_weight_layers(bottom), _weight_layers(network)))
  for given, own in pairs[:13]:
    for theirs, ours in zip(given.get_weights(), own.get_weights()):
      np.testing.assert_array_equal(theirs, ours)
  assert not np.array_equal(*(layer.kernel for layer in pairs[13]))


@pytest.mark.parametrize("name", ["residual_mnist", "vgg_cifar10"])
def test_file_round_trip_and_seeds(name, tmp_path):
  build = getattr(models, name)
  network = build((16, 16, 3), 4, width=2, seed=3)
  network.save(tmp_path / "x.keras")
  loaded = models.load_classifier(tmp_path / "x.keras")
  x = _images((16, 16, 3))
  np.testing.assert_array_equal(loaded(x), network(x))
  np.testing.assert_array_equal(
    build((16, 16, 3), 4, width=2, seed=3)(x), loaded(x)
  )
  other = build((16, 16, 3), 4, width=2, seed=4)
  assert np.abs(other(x) - loaded(x)).max() > 1e-4


@pytest.mark.parametrize(
  ("build", "message"),
  [
    (lambda: models.residual_mnist((28, 28)), r"input_shape=\(28, 28\)"),
    (lambda: models.residual_mnist((4, 4, 1)), "at least 8 x 8"),
    (lambda: models.residual_mnist(width=0), "width=0 to be a whole number"),
    (lambda: models.vgg_cifar10((8, 8, 3)), "at least 16 x 16"),
    (lambda: models.vgg_cifar10(width=2, top=(4, 0)), r"top\[1\]=0"),
    (
      lambda: models.vgg_cifar10(width=2, bottom=models.vgg_cifar10(width=3)),
      r"\[3, 3, 3, 2\], \[2\]\] for block1_conv1, received"
      r" \[\[3, 3, 3, 3\], \[3\]\] in 'block1_conv1'\. Pass the width",
    ),
    (
      lambda: models.vgg_cifar10(width=2, bottom=models.residual_mnist()),
      "bottom of 13 convolutions.*received 11 in 'residual_mnist'",
    ),
  ],
)
def test_bad_classifiers_are_refused(build, message):
  with pytest.raises(ValueError, match=message):
    build()


def test_batch_normalisation_stays_frozen_behind_a_denoiser():
  """Neither weights nor moving averages move while the denoiser is trained."""
  shape = (8, 8, 1)
  head = models.residual_mnist(shape, 3, width=2)
  head(_images(shape, 50, seed=1), training=True)  # averages of their own
  before = head.get_weights()
  denoiser = models.smooth_denoiser(shape, filters=4)
  start = denoiser.get_weights()
  joined = models.denoised_classifier(denoiser, head)
  x, y = _images(shape, 32), np.arange(32) % 3
  np.testing.assert_allclose(joined(x, training=True), joined(x), rtol=1e-6)
  joined.compile(
    "sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  )
  joined.fit(x, y, epochs=2, batch_size=8, verbose=0)
  copies = [w for w in joined.weights if w.name.startswith("classifier_")]
  assert len(copies) == len(before)
  for old, own, copy in zip(before, head.get_weights(), copies):
    np.testing.assert_array_equal(old, own)
    np.testing.assert_array_equal(old, copy)
  for old, new in zip(start, denoiser.get_weights()):
    assert np.abs(old - new).max() > 0
