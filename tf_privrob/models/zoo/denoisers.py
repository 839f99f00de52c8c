"""Denoisers that are trained privately, in front of a public classifier.

Nothing in them ties examples together, so each one's gradient can be clipped.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.models import denoiser
from tf_privrob.models.zoo import building

_layers = tf.keras.layers
_SMOOTH = ("tanh", "softplus")


def paper_denoiser(
  input_shape: building.Shape,
  filters: Sequence[int] = (16, 32, 32),
  dropout: float = 0.0,
  residual: bool = False,
  seed: int | None = None,
) -> tf.keras.Model:
  """TransDenoiser's kind of autoencoder; its shapes are chosen here.

  The text names the parts (convolutions, transposed convolutions, layer
  normalisation, residual and skip links, dropout); the shapes are in a figure
  that we do not have. Each of `filters` but the first halves the image by a
  stride of 2, a residual block works on the smallest one, transposed
  convolutions lead back, and what the encoder had at each size is added there.

  Layer normalisation is over the channels of a position. It leaves directions
  of the kernel before it without effect, so the smallest singular value that
  TransDenoiser's transformation rests on is exactly 0; see `smooth_denoiser`.

  Args:
    input_shape: height, width, channels of an image.
    filters: channels at each size, largest image first.
    dropout: rate before the transposed convolutions, which the text does not
      state.
    residual: x_hat = z + f(z) in place of f(z): easier to train with noise.
    seed: of the initial weights and of the dropout; public, see
      `building.seeds`.
  """
  _require_image(input_shape, "paper_denoiser")
  filters = tuple(filters)
  validate.positive_int(**{f"filters[{i}]": n for i, n in enumerate(filters)})
  if not filters or not 0 <= dropout < 1:
    raise ValueError(
      f"Expected at least one of filters={filters} and 0 <= dropout={dropout!r}"
      " < 1."
    )
  factor = 2 ** (len(filters) - 1)
  if input_shape[0] % factor or input_shape[1] % factor:
    raise ValueError(
      f"Expected height and width to be multiples of {factor}, which"
      f" {len(filters)} filters halve them to, received input_shape="
      f"{tuple(input_shape)}. Pass fewer filters."
    )
  s = building.seeds(seed)

  def normalised(hidden, kind, count, stride, name):
    """A convolution, whose shift is the normalisation's, then the latter."""
    hidden = kind(
      count,
      3,
      stride,
      "same",
      use_bias=False,
      kernel_initializer=tf.keras.initializers.HeNormal(next(s)),
      name=f"denoiser_{name}",
    )(hidden)
    return _layers.LayerNormalization(name=f"denoiser_{name}_norm")(hidden)

  relu = _layers.ReLU
  inputs = tf.keras.Input(tuple(input_shape))
  hidden = normalised(inputs, _layers.Conv2D, filters[0], 1, "first")
  hidden = relu()(hidden)
  skips = []
  for index, count in enumerate(filters[1:], start=1):
    skips.append(hidden)
    hidden = normalised(hidden, _layers.Conv2D, count, 2, f"down{index}")
    hidden = relu()(hidden)
  inner = normalised(hidden, _layers.Conv2D, filters[-1], 1, "inner1")
  inner = normalised(relu()(inner), _layers.Conv2D, filters[-1], 1, "inner2")
  hidden = relu()(_layers.Add()([hidden, inner]))
  if dropout:
    hidden = _layers.Dropout(dropout, seed=next(s) or 0)(hidden)
  for index, skip in reversed(list(enumerate(skips, start=1))):
    hidden = normalised(
      hidden, _layers.Conv2DTranspose, filters[index - 1], 2, f"up{index}"
    )
    hidden = _layers.Add()([relu()(hidden), skip])
  last = _layers.Conv2DTranspose(
    input_shape[2],
    3,
    padding="same",
    kernel_initializer=_small(0.01, next(s)),
    name="denoiser_last",
  )
  return _model(inputs, last(hidden), residual, "paper_denoiser")


def smooth_denoiser(
  input_shape: building.Shape,
  filters: int = 16,
  inner_size: int = 1,
  activation: str = "tanh",
  residual: bool = True,
  seed: int | None = None,
) -> tf.keras.Model:
  """A denoiser in which input noise reaches every direction of each slice.

    x_hat = z + conv(act(conv(act(conv(z)))))

  The mixed derivative A = d/dtheta d/dz of the loss has full row rank within a
  layer if nothing hides a direction of its weights: so there is no
  normalisation, no dropout, no unit that can die, no layer narrower than the
  image, and the last kernel does not start at zero, with which the derivative
  of both layers before it would vanish. The first two start wide enough for
  the activation to bend; while it is straight, 16 filters of 9 pixels are
  dependent. Three layers are three slices of a few hundred weights (160, 272
  and 145 for one channel), so that a batch can span each.

  Args:
    input_shape: height, width, channels of an image.
    filters: channels of the hidden layers.
    inner_size: of the middle layer's kernel; 3 makes it 9 times as large.
    activation: "tanh" or "softplus".
    residual: x_hat = z + f(z) in place of f(z).
    seed: of the initial weights; public, see `building.seeds`.
  """
  _require_image(input_shape, "smooth_denoiser")
  validate.positive_int(filters=filters, inner_size=inner_size)
  validate.one_of(_SMOOTH, activation=activation)
  s = building.seeds(seed)

  def conv(count, size, initializer, name, activation=None):
    return _layers.Conv2D(
      count,
      size,
      padding="same",
      activation=activation,
      kernel_initializer=initializer,
      name=f"denoiser_{name}",
    )

  wide = tf.keras.initializers.HeNormal
  inputs = tf.keras.Input(tuple(input_shape))
  hidden = conv(filters, 3, wide(next(s)), "first", activation)(inputs)
  hidden = conv(filters, inner_size, wide(next(s)), "hidden", activation)(
    hidden
  )
  outputs = conv(input_shape[2], 3, _small(0.1, next(s)), "last")(hidden)
  return _model(inputs, outputs, residual, "smooth_denoiser")


_BUILDERS = {
  "convolutional_denoiser": denoiser.convolutional_denoiser,
  "paper_denoiser": paper_denoiser,
  "paper_denoiser_dropout": functools.partial(paper_denoiser, dropout=0.1),
  "smooth_denoiser": smooth_denoiser,
}
DENOISERS = tuple(sorted(_BUILDERS))


def denoiser_by_name(
  name: str, input_shape: building.Shape, seed: int | None = None
) -> tf.keras.Model:
  """A freshly initialised denoiser; for its seed see `by_name`."""
  validate.one_of(DENOISERS, denoiser=name)
  return _BUILDERS[name](input_shape, seed=seed)


def _small(scale: float, seed: int | None) -> tf.keras.initializers.Initializer:
  """Not zero: the layers before would have no gradient."""
  return tf.keras.initializers.VarianceScaling(scale, "fan_avg", seed=seed)


def _model(inputs, outputs, residual: bool, name: str) -> tf.keras.Model:
  if residual:
    outputs = _layers.Add(name="denoiser_sum")([inputs, outputs])
  return tf.keras.Model(inputs, outputs, name=name)


def _require_image(input_shape: building.Shape, name: str) -> None:
  if len(input_shape) != 3 or min(input_shape) < 1:
    raise ValueError(
      f"Expected images (height, width, channels) for {name}, received"
      f" input_shape={tuple(input_shape)}."
    )
