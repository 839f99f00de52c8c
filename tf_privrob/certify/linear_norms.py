"""How much l1 a linear layer can make of a small change of its input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.certify import certificate


@dataclasses.dataclass(frozen=True)
class LinearNorms:
  """Upper bounds on ||A||_{p->1} = max ||A a||_1 over ||a||_p <= 1.

  Laplace noise behind A hides changes of bounded l1 norm, so this is the
  sensitivity that a certificate in l_p needs. Let c_j = sum_i |A_ij|. Then
  ||A a||_1 <= sum_j c_j |a_j| and, by Hölder's inequality, ||A||_{1->1} =
  max c (exact), ||A||_{2->1} <= ||c||_2, ||A||_{inf->1} <= sum c. For m
  outputs also ||A a||_1 <= sqrt(m) ||A a||_2, which is smaller where rows
  mix signs; `l2` and `linf` are the smaller of the two bounds. A function of
  Lipschitz constant 1 in every coordinate between A and the noise (a clip, a
  ReLU, a shift) changes nothing.

  Attributes:
    l1: ||A||_{1->1}.
    l2: bound on ||A||_{2->1}.
    linf: bound on ||A||_{inf->1}.
    output_shape: shape of A a, which the noise must have to cover all of it.
  """

  l1: float
  l2: float
  linf: float
  output_shape: tuple[int, ...]

  def to_l1(self, norm: str) -> float:
    """The bound for changes measured in `norm`."""
    validate.one_of(certificate.NORMS, norm=norm)
    return getattr(self, norm)


def dense_norms(kernel: np.ndarray) -> LinearNorms:
  """Norms of a -> a @ kernel, kernel [inputs, outputs] of a Dense layer."""
  kernel = _check_kernel(kernel, 2)
  inputs, outputs = kernel.shape
  stretch = math.sqrt(outputs) * np.linalg.norm(kernel, 2)
  return _norms(
    np.abs(kernel).sum(axis=1), stretch, stretch * math.sqrt(inputs), (outputs,)
  )


def conv2d_norms(
  kernel: np.ndarray,
  input_shape: Sequence[int],
  strides: int | Sequence[int] = 1,
  padding: str = "same",
) -> LinearNorms:
  """Norms of a convolution, padding with zeros, over one input.

  The column sums c are the transposed convolution of ones with |kernel|. For
  the second bound let s be the largest singular value of the kernel as a
  matrix [patch, filters] and n_j the number of patches that hold value j:
  ||A a||_2^2 <= s^2 sum of ||patch||^2 = s^2 sum_j n_j a_j^2, which is at most
  s^2 max n for ||a||_2 <= 1 and s^2 sum n for ||a||_inf <= 1.

  Args:
    kernel: [height, width, channels, filters].
    input_shape: [height, width, channels] of one input.
    strides: one or two whole numbers.
    padding: "same" or "valid".
  """
  kernel = _check_kernel(kernel, 4)
  padding = padding.lower()
  validate.one_of(("same", "valid"), padding=padding)
  strides = _pair(strides)
  input_shape = tuple(int(size) for size in input_shape)
  if len(input_shape) != 3 or input_shape[2] != kernel.shape[2]:
    raise ValueError(
      f"Expected input_shape={input_shape} to be (height, width, channels) with"
      f" the kernel's {kernel.shape[2]} channels."
    )
  output_shape = (
    *(
      math.ceil((size - (padding == "valid") * (taps - 1)) / stride)
      for size, taps, stride in zip(input_shape, kernel.shape, strides)
    ),
    kernel.shape[3],
  )
  if min(output_shape) < 1:
    raise ValueError(
      f"Expected a kernel no larger than the input with padding='valid',"
      f" received kernel {kernel.shape[:2]} for input {input_shape[:2]}."
    )

  def spread(weights):  # A^T 1 for a convolution with these weights
    return tf.nn.conv2d_transpose(
      tf.ones([1, *output_shape[:2], weights.shape[3]], tf.float64),
      tf.constant(weights),
      [1, *input_shape],
      strides,
      padding.upper(),
    ).numpy()

  largest = np.linalg.norm(kernel.reshape(-1, kernel.shape[3]), 2)
  stretch = math.sqrt(math.prod(output_shape)) * largest
  patches = spread(np.ones([*kernel.shape[:3], 1]))
  return _norms(
    spread(np.abs(kernel)),
    stretch * math.sqrt(patches.max()),
    stretch * math.sqrt(patches.sum()),
    output_shape,
  )


def layer_norms(
  layer: tf.keras.layers.Layer, input_shape: Sequence[int] | None = None
) -> LinearNorms:
  """Norms of a built Dense or Conv2D layer before its activation.

  Args:
    layer: its present kernel counts; ask again after training.
    input_shape: shape of one input of a convolution; None takes the shape the
      layer was built with.
  """
  if type(layer) is tf.keras.layers.Dense:
    _check_built(layer)
    return dense_norms(layer.kernel.numpy())
  if type(layer) is not tf.keras.layers.Conv2D:
    raise ValueError(
      f"Expected a Dense or Conv2D layer, received {type(layer).__name__}. Its"
      " norms are not known here: pass its kernel to dense_norms or"
      " conv2d_norms if it is one of them in disguise."
    )
  _check_built(layer)
  if (
    layer.groups != 1
    or tuple(layer.dilation_rate) != (1, 1)
    or layer.data_format != "channels_last"
  ):
    raise ValueError(
      "Expected a Conv2D with groups=1, dilation_rate=1 and"
      f" data_format='channels_last', received groups={layer.groups},"
      f" dilation_rate={layer.dilation_rate},"
      f" data_format={layer.data_format!r}."
    )
  if input_shape is None:
    input_shape = getattr(layer, "input_shape", (None, None))[1:]
    if None in input_shape:
      raise ValueError(
        "Expected the shape of one input, which this layer does not know."
        " Pass input_shape=(height, width, channels)."
      )
  return conv2d_norms(
    layer.kernel.numpy(), input_shape, layer.strides, layer.padding
  )


def _norms(columns, l2, linf, output_shape) -> LinearNorms:
  return LinearNorms(
    l1=float(columns.max()),
    l2=float(min(np.linalg.norm(columns.ravel()), l2)),
    linf=float(min(columns.sum(), linf)),
    output_shape=output_shape,
  )


def _check_kernel(kernel: np.ndarray, rank: int) -> np.ndarray:
  kernel = np.asarray(kernel, np.float64)
  if kernel.ndim != rank or not kernel.size or not np.isfinite(kernel).all():
    raise ValueError(
      f"Expected a finite kernel of rank {rank}, received shape {kernel.shape}"
      f" with {int((~np.isfinite(kernel)).sum())} values that are not finite."
    )
  return kernel


def _check_built(layer: tf.keras.layers.Layer) -> None:
  if not layer.built:
    raise ValueError(
      f"Expected the built layer {layer.name!r}: call it once, or load its"
      " weights, before asking for its norms."
    )


def _pair(strides: int | Sequence[int]) -> tuple[int, int]:
  values = (
    (strides, strides) if np.ndim(strides) == 0 else tuple(map(int, strides))
  )
  if len(values) != 2:
    raise ValueError(f"Expected strides={strides!r} to be one or two numbers.")
  validate.positive_int(strides=values[0])
  validate.positive_int(strides=values[1])
  return values
