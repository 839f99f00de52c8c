"""Image patches as rows, so that a convolution becomes a matrix product."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

# Measured on a CPU. A convolution with an identity kernel is fastest for small
# patches, but its work grows with their square; gathering pixels is fastest
# where a pixel has many channels; in between, columns are gathered first, so
# that rows are gathered in longer pieces.
_IDENTITY_KERNEL_LIMIT = 32
MANY_CHANNELS = 16


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
  rows, columns = (
    _starts_and_offsets(*axis)
    for axis in zip(images.shape[1:3], kernel_size, strides, dilation_rate)
  )
  if channels >= MANY_CHANNELS:
    return _by_pixel(images, rows, columns)
  return _by_columns_then_rows(images, rows, columns, strides[1])


def _by_pixel(
  images: tf.Tensor, rows: np.ndarray, columns: np.ndarray
) -> tf.Tensor:
  """Gathers the channels of one pixel at a time."""
  height, width, channels = images.shape[1:]
  flat = rows[:, None, :, None] * width + columns[None, :, None, :]
  pixels = tf.reshape(images, [-1, height * width, channels])
  picked = tf.gather(pixels, flat.reshape(-1).astype(np.int32), axis=1)
  patch = rows.shape[1] * columns.shape[1] * channels
  return tf.reshape(picked, [-1, len(rows) * len(columns), patch])


def _by_columns_then_rows(
  images: tf.Tensor, rows: np.ndarray, columns: np.ndarray, stride: int
) -> tf.Tensor:
  """Gathers the columns under each output position, then whole kernel rows.

  Where the stride divides the kernel, `stride` neighbouring columns always go
  together and are gathered as one.
  """
  height, width, channels = images.shape[1:]
  kernel_height, kernel_width = rows.shape[1], columns.shape[1]
  wide = columns
  if kernel_width % stride == 0 and (np.diff(columns) == 1).all():
    images = tf.pad(images, [(0, 0), (0, 0), (0, -width % stride), (0, 0)])
    images = tf.reshape(
      images, [-1, height, -(-width // stride), stride * channels]
    )
    wide = columns[:, ::stride] // stride
  lines = tf.gather(images, wide.reshape(-1).astype(np.int32), axis=2)
  lines = tf.reshape(
    lines, [-1, height * len(columns), kernel_width * channels]
  )
  flat = rows[:, None, :] * len(columns) + np.arange(len(columns))[:, None]
  picked = tf.gather(lines, flat.reshape(-1).astype(np.int32), axis=1)
  patch = kernel_height * kernel_width * channels
  return tf.reshape(picked, [-1, len(rows) * len(columns), patch])
