"""What every additive mechanism answers."""

from __future__ import annotations

import abc
from typing import Any
from typing import TYPE_CHECKING
from typing import Union

import numpy as np
import tensorflow as tf

from tf_privrob import randomness

if TYPE_CHECKING:
  import dp_accounting

Seed = Union[int, tf.Tensor, randomness.Key]
Size = Union[int, tf.Tensor]
Uniform = Union[np.ndarray, tf.Tensor]
Shape = Any  # Whatever `tf.TensorShape` or `tf.shape` accept.

_INT64 = np.iinfo(np.int64)


def stateless_seed(seed: Seed) -> tf.Tensor:
  """Returns the shape-[2] seed of the `tf.random.stateless_*` functions.

  Args:
    seed: A whole number, or an integer tensor of shape [2]. Independent streams
      come from `tf.random.experimental.stateless_fold_in`, never from the same
      seed used twice.

  Raises:
    ValueError: For anything else.
  """
  if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
    if _INT64.min <= seed <= _INT64.max:
      return tf.constant([0, int(seed)], tf.int64)
  elif not isinstance(seed, (bool, float, str, bytes, type(None))):
    tensor = tf.convert_to_tensor(seed)
    if tensor.dtype in (tf.int32, tf.int64) and tensor.shape == [2]:
      return tensor
  raise ValueError(
    f"Expected seed={seed!r} to be a 64-bit whole number or an integer tensor"
    " of shape [2]."
  )


class Mechanism(abc.ABC):
  """Adds noise of a known law to a query of known sensitivity.

  A subclass is a frozen dataclass that validates its fields and states its
  formal guarantee. The sensitivity is the largest change of the query between
  two neighbouring data sets, so the neighbouring relation of the guarantee is
  the one under which the caller computed the sensitivity: add-or-remove-one
  throughout this library unless a statement says otherwise.

  **Floating point.** The guarantees hold for real numbers. Noise that is drawn
  and added in floating point has holes and rounding that depend on the data
  (Mironov 2012), and `tf.random`'s Philox generator is not cryptographic. The
  risk is theoretical for trained weights and real for an interactive query
  interface: do not serve exact low-order bits to an adversary.
  """

  @property
  @abc.abstractmethod
  def noise_multiplier(self) -> float:
    """The scale of the noise over the sensitivity."""

  @abc.abstractmethod
  def uniforms_needed(self, size: Size) -> Size:
    """How many uniform numbers make noise of `size` elements."""

  @abc.abstractmethod
  def from_uniform(
    self, uniform: Uniform, shape: Shape, dtype: tf.DType = tf.float32
  ) -> tf.Tensor:
    """Turns independent uniform numbers into noise.

    Args:
      uniform: `uniforms_needed` numbers in [0, 1), float64. Whoever knows them
        knows the noise: they come from a secret `Key` or, in `sample`, from a
        seed.
      shape: Shape of the noise.
      dtype: Type of the noise.
    """

  @abc.abstractmethod
  def event(self) -> dp_accounting.DpEvent:
    """The event that an accountant composes for one use."""

  @abc.abstractmethod
  def dp_epsilon_at(self, dp_delta: float) -> float:
    """The smallest dp_epsilon of one use at this dp_delta."""

  def sample(
    self, shape: Shape, seed: Seed, dtype: tf.DType = tf.float32
  ) -> tf.Tensor:
    """Draws noise; the same seed gives the same noise.

    A `randomness.Key` gives noise that pays for privacy, outside of graphs; any
    other seed gives noise that is good for experiments.
    """
    size = tf.reduce_prod(tf.cast(shape, tf.int32))
    if isinstance(seed, randomness.Key):
      uniform = seed.uniform(int(self.uniforms_needed(size)))
      return self.from_uniform(uniform, shape, dtype)
    uniform = tf.random.stateless_uniform(
      [self.uniforms_needed(size)], stateless_seed(seed), dtype=tf.float64
    )
    return self.from_uniform(uniform, shape, dtype)

  def add_noise(self, x: tf.Tensor, seed: Seed) -> tf.Tensor:
    """Returns `x` plus noise of its shape and floating-point type."""
    x = tf.convert_to_tensor(x)
    if not x.dtype.is_floating:
      raise ValueError(
        f"Expected a floating-point tensor, received dtype {x.dtype.name}."
        " Noise would be rounded away: cast the query first."
      )
    shape = x.shape if x.shape.is_fully_defined() else tf.shape(x)
    return x + self.sample(shape, seed, x.dtype)


def as_uniforms(uniform: Uniform) -> tf.Tensor:
  """Uniform numbers as a tensor; requires those of float64."""
  found = tf.convert_to_tensor(uniform)
  if found.dtype != tf.float64 or found.shape.rank != 1:
    raise ValueError(
      "Expected uniform numbers of dtype float64 in one axis, whose 53 bits the"
      f" tails of the noise need, received {found.dtype.name} of shape"
      f" {found.shape}. Draw them with Key.uniform."
    )
  return found


def working_dtype(dtype: tf.DType) -> tf.DType:
  """The type to compute noise in: `dtype`, but never below float32."""
  dtype = tf.as_dtype(dtype)
  if not dtype.is_floating:
    raise ValueError(
      f"Expected a floating-point dtype for noise, received {dtype.name}."
    )
  return tf.float64 if dtype == tf.float64 else tf.float32
