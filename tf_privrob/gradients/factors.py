"""Per-example gradients of one variable, kept in factored form.

Book-keeping (Bu et al. 2022): with a layer's input and the gradient at its
output at hand, a per-example gradient's norm and the weighted sum over the
batch are a few matrix products, and the gradients themselves are formed only
where that is the cheaper way.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Union

import numpy as np
import tensorflow as tf

# Relative rounding error of a float32 Gram product. The Gram route sums terms
# that may cancel, so its result is raised by this much of the uncancelled sum:
# a norm may be overestimated by a hair, never underestimated.
_GRAM_ROUNDING = 4 * float(np.finfo(np.float32).eps)


@dataclasses.dataclass(frozen=True, eq=False)
class Materialised:
  """Per-example gradients [batch, *variable.shape]."""

  gradients: tf.Tensor

  def squared_norms(self, dtype: tf.DType) -> tf.Tensor:
    """|g_i|^2, shape [batch]."""
    gradients = tf.cast(self.gradients, dtype)
    return tf.reduce_sum(gradients**2, axis=range(1, gradients.shape.rank))

  def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
    """sum_i w_i g_i, in the shape of the variable."""
    return tf.tensordot(weights, self.gradients, 1)

  def materialise(self) -> Materialised:
    """Itself."""
    return self


@dataclasses.dataclass(frozen=True, eq=False)
class OuterProduct:
  """g_i = sum_t a_it d_it^T: kernels of dense and convolutional layers.

  Attributes:
    inputs: a, [batch, positions, p].
    deltas: d, the loss gradient at the output, [batch, positions, q].
    shape: of the variable, p * q elements.
  """

  inputs: tf.Tensor
  deltas: tf.Tensor
  shape: tuple[int, ...]

  @property
  def _sizes(self) -> tuple[int, int, int]:
    return (*self.inputs.shape[1:], self.deltas.shape[-1])

  @property
  def _forms_gradients(self) -> bool:
    """Whether p q t multiplications beat the Gram route's t^2 (p + q)."""
    positions, p, q = self._sizes
    return positions > 1 and p * q <= positions * (p + q)

  @functools.cached_property
  def _gradients(self) -> tf.Tensor:
    return tf.linalg.matmul(self.inputs, self.deltas, transpose_a=True)

  def squared_norms(self, dtype: tf.DType) -> tf.Tensor:
    """|g_i|^2 = sum_tu <a_t, a_u> <d_t, d_u>, shape [batch]."""
    if self._forms_gradients:
      return Materialised(self._gradients).squared_norms(dtype)
    inputs, deltas = tf.cast(self.inputs, dtype), tf.cast(self.deltas, dtype)
    input_squares = tf.reduce_sum(inputs**2, axis=2)
    delta_squares = tf.reduce_sum(deltas**2, axis=2)
    if self._sizes[0] == 1:
      return tf.squeeze(input_squares * delta_squares, 1)
    gram = tf.linalg.matmul(inputs, inputs, transpose_b=True)
    gram *= tf.linalg.matmul(deltas, deltas, transpose_b=True)
    uncancelled = tf.reduce_sum(tf.sqrt(input_squares * delta_squares), 1) ** 2
    return (
      tf.nn.relu(tf.reduce_sum(gram, [1, 2])) + _GRAM_ROUNDING * uncancelled
    )

  def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
    """sum_i w_i g_i, in the shape of the variable."""
    _, p, q = self._sizes
    if self._forms_gradients:
      total = Materialised(self._gradients).weighted_sum(weights)
    else:
      weighted = tf.reshape(self.deltas * weights[:, None, None], [-1, q])
      rows = tf.reshape(self.inputs, [-1, p])
      total = tf.linalg.matmul(rows, weighted, transpose_a=True)
    return tf.reshape(total, self.shape)

  def materialise(self) -> Materialised:
    """The gradients themselves, [batch, *shape]."""
    return Materialised(tf.reshape(self._gradients, [-1, *self.shape]))


Factor = Union[Materialised, OuterProduct]


def combine(factors: Sequence[Factor]) -> Factor:
  """One factor for a variable that several calls use.

  The norm of a sum is not the sum of norms: a layer that is shared, or called
  on clean and on perturbed inputs, has one gradient per example.
  """
  if len(factors) == 1:
    return factors[0]
  if all(isinstance(factor, OuterProduct) for factor in factors):
    return OuterProduct(
      tf.concat([factor.inputs for factor in factors], 1),
      tf.concat([factor.deltas for factor in factors], 1),
      factors[0].shape,
    )
  return Materialised(
    tf.add_n([factor.materialise().gradients for factor in factors])
  )


def fold_copies(factor: Factor, batch: int) -> Factor:
  """Merges k neighbouring rows a call saw for each of `batch` examples."""
  if isinstance(factor, OuterProduct):
    if factor.inputs.shape[0] == batch:
      return factor
    return OuterProduct(
      tf.reshape(factor.inputs, [batch, -1, factor.inputs.shape[-1]]),
      tf.reshape(factor.deltas, [batch, -1, factor.deltas.shape[-1]]),
      factor.shape,
    )
  shape = factor.gradients.shape
  if shape[0] == batch:
    return factor
  by_copy = tf.reshape(factor.gradients, [batch, -1, *shape[1:]])
  return Materialised(tf.reduce_sum(by_copy, axis=1))
