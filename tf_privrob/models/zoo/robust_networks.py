"""Networks of robust training, with their capacity as a parameter.

Those of Song, Shokri and Mittal (CCS 2019, Table 13), each in the form that the
code of a trainer gave it (`style`), and those of Gowal et al. (2018). Capacity
is the number s of channels of the first block, which the others are multiples
of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.layers import weight_normalization
from tf_privrob.models.zoo import building

_layers = tf.keras.layers
_initializers = tf.keras.initializers
_IMAGENET_MEANS = (0.485, 0.456, 0.406)
_IMAGENET_STDDEV = 0.225


class _Style(NamedTuple):
  """How a trainer's code builds the same convolutional network."""

  use_bias: bool = False  # of convolutions
  halving: int = 3  # kernel size of convolutions of stride 2
  convs: str = "fan_out"  # how kernels start, see `_initial`
  dense: str = "unit"
  zero_last: bool = False
  normalized: bool = False  # weights
  drawn: tuple[type, ...] = ()  # layers whose biases start as kernels do


_Dense = _layers.Dense
_STYLES = {
  "plain": _Style(),  # natural, PGD and WRM training
  "trades": _Style(
    use_bias=True,
    convs="fan_in",
    dense="uniform",
    zero_last=True,
    drawn=(_Dense,),
  ),
  "ibp": _Style(use_bias=True, convs="orthogonal", dense="orthogonal"),
  "diffai": _Style(
    use_bias=True,
    convs="uniform",
    dense="uniform",
    normalized=True,
    drawn=(_Dense, _layers.Conv2D),
  ),
  "dual": _Style(use_bias=True, halving=4, dense="uniform", drawn=(_Dense,)),
}
STYLES = tuple(_STYLES)


def yale_cnn(
  input_shape: building.Shape = (192, 168, 1),
  num_classes: int = 38,
  scale: int = 8,
  style: str = "plain",
  seed: int | None = None,
) -> tf.keras.Model:
  """The face network: eight convolutions, s to 8s channels, and 200 units.

  In style "dual" the image is first padded with zeros to a square, as in the
  paper's appendix C: 192 x 192 for Yale.

  Args:
    input_shape: height, width, channels of an image.
    num_classes: number of logits.
    scale: s, channels of the first block.
    style: "plain", "trades", "ibp", "diffai" or "dual".
    seed: of the initial weights; public, see `building.seeds`.
  """
  blocks = [(scale * 2**block, (1, 2)) for block in range(4)]
  return _cnn(
    "yale_cnn", input_shape, num_classes, blocks, style, seed, style == "dual"
  )


def fashion_mnist_cnn(
  input_shape: building.Shape = (28, 28, 1),
  num_classes: int = 10,
  scale: int = 256,
  style: str = "plain",
  seed: int | None = None,
) -> tf.keras.Model:
  """Six convolutions, s and 2s channels, and 200 units; see `yale_cnn`."""
  blocks = [(scale, (1, 1, 2)), (2 * scale, (1, 1, 2))]
  return _cnn(
    "fashion_mnist_cnn", input_shape, num_classes, blocks, style, seed
  )


