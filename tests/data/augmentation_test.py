import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_privrob import data


def _images(count=64, size=9):
  rng = np.random.default_rng(0)
  return tf.constant(rng.random((count, size, size, 2)), tf.float32)


def test_none_changes_nothing():
  images = _images()
  assert data.augment(images, "none", [1, 2]) is images


def test_noise_has_the_scale_and_is_not_clipped():
  images = tf.ones([200, 8, 8, 1])
  noise = data.augment(images, "noise", [1, 2], stddev=0.5) - images
  assert float(tf.math.reduce_std(noise)) == pytest.approx(0.5, rel=0.03)
  assert float(tf.reduce_max(noise)) > 1


def test_shift_moves_every_image_by_its_own_offset():
  images = np.zeros((200, 9, 9, 1), "float32")
  images[:, 4, 4] = 1
  moved = data.augment(tf.constant(images), "shift", [3, 4]).numpy()
  places = np.argwhere(moved[..., 0])
  assert len(places) == 200  # nothing is lost within two pixels
  offsets = places[:, 1:] - 4
  assert {tuple(o) for o in offsets} == {
    (a, b) for a in range(-2, 3) for b in range(-2, 3)
  }


def test_flip_mirrors_half():
  images = np.zeros((400, 9, 9, 1), "float32")
  images[:, :, 7] = 1  # a line on the right; mirrored, on the left
  moved = data.augment(tf.constant(images), "shift_flip", [3, 4]).numpy()
  left = (moved[:, :, :5].sum((1, 2, 3)) > 0).mean()
  assert 0.3 < left < 0.5  # half of the four in five that stay in the image


def test_contrast_stretches_every_image_about_its_own_means():
  """One factor for both channels, about two means; no new extremes."""
  rows = np.linspace(-0.5, 0.5, 9, dtype=np.float32)
  image = np.stack(
    [np.tile(rows, (9, 1)), 0.2 + 0.1 * np.tile(rows, (9, 1))], -1
  )
  images = tf.constant(np.repeat(image[None], 300, 0))
  plain = data.augment(images, "shift_flip", [3, 4]).numpy()
  found = data.augment(images, "shift_flip_contrast", [3, 4]).numpy()
  factors = []
  for before, after in zip(plain, found):
    means = before.mean((0, 1))
    assert after.min() >= before.min()
    assert after.max() <= before.max()
    inside = (after > before.min()) & (after < before.max())
    inside &= np.abs(before - means) > 1e-2
    own = (after - means)[inside] / (before - means)[inside]
    np.testing.assert_allclose(own, own[0], rtol=1e-3)
    factors.append(own[0])
  assert stats.kstest(factors, "uniform", (0.2, 1.6)).pvalue > 1e-3


@pytest.mark.parametrize(
  "kind", ["noise", "shift", "shift_flip", "shift_flip_contrast"]
)
def test_copies_depend_on_the_seed_and_on_nothing_else(kind):
  images = _images()
  first, again, other = (
    data.augment(images, kind, seed, 0.1) for seed in ([1, 2], [1, 2], [1, 3])
  )
  np.testing.assert_array_equal(first, again)
  assert not np.array_equal(first, other)
  changed = tf.concat([images[:1], 0 * images[1:]], 0)
  alone = data.augment(changed, kind, [1, 2], 0.1)
  np.testing.assert_array_equal(alone[0], first[0])


def test_unknown_kind_offers_the_nearest():
  with pytest.raises(ValueError, match="Did you mean 'shift'"):
    data.augment(_images(), "shfit", [1, 2])


def test_shift4_flip_moves_by_up_to_four_pixels():
  images = np.zeros((2000, 9, 9, 1), "float32")
  images[:, 4, 4] = 1
  moved = data.augment(tf.constant(images), "shift4_flip", [3, 4]).numpy()
  offsets = np.argwhere(moved[..., 0])[:, 1:] - 4
  assert len(offsets) == 2000
  assert {tuple(o) for o in offsets} == {
    (a, b) for a in range(-4, 5) for b in range(-4, 5)
  }
  images[:, 4, 4], images[:, 4, 5] = 0, 1
  centre = data.augment(tf.constant(images), "shift4_flip", [3, 4]).numpy()
  # The same shifts: a pixel right of the centre ends up left in half of them.
  gaps = np.argwhere(centre[..., 0])
  before = {row: place for row, *place in np.argwhere(moved[..., 0])}
  signs = [place[1] - before[row][1] for row, *place in gaps]
  assert set(signs) == {-1, 1}
  assert 0.45 < np.mean(np.array(signs) == 1) < 0.55
