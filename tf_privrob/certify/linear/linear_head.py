"""Reads the affine end of a Keras model: what multiplies what, and rounding."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob.certify import rounding
from tf_privrob.certify.norms import keras_norms
from tf_privrob.models import graph
from tf_privrob.models import precision

_keras = tf.keras.layers
_MOVING = (_keras.Flatten, _keras.Permute, _keras.Reshape)
_HUGE = 1e37  # float32 ends at 3.4e38
_OWN_TERMS = 4  # roundings of this file's own float64


@dataclasses.dataclass(frozen=True)
class Elementwise:
  """a_i = scale_i x_place(i) + offset_i: what comes before a Dense layer.

  Attributes:
    place: Position of each value in the flattened input, in the present shape.
    scale: Factor of each value.
    offset: Offset of each value.
    size: Sum of the absolute values of all that was added to get `offset`.
    grain: How far a value can be off, in units of what is lost where a number
      below 2^-126 is taken for 0, be it at the input or behind any layer.
    peak: The largest factor of any layer so far, and the largest size of what
      was added, by which a value might overflow on the way.
    terms: Roundings that a value has gone through.
    unit: The largest unit roundoff among the layers.
  """

  place: np.ndarray
  scale: np.ndarray
  offset: np.ndarray
  size: np.ndarray
  grain: np.ndarray
  peak: tuple[float, float] = (0.0, 0.0)
  terms: int = 0
  unit: float = rounding.FLOAT64

  @classmethod
  def identity(cls, shape: Sequence[int]) -> Elementwise:
    """What leaves inputs of this shape as they are."""
    zeros = np.zeros(shape)
    place = np.arange(zeros.size).reshape(shape)
    return cls(place, zeros + 1, zeros, zeros, zeros + 1)

  def then(self, layer: tf.keras.layers.Layer) -> Elementwise:
    """Followed by a layer for which `is_elementwise` holds."""
    if isinstance(layer, _keras.Rescaling):
      # As Keras casts them: to float32 first, if they are Python's floats.
      scale, offset = (
        _of_features(layer, value, self.place.shape)
        for value in (layer.scale, layer.offset)
      )
      _require_normal(layer, scale)
      factor = self.scale * scale
      size = self.size * np.abs(scale) + np.abs(offset)
      return Elementwise(
        self.place,
        factor,
        self.offset * scale + offset,
        size,
        np.abs(scale) * (self.grain + 1) + 3,  # product, offset, sum
        (
          max(self.peak[0], float(np.abs(factor).max())),
          max(self.peak[1], float(size.max())),
        ),
        self.terms + 3,  # cast, product, sum
        max(self.unit, rounding.unit(layer)),
      )
    if isinstance(layer, _keras.Permute):
      axes = [axis - 1 for axis in layer.dims]
      return self._moved(lambda values: values.transpose(axes))
    if isinstance(layer, (_keras.Flatten, _keras.Reshape)):
      shape = layer.compute_output_shape((None, *self.place.shape))[1:]
      return self._moved(lambda values: values.reshape(shape))
    return self

  def _moved(self, move) -> Elementwise:
    return dataclasses.replace(
      self,
      place=move(self.place),
      scale=move(self.scale),
      offset=move(self.offset),
      size=move(self.size),
      grain=move(self.grain),
    )


@dataclasses.dataclass(frozen=True)
class LinearHead:
  """logits_j = <w_j, x> + b_j, x flattened, and how far the model is off.

  Attributes:
    weights: w, [inputs, classes], float64.
    bias: b, [classes], with all that offsets before the layer add to it.
    reach: |w|, more where a weight is so small that it may be taken for 0.
    size: Sum of the absolute values behind `bias`, [classes].
    grain: The grain of each logit; see `Elementwise`.
    growth: Growth of the model; see `rounding.growth`, of it and of `scores`
      together.
    peak: Largest factor and size on the way; see `Elementwise`.
  """

  weights: np.ndarray
  bias: np.ndarray
  reach: np.ndarray
  size: np.ndarray
  grain: np.ndarray
  growth: float
  peak: tuple[float, float]

  @classmethod
  def of(
    cls, layers: Sequence[tf.keras.layers.Layer], input_shape: Sequence[int]
  ) -> LinearHead:
    """The head made of elementwise layers and one Dense layer at the end."""
    before = Elementwise.identity(input_shape)
    for layer in layers[:-1]:
      before = before.then(layer)
    dense = layers[-1]
    if before.place.ndim != 1:
      raise ValueError(
        f"Expected vectors before Dense {dense.name!r}, received inputs of"
        f" shape {before.place.shape}. Put a Flatten layer before it."
      )
    kernel = dense.kernel.numpy().astype(np.float64)
    bias = np.zeros(kernel.shape[1])
    if dense.use_bias:
      bias = dense.bias.numpy().astype(np.float64)
    if not (np.isfinite(kernel).all() and np.isfinite(bias).all()):
      raise ValueError(f"Expected finite weights in Dense {dense.name!r}.")
    terms = len(kernel) + 2 + before.terms  # cast, product, sums, bias
    unit = max(before.unit, rounding.unit(dense))
    own = rounding.growth(terms + _OWN_TERMS, rounding.FLOAT64)
    growth = rounding.growth(terms, unit) + 2 * own
    # Where a weight is taken for 0, the value before it is all that counts.
    small = (kernel != 0) & (np.abs(kernel) < precision.SMALLEST)
    lost = small * (rounding.SUBNORMAL / growth)
    sizes = np.abs(kernel) + lost
    weights, reach = np.empty_like(kernel), np.empty_like(kernel)
    weights[before.place] = before.scale[:, np.newaxis] * kernel
    reach[before.place] = np.abs(before.scale)[:, np.newaxis] * sizes
    return cls(
      weights,
      before.offset @ kernel + bias,
      reach,
      before.size @ sizes + np.abs(bias),
      before.grain @ np.abs(kernel) + 2 * len(kernel) + 3,
      growth,
      before.peak,
    )

  def scores(self, x: np.ndarray) -> np.ndarray:
    """The logits of inputs [batch, inputs], in float64."""
    return x @ self.weights + self.bias

  def safe(self, x: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Radii of inputs [batch, inputs] within which no sum can overflow.

    Args:
      x: Inputs.
      slopes: By how much a change of size 1 moves each class' sum of absolute
        values, at most.
    """
    magnitude = np.abs(x)
    total = magnitude @ self.reach + self.size
    factor, added = self.peak
    with np.errstate(divide="ignore", invalid="ignore"):
      sums = ((_HUGE - total) / slopes).min(axis=1)
      values = (_HUGE - added) / np.float64(factor) - magnitude.max(axis=1)
    found = np.minimum(sums, values if factor else np.inf)
    return np.where(total.max(axis=1) < _HUGE, np.maximum(found, 0.0), 0.0)

  def errors(self, x: np.ndarray) -> np.ndarray:
    """Bound on |model's logit - exact logit| + |scores - exact logit|.

    growth (sum_i |w_ij x_i| + |b_j|), and a grain for subnormal numbers.
    """
    total = np.abs(x) @ self.reach + self.size
    return self.growth * total + rounding.SUBNORMAL * self.grain


