"""Pictures: the PNG bytes and the signed, amplified differences."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tf_privrob.report import pictures


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_png_is_read_back_exactly(channels):
  image = pytest.importorskip("PIL.Image")
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, 256, (7, 5, channels), np.uint8)
  decoded = np.asarray(image.open(io.BytesIO(pictures.png(pixels))))
  np.testing.assert_array_equal(decoded.reshape(pixels.shape), pixels)


@pytest.mark.parametrize(
  "pixels", [np.zeros((2, 2, 1)), np.zeros((2, 2, 2), np.uint8)]
)
def test_png_refuses_other_arrays(pixels):
  with pytest.raises(ValueError, match="Expected uint8 pixels"):
    pictures.png(pixels)


def test_values_map_to_pixels_by_the_declared_range():
  image = np.array([[[-1.0], [0.0], [1.0], [5.0], [np.nan]]])
  pixels = pictures.to_pixels(image, (-1.0, 1.0))
  assert pixels.ravel().tolist() == [0, 128, 255, 255, 128]


def test_difference_shows_sign_by_hue_and_size_by_opacity():
  change = np.array([[[0.1], [-0.05], [0.0]]])
  pixels = pictures.difference(change, full=0.1)
  assert pixels[0, :, 3].tolist() == [255, 128, 0]
  raised, lowered = pixels[0, 0, :3], pixels[0, 1, :3]
  assert raised[0] > raised[2]
  assert lowered[2] > lowered[0]
