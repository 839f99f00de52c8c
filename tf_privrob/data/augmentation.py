"""Random copies of an example, drawn in the graph from a stateless seed.

An augmentation looks at one example and at the seed, never at other examples,
so it costs no privacy: all copies of an example are one clipped gradient.
"""

from __future__ import annotations

import tensorflow as tf

from tf_privrob import randomness
from tf_privrob import validate

# Pixels in each direction.
_SHIFTS = {
  "shift": 2,
  "shift_flip": 2,
  "shift4_flip": 4,
  "shift_flip_contrast": 2,
}
AUGMENTATIONS = ("none", "noise", *_SHIFTS)
_CONTRAST = (0.2, 1.8)  # of TensorFlow's CIFAR-10 tutorial


def augment(
  images: tf.Tensor, kind: str, seed: tf.Tensor, stddev: float = 0.0
) -> tf.Tensor:
  """One random copy of every example.

  Args:
    images: [batch, height, width, channels]; "none" and "noise" take any rank.
    kind: "none"; "noise" adds Gaussian noise of `stddev`, unclipped as in
      randomised smoothing; "shift" moves by up to two pixels, zeros coming in;
      "shift_flip" also mirrors half of the images; "shift4_flip" moves by up to
      four pixels and mirrors half; "shift_flip_contrast" stretches each image
      of "shift_flip" about the mean of each channel, by a factor from 0.2 to
      1.8, and keeps it between its own extremes.
    seed: Shape [2].
    stddev: Standard deviation of the noise.
  """
  validate.one_of(AUGMENTATIONS, augmentation=kind)
  if kind == "none":
    return images
  if kind == "noise":
    shape = tf.shape(images)
    return images + stddev * tf.random.stateless_normal(
      shape, seed, dtype=images.dtype
    )
  shifted = _shift(images, seed, _SHIFTS[kind])
  if kind == "shift":
    return shifted
  coins = tf.random.stateless_uniform(
    [tf.shape(images)[0], 1, 1, 1],
    randomness.fold_in(seed, 1),
  )
  flipped = tf.where(coins < 0.5, tf.reverse(shifted, [2]), shifted)
  if kind == "shift_flip_contrast":
    return _contrast(flipped, randomness.fold_in(seed, 2))
  return flipped


def _contrast(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Stretches every image by its own factor, within its own range."""
  factors = tf.random.stateless_uniform(
    [tf.shape(images)[0], 1, 1, 1], seed, *_CONTRAST, dtype=images.dtype
  )
  means = tf.reduce_mean(images, [1, 2], keepdims=True)
  return tf.clip_by_value(
    means + factors * (images - means),
    tf.reduce_min(images, [1, 2, 3], keepdims=True),
    tf.reduce_max(images, [1, 2, 3], keepdims=True),
  )


def _shift(images: tf.Tensor, seed: tf.Tensor, most: int) -> tf.Tensor:
  """Moves every image by its own offset, up to `most` pixels."""
  count, (height, width) = tf.shape(images)[0], images.shape[1:3]
  offsets = tf.random.stateless_uniform(
    [2, count], seed, 0, 2 * most + 1, dtype=tf.int32
  )
  margin = (most, most)
  padded = tf.pad(images, [(0, 0), margin, margin, (0, 0)])
  rows = offsets[0][:, tf.newaxis] + tf.range(height)
  columns = offsets[1][:, tf.newaxis] + tf.range(width)
  moved = tf.gather(padded, rows, axis=1, batch_dims=1)
  moved = tf.gather(moved, columns, axis=2, batch_dims=1)
  return tf.ensure_shape(moved, images.shape)
