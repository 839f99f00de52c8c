import numpy as np
import pytest
import tensorflow as tf
from scipy import signal

from tf_privrob import layers
from tf_privrob.layers import scattering

SMALL = {
  "size": 5,
  "orientations": 3,
  "scales": ((1.0, 3.0), (1.5, 5.0)),
  "strides": 1,
  "pool": 2,
}


def _images(count=2, side=8, channels=1, seed=0):
  rng = np.random.default_rng(seed)
  return rng.random((count, side, side, channels), "float32")


def _naive(image, settings):
  """One grey image, by scipy's correlation and slices."""
  bank = scattering.gabor_bank(
    settings["size"], settings["orientations"], settings["scales"]
  )[:, :, 0]
  count = bank.shape[-1] // 2
  maps = []
  for f in range(count):
    wave = bank[..., f] + 1j * bank[..., count + f]
    response = signal.correlate2d(image, wave.conj(), mode="same")
    maps.append(np.abs(response))
  places = np.arange(7) - 3
  bump = np.exp(-(places**2) / 8)
  low = np.outer(bump, bump)
  maps.append(signal.correlate2d(image, low / np.linalg.norm(low), mode="same"))
  return np.stack(
    [m.reshape(4, 2, 4, 2).mean(axis=(1, 3)) for m in maps], axis=-1
  )


def test_features_are_local_means_of_moduli():
  images = _images()
  found = layers.Scattering(**SMALL)(images).numpy()
  expected = np.stack([_naive(image[..., 0], SMALL) for image in images])
  np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


def test_channels_are_transformed_one_by_one():
  images = _images(channels=3)
  layer = layers.Scattering(**SMALL)
  found = layer(images).numpy()
  alone = [
    layers.Scattering(**SMALL)(images[..., c : c + 1]).numpy() for c in range(3)
  ]
  np.testing.assert_allclose(found, np.concatenate(alone, -1), rtol=1e-5)
  assert layer.compute_output_shape((None, 8, 8, 3)) == (None, 4, 4, 21)
  assert found.shape == (2, 4, 4, 21)


def test_waves_ignore_flat_regions_and_have_the_norm_of_noise():
  bank = scattering.gabor_bank(11, 8, ((1.5, 4.0), (2.5, 7.0)))
  assert bank.shape == (11, 11, 1, 32)
  np.testing.assert_allclose(bank.sum(axis=(0, 1, 2)), 0, atol=1e-5)
  squares = (bank**2).sum(axis=(0, 1, 2))
  np.testing.assert_allclose(squares[:16] + squares[16:], 2, rtol=1e-5)


def test_a_quarter_turn_of_the_image_permutes_the_orientations():
  """The bank has no preferred direction."""
  settings = {**SMALL, "orientations": 4, "scales": ((1.5, 4.0),)}
  layer = layers.Scattering(**settings)
  images = _images(1)
  turned = np.rot90(images, axes=(1, 2)).copy()
  before = np.rot90(layer(images).numpy(), axes=(1, 2))
  after = layer(turned).numpy()
  order = [2, 3, 0, 1, 4]  # by two of four orientations; then the low pass
  np.testing.assert_allclose(after, before[..., order], rtol=1e-3, atol=1e-3)


def test_no_weights_hence_no_privacy_cost():
  layer = layers.Scattering()
  layer(_images(side=28))
  assert layer.weights == []


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"size": 0}, "size=0"),
    ({"orientations": 1.5}, "orientations=1.5"),
    ({"scales": ()}, "pairs"),
    ({"scales": ((1.0,),)}, "pairs"),
    ({"scales": ((1.0, -2.0),)}, "wavelength=-2.0 > 0"),
  ],
)
def test_bad_settings(changes, message):
  with pytest.raises(ValueError, match=message):
    layers.Scattering(**{**SMALL, **changes})


def test_vectors_are_refused():
  with pytest.raises(ValueError, match="Expected images"):
    layers.Scattering()(tf.zeros([2, 30]))


def test_filters_that_would_fill_the_memory_are_refused():
  """Size and number come from a file where a model is loaded."""
  for settings in ({"size": 30_000}, {"orientations": 10**9}):
    with pytest.raises(ValueError, match="filters of at most 4194304 numbers"):
      layers.Scattering(**settings)
