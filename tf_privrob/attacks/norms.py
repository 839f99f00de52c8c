"""Balls around the clean inputs: projection, steepest step, random point.

Every ball is intersected with the box of valid values. The centre lies in the
box, so clipping to the box first and then pulling back into the ball (a move
towards the centre in every coordinate) ends inside both.
"""

from __future__ import annotations

import abc
import math

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.attacks import randomness


class Ball(abc.ABC):
  """The set {x : norm(x - center) <= radius} within the value range.

  Bounds hold up to one rounding of x - center in the dtype of x. The radius is
  a scalar, or one per example with axes of length 1 behind (`per_example`).
  """

  def __init__(
    self,
    center: tf.Tensor,
    radius: tf.Tensor,
    value_range: tuple[float, float],
  ):
    self.center = center
    self.radius = radius
    self.value_range = value_range

  @property
  def axes(self) -> list[int]:
    """All axes but the batch."""
    return list(range(1, self.center.shape.rank))

  @property
  def dim(self) -> tf.Tensor:
    """Number of coordinates of one example."""
    return tf.size(self.center[0])

  def clip_to_range(self, x: tf.Tensor) -> tf.Tensor:
    """Clips to the box of valid values."""
    return tf.clip_by_value(x, *self.value_range)

  def project(self, x: tf.Tensor) -> tf.Tensor:
    """Maps `x` into the ball and the box."""
    delta = self.shrink(self.clip_to_range(x) - self.center)
    return self.clip_to_range(self.center + delta)

  @abc.abstractmethod
  def shrink(self, delta: tf.Tensor) -> tf.Tensor:
    """Projects perturbations onto the ball, without the box."""

  @abc.abstractmethod
  def move(self, grad: tf.Tensor, x: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """The step from `x` of norm `size` along which <step, grad> is largest."""

  @abc.abstractmethod
  def uniform(self, seed: tf.Tensor) -> tf.Tensor:
    """Draws a perturbation uniformly from the ball."""

  def _in_ball(self, raw: tf.Tensor, norm: tf.Tensor, seed: tf.Tensor):
    """Radius U^(1/d) makes a direction uniform in volume."""
    shape = tf.concat([tf.shape(raw)[:1], tf.ones_like(self.axes)], axis=0)
    share = tf.random.stateless_uniform(shape, seed, dtype=raw.dtype)
    length = share ** (1.0 / tf.cast(self.dim, raw.dtype))
    return self.radius * length * raw / norm


class LinfBall(Ball):
  """Largest coordinate; steps follow the sign of the gradient."""

  def __init__(self, center, radius, value_range):
    super().__init__(center, radius, value_range)
    self._low = self.clip_to_range(center - radius)
    self._high = self.clip_to_range(center + radius)

  def project(self, x: tf.Tensor) -> tf.Tensor:
    """Ball and box are both boxes: one clip does it."""
    return tf.minimum(tf.maximum(x, self._low), self._high)

  def shrink(self, delta: tf.Tensor) -> tf.Tensor:
    """Clips every coordinate."""
    return tf.clip_by_value(delta, -self.radius, self.radius)

  def move(self, grad, x, size):
    """Every coordinate by the sign of the gradient."""
    del x
    return size * tf.sign(grad)

  def uniform(self, seed):
    """Independent uniform coordinates."""
    shape = tf.shape(self.center)
    dtype = self.center.dtype
    return self.radius * tf.random.stateless_uniform(
      shape, seed, minval=-1, maxval=1, dtype=dtype
    )


class L2Ball(Ball):
  """Euclidean norm; steps follow the normalised gradient."""

  def _norm(self, delta: tf.Tensor) -> tf.Tensor:
    """Norm with a scale taken out, so that tiny gradients do not underflow."""
    largest = tf.reduce_max(tf.abs(delta), self.axes, keepdims=True)
    scaled = tf.math.divide_no_nan(delta, largest)
    squares = tf.reduce_sum(tf.square(scaled), self.axes, keepdims=True)
    return largest * tf.sqrt(squares)

  def shrink(self, delta):
    """Scales down to the radius where the norm exceeds it."""
    norm = self._norm(delta)
    return delta * tf.where(
      norm > self.radius, tf.math.divide_no_nan(self.radius, norm), 1.0
    )

  def move(self, grad, x, size):
    """The gradient, normalised; zero where it is zero."""
    del x
    return size * tf.math.divide_no_nan(grad, self._norm(grad))

  def uniform(self, seed):
    """A normal direction with radius U^(1/d)."""
    first, second = randomness.fold(seed, 0), randomness.fold(seed, 1)
    raw = tf.random.stateless_normal(
      tf.shape(self.center), first, dtype=self.center.dtype
    )
    return self._in_ball(raw, self._norm(raw), second)


class L1Ball(Ball):
  """Sum of absolute values; steps fill up the top coordinates."""

  def _flat(self, delta: tf.Tensor) -> tf.Tensor:
    return tf.reshape(delta, [tf.shape(delta)[0], self.dim])

  def _column(self, length: tf.Tensor) -> tf.Tensor:
    """A scalar as it is; one length per example as a column."""
    length = tf.convert_to_tensor(length, self.center.dtype)
    return tf.reshape(length, [-1, 1]) if length.shape.rank else length

  def shrink(self, delta):
    """Exact Euclidean projection (Duchi et al. 2008), batched.

    Soft thresholding by theta = max_k (sum of the k largest - radius) / k, or
    by nothing inside the ball: (S_k - radius) / k <= theta for every k, with
    equality at the number of coordinates that stay non-zero.
    """
    size = tf.abs(self._flat(delta))
    ordered = tf.sort(size, direction="DESCENDING")
    counts = tf.cast(tf.range(1, self.dim + 1), delta.dtype)
    excess = tf.cumsum(ordered, axis=1) - self._column(self.radius)
    excess /= counts
    theta = tf.maximum(tf.reduce_max(excess, axis=1, keepdims=True), 0.0)
    kept = tf.maximum(size - theta, 0.0)
    kept *= tf.sign(self._flat(delta))
    return tf.reshape(kept, tf.shape(delta))

  def move(self, grad, x, size):
    """Fills up the top coordinates of the gradient, as far as the box allows.

    The maximiser of <d, grad> over ||d||_1 <= size with x + d in the box, a
    fractional knapsack: coordinates in the order of |grad|, each to the end of
    its range, until the length is used up. Far from the box it moves the one
    top coordinate, as cleverhans does; near the box cleverhans loses most of
    the step to clipping.
    """
    low, high = self.value_range
    grad, x = self._flat(grad), self._flat(x)
    room = tf.where(grad > 0, high - x, x - low)
    room = tf.where(grad == 0, tf.zeros_like(room), room)
    order = tf.argsort(tf.abs(grad), direction="DESCENDING")
    room = tf.gather(room, order, batch_dims=1)
    left = self._column(size) - tf.cumsum(room, axis=1, exclusive=True)
    filled = tf.minimum(tf.maximum(left, 0.0), room)
    filled = tf.gather(filled, tf.argsort(order), batch_dims=1)
    return tf.reshape(filled * tf.sign(grad), tf.shape(self.center))

  def uniform(self, seed):
    """A Laplace direction, centred, with radius U^(1/d)."""
    shape, dtype = tf.shape(self.center), self.center.dtype
    seeds = [randomness.fold(seed, number) for number in range(2)]
    signed = tf.random.stateless_uniform(
      shape, seeds[0], minval=-1, maxval=1, dtype=dtype
    )
    below_one = tf.minimum(tf.abs(signed), 1 - 1e-7)
    raw = -tf.sign(signed) * tf.math.log1p(-below_one)
    norm = tf.reduce_sum(tf.abs(raw), self.axes, keepdims=True)
    return self._in_ball(raw, norm, seeds[1])


_BALLS = {"l1": L1Ball, "l2": L2Ball, "linf": LinfBall}
NORMS = tuple(_BALLS)


def per_example(length: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
  """A scalar as it is; one length per example, ready to multiply `x`.

  Raises:
    ValueError: For another number of lengths than there are examples.
  """
  if length.shape.rank == 0:
    return length
  given, wanted = length.shape.num_elements(), x.shape[0]
  if None not in (given, wanted) and given != wanted:
    raise ValueError(
      f"Expected one attack_eps, or one for each of {wanted} examples, received"
      f" shape {length.shape}."
    )
  return tf.reshape(length, [-1] + [1] * (x.shape.rank - 1))


def ball(
  norm: str,
  center: tf.Tensor,
  radius: tf.Tensor,
  value_range: tuple[float, float],
) -> Ball:
  """Returns the ball of `norm` around `center`, within the value range."""
  validate.one_of(NORMS, norm=norm)
  return _BALLS[norm](center, radius, value_range)


def whole_range(
  norm: str, shape: tuple[int, ...], value_range: tuple[float, float]
) -> float:
  """Radius from which on a ball around any input covers the whole box."""
  width = value_range[1] - value_range[0]
  dim = math.prod(shape)
  return width * {"l1": dim, "l2": math.sqrt(dim), "linf": 1.0}[norm]
