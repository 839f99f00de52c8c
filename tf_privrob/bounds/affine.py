"""Affine layers at inference: z = W h + b, |W| h and W^T z, W never formed.

All maps read their layer's weights when they are used, in the precision of
what they are given, so that gradients reach the weights and a later training
step is seen.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

import tensorflow as tf

Shape = tuple[int, ...]


class Affine(abc.ABC):
  """One map z = W h + b on batches of values of one shape.

  Attributes:
    input_shape: shape of one h.
    output_shape: shape of one z.
    terms: how many roundings a computed z has at most; see `rounding`.
    mixes: False if every z depends on one h alone, so that |V W| = |V| |W|
      for every V behind it and bounds lose nothing here.
  """

  terms = 0
  mixes = True

  def __init__(self, input_shape: Sequence[int], output_shape: Sequence[int]):
    self.input_shape = tuple(input_shape)
    self.output_shape = tuple(output_shape)

  @abc.abstractmethod
  def linear(self, value: tf.Tensor) -> tf.Tensor:
    """W h, without the bias."""

  @abc.abstractmethod
  def adjoint(self, value: tf.Tensor) -> tf.Tensor:
    """W^T z."""

  def absolute(self, value: tf.Tensor) -> tf.Tensor:
    """|W| h; the same as `linear` where no weight is negative."""
    return self.linear(value)

  def bias(self, dtype: tf.DType) -> tf.Tensor | None:
    """b, of a shape that broadcasts to `output_shape`, or None."""
    del dtype

  def apply(self, value: tf.Tensor) -> tf.Tensor:
    """W h + b."""
    total, bias = self.linear(value), self.bias(value.dtype)
    if bias is None:
      return total
    if bias.shape == total.shape[-1:]:
      # TensorFlow fuses it with a product or a convolution before it.
      return tf.nn.bias_add(total, bias)
    return total + bias

  def magnitude(
    self, size: tf.Tensor, radius: float | tf.Tensor = 0.0, share: float = 1.0
  ) -> tf.Tensor:
    """|W| radius + share (|W| size + |b|), by one product.

    The second summand, with share 1, is at least the sum of the sizes of all
    terms of z, where |h| <= size.
    """
    total, bias = self.absolute(radius + share * size), self.bias(size.dtype)
    return total if bias is None else total + share * tf.abs(bias)

  def most(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    """Two numbers: the largest row sum of |W|, and the largest |b|."""
    weights = self.absolute(tf.ones([1, *self.input_shape], dtype))
    bias = self.bias(dtype)
    largest = 0.0 if bias is None else tf.reduce_max(tf.abs(bias))
    return tf.reduce_max(weights), tf.cast(largest, dtype)

  def reach(self, total: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """How far z can be off, in units of what numbers are off by, if all are.

    |W| for the h, the sum of all |h| for the weights, and one for each sum and
    product; the unit is so small that its square does not count. One bound for
    all values of an example.

    Args:
      total: the sum of the |h| of each example.
      weights: the largest row sum of |W|.
    """
    return weights + self.terms * (total + 1)


class Dense(Affine):
  """A dense layer without its activation."""

  def __init__(self, layer: tf.keras.layers.Dense, input_shape: Shape):
    super().__init__(input_shape, (*input_shape[:-1], layer.units))
    self._layer = layer
    self.terms = input_shape[-1] + 2 + _kernel_roundings(layer)

  def linear(self, value):
    """H W."""
    return tf.tensordot(value, _read(self._layer.kernel, value.dtype), 1)

  def absolute(self, value):
    """H |W|."""
    kernel = tf.abs(_read(self._layer.kernel, value.dtype))
    return tf.tensordot(value, kernel, 1)

  def adjoint(self, value):
    """Z W^T."""
    kernel = _read(self._layer.kernel, value.dtype)
    return tf.tensordot(value, tf.transpose(kernel), 1)

  def bias(self, dtype):
    """One value a unit."""
    return _read(self._layer.bias, dtype) if self._layer.use_bias else None


class Conv2D(Affine):
  """A convolution without its activation; a dilated kernel is spread out."""

  def __init__(self, layer: tf.keras.layers.Conv2D, input_shape: Shape):
    output_shape = layer.compute_output_shape((None, *input_shape))[1:]
    super().__init__(input_shape, output_shape)
    self._layer = layer
    self._how = {
      "strides": list(layer.strides),
      "padding": layer.padding.upper(),
    }
    self.terms = (
      math.prod(layer.kernel_size) * input_shape[-1]
      + 2
      + _kernel_roundings(layer)
    )

  def linear(self, value):
    """The convolution."""
    return tf.nn.conv2d(value, self._kernel(value.dtype), **self._how)

  def absolute(self, value):
    """The convolution with |kernel|."""
    return tf.nn.conv2d(value, tf.abs(self._kernel(value.dtype)), **self._how)

  def adjoint(self, value):
    """The transposed convolution."""
    shape = tf.concat([tf.shape(value)[:1], self.input_shape], 0)
    return tf.nn.conv2d_transpose(
      value, self._kernel(value.dtype), shape, **self._how
    )

  def bias(self, dtype):
    """One value a channel."""
    return _read(self._layer.bias, dtype) if self._layer.use_bias else None

  def _kernel(self, dtype):
    kernel = _read(self._layer.kernel, dtype)
    rows, columns = self._layer.dilation_rate
    if (rows, columns) == (1, 1):
      return kernel
    # Zeros between the weights: TensorFlow has no gradient of a dilated
    # convolution on CPUs.
    high, wide, *channels = kernel.shape
    spread = tf.reshape(kernel, [high, 1, wide, 1, *channels])
    gaps = [[0, 0], [0, rows - 1], [0, 0], [0, columns - 1], [0, 0], [0, 0]]
    spread = tf.reshape(
      tf.pad(spread, gaps), [high * rows, wide * columns, *channels]
    )
    return spread[: (high - 1) * rows + 1, : (wide - 1) * columns + 1]


class AveragePooling2D(Affine):
  """Means over windows; at a padded border over the values inside."""

  def __init__(self, layer, input_shape: Shape):
    output_shape = layer.compute_output_shape((None, *input_shape))[1:]
    super().__init__(input_shape, output_shape)
    self._how = {
      "ksize": [1, *layer.pool_size, 1],
      "strides": [1, *layer.strides, 1],
      "padding": layer.padding.upper(),
    }
    self.terms = math.prod(layer.pool_size) + 2

  def linear(self, value):
    """The means."""
    return tf.nn.avg_pool2d(value, **self._how)

  def adjoint(self, value):
    """Every mean's share, given back to its window."""
    return tf.raw_ops.AvgPoolGrad(
      orig_input_shape=tf.concat([tf.shape(value)[:1], self.input_shape], 0),
      grad=value,
      data_format="NHWC",
      **self._how,
    )