def _cnn(name, input_shape, num_classes, blocks, style, seed, square=False):
  building.require_images(input_shape, smallest=4, name=name)
  validate.one_of(STYLES, style=style)
  validate.positive_int(scale=blocks[0][0], num_classes=num_classes)
  form, s = _STYLES[style], building.seeds(seed)
  conv_layer, dense_layer = _layers.Conv2D, _layers.Dense
  if form.normalized:
    conv_layer = weight_normalization.NormalizedConv2D
    dense_layer = weight_normalization.NormalizedDense

  def conv(filters, stride):
    size = form.halving if stride == 2 else 3
    initial = _initial(form.convs, next(s), size, filters)
    return conv_layer(
      filters,
      size,
      stride,
      "same",
      activation="relu",
      use_bias=form.use_bias,
      kernel_initializer=initial,
    )

  def dense(units, activation=None):
    initial = _initial(form.dense, next(s))
    if form.zero_last and activation is None:
      initial = "zeros"
    return dense_layer(units, activation, kernel_initializer=initial)

  high, wide = input_shape[:2]
  missing = [max(high, wide) - size for size in (high, wide)]
  padding = tuple((m // 2, m - m // 2) for m in missing)
  network = tf.keras.Sequential(
    [
      _layers.Input(tuple(input_shape)),
      *([_layers.ZeroPadding2D(padding)] if square and any(missing) else []),
      *(conv(width, stride) for width, steps in blocks for stride in steps),
      _layers.Flatten(),
      dense(200, "relu"),
      dense(num_classes),
    ],
    name=name,
  )
  drawn = network.layers[:-1] if form.zero_last else network.layers
  _draw_biases([la for la in drawn if isinstance(la, form.drawn)], s)
  return network


def _draw_biases(layers, s: Iterator[int | None]) -> None:
  """Biases uniform within 1 / sqrt(fan_in), as PyTorch draws them."""
  for layer in layers:
    if layer.weights:
      limit = math.prod(layer.kernel.shape[:-1]) ** -0.5
      # Into the configuration, too: weights drawn again are drawn alike.
      layer.bias_initializer = _initializers.RandomUniform(
        -limit, limit, next(s)
      )
      layer.bias.assign(layer.bias_initializer(layer.bias.shape))


def small_dual_resnet(
  input_shape: building.Shape = (32, 32, 3),
  num_classes: int = 10,
  scale: int = 16,
  normalize: bool = True,
  seed: int | None = None,
) -> tf.keras.Model:
  """The residual network that duality is trained with on CIFAR-10.

  Groups of s, 2s and 4s channels with one unit each (CCS 2019, section 6.3), in
  the form of Wong et al. (2018): a unit is a convolution, a ReLU, another
  convolution plus one of the unit's input, and a ReLU; halving ones have 4x4
  kernels and skip by 2x2. Then 1000 units. Nothing but bounded layers: no batch
  normalisation, sums by Add.

  Args:
    input_shape: height, width, channels of an image.
    num_classes: number of logits.
    scale: s.
    normalize: begin with (x - mean) / 0.225, as upstream; the radius is then
      still in units of x. Three channels only.
    seed: of the initial weights; public, see `building.seeds`.
  """
  building.require_images(input_shape, smallest=4, name="small_dual_resnet")
  validate.positive_int(scale=scale, num_classes=num_classes)
  s = building.seeds(seed)

  def conv(hidden, filters, size, stride, activation=None):
    return _layers.Conv2D(
      filters,
      size,
      stride,
      "same",
      activation=activation,
      kernel_initializer=fan_out_normal(size, filters, next(s)),
    )(hidden)

  hidden = inputs = tf.keras.Input(tuple(input_shape))
  if normalize and input_shape[-1] == len(_IMAGENET_MEANS):
    offsets = [-mean / _IMAGENET_STDDEV for mean in _IMAGENET_MEANS]
    hidden = _layers.Rescaling(1 / _IMAGENET_STDDEV, offsets)(hidden)
  hidden = conv(hidden, scale, 3, 1, "relu")
  for factor, stride in ((1, 1), (2, 2), (4, 2)):
    width = factor * scale
    inside = conv(hidden, width, 3 if stride == 1 else 4, stride, "relu")
    inside = conv(inside, width, 3, 1)
    skip = conv(hidden, width, stride, stride)
    hidden = _layers.ReLU()(_layers.Add()([inside, skip]))
  hidden = _layers.Flatten()(hidden)
  for units, activation in ((1000, "relu"), (num_classes, None)):
    hidden = _layers.Dense(
      units,
      activation,
      kernel_initializer=_initializers.GlorotUniform(next(s)),
    )(hidden)
  return tf.keras.Model(inputs, hidden, name="small_dual_resnet")


class _Conv(NamedTuple):
  """A convolution of Gowal et al., its channels in multiples of s."""

  size: int
  factor: int
  stride: int


def ibp_small(
  input_shape: building.Shape = (28, 28, 1),
  num_classes: int = 10,
  scale: int = 16,
  seed: int | None = None,
) -> tf.keras.Model:
  """Gowal et al.'s small network: two 4x4 convolutions and 100 units.

  s channels with stride 2, then 2s with stride 1, s = 16, as in their code.
  """
  building.require_images(input_shape, smallest=10, name="ibp_small")
  convs = (_Conv(4, 1, 2), _Conv(4, 2, 1))
  return _gowal(
    "ibp_small", input_shape, num_classes, scale, seed, convs, (100,), "valid"
  )


def ibp_medium(
  input_shape: building.Shape = (28, 28, 1),
  num_classes: int = 10,
  scale: int = 32,
  seed: int | None = None,
) -> tf.keras.Model:
  """Gowal et al.'s medium network: four convolutions and twice 512 units.

  Of s, s, 2s and 2s channels, s = 32, every second one 4x4 with stride 2: the
  network behind their published figures for MNIST at 0.1.
  """
  building.require_images(input_shape, smallest=16, name="ibp_medium")
  convs = tuple(
    _Conv(size, factor, stride)
    for factor in (1, 2)
    for size, stride in ((3, 1), (4, 2))
  )
  units = (512, 512)
  return _gowal(
    "ibp_medium", input_shape, num_classes, scale, seed, convs, units, "valid"
  )


def ibp_large(
  input_shape: building.Shape = (28, 28, 1),
  num_classes: int = 10,
  scale: int = 64,
  seed: int | None = None,
) -> tf.keras.Model:
  """Gowal et al.'s large network: five 3x3 convolutions and 512 units.

  Twice s channels, three times 2s, s = 64, the third with stride 2: the network
  behind their published figures for MNIST at 0.3.
  """
  building.require_images(input_shape, smallest=2, name="ibp_large")
  convs = tuple(
    _Conv(3, factor, 2 if position == 2 else 1)
    for position, factor in enumerate((1, 1, 2, 2, 2))
  )
  return _gowal(
    "ibp_large", input_shape, num_classes, scale, seed, convs, (512,), "same"
  )


def _gowal(
  name: str,
  input_shape: building.Shape,
  num_classes: int,
  scale: int,
  seed: int | None,
  convs: tuple[_Conv, ...],
  units: tuple[int, ...],
  padding: str,
) -> tf.keras.Model:
  """ReLU throughout, orthogonal weights, zero biases."""
  validate.positive_int(scale=scale, num_classes=num_classes)
  s = building.seeds(seed)

  def initial():
    return _initializers.Orthogonal(seed=next(s))

  return tf.keras.Sequential(
    [
      _layers.Input(tuple(input_shape)),
      *[
        _layers.Conv2D(
          conv.factor * scale,
          conv.size,
          conv.stride,
          padding,
          activation="relu",
          kernel_initializer=initial(),
        )
        for conv in convs
      ],
      _layers.Flatten(),
      *[_layers.Dense(n, "relu", kernel_initializer=initial()) for n in units],
      _layers.Dense(num_classes, kernel_initializer=initial()),
    ],
    name=name,
  )


def _initial(
  kind: str, seed: int | None, size: int = 1, filters: int = 1
) -> tf.keras.initializers.Initializer:
  """Of a kernel.

  Args:
    kind: "fan_out" of a convolution, by what it gives its outputs; "fan_in",
      N(0, 2 / fan_in), PyTorch's kaiming_normal; "uniform", within 1 /
      sqrt(fan_in), what PyTorch's layers start with; "unit", within sqrt(3 /
      fan_in), of variance 1 / fan_in; "orthogonal".
    seed: public, or None.
    size: of the convolution's kernel.
    filters: of the convolution.
  """
  if kind == "fan_out":
    return fan_out_normal(size, filters, seed)
  if kind == "orthogonal":
    return _initializers.Orthogonal(seed=seed)
  scale, distribution = {
    "fan_in": (2, "untruncated_normal"),
    "uniform": (1 / 3, "uniform"),
    "unit": (1, "uniform"),
  }[kind]
  return _initializers.VarianceScaling(
    scale, mode="fan_in", distribution=distribution, seed=seed
  )


def fan_out_normal(
  size: int, filters: int, seed: int | None
) -> tf.keras.initializers.Initializer:
  """N(0, 2 / (size^2 filters)), by what a convolution gives its outputs."""
  return _initializers.RandomNormal(
    stddev=(2 / (size * size * filters)) ** 0.5, seed=seed
  )
