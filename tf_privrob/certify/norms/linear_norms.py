"""Norms of Dense layers and convolutions, as the network applies them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.certify import rounding
from tf_privrob.certify.norms import operator_norms

_LARGEST_GRAM = 4096  # values: 134 MB, and seconds a squaring
_BLOCK = 256  # basis vectors a pass
_MOST_SQUARINGS = 12  # leaves a slack of n^(2^-14) at most: under 0.1%
_LARGE, _LARGE_SQUARINGS = 1024, 8  # under 1%, in a quarter of a minute
_SUMS = 1 + 1e-10  # sums of up to 10^5 float64 are off by less


@dataclasses.dataclass(frozen=True)
class LinearMap:
  """a -> weights * (A a), A a Dense layer's or a convolution's matrix.

  Attributes:
    kernel: [inputs, outputs], or [height, width, channels, filters].
    input_shape: Shape of one input.
    output_shape: Shape of one output.
    strides: Strides of a convolution.
    padding: "same" or "valid", of a convolution.
    weights: One factor per output, or None.
  """

  kernel: tf.Tensor
  input_shape: tuple[int, ...]
  output_shape: tuple[int, ...]
  strides: tuple[int, int] = (1, 1)
  padding: str = "same"
  weights: tf.Tensor | None = None

  def apply(self, inputs: tf.Tensor) -> tf.Tensor:
    """A a for a batch of inputs."""
    if len(self.kernel.shape) == 2:
      outputs = inputs @ self.kernel
    else:
      outputs = tf.nn.conv2d(
        inputs, self.kernel, self.strides, self.padding.upper()
      )
    return outputs if self.weights is None else self.weights * outputs

  def transpose(self, outputs: tf.Tensor) -> tf.Tensor:
    """A^T b for a batch of outputs."""
    if self.weights is not None:
      outputs = self.weights * outputs
    if len(self.kernel.shape) == 2:
      return tf.matmul(outputs, self.kernel, transpose_b=True)
    return tf.nn.conv2d_transpose(
      outputs,
      self.kernel,
      [outputs.shape[0], *self.input_shape],
      self.strides,
      self.padding.upper(),
    )

  def entrywise(self, function) -> LinearMap:
    """The map whose matrix is |A| or A^2: function(1) must be 1."""
    weights = None if self.weights is None else function(self.weights)
    return dataclasses.replace(
      self, kernel=function(self.kernel), weights=weights
    )

  def whitened(self, stddev: np.ndarray) -> LinearMap:
    """D^-1 A, D = diag(stddev): noise of these stddevs becomes white."""
    stddev = np.broadcast_to(np.asarray(stddev, np.float64), self.output_shape)
    if not (np.isfinite(stddev).all() and (stddev > 0).all()):
      raise ValueError(
        "Expected a finite stddev > 0 for every output, received values in"
        f" [{stddev.min():g}, {stddev.max():g}]. An output without noise can"
        " give anything away."
      )
    return dataclasses.replace(self, weights=tf.constant(1 / stddev))

  def column_sums(self) -> tf.Tensor:
    """sum_i A_ij for every input j, [1, *input_shape]."""
    return self.transpose(tf.ones([1, *self.output_shape], self.kernel.dtype))

  def row_sums(self) -> tf.Tensor:
    """sum_j A_ij for every output i, [1, *output_shape]."""
    return self.apply(tf.ones([1, *self.input_shape], self.kernel.dtype))

  def norms(self, quick: bool = False) -> operator_norms.OperatorNorms:
    """The table of a float64 map; 1->q and p->inf exact, 2->2 to under 1%.

    With c_j = sum_i |A_ij| and r_i = sum_j |A_ij|, Hölder's inequality gives
    ||A||_{2->1} <= ||c||_2, ||A||_{inf->1} <= sum c, ||A||_{inf->2} <= ||r||_2.

    Args:
      quick: Bound the l2 norm of a convolution by its patches, in no time; up
        to the overlap of the patches larger.
    """
    absolute, squared = self.entrywise(tf.abs), self.entrywise(tf.square)
    columns, rows = absolute.column_sums().numpy(), absolute.row_sums().numpy()
    largest = np.abs(self.kernel.numpy()).max()
    if self.weights is not None:
      largest *= np.abs(self.weights.numpy()).max()
    schur = math.sqrt(columns.max() * rows.max())
    bounds = {
      ("l1", "l1"): columns.max(),
      ("l1", "l2"): math.sqrt(squared.column_sums().numpy().max()),
      ("l1", "linf"): largest,
      ("l2", "linf"): math.sqrt(squared.row_sums().numpy().max()),
      ("linf", "linf"): rows.max(),
      ("l2", "l1"): np.linalg.norm(columns),
      ("linf", "l1"): columns.sum(),
      ("linf", "l2"): np.linalg.norm(rows),
      ("l2", "l2"): min(self.l2_bound(quick), schur),
    }
    return operator_norms.OperatorNorms.of(
      {pair: _SUMS * float(value) for pair, value in bounds.items()},
      self.input_shape,
      self.output_shape,
    )

  def l2_bound(self, quick: bool = False) -> float:
    """Certified upper bound on the largest singular value."""
    if len(self.kernel.shape) == 2:
      matrix = self.kernel
      if self.weights is not None:
        matrix = matrix * self.weights
      return _matrix_l2_bound(matrix.numpy())
    size = math.prod(self.input_shape)
    if quick or size > _LARGEST_GRAM:
      return self._patch_bound()
    gram = np.empty([size, size])
    for start in range(0, size, _BLOCK):
      count = min(_BLOCK, size - start)
      basis = np.eye(count, size, start).reshape(count, *self.input_shape)
      rows = self.transpose(self.apply(tf.constant(basis)))
      gram[start : start + count] = rows.numpy().reshape(count, size)
    # Entries are sums over an output's taps, then over outputs: the bound of
    # rounding is theirs over absolute values, at most ||c|| ||r|| a value.
    absolute = self.entrywise(tf.abs)
    spread = absolute.transpose(absolute.row_sums()).numpy().max()
    taps = math.prod(self.kernel.shape)
    off = 4 * taps * rounding.FLOAT64 * float(spread)
    return math.sqrt(gram_iteration(gram) + off)

  def _patch_bound(self) -> float:
    """S max|weights| sqrt(max n), for inputs too large for a Gram matrix.

    Let s be the largest singular value of the kernel as a matrix [patch,
    filters] and n_j the number of patches that hold value j: ||A a||_2^2 <=
    s^2 sum of ||patch||^2 = s^2 sum_j n_j a_j^2.
    """
    taps, kernel = self.kernel.shape, self.kernel.numpy()
    patches = dataclasses.replace(
      self,
      kernel=tf.ones([*taps[:3], 1], tf.float64),
      output_shape=(*self.output_shape[:2], 1),
      weights=None,
    ).column_sums()
    factor = (
      1.0 if self.weights is None else tf.reduce_max(tf.abs(self.weights))
    )
    return (
      _matrix_l2_bound(kernel.reshape(-1, taps[3]))
      * float(factor)
      * math.sqrt(float(tf.reduce_max(patches)))
    )

  def l2_estimate(
    self, vector: tf.Tensor, steps: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Power iteration: a LOWER estimate of ||A||_2, and the vector to go on.

    Args:
      vector: [1, *input_shape], any start but zero.
      steps: Number of steps of x <- A^T A x / |A^T A x|.
    """
    for _ in range(steps):
      vector = self.transpose(self.apply(vector))
      vector /= tf.maximum(tf.norm(vector), 1e-30)
    return tf.norm(self.apply(vector)), vector


