"""Random networks with inputs around them, of every size that float32 has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

_layers = tf.keras.layers
_SMOOTH = (
  *("elu", "hard_sigmoid", "selu", "sigmoid", "softplus", "softsign", "tanh"),
  tf.nn.relu6,
  tf.nn.leaky_relu,
)
WEIGHTS = ("unit", "wild", "layers", "cancelling", "tiny", "vast", "opposed")
INPUTS = ("unit", "free", "offset", "constant", "subnormal", "huge", "mixed")


class Case(NamedTuple):
  """A network and a ball, cut to the range if there is one.

  Attributes:
    network: with random weights and statistics.
    relu_only: whether all its activations are ReLUs.
    x: two inputs, float32.
    y: two classes.
    attack_eps: radius of the ball.
    value_range: or None.
  """

  network: tf.keras.Model
  relu_only: bool
  x: np.ndarray
  y: np.ndarray
  attack_eps: float
  value_range: tuple[float, float] | None


def build(seed: int) -> Case:
  """The same case every time; seeds go through all pairs of sizes."""
  rng = np.random.RandomState(seed)
  relu_only = rng.rand() < 0.6
  network = _network(rng, relu_only)
  _draw_weights(network, rng, WEIGHTS[seed % len(WEIGHTS)])
  kind = INPUTS[seed // len(WEIGHTS) % len(INPUTS)]
  x, attack_eps, value_range = _inputs(rng, kind, network.input_shape[1:])
  y = rng.randint(network.output_shape[-1], size=len(x))
  return Case(network, relu_only, x, y, attack_eps, value_range)


def _network(rng, relu_only: bool) -> tf.keras.Model:
  if rng.rand() < 0.4:
    hidden = inputs = tf.keras.Input((rng.randint(1, 9),))
  else:
    shape = (*rng.randint(3, 8, size=2), rng.randint(1, 4))
    hidden = inputs = tf.keras.Input(tuple(map(int, shape)))
    for _ in range(rng.randint(1, 4)):
      hidden = _image_layer(rng, hidden, relu_only)
    pool = rng.rand() < 0.3
    last = _layers.GlobalAveragePooling2D() if pool else _layers.Flatten()
    hidden = last(hidden)
  for _ in range(rng.randint(0, 4)):
    units = int(rng.choice([2, 5, 16, 48]))
    before = hidden
    hidden = _layers.Dense(units, use_bias=rng.rand() < 0.8)(hidden)
    if rng.rand() < 0.25:
      hidden = _normalised(rng, hidden)
    hidden = _active(rng, hidden, relu_only)
    if rng.rand() < 0.25:
      hidden = _layers.Add()([hidden, _layers.Dense(units)(before)])
  outputs = _layers.Dense(int(rng.randint(2, 5)))(hidden)
  return tf.keras.Model(inputs, outputs)


def _image_layer(rng, hidden, relu_only: bool):
  kind = rng.choice(["conv", "conv", "residual", "pool", "pad", "rescale"])
  padding = str(rng.choice(["same", "valid"]))
  smallest = min(hidden.shape[1:3])
  size = int(rng.randint(1, min(smallest, 3) + 1))
  stride = int(rng.randint(1, 3))
  if kind == "conv":
    dilated = stride == 1 and 2 * size - 1 <= smallest and rng.rand() < 0.3
    hidden = _layers.Conv2D(
      int(rng.randint(1, 5)),
      size,
      stride,
      padding,
      dilation_rate=2 if dilated else 1,
      use_bias=rng.rand() < 0.7,
    )(hidden)
    if rng.rand() < 0.5:
      hidden = _normalised(rng, hidden)
    return _active(rng, hidden, relu_only)
  if kind == "residual":
    other = _layers.Conv2D(hidden.shape[-1], size, padding="same")(hidden)
    other = _active(rng, other, relu_only)
    return _layers.Add()([hidden, _normalised(rng, other)])
  if kind == "pool":
    return _layers.AveragePooling2D(size, stride, padding)(hidden)
  if kind == "pad":
    return _layers.ZeroPadding2D(((1, 0), (0, 2)))(hidden)
  return _layers.Rescaling(float(rng.randn()), float(rng.randn()))(hidden)


def _normalised(rng, hidden):
  return _layers.BatchNormalization(
    center=rng.rand() < 0.8,
    scale=rng.rand() < 0.8,
    epsilon=float(10 ** rng.uniform(-6, -2)),
  )(hidden)


def _active(rng, hidden, relu_only: bool):
  if relu_only or rng.rand() < 0.3:
    return _layers.ReLU()(hidden)
  return _layers.Activation(_SMOOTH[rng.randint(len(_SMOOTH))])(hidden)


def _draw_weights(network, rng, kind: str) -> None:
  special = rng.randint(len(network.weights))
  for number, weight in enumerate(network.weights):
    fan_in = np.prod(weight.shape[:-1], dtype=float)
    values = rng.randn(*weight.shape) / np.sqrt(max(fan_in, 1.0))
    if "variance" in weight.name:
      weight.assign(10 ** rng.uniform(-6, 4, weight.shape))
      continue
    if kind == "wild":
      values *= 10 ** rng.uniform(-4, 4, weight.shape)
    elif kind == "layers":
      values *= 10 ** rng.uniform(-4, 4)
    elif kind == "cancelling":
      values = 100 * _against_each_other(values, 1 + 1e-6)
    elif kind == "opposed":
      values = _against_each_other(values, 1.0)
      if number == special:
        # Partial sums overflow, sums need not.
        values *= 10 ** rng.uniform(30, 38)
    elif kind == "tiny" and number == special:
      values *= 10 ** rng.uniform(-43, -36, weight.shape)
    elif kind == "vast" and number == special:
      values *= 10 ** rng.uniform(8, 37)
    most = np.finfo(np.float32).max
    weight.assign(np.clip(values, -most, most))


def _against_each_other(values, factor):
  """A kernel whose second half is minus the first one."""
  if values.ndim == 1:
    return values
  flat = values.reshape(-1, values.shape[-1])
  half = len(flat) // 2
  flat[half : 2 * half] = -flat[:half] * factor
  return flat.reshape(values.shape)


def _inputs(rng, kind: str, shape):
  """Two inputs, a radius and a range."""
  x = rng.rand(2, *shape)
  # No ball, small ones where rounding counts, large ones where ReLUs bend.
  kinds = 0.0, 0.5 * 10 ** rng.uniform(-5, 0), rng.uniform(0.1, 0.5)
  share = kinds[rng.choice(3, p=[0.1, 0.3, 0.6])]
  if kind == "unit":
    x[0] = np.round(x[0])  # at the ends of the range
    return x.astype(np.float32), share, (0.0, 1.0)
  if kind == "free":
    return (2 * x - 1).astype(np.float32), share, None
  if kind == "offset":
    return (1000 + x).astype(np.float32), share, (999.75, 1001.5)
  if kind == "constant":
    x[:] = x[:1].mean()
    return x.astype(np.float32), share**2, None
  sign = rng.choice([-1.0, 1.0], x.shape)
  if kind == "subnormal":
    return (sign * x * 1e-39).astype(np.float32), share * 1e-39, None
  if kind == "huge":
    size = 10 ** rng.uniform(25, 37.5)
    return ((x - 0.1) * size).astype(np.float32), share * size, None
  sizes = 10 ** rng.uniform(-44, 35, x.shape)
  return (sign * x * sizes).astype(np.float32), share, None