def _require_normal(layer, scale: np.ndarray) -> None:
  if ((scale != 0) & (np.abs(scale) < precision.SMALLEST)).any():
    raise ValueError(
      f"Expected scales of at least {precision.SMALLEST:g} in Rescaling"
      f" {layer.name!r}, received smaller ones, which a processor may take for"
      " 0. Rescale by more."
    )


def _of_features(layer, value, shape: Sequence[int]) -> np.ndarray:
  """A setting of Rescaling for each value of one input."""
  value = tf.cast(value, layer.compute_dtype).numpy().astype(np.float64)
  try:
    return np.broadcast_to(value, (1, *shape))[0]
  except ValueError as error:
    raise ValueError(
      f"Expected one scale and offset for each feature in Rescaling"
      f" {layer.name!r}, received shape {value.shape} for inputs of shape"
      f" {tuple(shape)}. Give it one number, or an array of that shape."
    ) from error


def is_elementwise(layer: tf.keras.layers.Layer) -> bool:
  """Whether `Elementwise.then` knows the layer."""
  if type(layer) is _keras.Activation:
    return layer.activation is tf.keras.activations.linear
  if type(layer) is _keras.Flatten:
    return layer.data_format == "channels_last"
  return type(layer) in (*keras_norms.IDENTITIES, *_MOVING, _keras.Rescaling)


def split(
  chain: Sequence[tf.keras.layers.Layer],
) -> tuple[list[tf.keras.layers.Layer], list[tf.keras.layers.Layer]]:
  """Layers of the front end, and of the linear head: all of it if it can be.

  Raises:
    ValueError: The last layer is no Dense layer without an activation.
  """
  last = chain[-1]
  if type(last) is not _keras.Dense:
    raise ValueError(
      "Expected a model that ends with a Dense layer, received"
      f" {type(last).__name__} {last.name!r} at its end. Certify the logits:"
      " leave softmax and the like out of the model."
    )
  if last.activation is not tf.keras.activations.linear:
    name = getattr(last.activation, "__name__", repr(last.activation))
    raise ValueError(
      f"Expected the last layer, Dense {last.name!r}, without an activation,"
      f" received {name!r}. Certify the logits: pass activation=None and"
      " from_logits=True to the loss."
    )
  start = len(chain) - 1
  while start and is_elementwise(chain[start - 1]):
    start -= 1
  return list(chain[:start]), list(chain[start:])


def chain_of(network: tf.keras.Model) -> list[tf.keras.layers.Layer]:
  """The layers of a Sequential or functional model, input first.

  Models inside it are taken apart where they are chains themselves. Each layer
  is called on the output of the one before it and on nothing else; see
  `models.graph`.

  Raises:
    ValueError: It is no chain of layers, each with one input.
  """
  graph.require_graph(network)
  if len(network.outputs) != 1 or len(network.inputs) != 1:
    raise ValueError(
      f"Expected a built Sequential or functional model with one input and one"
      f" output, received {type(network).__name__} {network.name!r}. Pass the"
      " network itself where it is wrapped, and give Sequential an Input."
    )
  chain, fork = _walk(network)
  if fork is not None:
    raise ValueError(
      f"Expected a chain of layers in {network.name!r}, received"
      f" {type(fork).__name__} {fork.name!r} with several inputs: what it"
      " computes from x cannot be read off. Pass a chain."
    )
  return chain


def _walk(
  network: tf.keras.Model,
) -> tuple[list[tf.keras.layers.Layer], tf.keras.layers.Layer | None]:
  """The chain of a model, or the last layer that has not just one input."""
  chain, tensor = [], network.outputs[0]
  while tensor is not network.inputs[0]:
    layer, sources = graph.made_by(tensor)
    if len(sources) != 1:
      return [], layer
    parts, fork = [layer], None
    if graph.is_graph(layer) and len(layer.inputs + layer.outputs) == 2:
      parts, fork = _walk(layer)
    chain[:0] = parts if fork is None else [layer]  # which stays opaque
    tensor = sources[0]
  return chain, None
