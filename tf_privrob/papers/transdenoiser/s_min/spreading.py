"""Convolutions of windows, in which what leaves a window is kept.

The input is zero outside its window; the output is not zero in a larger one.
Windows are small and many, and TensorFlow's float64 convolution is slow: where
it pays, the convolution is one dense matrix in the kernel's numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

# A convolution of windows as one matrix costs (window / kernel) times as many
# products, which are about 10 times as fast.
_MATRIX_ADVANTAGE = 10
_MATRIX_LIMIT = 2**20


def operator(
  kernel: tf.Tensor, rates: tuple[int, int], window: tuple[int, int]
) -> Callable[[tf.Tensor], tf.Tensor]:
  """The convolution of windows that also keeps what leaves them.

  out_i = sum_o in_{i + d o - d (k - 1)} K_o, each axis d (k - 1) longer.
  """
  shape = kernel.shape.as_list()
  spread = [(size - 1) * rate for size, rate in zip(shape, rates)]
  outer = [size + more for size, more in zip(window, spread)]
  area = int(np.prod(window))
  entries = area * int(np.prod(outer)) * shape[2] * shape[3]
  fast = area <= _MATRIX_ADVANTAGE * shape[0] * shape[1]
  if spread == [0, 0]:
    matrix = tf.reshape(kernel, shape[2:])
  elif fast and entries <= _MATRIX_LIMIT:
    matrix = _as_matrix(kernel, rates, window, outer)
  else:
    matrix = None
    sparse = stuffed(kernel, rates)

  def apply(windows):
    leading = windows.shape[:3]
    if matrix is None:
      flat = tf.reshape(windows, [-1, *window, shape[2]])
      around = [(more, more) for more in spread]
      flat = tf.pad(flat, [(0, 0), *around, (0, 0)])
      flat = tf.nn.conv2d(flat, sparse, 1, "VALID")
    else:
      flat = tf.reshape(windows, [-1, matrix.shape[0]]) @ matrix
    return tf.reshape(flat, [*leading, *outer, shape[3]])

  return apply


def _as_matrix(kernel, rates, window, outer) -> tf.Tensor:
  """[window * channels, larger window * channels], in the kernel's numbers."""
  shape = kernel.shape.as_list()
  taps = []
  for axis in (0, 1):
    ahead = np.arange(outer[axis]) - np.arange(window[axis])[:, None]
    tap, rest = divmod(ahead, rates[axis])
    tap = shape[axis] - 1 - tap
    taps.append(
      np.where((rest == 0) & (0 <= tap) & (tap < shape[axis]), tap, -1)
    )
  rows, columns_ = taps[0][:, None, :, None], taps[1][None, :, None, :]
  count = shape[0] * shape[1]
  index = np.where(
    (rows >= 0) & (columns_ >= 0), rows * shape[1] + columns_, count
  )
  index = index.reshape(int(np.prod(window)), -1).astype(np.int32)
  flat = tf.pad(tf.reshape(kernel, [count, -1]), [(0, 1), (0, 0)])
  found = tf.gather(flat, index)  # [window, larger, channels * channels]
  found = tf.reshape(found, [*index.shape, *shape[2:]])
  found = tf.transpose(found, [0, 2, 1, 3])
  return tf.reshape(found, [index.shape[0] * shape[2], -1])


def stuffed(kernel: tf.Tensor, rates: tuple[int, int]) -> tf.Tensor:
  """The kernel with zeros between its taps: dilation 1 gives the same."""
  for axis, rate in enumerate(rates):
    if rate > 1:
      shape = kernel.shape.as_list()
      kernel = tf.expand_dims(kernel, axis + 1)
      zeros = [(0, 0)] * kernel.shape.rank
      zeros[axis + 1] = (0, rate - 1)
      shape[axis] *= rate
      kernel = tf.reshape(tf.pad(kernel, zeros), shape)
      span = shape[axis] - rate + 1
      kernel = tf.gather(kernel, range(span), axis=axis)
  return kernel
