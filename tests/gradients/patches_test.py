import itertools

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob.gradients import patches

_CASES = [
  (channels, kernel, strides, padding, dilation)
  for channels, kernel, (strides, dilation), padding in itertools.product(
    [1, 5, 16],
    [(1, 1), (3, 3), (4, 4), (2, 5), (8, 8)],
    [((1, 1), (1, 1)), ((2, 2), (1, 1)), ((3, 2), (1, 1)), ((1, 1), (1, 2))],
    ["valid", "same"],
  )
]


@pytest.mark.parametrize(
  ("channels", "kernel", "strides", "padding", "dilation"), _CASES
)
def test_patches_times_kernel_is_the_convolution(
  channels, kernel, strides, padding, dilation
):
  rng = np.random.default_rng(0)
  images = rng.normal(size=(2, 17, 16, channels)).astype("float32")
  weights = rng.normal(size=(*kernel, channels, 3)).astype("float32")
  expected = tf.nn.conv2d(
    images, weights, strides, padding.upper(), dilations=dilation
  )
  rows = patches.extract(
    tf.constant(images), kernel, strides, padding, dilation
  )
  found = tf.reshape(rows @ weights.reshape(-1, 3), expected.shape)
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
  ("size", "kernel", "stride", "expected"),
  [
    (28, 8, 2, (3, 3)),
    (28, 3, 2, (0, 1)),
    (5, 5, 1, (2, 2)),
    (7, 1, 3, (0, 0)),
  ],
)
def test_same_padding_by_hand(size, kernel, stride, expected):
  assert patches.same_padding(size, kernel, stride) == expected
