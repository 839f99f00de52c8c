"""Noise as a layer: one fixed draw, or a fresh one for every call."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_privrob import mechanisms
from tf_privrob import validate


class Noise(tf.keras.layers.Layer):
  """Adds noise of one law to its inputs; a subclass gives `sample`.

  With `fixed`, one draw of the shape of one example is made when the layer is
  built, is added to every example, and is saved with the weights: that is how
  DPAL trains (Algorithm 1, line 3). It hides no example from another:
  (x_i + chi) - (x_j + chi) = x_i - x_j.

  Otherwise every example of every call gets its own draw. The draws follow a
  counter, so that they never repeat and a run can be repeated; pass `seed` to
  `call` where the caller keeps count, as attacks and certifiers do.

  Unlike Keras' own noise layers, it also acts at inference, unless
  `at_inference=False`.

  Args:
    scale: Scale of the noise; 0 adds none.
    fixed: One draw for all, or a fresh one for each example and call.
    seed: Seed of the draws, explicit.
    at_inference: Whether noise is added when not training.
    copied_channels: Draw one value per pixel and copy it to all channels, as
      the released CIFAR-10 code does. Perturbations with channel sum zero then
      meet no noise at all.
    **kwargs: Keras' own.
  """

  def __init__(
    self,
    scale: float,
    fixed: bool = True,
    seed: int = 0,
    at_inference: bool = True,
    copied_channels: bool = False,
    **kwargs,
  ):
    super().__init__(**kwargs)
    validate.non_negative(scale=scale)
    mechanisms.stateless_seed(seed)
    if not isinstance(seed, (int, np.integer)):
      raise ValueError(
        f"Expected seed={seed!r} to be a 64-bit whole number: a layer's seed is"
        " part of its settings. Pass a pair to `call`."
      )
    self.scale = float(scale)
    self.fixed = bool(fixed)
    self.seed = int(seed)
    self.at_inference = bool(at_inference)
    self.copied_channels = bool(copied_channels)

  @property
  def weights_from_config(self) -> bool:
    """Whether settings give all weights, for `models.redraw`: a counter."""
    return not self.fixed

  def build(self, input_shape):
    """Makes the fixed draw, or the counter of fresh ones."""
    shape = [1, *input_shape[1:]]
    if None in shape:
      raise ValueError(
        f"Expected inputs of known shape for noise, received {input_shape}."
      )
    if self.copied_channels and len(shape) < 3:
      raise ValueError(
        "Expected inputs with a channel axis after those of the positions for"
        f" copied_channels=True, received {tuple(input_shape)}: one draw would"
        " be copied to all features."
      )
    if self.fixed:
      self.noise = self.add_weight(
        "noise",
        shape,
        initializer=lambda shape, dtype=None: self.draw(shape, self.seed),
        trainable=False,
      )
    else:
      self.calls = self.add_weight(
        "calls", [], tf.int64, initializer="zeros", trainable=False
      )
    super().build(input_shape)

  def sample(self, shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Independent draws of the layer's law."""
    raise NotImplementedError

  def draw(self, shape, seed) -> tf.Tensor:
    """The noise that inputs of this shape get from a seed."""
    if not self.scale:
      return tf.zeros(shape)
    shape = tf.convert_to_tensor(shape, tf.int32)
    drawn = tf.concat([shape[:-1], [1]], 0) if self.copied_channels else shape
    return tf.broadcast_to(self.sample(drawn, seed), shape)

  def call(
    self,
    inputs: tf.Tensor,
    training: bool | None = None,
    seed: tf.Tensor | None = None,
  ) -> tf.Tensor:
    """The inputs with noise."""
    if not (training or self.at_inference):
      return inputs
    if self.fixed:
      return inputs + self.noise
    if seed is None:
      base = mechanisms.stateless_seed(self.seed)
      seed = tf.random.experimental.stateless_fold_in(base, self.calls)
      self.calls.assign_add(1)
    return inputs + self.draw(tf.shape(inputs), seed)

  def compute_output_shape(self, input_shape):
    """Shape of the inputs."""
    return input_shape

  def get_config(self) -> dict:
    """The settings; a fixed draw is a weight, whose seed need not be known."""
    return {
      **super().get_config(),
      "scale": self.scale,
      "fixed": self.fixed,
      "seed": 0 if self.fixed else self.seed,
      "at_inference": self.at_inference,
      "copied_channels": self.copied_channels,
    }


@tf.keras.saving.register_keras_serializable("tf_privrob")
class LaplaceNoise(Noise):
  """Adds Lap(scale) to its inputs; see `Noise` for the settings."""

  row_wise = True  # for `gradients`

  def sample(self, shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws of Lap(scale), by `mechanisms.LaplaceMechanism`."""
    return mechanisms.LaplaceMechanism(self.scale, 1.0).sample(shape, seed)


@tf.keras.saving.register_keras_serializable("tf_privrob")
class GaussianNoise(Noise):
  """Adds N(0, scale^2) to its inputs; see `Noise` for the settings.

  It serves robustness. `tf.random.stateless_normal`, which is fast, never
  leaves 5.68 standard deviations: for a private release use
  `mechanisms.GaussianMechanism`.
  """

  row_wise = True  # for `gradients`

  def sample(self, shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws of N(0, scale^2)."""
    return tf.random.stateless_normal(
      shape, mechanisms.stateless_seed(seed), stddev=self.scale
    )
