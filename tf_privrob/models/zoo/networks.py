"""Networks by name; without batch normalisation, so that they can be private.

The exceptions are those of `classifiers`, which are trained on public data, and
`wide_resnet`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_privrob import layers as privrob_layers
from tf_privrob import validate
from tf_privrob.models.zoo import building
from tf_privrob.models.zoo import classifiers
from tf_privrob.models.zoo import robust_networks
from tf_privrob.models.zoo import wide_residual

_layers = tf.keras.layers
Shape = building.Shape


def _conv(
  filters, size, stride=1, padding="same", activation="relu", seed=None
):
  return _layers.Conv2D(
    filters,
    size,
    stride,
    padding,
    activation=activation,
    kernel_initializer=tf.keras.initializers.GlorotUniform(seed),
  )


def _dense(units, activation=None, seed=None):
  return _layers.Dense(
    units,
    activation,
    kernel_initializer=tf.keras.initializers.GlorotUniform(seed),
  )


def tutorial_cnn(
  input_shape: Shape = (28, 28, 1),
  num_classes: int = 10,
  activation: str = "relu",
  seed: int | None = None,
) -> tf.keras.Model:
  """The CNN of TF Privacy's tutorial: two convolutions, 26,010 weights.

  With `activation="tanh"` it is the network of Papernot et al. (2021), whose
  bounded units make clipping lose less.
  """
  building.require_images(input_shape, smallest=16, name="tutorial_cnn")
  s = building.seeds(seed)
  return tf.keras.Sequential(
    [
      _layers.Input(tuple(input_shape)),
      _conv(16, 8, 2, activation=activation, seed=next(s)),
      _layers.MaxPooling2D(2, 1),
      _conv(32, 4, 2, "valid", activation=activation, seed=next(s)),
      _layers.MaxPooling2D(2, 1),
      _layers.Flatten(),
      _dense(32, activation, seed=next(s)),
      _dense(num_classes, seed=next(s)),
    ],
    name="tutorial_cnn",
  )


def dpal_mnist(
  input_shape: Shape = (28, 28, 1),
  num_classes: int = 10,
  seed: int | None = None,
  standardization: str = "none",
  activation: str = "relu",
) -> tf.keras.Model:
  """DPAL's MNIST network: 317,066 weights.

  The released code standardises after the first layer and before the bounded
  one: with `standardization="batch"` by the batch at hand, in training and at
  inference, as the code does; with "moving" by moving averages at inference, so
  that an input is classified on its own. A network trained with either cannot
  be private. With `activation="tanh"` clipped gradients lose less.
  """
  building.require_images(input_shape, smallest=8, name="dpal_mnist")
  s = building.seeds(seed)
  return tf.keras.Sequential(
    [
      _layers.Input(tuple(input_shape)),
      _conv(32, 5, 2, activation=activation, seed=next(s)),
      *_standardization(standardization),
      _layers.AveragePooling2D(2),
      _conv(64, 5, 2, activation=activation, seed=next(s)),
      _layers.Flatten(),
      _dense(256, None if activation == "relu" else activation, seed=next(s)),
      *_standardization(standardization),
      privrob_layers.BoundedActivation(1.0),
      _dense(num_classes, seed=next(s)),
    ],
    name="dpal_mnist",
  )


def _standardization(kind: str) -> list[tf.keras.layers.Layer]:
  validate.one_of(("none", "batch", "moving"), standardization=kind)
  if kind == "batch":
    return [privrob_layers.BatchStandardization()]
  if kind == "moving":
    return [_layers.BatchNormalization(momentum=0.0, center=False, scale=False)]
  return []


def dpal_cifar10(
  input_shape: Shape = (28, 28, 3),
  num_classes: int = 10,
  seed: int | None = None,
  standardization: str = "none",
  first_size: int = 4,
  filters: tuple[int, int, int] = (128, 128, 256),
) -> tf.keras.Model:
  """DPAL's CIFAR-10 network: 5,268,746 weights; see `dpal_mnist`.

  The released code's first patches have 4 x 4 pixels, the paper's 3 x 3.
  """
  building.require_images(input_shape, smallest=8, name="dpal_cifar10")
  s = building.seeds(seed)

  def standardize(hidden):
    for layer in _standardization(standardization):
      hidden = layer(hidden)
    return hidden

  inputs = tf.keras.Input(tuple(input_shape))
  first = _conv(filters[0], first_size, 2, seed=next(s))(inputs)
  first = standardize(first)
  second = _conv(filters[1], 5, seed=next(s))(first)
  joined = standardize(_layers.Concatenate()([second, first]))
  third = standardize(_conv(filters[2], 5, seed=next(s))(joined))
  hidden = _layers.Flatten()(_layers.AveragePooling2D(2)(third))
  hidden = standardize(_dense(256, seed=next(s))(hidden))
  hidden = privrob_layers.BoundedActivation(1.0)(hidden)
  outputs = _dense(num_classes, seed=next(s))(hidden)
  return tf.keras.Model(inputs, outputs, name="dpal_cifar10")


def pixeldp_mnist(
  input_shape: Shape = (28, 28, 1),
  num_classes: int = 10,
  seed: int | None = None,
) -> tf.keras.Model:
  """PixelDP's MNIST network: 3,274,538 weights; noise goes behind `conv1`.

  Two convolutions without bias, 1024 hidden units (Lecuyer et al. 2019).
  """
  building.require_images(input_shape, smallest=8, name="pixeldp_mnist")
  s = building.seeds(seed)

  def conv(filters, name):
    return _layers.Conv2D(
      filters,
      5,
      2,
      "same",
      use_bias=False,
      kernel_initializer=tf.keras.initializers.HeNormal(next(s)),
      name=name,
    )

  return tf.keras.Sequential(
    [
      _layers.Input(tuple(input_shape)),
      conv(32, "conv1"),
      _layers.ReLU(),
      conv(64, "conv2"),
      _layers.ReLU(),
      _layers.Flatten(),
      _dense(1024, "relu", seed=next(s)),
      _dense(num_classes, seed=next(s)),
    ],
    name="pixeldp_mnist",
  )


def mlp(
  input_shape: Shape,
  num_classes: int,
  hidden: Sequence[int] = (256, 128),
  activation: str = "relu",
  seed: int | None = None,
) -> tf.keras.Model:
  """Dense layers on the flattened input, of any shape."""
  s = building.seeds(seed)
  validate.positive_int(**{f"hidden[{i}]": n for i, n in enumerate(hidden)})
  return tf.keras.Sequential(
    [
      _layers.Input(tuple(input_shape)),
      _layers.Flatten(),
      *(_dense(units, activation, seed=next(s)) for units in hidden),
      _dense(num_classes, seed=next(s)),
    ],
    name="mlp",
  )


def linear(
  input_shape: Shape, num_classes: int, seed: int | None = None
) -> tf.keras.Model:
  """One linear layer without bias on the flattened input, of any shape."""
  s = building.seeds(seed)
  return tf.keras.Sequential(
    [
      _layers.Input(tuple(input_shape)),
      _layers.Flatten(),
      _layers.Dense(
        num_classes,
        use_bias=False,
        kernel_initializer=tf.keras.initializers.GlorotUniform(next(s)),
      ),
    ],
    name="linear",
  )


def secure_sgd_mnist(
  input_shape: Shape = (28, 28, 1),
  num_classes: int = 10,
  seed: int | None = None,
) -> tf.keras.Model:
  """The MNIST network of the released SecureSGD code: 130,781 weights."""
  building.require_images(input_shape, smallest=4, name="secure_sgd_mnist")
  s = building.seeds(seed)

  def initial():
    return {
      "kernel_initializer": tf.keras.initializers.TruncatedNormal(
        stddev=0.1, seed=next(s)
      ),
      "bias_initializer": tf.keras.initializers.Constant(0.1),
    }

  def conv(filters):
    return _layers.Conv2D(
      filters, 5, padding="same", activation="relu", **initial()
    )

  return tf.keras.Sequential(
    [
      _layers.Input(tuple(input_shape)),
      conv(32),
      _layers.MaxPooling2D(2),
      conv(64),
      _layers.MaxPooling2D(2),
      _layers.Flatten(),
      _layers.Dense(25, "relu", **initial()),
      _layers.Dropout(0.5, seed=next(s) or 0),
      _layers.Dense(num_classes, **initial()),
    ],
    name="secure_sgd_mnist",
  )


def scattering_linear(
  input_shape: Shape = (28, 28, 1),
  num_classes: int = 10,
  hidden: Sequence[int] = (),
  seed: int | None = None,
) -> tf.keras.Model:
  """Fixed scattering features of each image, normalised, and a linear layer.

  Only the last layer has weights, 8,340 for MNIST, so that noise on its
  gradient costs little accuracy (Tramèr and Boneh 2021). The normalisation by
  the image's own mean and variance has no weights either.
  """
  building.require_images(input_shape, smallest=8, name="scattering_linear")
  s = building.seeds(seed)
  return tf.keras.Sequential(
    [
      _layers.Input(tuple(input_shape)),
      privrob_layers.Scattering(),
      _layers.LayerNormalization([1, 2, 3], center=False, scale=False),
      _layers.Flatten(),
      *(_dense(units, "tanh", seed=next(s)) for units in hidden),
      _dense(num_classes, seed=next(s)),
    ],
    name="scattering_linear",
  )


def random_features_linear(
  input_shape: Shape,
  num_classes: int,
  num_features: int = 2000,
  length_scale: float = 5.0,
  seed: int | None = None,
) -> tf.keras.Model:
  """Fixed random Fourier features of norm at most 1, and a linear layer.

  The features are drawn from a public seed, so that they cost no privacy; the
  linear layer has no bias and is the only one to be trained. Without `seed` its
  weights are new each time and the features, which are settings, the same.
  """
  s = building.seeds(seed)
  return tf.keras.Sequential(
    [
      _layers.Input(tuple(input_shape)),
      _layers.Flatten(),
      privrob_layers.RandomFourierFeatures(
        num_features, length_scale, next(s) or 0, normalize=True
      ),
      _layers.Dense(
        num_classes,
        use_bias=False,
        kernel_initializer=tf.keras.initializers.GlorotUniform(next(s)),
      ),
    ],
    name="random_features_linear",
  )


_DPAL_3X3 = functools.partial(dpal_cifar10, first_size=3)
_DPAL_NARROW = functools.partial(_DPAL_3X3, filters=(32, 32, 64))
_BUILDERS = {
  "dpal_cifar10": dpal_cifar10,
  "dpal_cifar10_3x3": _DPAL_3X3,
  "dpal_cifar10_3x3_bn": functools.partial(_DPAL_3X3, standardization="moving"),
  "dpal_cifar10_bn": functools.partial(dpal_cifar10, standardization="moving"),
  "dpal_cifar10_narrow": _DPAL_NARROW,
  "dpal_cifar10_narrow_bn": functools.partial(
    _DPAL_NARROW, standardization="moving"
  ),
  "dpal_cifar10_released": functools.partial(
    dpal_cifar10, standardization="batch"
  ),
  "dpal_mnist": dpal_mnist,
  "dpal_mnist_bn": functools.partial(dpal_mnist, standardization="moving"),
  "dpal_mnist_released": functools.partial(dpal_mnist, standardization="batch"),
  "dpal_mnist_tanh": functools.partial(dpal_mnist, activation="tanh"),
  "fashion_mnist_cnn": robust_networks.fashion_mnist_cnn,
  "har_mlp": functools.partial(mlp, hidden=(1000, 100)),
  "ibp_large": robust_networks.ibp_large,
  "ibp_medium": robust_networks.ibp_medium,
  "ibp_small": robust_networks.ibp_small,
  "linear": linear,
  "mlp": mlp,
  "pixeldp_mnist": pixeldp_mnist,
  "random_features_linear": random_features_linear,
  "residual_mnist": classifiers.residual_mnist,
  "secure_sgd_mnist": secure_sgd_mnist,
  "scattering_linear": scattering_linear,
  "small_dual_resnet": robust_networks.small_dual_resnet,
  "tutorial_cnn": tutorial_cnn,
  "tutorial_cnn_tanh": functools.partial(tutorial_cnn, activation="tanh"),
  "vgg_cifar10": classifiers.vgg_cifar10,
  "vgg_cifar10_narrow": functools.partial(
    classifiers.vgg_cifar10, width=32, batch_normalization=True
  ),
  "wide_resnet": wide_residual.wide_resnet,
  "wide_resnet_relu": functools.partial(wide_residual.wide_resnet, slope=0.0),
  "wide_resnet_trades": functools.partial(
    wide_residual.wide_resnet,
    slope=0.0,
    shortcut="convolution",
    standardize=False,
  ),
  "yale_cnn": robust_networks.yale_cnn,
}
for _style in robust_networks.STYLES[1:]:
  for _builder in (robust_networks.yale_cnn, robust_networks.fashion_mnist_cnn):
    _BUILDERS[f"{_builder.__name__}_{_style}"] = functools.partial(
      _builder, style=_style
    )
NAMES = tuple(sorted(_BUILDERS))


def by_name(
  network: str,
  input_shape: Shape,
  num_classes: int,
  seed: int | None = None,
  **settings: Any,
) -> tf.keras.Model:
  """A freshly initialised network; the same for the same seed, if it has one.

  Args:
    network: one of `NAMES`.
    input_shape: shape of one example.
    num_classes: number of logits.
    seed: of the initial weights; None: new ones each time. It is public, as
      model files tell it, and must not be the seed of a run.
    **settings: of the network's own function, e.g. its capacity `scale`.
  """
  validate.one_of(NAMES, network=network)
  validate.positive_int(num_classes=num_classes)
  return _BUILDERS[network](input_shape, num_classes, seed=seed, **settings)
