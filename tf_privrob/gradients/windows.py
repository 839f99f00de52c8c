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

from tf_privrob.gradients import locality
from tf_privrob.gradients import patches

# A convolution of windows as one matrix costs (window / kernel) times as many
# products, which are about 10 times as fast.
_MATRIX_ADVANTAGE = 10
_MATRIX_LIMIT = 2**20


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
  return max(n for n in range(1, max(1, most) + 1) if number % n == 0)


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
    # Whether a step's gradient, or its change, is of any use in the 2nd pass.
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
    self._bare = [  # read by something that does not vanish outside the image
      any(index in s.sources and s.kind != "elementwise" for s in steps)
      for index in range(len(steps))
    ]
    self._margin = locality.union(
      *network.forward, *network.back, *network.second
    )
    self._maps()
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

  def _maps(self) -> None:
    """What is the same for all pixels, on the grid, with a margin of zeros."""
    steps = self._network.steps
    values = []
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(self._images)
      for step in steps:
        sources = [values[source] for source in step.sources]
        values.append(_value(step, sources) if sources else self._images)
      errors = values[-1] - tf.stop_gradient(self._images)
      loss = tf.reduce_sum(errors**2)
    gradients = tape.gradient(loss, values)
    self._slopes, self._bends = {}, {}
    self._patches, self._spreads = {}, {}
    ones = tf.ones([1, *self._network.shape[:2], 1], tf.float64)
    self._mask = self._framed(ones)
    for index, step in enumerate(steps):
      if step.kind == "elementwise":
        slope, bend = _derivatives(step.function, values[step.sources[0]])
        self._slopes[index] = self._framed(slope)
        if bend is not None:
          self._bends[index] = self._framed(bend * gradients[index])
      if self._trained[index]:
        layer = step.layer
        rows = patches.extract(
          values[step.sources[0]],
          layer.kernel_size,
          (1, 1),
          "same",
          layer.dilation_rate,
        )
        self._patches[index] = self._framed(self._on_grid(rows))
        spread = self._on_grid(_spread(layer, gradients[index]))
        self._spreads[index] = self._framed(spread)

  def _on_grid(self, rows: tf.Tensor) -> tf.Tensor:
    batch, (height, width, _) = self._images.shape[0], self._network.shape
    return tf.reshape(rows, [batch, height, width, rows.shape[-1]])

  def _framed(self, grid: tf.Tensor) -> tf.Tensor:
    return tf.pad(grid, [(0, 0), *self._margin, (0, 0)])

  def _at(self, grid: tf.Tensor, reach: locality.Reach, row) -> tf.Tensor:
    """The windows of a map around the strip's pixels."""
    (up, down), (left, right) = reach
    width = self._network.shape[1]
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
        self._operators[name, index] = _operator(
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
          value = self._inside(value, reach, row)
        value = self._operators["forward", index](value)
      elif step.kind == "elementwise":
        value = value * self._at(self._slopes[index], reach, row)
      else:
        value = sum(_grown(*part, reaches[index]) for part in parts)
      tangents[index] = value
    return self._joined(self._backward("second", row, {}, tangents)[0])

  def _backward(self, name: str, row, deltas: dict, tangents: dict):
    """Gradients (or, with tangents, their changes) and those of parameters."""
    network = self._network
    reaches, forward = getattr(network, name), network.forward
    found = collections.defaultdict(list)

    def add(source, value, reach):
      value = _grown(value, reach, reaches[source])
      previous = deltas.get(source)
      deltas[source] = value if previous is None else previous + value

    for index in reversed(range(len(network.steps))):
      step, delta, reach = (
        network.steps[index],
        deltas.get(index),
        reaches[index],
      )
      if step.kind == "convolution":
        source = step.sources[0]
        if delta is not None and self._bare[index]:
          delta = self._inside(delta, reach, row)
        if self._trained[index]:
          change = tangents.get(source)
          parts = self._products(index, row, delta, reach, change)
          for variable, part in parts:
            found[variable.ref()].append(part)
      for source in step.sources:
        if name == "second" and not self._before[source]:
          continue
        if step.kind == "elementwise" and index in self._bends:
          if source in tangents:
            bend = self._at(self._bends[index], forward[source], row)
            add(source, bend * tangents[source], forward[source])
        if delta is None:
          continue
        if step.kind == "convolution":
          value = self._operators[name, index](delta)
          add(source, value, locality.against(step.layer, reach))
        elif step.kind == "elementwise":
          value = delta * self._at(self._slopes[index], reach, row)
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
      rows = _positions(self._at(self._patches[index], reach, row))
      kernel = tf.matmul(rows, _positions(delta), transpose_a=True)
      found.append((layer.kernel, _flat(kernel)))
      if layer.bias is not None:
        found.append((layer.bias, tf.reduce_sum(delta, [3, 4])))
    if change is not None:
      near = self._network.forward[source]
      spread = _positions(self._at(self._spreads[index], near, row))
      kernel = tf.matmul(_positions(change), spread, transpose_a=True)
      kernel = tf.reshape(kernel, [*kernel.shape[:3], few, taps, many])
      kernel = tf.transpose(kernel, [0, 1, 2, 4, 3, 5])
      found.append((layer.kernel, _flat(kernel)))
    return found

  def _units(self) -> tf.Tensor:
    channels = self._network.shape[2]
    unit = tf.eye(channels, dtype=tf.float64)
    return tf.reshape(unit, [1, 1, channels, 1, 1, channels])

  def _inside(self, windows, reach, row) -> tf.Tensor:
    """Zero outside the image."""
    if reach == locality.POINT:
      return windows
    return windows * self._at(self._mask, reach, row)

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


def _value(step: locality.Step, sources: list) -> tf.Tensor:
  if step.kind == "sum":
    return tf.add_n(sources)
  if step.kind == "elementwise":
    return step.function(sources[0])
  layer = step.layer
  kernel = _stuffed(layer.kernel, layer.dilation_rate)
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


def _stuffed(kernel: tf.Tensor, rates: tuple[int, int]) -> tf.Tensor:
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


def _operator(kernel: tf.Tensor, rates, window: tuple[int, int]):
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
  stuffed = None if matrix is not None else _stuffed(kernel, rates)

  def apply(windows):
    leading = windows.shape[:3]
    if matrix is None:
      flat = tf.reshape(windows, [-1, *window, shape[2]])
      around = [(more, more) for more in spread]
      flat = tf.pad(flat, [(0, 0), *around, (0, 0)])
      flat = tf.nn.conv2d(flat, stuffed, 1, "VALID")
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
