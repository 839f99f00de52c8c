"""Random Fourier features: a Gaussian kernel's features, seen by no data."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from tf_privrob import mechanisms
from tf_privrob import validate

# Rounds the amplitude down by more than float32 can round the values up, so
# that bounds on the norm hold for what is computed.
_SHRINK = 1 - 2.0**-22


@tf.keras.saving.register_keras_serializable("tf_privrob")
class RandomFourierFeatures(tf.keras.layers.Layer):
  """z(x) = sqrt(2 / D) cos(Omega x + phase), D = num_features.

  Rahimi and Recht (2007): with the entries of Omega from N(0, 1 /
  length_scale^2) and phases uniform in [0, 2 pi), <z(x), z(y)> has expectation
  exp(-|x - y|^2 / (2 length_scale^2)) and standard deviation of order 1 /
  sqrt(D). Omega and phase follow from `seed` and the number of inputs, never
  from data, so the layer costs no privacy; they are saved with the model as
  weights that are not trained.

  Bounds, for every x and every draw, in float32 and float64:

  * ||z(x)||_2 <= sqrt(2), and <= 1 with `normalize`, which divides by sqrt(2):
    the sensitivity of a sum of features under add-or-remove-one;
  * ||z(x) - z(y)||_2 <= sqrt(2 / D) ||Omega (x - y)||_2, as |cos'| <= 1:
    `certify.feature_bound` computes the constant for l1, l2 and linf.

  The features are computed in float64 and rounded once, to the layer's own
  type: rounding moves them by 2^-24 of their size, whatever x is, and so
  hardly touches what is certified.

  Args:
    num_features: D.
    length_scale: Scale of the kernel, in units of the inputs.
    seed: Seed of Omega and phase; public.
    normalize: Divide by sqrt(2), for norms of at most 1.
    **kwargs: Keras' own.
  """

  row_wise = True  # for `gradients`
  weights_from_config = True  # for `models.redraw`

  def __init__(
    self,
    num_features: int,
    length_scale: float = 1.0,
    seed: int = 0,
    normalize: bool = False,
    **kwargs,
  ):
    super().__init__(**kwargs)
    validate.positive_int(num_features=num_features)
    validate.positive(length_scale=length_scale)
    mechanisms.stateless_seed(seed)
    if not isinstance(seed, (int, np.integer)):
      raise ValueError(
        f"Expected seed={seed!r} to be a 64-bit whole number: a layer's seed is"
        " part of its settings."
      )
    self.num_features = int(num_features)
    self.length_scale = float(length_scale)
    self.seed = int(seed)
    self.normalize = bool(normalize)

  @property
  def amplitude(self) -> float:
    """The factor of the cosines."""
    size = (1.0 if self.normalize else 2.0) / self.num_features
    return math.sqrt(size) * _SHRINK

  def build(self, input_shape):
    """Draws Omega [inputs, D] and phase [D]."""
    if len(input_shape) != 2 or input_shape[1] is None:
      raise ValueError(
        "Expected vectors [batch, inputs] of known length, received inputs of"
        f" shape {tuple(input_shape)}. Put a Flatten layer before"
        f" {self.name!r}."
      )
    seeds = tf.random.split(mechanisms.stateless_seed(self.seed), 2, "philox")

    def frequencies(shape, dtype=None):
      drawn = tf.random.stateless_normal(shape, seeds[0], alg="philox")
      return tf.cast(drawn / self.length_scale, dtype)

    def phases(shape, dtype=None):
      drawn = tf.random.stateless_uniform(shape, seeds[1], alg="philox")
      return tf.cast(2 * math.pi * drawn, dtype)

    self.frequencies = self.add_weight(
      "frequencies",
      [input_shape[1], self.num_features],
      tf.float32,
      frequencies,
      trainable=False,
      experimental_autocast=False,
    )
    self.phases = self.add_weight(
      "phases",
      [self.num_features],
      tf.float32,
      phases,
      trainable=False,
      experimental_autocast=False,
    )
    super().build(input_shape)

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """The features of each vector."""
    angles = tf.cast(inputs, tf.float64) @ tf.cast(self.frequencies, tf.float64)
    angles += tf.cast(self.phases, tf.float64)
    return tf.cast(self.amplitude * tf.cos(angles), self.compute_dtype)

  def compute_output_shape(self, input_shape):
    """Shape of the features."""
    return (input_shape[0], self.num_features)

  def get_config(self) -> dict:
    """The settings, for saving."""
    return {
      **super().get_config(),
      "num_features": self.num_features,
      "length_scale": self.length_scale,
      "seed": self.seed,
      "normalize": self.normalize,
    }