class GlobalAveragePooling2D(Affine):
  """The mean of each channel."""

  def __init__(self, layer, input_shape: Shape):
    output_shape = layer.compute_output_shape((None, *input_shape))[1:]
    super().__init__(input_shape, output_shape)
    self._keepdims = layer.keepdims
    self.terms = math.prod(input_shape[:2]) + 2

  def linear(self, value):
    """The means."""
    return tf.reduce_mean(value, [1, 2], keepdims=self._keepdims)

  def adjoint(self, value):
    """An equal share for every position."""
    high, wide, channels = self.input_shape
    share = tf.reshape(value / (high * wide), [-1, 1, 1, channels])
    return tf.tile(share, [1, high, wide, 1])


class Reshape(Affine):
  """Flatten and Reshape: the same values in another shape."""

  mixes = False

  def linear(self, value):
    """The values in the output's shape."""
    return tf.reshape(value, [-1, *self.output_shape])

  def adjoint(self, value):
    """The values in the input's shape."""
    return tf.reshape(value, [-1, *self.input_shape])


class ZeroPadding2D(Affine):
  """Zeros around an image."""

  mixes = False

  def __init__(self, layer, input_shape: Shape):
    self._padding = [tuple(pair) for pair in layer.padding]
    high, wide = (
      size + sum(pair) for size, pair in zip(input_shape, self._padding)
    )
    super().__init__(input_shape, (high, wide, input_shape[-1]))

  def linear(self, value):
    """The padded image."""
    return tf.pad(value, [(0, 0), *self._padding, (0, 0)])

  def adjoint(self, value):
    """The part inside the padding."""
    (top, _), (left, _) = self._padding
    high, wide, _ = self.input_shape
    return value[:, top : top + high, left : left + wide]


