"""All columns of A of a local network, each from a window around its pixel.

With the errors r = g(x) - x and l = |r|^2,

  A = d/dx grad_theta l = 2 sum_u (dg_u/dtheta)(dg_u/dx)^T + d/dx G,

G = grad_theta l with the errors held fixed. An output pixel u depends on a
window at every layer, and a pixel p changes G by what happens in a window: both
are carried as windows [B, P, D, height, width, channels] around P pixels, D
directions each (their channels). A leading axis is 1 while all are alike.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob.papers.transdenoiser.s_min import grids
from tf_privrob.papers.transdenoiser.s_min import locality
from tf_privrob.papers.transdenoiser.s_min import spreading


def columns(
  network: locality.Network,
  variables: Sequence[tf.Variable],
  images: tf.Tensor,
  strip: int,
) -> tf.Tensor:
  """The columns of A, a strip of image rows at a time.

  Args:
    network: of float64 layers.
    variables: kernels and biases of it; their parameters are the rows of A.
    images: [B, height, width, channels], B static.
    strip: so many rows of pixels at a time; divides the height.

  Returns:
    [height / strip, B, strip * width * channels, parameters].
  """
  return _Columns(network, variables, images, strip).all()


def chunks(
  network: locality.Network, variables, batch: int, max_elements: int
) -> tuple[int, int]:
  """Examples and image rows at a time, so that windows stay near the limit.

  A strip is not much higher than the window either: the rows of u near it are
  `strip` and a window's height together.
  """
  height, width, channels = network.shape
  size = sum(int(np.prod(variable.shape)) for variable in variables)
  row = width * _elements(network, variables, size)
  (up, down), _ = network.back[0]
  most = min(max(up + down, 1), max_elements // row)
  strip = _divisor(height, most)
  whole = height * width * channels * size
  return _divisor(batch, max_elements // max(strip * row, whole)), strip


def _divisor(number: int, most: int) -> int:
  """The largest divisor up to `most`, at least 1."""
  most = max(1, min(number, most))
  return max(n for n in range(1, most + 1) if number % n == 0)


def _elements(network: locality.Network, variables, size: int) -> int:
  """About how many numbers are made for one pixel of one example."""
  inside = {variable.ref() for variable in variables}
  count = size
  for index, step in enumerate(network.steps):
    seen = locality.union(network.back[index], network.second[index])
    count += 2 * locality.area(seen) * step.channels
    if step.kind == "convolution" and step.layer.kernel.ref() in inside:
      source, taps = step.sources[0], int(np.prod(step.layer.kernel_size))
      count += locality.area(seen) * taps * network.steps[source].channels
      changed = locality.area(network.forward[source])
      count += changed * taps * step.channels
  return network.shape[2] * count


class _Columns:
  """The passes over one batch."""

  def __init__(self, network, variables, images, strip: int):
    self._network, self._variables = network, variables
    self._images, self._strip = images, strip
    inside = {variable.ref() for variable in variables}
    steps = network.steps
    self._trained = [
      step.kind == "convolution"
      and any(v.ref() in inside for v in step.layer.weights)
      for step in steps
    ]
    # In the second pass a gradient is of use with parameters at or before it,
    # a change where it meets parameters, or an f'' with parameters before it.
    self._after = [False] * len(steps)
    self._before = list(self._trained)
    for index, step in enumerate(steps):
      for source in step.sources:
        self._before[index] |= self._before[source]
    for index in reversed(range(len(steps))):
      step = steps[index]
      for source in step.sources:
        self._after[source] |= self._after[index] or self._trained[index]
        bent = step.kind == "elementwise" and self._before[source]
        self._after[source] |= bent
    self._bare = [  # no f' outside the image makes all of its gradient zero
      any(index in s.sources and s.kind != "elementwise" for s in steps)
      for index in range(len(steps))
    ]
    self._grids = grids.Grids(network, images, self._trained, strip)
    self._operators = {}
    for index, step in enumerate(steps):
      if step.kind == "convolution":
        self._prepare(index, step)

  def all(self) -> tf.Tensor:
    """Both passes, strip by strip."""
    height, width, channels = self._network.shape
    rows = tf.range(0, height, self._strip)
    batch, pixels = self._images.shape[0], width * channels
    size = sum(int(np.prod(v.shape)) for v in self._variables)
    window = locality.area(self._network.back[0]) * channels

    def over_strips(of, *sizes):
      count = self._strip * pixels
      shapes = [tf.TensorSpec([batch, count, n], tf.float64) for n in sizes]
      return tf.map_fn(
        of, rows, fn_output_signature=shapes, parallel_iterations=1
      )

    (before, after), _ = self._network.back[0]
    by_parameters, by_pixels = (
      tf.pad(
        tf.reshape(
          tf.transpose(part, [1, 0, 2, 3]), [batch, height, pixels, -1]
        ),
        [(0, 0), (after, before), (0, 0), (0, 0)],
      )
      for part in over_strips(self._jacobians, size, window)
    )
    band = self._strip + before + after
    index = self._band_index(band)

    def strip(row):
      """d/dx G + 2 sum_u (dg_u/dtheta)(dg_u/dx)^T for pixels of the strip."""
      near = by_pixels[:, row : row + band]
      near = tf.pad(tf.reshape(near, [batch, -1]), [(0, 0), (0, 1)])
      near = tf.gather(near, index, axis=1)
      rest = tf.reshape(
        by_parameters[:, row : row + band],
        [batch, band * pixels, size],
      )
      return [self._changes(row) + tf.matmul(2 * near, rest, transpose_a=True)]

    return over_strips(strip, size)[0]

  def _prepare(self, index: int, step: locality.Step) -> None:
    """The convolution of windows, and its adjoint in both passes."""
    layer, network = step.layer, self._network
    turned = tf.transpose(tf.reverse(layer.kernel, [0, 1]), [0, 1, 3, 2])
    cases = {
      "forward": (layer.kernel, network.forward[step.sources[0]]),
      "back": (turned, network.back[index]),
      "second": (turned, network.second[index]),
    }
    for name, (kernel, reach) in cases.items():
      if reach is not None:
        self._operators[name, index] = spreading.operator(
          kernel, layer.dilation_rate, locality.sizes(reach)
        )

  def _jacobians(self, row) -> list[tf.Tensor]:
    """dg_u/dtheta [B, strip u, w] and dg_u/dx [B, strip u, window]."""
    last = len(self._network.steps) - 1
    found, deltas = self._backward("back", row, {last: self._units()}, {})
    by_pixels = self._all_pixels(deltas[0])
    shape = [by_pixels.shape[0], by_pixels.shape[1] * by_pixels.shape[2], -1]
    return [self._joined(found), tf.reshape(by_pixels, shape)]

  def _changes(self, row) -> tf.Tensor:
    """d/dx G for the pixels of a strip, [B, strip p, w]."""
    tangents = {0: self._units()}
    steps, reaches = self._network.steps, self._network.forward
    for index, step in enumerate(steps[1:], start=1):
      if not self._after[index]:
        continue
      parts = [(tangents[source], reaches[source]) for source in step.sources]
      value, reach = parts[0]
      if step.kind == "convolution":
        source = step.sources[0]
        if steps[source].kind in ("convolution", "sum"):
          value = self._grids.inside(value, reach, row)
        value = self._operators["forward", index](value)
      elif step.kind == "elementwise":
        value = value * self._grids.at(self._grids.slopes[index], reach, row)
      else:
        value = sum(_grown(*part, reaches[index]) for part in parts)
      tangents[index] = value
    return self._joined(self._backward("second", row, {}, tangents)[0])

  def _backward(self, name: str, row, deltas: dict, tangents: dict):
    """From the output to the input, for the pixels of a strip.

    Args:
      name: "back" or "second", whose reaches hold.
      row: the strip's first.
      deltas: windows of the gradient by the output, by step.
      tangents: of each step's change; with them f'' and a are changing, too.

    Returns:
      Lists of terms [B, P, D, size] by reference of the parameters, and the
      windows by step.
    """
    network = self._network
    reaches, forward = getattr(network, name), network.forward
    found = collections.defaultdict(list)

    def add(source, value, reach):
      value = _grown(value, reach, reaches[source])
      previous = deltas.get(source)
      deltas[source] = value if previous is None else previous + value

    for index in reversed(range(len(network.steps))):
      step, reach = network.steps[index], reaches[index]
      delta = deltas.get(index)
      if step.kind == "convolution":
        source = step.sources[0]
        if delta is not None and self._bare[index]:
          delta = self._grids.inside(delta, reach, row)
        if self._trained[index]:
          change = tangents.get(source)
          parts = self._products(index, row, delta, reach, change)
          for variable, part in parts:
            found[variable.ref()].append(part)
      for source in step.sources:
        if name == "second" and not self._before[source]:
          continue
        if index in self._grids.bends and source in tangents:
          bend = self._grids.at(self._grids.bends[index], forward[source], row)
          add(source, bend * tangents[source], forward[source])
        if delta is None:
          continue
        if step.kind == "convolution":
          value = self._operators[name, index](delta)
          add(source, value, locality.against(step.layer, reach))
        elif step.kind == "elementwise":
          value = delta * self._grids.at(self._grids.slopes[index], reach, row)
          add(source, value, reach)
        else:
          add(source, delta, reach)
    return found, deltas

  def _products(self, index, row, delta, reach, change) -> list:
    """sum_t a_{t + o} dd_t^T + sum_q da_q d_{q - o}^T, and sum_t dd_t."""
    step = self._network.steps[index]
    layer, source = step.layer, step.sources[0]
    taps, many = int(np.prod(layer.kernel_size)), step.channels
    few = self._network.steps[source].channels
    found = []
    if delta is not None:
      rows = _positions(self._grids.at(self._grids.patches[index], reach, row))
      kernel = tf.matmul(rows, _positions(delta), transpose_a=True)
      found.append((layer.kernel, _flat(kernel)))
      if layer.bias is not None:
        found.append((layer.bias, tf.reduce_sum(delta, [3, 4])))
    if change is not None:
      near = self._network.forward[source]
      spread = _positions(self._grids.at(self._grids.spreads[index], near, row))
      kernel = tf.matmul(_positions(change), spread, transpose_a=True)
      kernel = tf.reshape(kernel, [*kernel.shape[:3], few, taps, many])
      kernel = tf.transpose(kernel, [0, 1, 2, 4, 3, 5])
      found.append((layer.kernel, _flat(kernel)))
    return found

  def _units(self) -> tf.Tensor:
    channels = self._network.shape[2]
    unit = tf.eye(channels, dtype=tf.float64)
    return tf.reshape(unit, [1, 1, channels, 1, 1, channels])

  def _all_pixels(self, windows: tf.Tensor) -> tf.Tensor:
    batch, pixels = self._images.shape[0], self._strip * self._network.shape[1]
    return tf.broadcast_to(windows, [batch, pixels, *windows.shape[2:]])

  def _joined(self, found: dict) -> tf.Tensor:
    """[B, pixels * directions, parameters], zeros where nothing was found."""
    parts = []
    for variable in self._variables:
      size = int(np.prod(variable.shape))
      zeros = tf.zeros([1, 1, self._network.shape[2], size], tf.float64)
      terms = found.get(variable.ref(), [zeros])
      parts.append(self._all_pixels(sum(terms[1:], terms[0])))
    whole = tf.concat(parts, axis=3)
    batch, pixels, many, size = whole.shape
    return tf.reshape(whole, [batch, pixels * many, size])

  def _band_index(self, band: int) -> np.ndarray:
    """Where dg_u/dx_p stands in the windows of the rows of u near a strip.

    [band u, strip p]; one past the end if p is not in the window of u.
    """
    _, width, channels = self._network.shape
    (up, down), (left, right) = self._network.back[0]
    high, wide = up + down + 1, left + right + 1
    columns_ = np.arange(width)
    dy = np.arange(self._strip) - np.arange(band)[:, None] + down  # p - u
    dx = columns_ - columns_[:, None]
    # Axes: row, column, channel of u; then of p.
    y, x = dy[:, None, None, :, None, None], dx[None, :, None, None, :, None]
    u_row = np.arange(band)[:, None, None, None, None, None]
    u_column = columns_[:, None, None, None, None]
    u_channel = np.arange(channels)[:, None, None, None]
    flat = (u_row * width + u_column) * channels + u_channel
    flat = (flat * high + y + up) * wide + x + left
    flat = flat * channels + np.arange(channels)
    near = (-up <= y) & (y <= down) & (-left <= x) & (x <= right)
    past = band * width * channels * high * wide * channels
    index = np.where(near, flat, past).astype(np.int32)
    return index.reshape(band * width * channels, -1)


def _positions(windows: tf.Tensor) -> tf.Tensor:
  """[B, P, D, height * width, channels]."""
  shape = windows.shape
  return tf.reshape(windows, [*shape[:3], shape[3] * shape[4], shape[5]])


def _flat(kernel: tf.Tensor) -> tf.Tensor:
  return tf.reshape(kernel, [*kernel.shape[:3], -1])


def _grown(windows, reach: locality.Reach, larger: locality.Reach):
  """The windows with zeros around them."""
  if reach == larger:
    return windows
  more = [
    (after[0] - before[0], after[1] - before[1])
    for before, after in zip(reach, larger)
  ]
  return tf.pad(windows, [(0, 0), (0, 0), (0, 0), *more, (0, 0)])
