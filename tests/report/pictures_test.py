"""Pictures: PNG as it was, and the signed, amplified differences."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from matplotlib import image

from tf_privrob.report import pictures


@pytest.mark.parametrize("channels", [1, 3])
def test_png_is_read_back_exactly(channels):
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, 256, (7, 5, channels), np.uint8)
  shown = pictures.to_pixels(pixels / 255, (0.0, 1.0))
  uri = pictures.data_uri(shown)
  head, _, data = uri.partition(",")
  assert head == "data:image/png;base64"
  decoded = image.imread(io.BytesIO(base64.b64decode(data)))
  found = np.round(255 * decoded[..., :3]).astype(np.uint8)
  np.testing.assert_array_equal(found, np.broadcast_to(pixels, found.shape))


def test_values_map_to_pixels_by_the_declared_range():
  image = np.array([[[-1.0], [0.0], [1.0], [5.0], [np.nan]]])
  pixels = pictures.to_pixels(image, (-1.0, 1.0))
  assert pixels[0, :, 0].tolist() == [0, 128, 255, 255, 128]
  assert pixels.shape == (1, 5, 3)


def test_difference_shows_sign_by_hue_and_size_by_opacity():
  change = np.array([[[0.1], [-0.05], [0.0]]])
  pixels = pictures.difference(change, full=0.1)
  assert pixels[0, :, 3].tolist() == [255, 128, 0]
  raised, lowered = pixels[0, 0, :3], pixels[0, 1, :3]
  assert raised[0] > raised[2]
  assert lowered[2] > lowered[0]
