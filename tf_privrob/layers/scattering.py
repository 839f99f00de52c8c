"""Fixed image features: local energies of oriented waves, seen by no data."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import validate

_LOW_PASS_SIZE = 7
_LOW_PASS_STDDEV = 2.0
_MAX_FILTERS = 2**22  # a file that is loaded names size and number
SMALLEST = 1e-6  # keeps the slope of the modulus finite at 0


def gabor_bank(
  size: int, orientations: int, scales: Sequence[Sequence[float]]
) -> np.ndarray:
  """Gabor waves [size, size, 1, 2 F]: F real parts, then F imaginary ones.

  A wave is g(u) exp(2 pi i u.d / wavelength) with a Gaussian envelope g of
  standard deviation `envelope` and direction d, less its mean (so that flat
  regions give 0). Real and imaginary part together have squared norm 2: on
  white noise every response has the variance of the noise, about.

  Args:
    size: Side of the filters in pixels.
    orientations: Directions, evenly spread over half a turn.
    scales: Pairs (envelope, wavelength) in pixels.
  """
  places = np.arange(size) - (size - 1) / 2
  columns, rows = np.meshgrid(places, places)
  waves = []
  for envelope, wavelength in scales:
    bump = np.exp(-(rows**2 + columns**2) / (2 * envelope**2))
    for number in range(orientations):
      angle = math.pi * number / orientations
      along = columns * math.cos(angle) + rows * math.sin(angle)
      wave = bump * np.exp(2j * math.pi * along / wavelength)
      wave -= bump * (wave.sum() / bump.sum())
      waves.append(wave * math.sqrt(2) / np.linalg.norm(wave))
  stacked = np.stack(waves, axis=-1)
  bank = np.concatenate([stacked.real, stacked.imag], axis=-1)
  return bank[:, :, np.newaxis].astype(np.float32)


@tf.keras.saving.register_keras_serializable("tf_privrob")
class Scattering(tf.keras.layers.Layer):
  """First-order scattering: local means of |x * wave|, and of x itself.

  Mallat (2012); that fixed features of this kind serve private learning is
  due to Tramèr and Boneh (2021). The layer has no weights: filters follow from
  its settings, never from data, so it costs no privacy. It is a deterministic
  function of its input, so every certificate of the whole network holds end to
  end. Averages of moduli change slowly under small shifts and under white
  noise, which is why a classifier on top keeps its class under smoothing.

  Input channels are transformed one by one. Output, for images of height H:
  [ceil(H / strides) / pool, ..., channels * (len(scales) * orientations + 1)].

  Args:
    size: Side of the filters in pixels.
    orientations: Directions of the waves.
    scales: Pairs (envelope, wavelength) in pixels.
    strides: Strides of the filters.
    pool: Side of the local means.
    **kwargs: Keras' own.
  """

  row_wise = True  # for `gradients`

  def __init__(
    self,
    size: int = 11,
    orientations: int = 8,
    scales: Sequence[Sequence[float]] = ((1.5, 4.0), (2.5, 7.0)),
    strides: int = 2,
    pool: int = 2,
    **kwargs,
  ):
    super().__init__(**kwargs)
    validate.positive_int(
      size=size, orientations=orientations, strides=strides, pool=pool
    )
    if not len(scales) or any(len(pair) != 2 for pair in scales):
      raise ValueError(
        f"Expected scales={scales!r} to be pairs (envelope, wavelength)."
      )
    for envelope, wavelength in scales:
      validate.positive(envelope=envelope, wavelength=wavelength)
    if size * size * orientations * len(scales) > _MAX_FILTERS:
      raise ValueError(
        f"Expected filters of at most {_MAX_FILTERS} numbers in all, received"
        f" {len(scales)} x {orientations} of {size} x {size}. Take fewer or"
        " smaller ones."
      )
    self.size = int(size)
    self.orientations = int(orientations)
    self.scales = tuple((float(e), float(w)) for e, w in scales)
    self.strides = int(strides)
    self.pool = int(pool)

  def build(self, input_shape):
    """Makes the filters; they are constants, not weights."""
    if len(input_shape) != 4:
      raise ValueError(
        "Expected images [batch, height, width, channels], received inputs of"
        f" shape {tuple(input_shape)}."
      )
    waves = gabor_bank(self.size, self.orientations, self.scales)
    places = np.arange(_LOW_PASS_SIZE) - (_LOW_PASS_SIZE - 1) / 2
    bump = np.exp(-(places**2) / (2 * _LOW_PASS_STDDEV**2))
    low = np.outer(bump, bump)
    self._waves = waves
    self._low = (low / np.linalg.norm(low)).astype(np.float32)[..., None, None]
    super().build(input_shape)

  @property
  def filters(self) -> tuple[np.ndarray, np.ndarray]:
    """The waves, see `gabor_bank`, and the low pass [7, 7, 1, 1], once built.

    A feature is a mean over `pool` x `pool` places of sqrt(a^2 + b^2 +
    SMALLEST), a and b the responses to both parts of a wave, or of the response
    to the low pass.
    """
    return self._waves, self._low

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """The features of each image."""
    height, width, channels = inputs.shape[1:]
    planes = inputs
    if channels > 1:  # each channel is an image of its own
      planes = tf.transpose(inputs, [0, 3, 1, 2])
      planes = tf.reshape(planes, [-1, height, width, 1])
    real, imaginary = tf.split(self._filter(planes, self._waves), 2, axis=-1)
    energy = tf.sqrt(real**2 + imaginary**2 + SMALLEST)
    found = tf.concat([energy, self._filter(planes, self._low)], axis=-1)
    found = tf.nn.avg_pool2d(found, self.pool, self.pool, "VALID")
    if channels > 1:
      shape = [-1, channels, *found.shape[1:]]
      found = tf.transpose(tf.reshape(found, shape), [0, 2, 3, 1, 4])
      found = tf.reshape(found, [-1, *found.shape[1:3], shape[1] * shape[-1]])
    return found

  def _filter(self, planes: tf.Tensor, bank: np.ndarray) -> tf.Tensor:
    bank = tf.cast(bank, planes.dtype)
    return tf.nn.conv2d(planes, bank, self.strides, "SAME")

  def compute_output_shape(self, input_shape):
    """Shape of the features."""
    sides = [
      None if side is None else math.ceil(side / self.strides) // self.pool
      for side in input_shape[1:3]
    ]
    features = len(self.scales) * self.orientations + 1
    return (input_shape[0], *sides, input_shape[3] * features)

  def get_config(self) -> dict:
    """The settings, for saving."""
    return {
      **super().get_config(),
      "size": self.size,
      "orientations": self.orientations,
      "scales": [list(pair) for pair in self.scales],
      "strides": self.strides,
      "pool": self.pool,
    }
