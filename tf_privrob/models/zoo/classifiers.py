"""Classifiers trained on public data, to be frozen behind a denoiser.

TransDenoiser's text gives their kind and accuracy (12 layers with residual
blocks, 99.3 % on MNIST; VGG16 with a new top, 86 % on CIFAR-10) and no shapes:
widths, strides and tops are chosen here. They may use batch normalisation,
since they are trained without privacy and frozen afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.models import marks
from tf_privrob.models.zoo import building

_layers = tf.keras.layers
# Moving averages forget within ten steps: a few epochs must be enough.
_MOMENTUM = 0.9
_VGG16 = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))  # convolutions, width factor


def residual_mnist(
  input_shape: building.Shape = (28, 28, 1),
  num_classes: int = 10,
  width: int = 16,
  seed: int | None = None,
) -> tf.keras.Model:
  """A residual network of 12 weight layers: 237,914 weights for MNIST.

  A convolution, five blocks of two convolutions, a dense layer. Blocks of
  stride 2 come first, which spares work at full resolution. A shortcut has no
  weights: where a block halves the image it is averaged, and where a block
  doubles the channels they are repeated.

  Args:
    input_shape: height, width, channels of an image.
    num_classes: number of logits.
    width: channels of the first convolution; blocks have 2 and 4 times that.
    seed: of the initial weights; public, see `building.seeds`.
  """
  building.require_images(input_shape, smallest=8, name="residual_mnist")
  validate.positive_int(width=width)
  s = building.seeds(seed)

  def conv(hidden, filters, stride=1):
    hidden = _convolution(filters, s, stride, use_bias=False)(hidden)
    return _layers.BatchNormalization(momentum=_MOMENTUM)(hidden)

  def block(hidden, filters, stride):
    shortcut = hidden
    if stride > 1:
      shortcut = _layers.AveragePooling2D(stride, padding="same")(shortcut)
    if filters > hidden.shape[-1]:
      shortcut = _layers.Concatenate()([shortcut, shortcut])
    hidden = _layers.ReLU()(conv(hidden, filters, stride))
    hidden = _layers.Add()([conv(hidden, filters), shortcut])
    return _layers.ReLU()(hidden)

  inputs = tf.keras.Input(tuple(input_shape))
  hidden = _layers.ReLU()(conv(inputs, width))
  for factor, stride in ((2, 2), (2, 1), (4, 2), (4, 1), (4, 1)):
    hidden = block(hidden, factor * width, stride)
  hidden = _layers.GlobalAveragePooling2D()(hidden)
  outputs = _layers.Dense(
    num_classes,
    kernel_initializer=tf.keras.initializers.GlorotUniform(next(s)),
  )(hidden)
  return tf.keras.Model(inputs, outputs, name="residual_mnist")


def vgg_cifar10(
  input_shape: building.Shape = (32, 32, 3),
  num_classes: int = 10,
  width: int = 64,
  top: Sequence[int] = (512,),
  batch_normalization: bool = False,
  bottom: tf.keras.Model | None = None,
  seed: int | None = None,
) -> tf.keras.Model:
  """VGG16's 13 convolutions and a new dense top.

  Args:
    input_shape: height, width, channels of an image.
    num_classes: number of logits.
    width: channels of the first block, 64 in VGG16; the others have 2, 4, 8
      and 8 times that.
    top: units of the hidden dense layers.
    batch_normalization: after every convolution, without which so deep a
      network is hard to train from scratch.
    bottom: a network whose 13 convolutions these start as, e.g.
      `tf.keras.models.load_model(path, compile=False)` of a VGG16 file. None
      for random weights.
    seed: of the initial weights; public, see `building.seeds`.
  """
  building.require_images(input_shape, smallest=16, name="vgg_cifar10")
  validate.positive_int(width=width)
  validate.positive_int(**{f"top[{i}]": units for i, units in enumerate(top)})
  s = building.seeds(seed)
  hidden = inputs = tf.keras.Input(tuple(input_shape))
  for block, (count, factor) in enumerate(_VGG16, start=1):
    for index in range(1, count + 1):
      name = f"block{block}_conv{index}"
      hidden = _convolution(factor * width, s, name=name)(hidden)
      if batch_normalization:
        hidden = _layers.BatchNormalization(momentum=_MOMENTUM)(hidden)
      hidden = _layers.ReLU()(hidden)
    hidden = _layers.MaxPooling2D(2, padding="same")(hidden)
  hidden = _layers.Flatten()(hidden)
  for units in top:
    hidden = _dense(units, s, activation="relu")(hidden)
  network = tf.keras.Model(
    inputs, _dense(num_classes, s)(hidden), name="vgg_cifar10"
  )
  if bottom is not None:
    _copy_convolutions(bottom, network)
  return network


def _convolution(filters, s, stride=1, **kwargs):
  return _layers.Conv2D(
    filters,
    3,
    stride,
    "same",
    kernel_initializer=tf.keras.initializers.HeNormal(next(s)),
    **kwargs,
  )


def _dense(units, s, activation=None):
  return _layers.Dense(
    units,
    activation,
    kernel_initializer=tf.keras.initializers.GlorotUniform(next(s)),
  )


def _copy_convolutions(source: tf.keras.Model, target: tf.keras.Model) -> None:
  """Sets the target's convolutions to the source's, in order."""
  theirs, ours = (
    [la for la in network.layers if isinstance(la, _layers.Conv2D)]
    for network in (source, target)
  )
  if len(theirs) != len(ours):
    raise ValueError(
      f"Expected a bottom of {len(ours)} convolutions, as VGG16 has, received"
      f" {len(theirs)} in {source.name!r}."
    )
  for given, own in zip(theirs, ours):
    shapes = [[w.shape.as_list() for w in la.weights] for la in (given, own)]
    if shapes[0] != shapes[1]:
      raise ValueError(
        f"Expected weights of shapes {shapes[1]} for {own.name}, received"
        f" {shapes[0]} in {given.name!r}. Pass the width of the given network:"
        " the channels of its first convolution."
      )
    own.set_weights(given.get_weights())
    marks.carry_marks(given.weights, own.weights)
