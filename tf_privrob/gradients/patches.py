"""Image patches as rows, so that a convolution becomes a matrix product."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

# Up to this patch size the convolution with an identity kernel is the faster
# route on a CPU; its work grows with the square of the patch, the gather's not.
_IDENTITY_KERNEL_LIMIT = 64


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
  """Zeros before and after one axis under TensorFlow's SAME rule."""
  total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
  return total // 2, total - total // 2


def _starts_and_offsets(
  size: int, kernel: int, stride: int, dilation: int
) -> np.ndarray:
  """Index [output position, kernel position] into one padded axis."""
  count = (size - (kernel - 1) * dilation - 1) // stride + 1
  return np.arange(count)[:, None] * stride + np.arange(kernel) * dilation


def extract(
  images: tf.Tensor,
  kernel_size: tuple[int, int],
  strides: tuple[int, int],
  padding: str,
  dilation_rate: tuple[int, int] = (1, 1),
) -> tf.Tensor:
  """The patch under every output position of a convolution.

  Args:
    images: [batch, height, width, channels] with static height, width and
      channels.
    kernel_size: height and width of the kernel.
    strides: of the convolution.
    padding: "valid" or "same".
    dilation_rate: of the convolution.

  Returns:
    [batch, positions, kernel height * kernel width * channels], in the order
    of a reshaped Keras kernel.
  """
  channels = images.shape[-1]
  patch = kernel_size[0] * kernel_size[1] * channels
  if patch <= _IDENTITY_KERNEL_LIMIT:
    kernel = tf.reshape(
      tf.eye(patch, dtype=images.dtype), [*kernel_size, channels, patch]
    )
    rows = tf.nn.conv2d(
      images, kernel, strides, padding.upper(), dilations=dilation_rate
    )
    return tf.reshape(rows, [-1, rows.shape[1] * rows.shape[2], patch])
  if padding == "same":
    spans = [(k - 1) * d + 1 for k, d in zip(kernel_size, dilation_rate)]
    pads = [
      same_padding(size, span, stride)
      for size, span, stride in zip(images.shape[1:3], spans, strides)
    ]
    images = tf.pad(images, [(0, 0), *pads, (0, 0)])
  height, width = images.shape[1:3]
  rows = _starts_and_offsets(
    height, kernel_size[0], strides[0], dilation_rate[0]
  )
  columns = _starts_and_offsets(
    width, kernel_size[1], strides[1], dilation_rate[1]
  )
  flat = rows[:, None, :, None] * width + columns[None, :, None, :]
  pixels = tf.reshape(images, [-1, height * width, channels])
  picked = tf.gather(pixels, flat.reshape(-1).astype(np.int32), axis=1)
  return tf.reshape(picked, [-1, len(rows) * len(columns), patch])
