"""Small networks with random weights, one for each kind of layer."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

_layers = tf.keras.layers
IMAGE = (5, 6, 2)


def _affine():
  return [
    tf.keras.Input((4,)),
    _layers.Dense(6),
    _layers.Dropout(0.5),
    _layers.Dense(3),
  ]


def _mlp():
  return [
    tf.keras.Input((4,)),
    _layers.Dense(6, "relu"),
    _layers.Dense(5),
    _layers.Activation("relu"),
    _layers.Dense(3),
  ]


def _kink():
  """ReLUs of single inputs, many of them near zero: intervals are exact."""
  return [
    tf.keras.Input((8,)),
    _layers.Rescaling(1.0, -0.5),
    _layers.ReLU(),
    _layers.Dense(3),
  ]


def _conv():
  return [
    tf.keras.Input(IMAGE),
    _layers.Conv2D(3, 3, 2, "same", activation="relu"),
    _layers.Conv2D(4, 2, use_bias=False),
    _layers.ReLU(),
    _layers.Flatten(),
    _layers.Dense(3),
  ]


def _dilated():
  return [
    tf.keras.Input(IMAGE),
    _layers.Rescaling(2.0, -1.0),
    _layers.ZeroPadding2D(((1, 0), (0, 2))),
    _layers.Conv2D(3, (2, 3), dilation_rate=(2, 1), activation="relu"),
    _layers.AveragePooling2D(3, 2, padding="same"),
    _layers.Reshape((-1,)),
    _layers.Dense(4, "relu"),
    _layers.Dense(3),
  ]


def _smooth():
  return [
    tf.keras.Input(IMAGE),
    _layers.Conv2D(3, 3, activation="tanh"),
    _layers.Conv2D(3, 2, activation="elu"),
    _layers.GlobalAveragePooling2D(),
    _layers.Dense(5, "softplus"),
    _layers.Dense(5, "sigmoid"),
    _layers.Dense(5),
    _layers.LeakyReLU(0.3),
    _layers.Dense(3),
  ]


def _residual():
  inputs = tf.keras.Input(IMAGE)
  hidden = _layers.Conv2D(3, 3, padding="same", use_bias=False)(inputs)
  hidden = _layers.BatchNormalization()(hidden)
  hidden = start = _layers.ReLU()(hidden)
  hidden = _layers.Conv2D(3, 3, padding="same", activation="relu")(hidden)
  hidden = _layers.Conv2D(3, 1)(hidden)
  hidden = _layers.BatchNormalization(scale=False)(hidden)
  hidden = _layers.ReLU()(_layers.Add()([hidden, start]))
  hidden = _layers.GlobalAveragePooling2D(keepdims=True)(hidden)
  outputs = _layers.Dense(3)(_layers.Flatten()(hidden))
  return tf.keras.Model(inputs, outputs)


def _nested():
  inner = tf.keras.Sequential(
    [tf.keras.Input((4,)), _layers.Dense(4, "relu"), _layers.Dense(4)]
  )
  inputs = tf.keras.Input((2, 2))
  hidden = _layers.Flatten()(inputs)
  hidden = _layers.ReLU()(inner(inner(hidden)))
  return tf.keras.Model(inputs, _layers.Dense(3)(hidden))


_BUILDERS = {
  "affine": _affine,
  "mlp": _mlp,
  "kink": _kink,
  "conv": _conv,
  "dilated": _dilated,
  "residual": _residual,
  "nested": _nested,
  "smooth": _smooth,
}
NAMES = tuple(_BUILDERS)
RELU_ONLY = tuple(name for name in NAMES if name != "smooth")


@functools.cache
def build(name: str) -> tf.keras.Model:
  """The network with the same random weights and statistics every time."""
  made = _BUILDERS[name]()
  network = made if isinstance(made, tf.keras.Model) else None
  network = network or tf.keras.Sequential(made)
  rng = np.random.RandomState(NAMES.index(name))
  for weight in network.weights:
    size = 1 / np.sqrt(np.prod(weight.shape[:-1], dtype=float))
    values = rng.randn(*weight.shape) * (size if size < 1 else 0.3)
    if "variance" in weight.name or "gamma" in weight.name:
      values = 0.5 + rng.rand(*weight.shape)
    weight.assign(values)
  return network


def inputs(name: str, count: int = 3) -> tuple[np.ndarray, np.ndarray]:
  """Inputs in [0, 1] and labels."""
  rng = np.random.RandomState(7)
  x = rng.rand(count, *build(name).input_shape[1:]).astype(np.float32)
  return x, rng.randint(3, size=count)
