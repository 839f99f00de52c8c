"""How far fixed feature layers carry a change of their input, and rounding."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import layers as privrob_layers
from tf_privrob import validate
from tf_privrob.certify import certificate
from tf_privrob.certify import rounding
from tf_privrob.certify.linear import linear_head
from tf_privrob.certify.norms import keras_norms
from tf_privrob.certify.norms import linear_norms
from tf_privrob.certify.norms import operator_norms
from tf_privrob.layers import scattering
from tf_privrob.models import graph

_UP = 1 + 1e-12  # products and roots of a few float64


@dataclasses.dataclass(frozen=True)
class FeatureBound:
  """||f(x) - f(y)||_2 <= lipschitz(norm) ||x - y||_norm, for all x and y.

  f is the map in real arithmetic; what is computed differs from it by at most
  error + error_slope ||x||_2 in l2.

  Attributes:
    constants: Lipschitz constants from l1, l2 and linf to l2.
    error: Rounding that does not depend on x.
    error_slope: Rounding per unit of ||x||_2.
  """

  constants: tuple[float, float, float]
  error: float
  error_slope: float

  def lipschitz(self, norm: str) -> float:
    """The constant for changes measured in `norm`."""
    validate.one_of(certificate.NORMS, norm=norm)
    return self.constants[certificate.NORMS.index(norm)]

  def after(self, before: linear_head.Elementwise) -> FeatureBound:
    """The bound of f(scale x + offset), rounded before f too."""
    scale = float(np.abs(before.scale).max())
    offset = float(np.linalg.norm(before.size))
    growth = rounding.growth(before.terms, before.unit)
    # f sees scale x + offset within growth (scale ||x|| + offset), and what is
    # lost of numbers that are taken for 0.
    flushed = rounding.SUBNORMAL * float(np.linalg.norm(before.grain))
    slope = self.lipschitz("l2") * growth + self.error_slope * (1 + growth)
    return FeatureBound(
      tuple(_UP * scale * constant for constant in self.constants),
      _UP * (self.error + slope * offset + self.lipschitz("l2") * flushed),
      _UP * slope * scale,
    )


def feature_bound(
  layer: tf.keras.layers.Layer, input_shape: Sequence[int] | None = None
) -> FeatureBound:
  """Certified constants of a built feature layer, from its own weights.

  * `RandomFourierFeatures`: a ||Omega||_{p->2}, a the amplitude of its cosines
    (sqrt(2 / D)), because |cos'| <= 1. The largest singular value is raised by
    its rounding; see `linear_norms`.
  * `Scattering`: ||J||_{p->2} / pool, J all its filters together. The modulus
    sqrt(a^2 + b^2 + s) is the norm of (a, b, sqrt(s)) and changes by no more
    than (a, b) does; a mean over pool^2 values has norm 1 / pool.

  Cosines and square roots are taken to be right within 4 units in the last
  place, and convolutions to be sums of products.

  Args:
    layer: One of these layers.
    input_shape: Shape of one input; None takes the shape the layer was built
      with.

  Raises:
    ValueError: No constant of this layer is known.
  """
  graph.require_layer(layer)
  if type(layer) is privrob_layers.RandomFourierFeatures:
    keras_norms.check_built(layer)
    return _random_features(layer)
  if type(layer) is privrob_layers.Scattering:
    keras_norms.check_built(layer)
    if input_shape is None:
      input_shape = getattr(layer, "input_shape", (None, None))[1:]
    if None in input_shape:
      raise ValueError(
        f"Expected the shape of one input of {layer.name!r}, which is not"
        " known. Pass input_shape=(height, width, channels)."
      )
    return _scattering(layer, tuple(input_shape))
  raise ValueError(
    f"Expected RandomFourierFeatures or Scattering, received"
    f" {type(layer).__name__} {layer.name!r}, whose Lipschitz constant is not"
    " known here. Pass one that you can prove as LinearMargin(lipschitz=...),"
    " e.g. certify.prefix_norms(layers, input_shape).bound(norm, 'l2')."
  )


def _random_features(layer) -> FeatureBound:
  omega = layer.frequencies.numpy().astype(np.float64)
  norms = linear_norms.dense_map(omega).norms()
  rounding.unit(layer)
  inputs, count = omega.shape
  growth = rounding.growth(inputs + 2, rounding.FLOAT64)
  phases = float(np.linalg.norm(layer.phases.numpy().astype(np.float64)))
  # |Omega| |x| <= ||Omega||_F ||x||_2; then one rounding to the layer's type.
  slope = layer.amplitude * growth * float(np.linalg.norm(omega))
  last = 2.0**-24 + 16 * rounding.FLOAT64
  error = layer.amplitude * (growth * phases + last * math.sqrt(count))
  return FeatureBound(
    _constants(norms, layer.amplitude), _UP * error, _UP * slope
  )


def _scattering(layer, input_shape) -> FeatureBound:
  height, width, channels = input_shape
  waves, low = layer.filters
  plane = (height, width, 1)
  maps = [
    linear_norms.conv2d_map(kernel, plane, layer.strides)
    for kernel in joined_filters(waves, low, plane, layer.strides)
  ]
  constants = np.zeros(3)
  sizes = 0.0  # of J with the absolute values of its entries, squared
  for found in maps:
    constants += np.square(_constants(found.norms(), 1 / layer.pool))
    absolute = found.entrywise(tf.abs)
    rows = float(tf.reduce_max(absolute.row_sums()))
    sizes += rows * float(tf.reduce_max(absolute.column_sums()))
  constants = _UP * np.sqrt(constants)
  constants[certificate.NORMS.index("linf")] *= math.sqrt(channels)
  unit = max(2.0**-24, rounding.unit(layer))
  # A response is off by |J| |x| times the first; then modulus and mean by the
  # second times |a| + |b| + sqrt(s), which is sqrt(2) |J| |x| at most in l2.
  taps = max(len(waves), len(low)) ** 2
  responses = rounding.growth(taps + 1, unit)
  rest = rounding.growth(layer.pool**2 + 16, unit)
  outputs = math.prod(maps[0].output_shape[:2]) * waves.shape[-1] * channels
  smallest = math.sqrt(scattering.SMALLEST * outputs)
  slope = (responses + 1.5 * rest) * math.sqrt(sizes)
  return FeatureBound(
    tuple(float(value) for value in constants),
    _UP * 1.1 * rest * smallest / layer.pool,
    _UP * slope / layer.pool,
  )


def joined_filters(waves, low, plane, strides) -> list[np.ndarray]:
  """One kernel of all filters where their centres agree, else one of each.

  With padding "same" a kernel of k taps starts p(k) places before the input, so
  the smaller kernel lies p(K) - p(k) places inside the larger one.
  """
  small, large = sorted((waves, low), key=len)
  extra = len(large) - len(small)
  starts = {
    _padding(side, len(large), strides) - _padding(side, len(small), strides)
    for side in plane[:2]
  }
  start = starts.pop()
  if starts or not 0 <= start <= extra:
    return [waves, low]
  edges = (start, extra - start)
  small = np.pad(small, (edges, edges, (0, 0), (0, 0)))
  return [np.concatenate([large, small], axis=-1)]


def _padding(side: int, taps: int, strides: int) -> int:
  """Zeros before the input, TensorFlow's "SAME"."""
  total = (math.ceil(side / strides) - 1) * strides + taps - side
  return max(total, 0) // 2


def _constants(norms: operator_norms.OperatorNorms, factor: float) -> tuple:
  return tuple(_UP * factor * norms.bound(p, "l2") for p in certificate.NORMS)
