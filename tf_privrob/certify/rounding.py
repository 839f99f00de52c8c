"""How far floating point carries a forward pass from real arithmetic."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

FLOAT64 = 2.0**-53
_UNITS = {"float32": 2.0**-24, "float64": FLOAT64}
TF32 = 2.0**-11  # ten bits of mantissa
_ULPS = 8
SUBNORMAL = 2.0**-120  # one value flushed to zero loses 2^-126 at most


def unit(layer: tf.keras.layers.Layer) -> float:
  """The unit roundoff of the type that a layer computes in.

  Raises:
    ValueError: For half precision.
  """
  if layer.compute_dtype not in _UNITS:
    raise ValueError(
      f"Expected {type(layer).__name__} {layer.name!r} to compute in float32"
      f" or float64, received {layer.compute_dtype}: rounding would take more"
      " than a certificate has. Build the model without mixed precision."
    )
  return _UNITS[layer.compute_dtype]


def growth(terms: int, unit_roundoff: float) -> float:
  """Bound on |computed - exact| over the sum of absolute values.

  `terms` u / (1 - `terms` u), for a sum of products in which no value passes
  through more than `terms` roundings, in whatever order it is summed, with or
  without fused products (Higham 2002, Lemma 3.1 and Section 3.1). It does not
  hold for fast convolutions (Winograd, FFT), which cuDNN may choose; on CPU
  TensorFlow sums directly. On a GPU it rounds the factors of float32 products
  to ten bits unless it is told not to; that is allowed for where both are
  found.
  """
  share = terms * unit_roundoff
  if share >= 0.5:
    raise ValueError(
      f"Expected sums of fewer than {0.5 / unit_roundoff:.3g} terms, received"
      f" {terms}: their rounding has no useful bound."
    )
  bound = share / (1 - share)
  if unit_roundoff > FLOAT64 and rounds_factors():
    bound = (1 + bound) * (1 + TF32) ** 2 - 1
  return bound


def by_place(dtype: np.dtype) -> float:
  """By how much of its row's largest logit one may differ at another place.

  Sums in another order, and the ends of tiles: 8 units in the last place. The
  gate holds a model to it (`gate.check_rows`), and a vote counts only if no
  such difference can turn it.
  """
  unit = float(np.finfo(dtype).eps)
  return _ULPS * (max(unit, TF32) if rounds_factors() else unit)


def decided(logits: tf.Tensor) -> tf.Tensor:
  """Whether the largest logit of a row is the largest at every place."""
  first, second = tf.unstack(tf.math.top_k(logits, 2).values, axis=1)
  largest = tf.reduce_max(tf.abs(logits), axis=1)
  return first - second > 2 * by_place(logits.dtype.as_numpy_dtype) * largest


def rounds_factors() -> bool:
  """Whether float32 products are computed in TF32, on a GPU."""
  enabled = tf.config.experimental.tensor_float_32_execution_enabled()
  return enabled and bool(tf.config.list_logical_devices("GPU"))
