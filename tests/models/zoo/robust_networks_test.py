"""Shapes, sizes and forms of the networks of robust training."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import bounds
from tf_privrob import models

_layers = tf.keras.layers


def _kinds(network, kind):
  return [layer for layer in network.layers if isinstance(layer, kind)]


def _images(shape, count=3):
  return np.random.default_rng(0).random((count, *shape), np.float32)


@pytest.mark.parametrize("scale", [1, 8])
def test_yale_has_four_blocks_of_two(scale):
  network = models.yale_cnn(scale=scale)
  convolutions = _kinds(network, _layers.Conv2D)
  expected = [scale * width for width in (1, 1, 2, 2, 4, 4, 8, 8)]
  assert [layer.filters for layer in convolutions] == expected
  assert [layer.strides[0] for layer in convolutions] == [1, 2] * 4
  assert not any(layer.use_bias for layer in convolutions)
  dense = _kinds(network, _layers.Dense)
  assert [layer.units for layer in dense] == [200, 38]
  assert dense[0].kernel.shape[0] == 8 * scale * 12 * 11
  activations = [layer.activation.__name__ for layer in convolutions + dense]
  assert activations == ["relu"] * 9 + ["linear"]


def test_fashion_mnist_has_two_blocks_of_three():
  network = models.fashion_mnist_cnn(scale=4)
  convolutions = _kinds(network, _layers.Conv2D)
  assert [layer.filters for layer in convolutions] == [4, 4, 4, 8, 8, 8]
  assert [layer.strides[0] for layer in convolutions] == [1, 1, 2] * 2
  assert _kinds(network, _layers.Dense)[0].kernel.shape == (8 * 7 * 7, 200)


def test_default_scales_are_the_papers():
  """Counted from the shapes of Table 13; TF convolutions have no bias."""
  widths = [1, 8, 8, 16, 16, 32, 32, 64, 64]
  kernels = sum(9 * a * b for a, b in zip(widths, widths[1:]))
  dense = 64 * 12 * 11 * 200 + 200 + 200 * 38 + 38
  assert models.by_name("yale_cnn", (192, 168, 1), 38).count_params() == (
    kernels + dense
  )
  convolutions = _kinds(models.fashion_mnist_cnn(), _layers.Conv2D)
  assert [layer.filters for layer in convolutions] == [256] * 3 + [512] * 3


def test_settings_of_a_network_by_name():
  few = models.by_name("yale_cnn_ibp", (16, 16, 1), 5, scale=2)
  same = models.yale_cnn((16, 16, 1), 5, scale=2, style="ibp")
  assert few.count_params() == same.count_params()
  published = models.by_name("yale_cnn_ibp", (16, 16, 1), 5)
  assert few.count_params() < published.count_params()


def test_form_for_trades_starts_with_equal_logits():
  network = models.yale_cnn((16, 16, 1), 5, 2, "trades")
  assert all(la.use_bias for la in _kinds(network, _layers.Conv2D))
  np.testing.assert_array_equal(network(_images((16, 16, 1))), np.zeros((3, 5)))


def test_form_for_trades_starts_as_kaiming_normal_with_fan_in():
  """PyTorch's: N(0, 2 / fan_in), 0.471 at first; its own layer at last but one.

  With fan-out the first kernel had 0.167, and features were 8 times smaller.
  """
  network = models.yale_cnn((64, 64, 1), 38, 8, "trades", seed=0)
  for layer in _kinds(network, _layers.Conv2D):
    kernel, bias = layer.get_weights()
    expected = np.sqrt(2 / np.prod(kernel.shape[:-1]))
    room = 4 / np.sqrt(2 * kernel.size)
    assert kernel.std() == pytest.approx(expected, rel=room)
    assert np.abs(kernel).max() > 2.3 * expected  # not truncated at 2.27
    assert not bias.any()
  first = _kinds(network, _layers.Conv2D)[0].kernel.numpy()
  assert first.std() == pytest.approx(0.471, rel=0.15)
  hidden, last = _kinds(network, _layers.Dense)
  limit = 1 / np.sqrt(hidden.kernel.shape[0])
  for values in hidden.get_weights():
    assert 0.95 * limit < np.abs(values).max() <= limit
  assert not any(values.any() for values in last.get_weights())


@pytest.mark.parametrize(("style", "factor"), [("plain", 3), ("dual", 1)])
def test_dense_layers_start_as_those_of_the_code(style, factor):
  """TensorFlow's unit scaling, sqrt(3 / fan_in), and PyTorch's linear layer."""
  network = models.yale_cnn((16, 16, 1), 38, 8, style, seed=0)
  for layer in _kinds(network, _layers.Dense):
    kernel, bias = layer.get_weights()
    limit = np.sqrt(factor / kernel.shape[0])
    assert 0.98 * limit < np.abs(kernel).max() <= limit * (1 + 1e-6)
    assert bias.any() == (style == "dual")
    assert np.abs(bias).max() <= limit


def test_form_for_ibp_is_orthogonal():
  network = models.yale_cnn((16, 16, 1), 5, 2, "ibp")
  for layer in network.layers:
    if layer.weights:
      kernel, bias = layer.get_weights()
      flat = kernel.reshape(-1, kernel.shape[-1])
      singular = np.linalg.svd(flat, compute_uv=False)
      np.testing.assert_allclose(singular, 1, atol=1e-4)
      assert not bias.any()


def test_form_for_diffai_is_uniform_and_has_smaller_boxes():
  network = models.by_name("yale_cnn_diffai", (16, 16, 1), 5, 0)
  for layer in network.layers:
    if layer.weights:
      kernel, bias = layer.kernel.numpy(), layer.bias.numpy()
      limit = (1 + 1e-6) / np.sqrt(np.prod(kernel.shape[:-1]))
      assert 0.9 * limit < np.abs(kernel).max() <= limit
      assert 0.5 * limit < np.abs(bias).max() <= limit
      assert len(layer.trainable_variables) == 3  # direction, length, bias
  x, y = _images((16, 16, 1)), np.array([0, 1, 2])
  plain = models.by_name("yale_cnn", (16, 16, 1), 5, 0)
  widths = [
    np.max(bounds.Interval(elide=False).worst_case_logits(net, x, y, 0.03))
    for net in (network, plain)
  ]
  assert 100 * widths[0] < widths[1]


def test_form_for_the_dual_is_square_and_halves_by_four():
  network = models.by_name("yale_cnn_dual", (12, 8, 1), 5)
  padding = network.layers[0]
  assert padding.output_shape[1:3] == (12, 12)
  x = _images((12, 8, 1))
  np.testing.assert_array_equal(padding(x)[:, :, 2:-2], x)
  sizes = [la.kernel_size[0] for la in _kinds(network, _layers.Conv2D)]
  assert sizes == [3, 4] * 4
  assert not _kinds(models.yale_cnn((8, 8, 1), 5, 1, "dual"), type(padding))


def test_convolutions_start_normal_by_fan_out():
  network = models.fashion_mnist_cnn((8, 8, 1), 5, scale=64, seed=2)
  kernel = _kinds(network, _layers.Conv2D)[1].kernel.numpy()
  assert kernel.std() == pytest.approx(np.sqrt(2 / (9 * 64)), rel=0.02)
  again = models.fashion_mnist_cnn((8, 8, 1), 5, scale=64, seed=2)
  np.testing.assert_array_equal(kernel, _kinds(again, _layers.Conv2D)[1].kernel)


@pytest.mark.parametrize("shortcut", ["padding", "convolution"])
def test_wide_resnet_has_three_groups(shortcut):
  network = models.wide_resnet((8, 8, 3), scale=1, units=2, shortcut=shortcut)
  convolutions = _kinds(network, _layers.Conv2D)
  main = [layer for layer in convolutions if layer.kernel_size == (3, 3)]
  widths = [layer.filters for layer in main]
  assert widths == [16] * 5 + [32] * 4 + [64] * 4
  assert sum(layer.strides == (2, 2) for layer in main) == 2
  skips = len(convolutions) - len(main)
  assert skips == (2 if shortcut == "convolution" else 0)
  assert len(_kinds(network, _layers.Add)) == 6
  assert not any(layer.use_bias for layer in convolutions)


def test_wide_resnet_of_the_paper_by_its_units():
  """Five units a group, 160, 320 and 640 channels: counted, not built."""
  network = models.wide_resnet((8, 8, 3), scale=2)
  assert len(_kinds(network, _layers.Conv2D)) == 1 + 2 * 15
  assert _kinds(network, _layers.Dense)[0].kernel.shape == (64 * 2, 10)
  assert _kinds(network, _layers.BatchNormalization)[0].momentum == 0.9


def test_shortcut_by_padding_keeps_averages_and_adds_zeros():
  """With silent convolutions a unit is its shortcut."""
  network = models.wide_resnet((8, 8, 3), 4, 1, 1, slope=0.0)
  for layer in _kinds(network, _layers.Conv2D)[1:]:
    layer.set_weights([np.zeros_like(w) for w in layer.get_weights()])
  stem = _kinds(network, _layers.Conv2D)[0]
  x = _images((8, 8, 3))
  before = tf.keras.Model(network.input, stem.output)(x).numpy()
  last = _kinds(network, _layers.Add)[-1]
  found = tf.keras.Model(network.input, last.output)(x).numpy()
  # Activated in the first unit, then averaged twice by two.
  active = np.maximum(before / np.sqrt(1 + 1e-3), 0)
  pooled = active.reshape(3, 2, 4, 2, 4, 16).mean((2, 4))
  expected = np.pad(pooled, [(0, 0)] * 3 + [(8 + 16, 8 + 16)])
  np.testing.assert_allclose(found, expected, atol=1e-5)


def test_wide_resnet_is_saved_and_loaded(tmp_path):
  network = models.wide_resnet((8, 8, 3), scale=1, units=1)
  network.save(tmp_path / "x.keras")
  loaded = tf.keras.models.load_model(tmp_path / "x.keras")
  x = _images((8, 8, 3))
  np.testing.assert_array_equal(loaded(x), network(x))


def test_each_image_is_standardised_whatever_its_scale():
  network = models.wide_resnet((8, 8, 3), scale=1, units=1)
  x = _images((8, 8, 3))
  np.testing.assert_allclose(network(255 * x), network(x), atol=1e-3)
  plain = models.wide_resnet((8, 8, 3), scale=1, units=1, standardize=False)
  assert np.abs(plain(255 * x) - plain(x)).max() > 0.1
  first = tf.keras.Model(network.input, network.layers[1].output)(x).numpy()
  expected = tf.image.per_image_standardization(x)
  np.testing.assert_allclose(first, expected, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_small_dual_resnet_can_be_bounded_by_the_dual(channels):
  network = models.small_dual_resnet((4, 4, channels), 3, scale=1)
  bounds.Dual().check(network)
  assert len(_kinds(network, _layers.Add)) == 3
  normalized = bool(_kinds(network, _layers.Rescaling))
  assert normalized == (channels == 3)
  x = tf.constant(_images((4, 4, channels), 2))
  y = tf.argmax(network(x), axis=1)
  worst = bounds.Dual().worst_case_logits(network, x, y, 0.0)
  logits = network(x).numpy()
  own = logits[np.arange(2), y.numpy()][:, None]
  np.testing.assert_allclose(worst, logits - own, atol=1e-4)


@pytest.mark.parametrize(
  ("name", "count"),
  [
    # 13x13x16, 10x10x32, 100 units
    ("ibp_small", 16 * 16 + 16 + 16 * 16 * 32 + 32 + 3200 * 100 + 100 + 1010),
    # 26x26x32, 12x12x32, 10x10x64, 4x4x64, 512 units twice
    (
      "ibp_medium",
      (9 * 32 + 32)
      + (16 * 32 * 32 + 32)
      + (9 * 32 * 64 + 64)
      + (16 * 64 * 64 + 64)
      + (1024 * 512 + 512)
      + (512 * 512 + 512)
      + 5130,
    ),
    # 28x28x64 twice, 14x14x128 three times, 512 units
    (
      "ibp_large",
      (9 * 64 + 64)
      + (9 * 64 * 64 + 64)
      + (9 * 64 * 128 + 128)
      + 2 * (9 * 128 * 128 + 128)
      + (14 * 14 * 128 * 512 + 512)
      + 5130,
    ),
  ],
)
def test_networks_of_gowal_et_al_for_mnist(name, count):
  network = models.by_name(name, (28, 28, 1), 10)
  assert network.count_params() == count
  bounds.Interval().check(network)


def test_har_mlp():
  network = models.by_name("har_mlp", (561,), 6)
  units = [layer.units for layer in _kinds(network, _layers.Dense)]
  assert units == [1000, 100, 6]


@pytest.mark.parametrize(
  ("build", "message"),
  [
    (lambda: models.yale_cnn((192, 168)), "network='mlp'"),
    (lambda: models.yale_cnn(scale=0), "scale=0"),
    (lambda: models.yale_cnn(style="plane"), "Did you mean 'plain'"),
    (lambda: models.wide_resnet(shortcut="pad"), "Did you mean 'padding'"),
    (lambda: models.wide_resnet((4, 4, 3)), "at least 8 x 8"),
    (lambda: models.ibp_small((8, 8, 1)), "at least 10 x 10"),
    (lambda: models.ibp_medium((15, 16, 1)), "at least 16 x 16"),
    (lambda: models.by_name("yale_cn", (8, 8, 1), 3), "Did you mean 'yale_cnn"),
  ],
)
def test_bad_networks(build, message):
  with pytest.raises(ValueError, match=message):
    build()
