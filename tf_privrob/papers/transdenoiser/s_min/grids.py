"""What the windows of a local network are cut from.

One forward pass and one backward pass give, for every step, the maps that are
the same for all pixels. They stand on the image's grid in a margin of zeros:
what is outside the image vanishes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob.gradients import patches
from tf_privrob.papers.transdenoiser.s_min import locality
from tf_privrob.papers.transdenoiser.s_min import spreading


class Grids:
  """Maps of a batch, and their windows around the pixels of a strip.

  Args:
    network: of float64 layers.
    images: [B, height, width, channels], B static.
    trained: of each step, whether it is a convolution with wanted parameters.
    strip: rows of pixels at a time.

  Attributes:
    slopes: f'(h), by the number of an elementwise step.
    bends: f''(h) times the loss gradient by f(h), where f'' is not 0.
    patches: a_{t + d o - b} for every tap o, by the number of a convolution.
    spreads: d_{q + b - d o} for every tap o, of the loss gradient d by the
      convolution's output.
  """

  def __init__(
    self,
    network: locality.Network,
    images: tf.Tensor,
    trained: Sequence[bool],
    strip: int,
  ):
    self._shape, self._strip = network.shape, strip
    self._margin = locality.union(
      *network.forward, *network.back, *network.second
    )
    steps, values = network.steps, []
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(images)
      for step in steps:
        sources = [values[source] for source in step.sources]
        values.append(_value(step, sources) if sources else images)
      errors = values[-1] - tf.stop_gradient(images)
      loss = tf.reduce_sum(errors**2)
    gradients = tape.gradient(loss, values)
    self.slopes, self.bends = {}, {}
    self.patches, self.spreads = {}, {}
    ones = tf.ones([1, *network.shape[:2], 1], tf.float64)
    self._mask = self._framed(ones)
    for index, step in enumerate(steps):
      if step.kind == "elementwise":
        slope, bend = _derivatives(step.function, values[step.sources[0]])
        self.slopes[index] = self._framed(slope)
        if bend is not None:
          self.bends[index] = self._framed(bend * gradients[index])
      if trained[index]:
        layer = step.layer
        rows = patches.extract(
          values[step.sources[0]],
          layer.kernel_size,
          (1, 1),
          "same",
          layer.dilation_rate,
        )
        self.patches[index] = self._framed(rows)
        self.spreads[index] = self._framed(_spread(layer, gradients[index]))

  def _framed(self, maps: tf.Tensor) -> tf.Tensor:
    """On the grid, with the margin."""
    shape = [maps.shape[0], *self._shape[:2], maps.shape[-1]]
    return tf.pad(tf.reshape(maps, shape), [(0, 0), *self._margin, (0, 0)])

  def at(self, grid: tf.Tensor, reach: locality.Reach, row) -> tf.Tensor:
    """The map's windows around the pixels of the strip that starts at `row`.

    [B, pixels, 1, window height, window width, channels].
    """
    (up, down), (left, right) = reach
    width = self._shape[1]
    full, channels = grid.shape[2], grid.shape[3]
    count = self._strip + up + down
    start = row + self._margin[0][0] - up
    grid = tf.reshape(
      grid[:, start : start + count], [grid.shape[0], count * full, channels]
    )
    y = np.arange(self._strip)[:, None] + np.arange(up + down + 1)
    x = np.arange(width)[:, None] + np.arange(left + right + 1)
    x = x + self._margin[1][0] - left
    flat = y[:, None, :, None] * full + x[None, :, None, :]
    found = tf.gather(grid, flat.reshape(-1).astype(np.int32), axis=1)
    shape = [self._strip * width, 1, *locality.sizes(reach), channels]
    return tf.reshape(found, [grid.shape[0], *shape])

  def inside(self, windows: tf.Tensor, reach: locality.Reach, row) -> tf.Tensor:
    """The windows, zero outside the image."""
    if reach == locality.POINT:
      return windows
    return windows * self.at(self._mask, reach, row)


def _value(step: locality.Step, sources: list) -> tf.Tensor:
  """The step's output on the whole image."""
  if step.kind == "sum":
    return tf.add_n(sources)
  if step.kind == "elementwise":
    return step.function(sources[0])
  layer = step.layer
  kernel = spreading.stuffed(layer.kernel, layer.dilation_rate)
  outputs = tf.nn.conv2d(sources[0], kernel, 1, "SAME")
  return outputs if layer.bias is None else outputs + layer.bias


def _derivatives(function, inputs: tf.Tensor):
  """The derivatives f' and f'' by each element; f'' is None where it is 0."""
  with tf.GradientTape(watch_accessed_variables=False) as outer:
    outer.watch(inputs)
    with tf.GradientTape(watch_accessed_variables=False) as inner:
      inner.watch(inputs)
      outputs = function(inputs)
    slope = inner.gradient(outputs, inputs)
  return slope, outer.gradient(slope, inputs)


def _spread(layer, deltas: tf.Tensor) -> tf.Tensor:
  """d_{q + b - d o} for every tap o, [B, positions q, taps * channels]."""
  around = [(after, before) for before, after in locality.pads(layer)]
  deltas = tf.pad(deltas, [(0, 0), *around, (0, 0)])
  rows = patches.extract(
    deltas, layer.kernel_size, (1, 1), "valid", layer.dilation_rate
  )
  taps, many = int(np.prod(layer.kernel_size)), deltas.shape[-1]
  rows = tf.reverse(tf.reshape(rows, [*rows.shape[:2], taps, many]), [2])
  return tf.reshape(rows, [*rows.shape[:2], taps * many])