class Rescaling(Affine):
  """The layer of that name: scale h + offset, value by value."""

  mixes = False
  terms = 4

  def __init__(self, layer, input_shape: Shape):
    super().__init__(input_shape, input_shape)
    self._scale, self._offset = layer.scale, layer.offset

  def linear(self, value):
    """The scaled values."""
    return value * tf.constant(self._scale, value.dtype)

  def absolute(self, value):
    """Scaled by |scale|."""
    return value * tf.abs(tf.constant(self._scale, value.dtype))

  def adjoint(self, value):
    """A diagonal matrix is its own transpose."""
    return self.linear(value)

  def bias(self, dtype):
    """The offset."""
    return tf.constant(self._offset, dtype)


class BatchNormalization(Affine):
  """At inference: s h + (beta - s mean), s = gamma / sqrt(variance + eps).

  mean and variance are the moving statistics.
  """

  mixes = False
  terms = 16

  def __init__(self, layer, input_shape: Shape):
    super().__init__(input_shape, input_shape)
    self._layer = layer

  def _scale(self, dtype):
    scale = tf.math.rsqrt(self._deviation_squared(dtype))
    if self._layer.gamma is not None:
      scale *= _read(self._layer.gamma, dtype)
    return scale

  def _deviation_squared(self, dtype):
    """With epsilon in the precision that the layer adds it in."""
    epsilon = tf.constant(self._layer.epsilon, self._layer.compute_dtype)
    variance = _read(self._layer.moving_variance, dtype)
    return variance + tf.cast(epsilon, dtype)

  def linear(self, value):
    """The scaled values."""
    return value * self._scale(value.dtype)

  def absolute(self, value):
    """Scaled by |s|."""
    return value * tf.abs(self._scale(value.dtype))

  def adjoint(self, value):
    """A diagonal matrix is its own transpose."""
    return self.linear(value)

  def bias(self, dtype):
    """Beta - s mean."""
    bias = -_read(self._layer.moving_mean, dtype) * self._scale(dtype)
    if self._layer.beta is not None:
      bias += _read(self._layer.beta, dtype)
    return bias

  def magnitude(self, size, radius=0.0, share=1.0):
    """The second summand is |s| (size + |mean|) + |beta|.

    In whatever order Keras adds them.
    """
    size = size + self._mean_size(size.dtype)
    total = self.absolute(radius + share * size)
    if self._layer.beta is not None:
      total += share * tf.abs(_read(self._layer.beta, size.dtype))
    return total

  def most(self, dtype):
    """With |s mean| in the bias, whatever of it beta cancels."""
    weights, _ = super().most(dtype)
    zero = tf.zeros([1, *self.input_shape], dtype)
    return weights, tf.reduce_max(self.magnitude(zero))

  def reach(self, total, weights):
    """As above; gamma is divided by the deviation, before or after a product.

    Both can be taken for 0: gamma, then its error grows by 1 / deviation, or
    the quotient.
    """
    scale = tf.math.rsqrt(self._deviation_squared(total.dtype))
    total += tf.reduce_max(self._mean_size(total.dtype))
    factor = tf.reduce_max(scale) + 1
    return self.terms * (weights + factor * (total + 1))

  def _mean_size(self, dtype):
    return tf.abs(_read(self._layer.moving_mean, dtype))


def _kernel_roundings(layer) -> int:
  """By how many the network's kernel may differ from the one read here."""
  return getattr(layer, "kernel_roundings", 0)


def _read(variable: tf.Variable, dtype: tf.DType) -> tf.Tensor:
  return tf.cast(variable, dtype)