def gram_iteration(gram: np.ndarray) -> float:
  """Upper bound on the largest eigenvalue of G = A^T A, symmetric, PSD.

  ||G||_2^(2^k) = ||G^(2^k)||_2 <= ||G^(2^k)||_F (Delattre et al. 2023). With
  X_0 = G / |G|_F and X_{j+1} = X_j^2 / |X_j^2|_F,

    ||X_j||_2^2 <= |X_j^2|_F ||X_{j+1}||_2 + n u,

  where n u, u the unit roundoff, is the most that rounding changes the product
  of two matrices of Frobenius norm 1 (Higham 2002, Eq. 3.13). Read backwards
  from ||X_k||_2 <= |X_k|_F = 1, it bounds ||G||_2, whatever k is.
  """
  size = len(gram)
  slack = 1 + 4 * size**2 * rounding.FLOAT64  # of a Frobenius norm
  off = 2 * size * rounding.FLOAT64
  largest = float(np.abs(gram).max())
  if largest == 0:
    return 0.0
  power = (gram / largest + gram.T / largest) / 2  # squares of tiny values
  total = float(np.linalg.norm(power))  # must not vanish
  power, scales = power / total, []
  most = _MOST_SQUARINGS if size <= _LARGE else _LARGE_SQUARINGS
  while len(scales) < most:
    power = power @ power
    power = (power + power.T) / 2  # nearer to the true, symmetric product
    scales.append(float(np.linalg.norm(power)))
    power /= scales[-1]
    if scales[-1] ** (0.5 ** len(scales)) > 1 - 1e-4:  # all but rank one
      break
  bound = slack
  for scale in reversed(scales):
    bound = math.sqrt(slack * scale * bound + off)
  return slack * largest * total * bound


def _matrix_l2_bound(matrix: np.ndarray) -> float:
  """The largest singular value, raised by the rounding of LAPACK's SVD.

  The computed value is that of a matrix at most p(m, n) u ||A||_2 away, p a
  modest polynomial (LAPACK Users' Guide 4.9); 10 max(m, n) is taken for it.
  """
  off = 10 * max(matrix.shape) * rounding.FLOAT64
  return float(np.linalg.norm(matrix, 2)) * (1 + off)


def dense_map(kernel: np.ndarray) -> LinearMap:
  """A -> a @ kernel, kernel [inputs, outputs] of a Dense layer."""
  kernel = _check_kernel(kernel, 2)
  inputs, outputs = kernel.shape
  return LinearMap(tf.constant(kernel), (inputs,), (outputs,))


def conv2d_map(
  kernel: np.ndarray,
  input_shape: Sequence[int],
  strides: int | Sequence[int] = 1,
  padding: str = "same",
) -> LinearMap:
  """A convolution, padding with zeros, of one input.

  Args:
    kernel: [height, width, channels, filters].
    input_shape: [height, width, channels] of one input.
    strides: One or two whole numbers.
    padding: "same" or "valid".
  """
  kernel = _check_kernel(kernel, 4)
  padding = padding.lower()
  validate.one_of(("same", "valid"), padding=padding)
  strides = (strides,) * 2 if np.ndim(strides) == 0 else tuple(strides)
  validate.sizes(strides=strides)
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
  return LinearMap(
    tf.constant(kernel), input_shape, output_shape, strides, padding
  )


def _check_kernel(kernel: np.ndarray, rank: int) -> np.ndarray:
  kernel = np.asarray(kernel, np.float64)
  if kernel.ndim != rank or not kernel.size or not np.isfinite(kernel).all():
    raise ValueError(
      f"Expected a finite kernel of rank {rank}, received shape {kernel.shape}"
      f" with {int((~np.isfinite(kernel)).sum())} values that are not finite."
    )
  return kernel
