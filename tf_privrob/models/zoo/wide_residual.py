"""The wide residual network of adversarial training on CIFAR-10."""

from __future__ import annotations

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.models.zoo import building
from tf_privrob.models.zoo import robust_networks

_layers = tf.keras.layers
SHORTCUTS = ("padding", "convolution")


def wide_resnet(
  input_shape: building.Shape = (32, 32, 3),
  num_classes: int = 10,
  scale: int = 10,
  units: int = 5,
  slope: float = 0.1,
  shortcut: str = "padding",
  standardize: bool = True,
  seed: int | None = None,
) -> tf.keras.Model:
  """A convolution of 16 channels, three groups of residual units, one layer.

  Groups have 16s, 32s and 64s channels, strides 1, 2 and 2, and `units` units
  of twice batch normalisation, activation, convolution. The defaults are Madry
  et al.'s network as CCS 2019's code has it; its copy for WRM has slope=0; that
  for TRADES is WRN-34-10: slope=0, shortcut="convolution", standardize=False.

  It has batch normalisation, so that it cannot be trained privately. The
  standardisation of each image divides by sqrt(variance + 1e-6), where the
  original divides by the standard deviation, at least 1 / sqrt(values): the
  same but for nearly constant images.

  Args:
    input_shape: height, width, channels of an image.
    num_classes: number of logits.
    scale: s, the capacity; 10 in the paper.
    units: residual units of a group.
    slope: of the leaky ReLUs below zero.
    shortcut: where channels change: "padding" averages and adds channels of
      zeros; "convolution" is one of 1x1.
    standardize: each image to mean 0 and variance 1 first.
    seed: of the initial weights; public, see `building.seeds`.
  """
  building.require_images(input_shape, smallest=8, name="wide_resnet")
  validate.positive_int(scale=scale, units=units, num_classes=num_classes)
  validate.non_negative(slope=slope)
  validate.one_of(SHORTCUTS, shortcut=shortcut)
  s = building.seeds(seed)

  def activate(hidden):
    hidden = _layers.BatchNormalization(momentum=0.9)(hidden)
    return _layers.LeakyReLU(slope)(hidden) if slope else _layers.ReLU()(hidden)

  def conv(hidden, filters, size=3, stride=1):
    return _layers.Conv2D(
      filters,
      size,
      stride,
      "same",
      use_bias=False,
      kernel_initializer=robust_networks.fan_out_normal(size, filters, next(s)),
    )(hidden)

  def unit(hidden, filters, stride, is_first):
    changes = hidden.shape[-1] != filters
    active = activate(hidden)
    # What is skipped: with padding, the activation in the first unit only.
    through_activation = is_first or (changes and shortcut == "convolution")
    skipped = active if through_activation else hidden
    inside = conv(active, filters, 3, stride)
    inside = conv(activate(inside), filters)
    if changes and shortcut == "convolution":
      skipped = conv(skipped, filters, 1, stride)
    elif changes:
      skipped = _padded(skipped, filters, stride)
    return _layers.Add()([inside, skipped])

  hidden = inputs = tf.keras.Input(tuple(input_shape))
  if standardize:
    hidden = _layers.LayerNormalization(
      [1, 2, 3], epsilon=1e-6, center=False, scale=False
    )(hidden)
  hidden = conv(hidden, 16)
  for group, stride in enumerate((1, 2, 2)):
    for number in range(units):
      hidden = unit(
        hidden,
        16 * scale * 2**group,
        stride if number == 0 else 1,
        is_first=group == number == 0,
      )
  hidden = _layers.GlobalAveragePooling2D()(activate(hidden))
  outputs = _layers.Dense(
    num_classes,
    kernel_initializer=tf.keras.initializers.VarianceScaling(
      distribution="uniform", seed=next(s)
    ),
  )(hidden)
  return tf.keras.Model(inputs, outputs, name="wide_resnet")


def _padded(hidden, filters: int, stride: int):
  """Averages over the stride, with channels of zeros on both sides."""
  if stride > 1:
    hidden = _layers.AveragePooling2D(stride)(hidden)
  missing = filters - hidden.shape[-1]
  before = missing // 2
  # It pads the last two axes: read as such, columns and channels.
  return _layers.ZeroPadding2D(
    ((0, 0), (before, missing - before)), data_format="channels_first"
  )(hidden)
