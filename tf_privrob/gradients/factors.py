"""Per-example gradients of one variable, kept in factored form.

Book-keeping (Bu et al. 2022): with a layer's input and the gradient at its
output at hand, a per-example gradient's norm and the weighted sum over the
batch are a few matrix products, and the gradients themselves are formed only
where that is the cheaper way.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Union

import tensorflow as tf

# Norms are upper bounds for each row, whatever float32 does to it: u is the
# rounding of one operation, and a product below the smallest normal number may
# be taken for zero.
_UNIT = 2.0**-24
_TINY = 2.0**-126
# Of sums over rows: rows of a block, and the margin of clipping. The least is
# for what a last rounding to float32 may do to a sum.
_FORMED = 4
_BLOCKS = (256, 128, 64, 32, 16, 8)
_FEW_BLOCKS = 8  # one product each; more of them are one batch of products
SMALLEST_MARGIN, _LARGEST_MARGIN = 5e-4, 1e-2


def _rounding(operations: int) -> float:
  """Relative error of a float32 result after so many roundings in a row."""
  return (operations + 8) * _UNIT / (1 - (operations + 8) * _UNIT)


def _sum_of_squares(tensor: tf.Tensor) -> tf.Tensor:
  """An upper bound of sum_j t_ij^2 for each i: [batch, ...] to [batch].

  The last axis is summed first: roundings grow with the sum of both lengths,
  not with their product.
  """
  rows, columns = math.prod(tensor.shape[1:-1]), tensor.shape[-1]
  flat = tf.reshape(tensor, [-1, rows, columns])
  squares = tf.reduce_sum(tf.reduce_sum(flat**2, axis=2), axis=1)
  raised = 1 + _rounding(rows + columns)
  return raised * (squares + rows * columns * _TINY)


@dataclasses.dataclass(frozen=True, eq=False)
class Materialised:
  """Per-example gradients [batch, *variable.shape]."""

  gradients: tf.Tensor

  def squared_norms(self) -> tf.Tensor:
    """Upper bounds of |g_i|^2, shape [batch]."""
    if self.gradients.shape.rank == 1:
      return _sum_of_squares(self.gradients[:, tf.newaxis])
    return _sum_of_squares(self.gradients)

  def weighted_sum(
    self, weights: tf.Tensor, block: int | None = None
  ) -> tf.Tensor:
    """sum_i w_i g_i, in the shape of the variable, float64.

    Args:
      weights: w, [batch].
      block: rows that are added up in float32 first; None: none.
    """
    shape = self.gradients.shape[1:]
    gradients = tf.reshape(self.gradients, [-1, 1, math.prod(shape)])
    total = _sum_of_products(weights[:, None, None], gradients, block)
    return tf.reshape(total, shape)

  def materialise(self) -> Materialised:
    """Itself."""
    return self

  def summable(self) -> Materialised:
    """Itself."""
    return self

  @property
  def tensors(self) -> tuple[tf.Tensor, ...]:
    """What it is made of, [batch, ...] each."""
    return (self.gradients,)

  def made_of(self, gradients: tf.Tensor) -> Materialised:
    """The same of other tensors."""
    return Materialised(gradients)


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
    """Whether a row's gradient is formed, for its norm and for the sum.

    Unformed positions that cancel round by far more than their sum is long, so
    that they are added in float64. Forming a row takes p q t multiplications,
    its norm alone t^2 (p + q) by the Gram route.
    """
    positions, p, q = self._sizes
    return positions > 1 and p * q <= _FORMED * positions * (p + q)

  @functools.cached_property
  def _gradients(self) -> tf.Tensor:
    return tf.linalg.matmul(self.inputs, self.deltas, transpose_a=True)

  def squared_norms(self) -> tf.Tensor:
    """Upper bounds of |g_i|^2 = sum_tu <a_t, a_u> <d_t, d_u>, shape [batch].

    With s_t >= |a_t|, r_t >= |d_t| and n = p + q + 2 T roundings, the float32
    sum is off by no more than rounding(n) (sum_t s_t r_t)^2, and by tiny p
    (sum_t r_t)^2 + tiny q (sum_t s_t)^2 for products that became zero.
    """
    if self._forms_gradients:
      return Materialised(self._gradients).squared_norms()
    positions, p, q = self._sizes
    if positions == 1:
      inputs, deltas = (
        _sum_of_squares(self.inputs),
        _sum_of_squares(self.deltas),
      )
      return (1 + _rounding(0)) * inputs * deltas + _TINY
    lengths = [_lengths(self.inputs), _lengths(self.deltas)]
    gram = tf.linalg.matmul(self.inputs, self.inputs, transpose_b=True)
    gram *= tf.linalg.matmul(self.deltas, self.deltas, transpose_b=True)
    gram = tf.reduce_sum(tf.reduce_sum(gram, axis=2), axis=1)
    uncancelled = tf.reduce_sum(lengths[0] * lengths[1], axis=1) ** 2
    flushed = p * _TINY * tf.reduce_sum(lengths[1], axis=1) ** 2
    flushed += q * _TINY * tf.reduce_sum(lengths[0], axis=1) ** 2
    error = _rounding(p + q + 2 * positions)
    return (
      tf.nn.relu(gram)
      + (1 + 4 * error) * (error * uncancelled + flushed)
      + (positions**2 + 8) * _TINY
    )

  def weighted_sum(
    self, weights: tf.Tensor, block: int | None = None
  ) -> tf.Tensor:
    """sum_i w_i g_i, in the shape of the variable, float64."""
    if self._forms_gradients:
      return self.materialise().weighted_sum(weights, block)
    block = block if self._sizes[0] == 1 else None
    weighted = self.deltas * weights[:, None, None]
    total = _sum_of_products(self.inputs, weighted, block)
    return tf.reshape(total, self.shape)

  def materialise(self) -> Materialised:
    """The gradients themselves, [batch, *shape]."""
    return Materialised(tf.reshape(self._gradients, [-1, *self.shape]))

  def summable(self) -> Factor:
    """The form that `weighted_sum` starts from."""
    return self.materialise() if self._forms_gradients else self

  @property
  def tensors(self) -> tuple[tf.Tensor, ...]:
    """What it is made of, [batch, ...] each."""
    return self.inputs, self.deltas

  def made_of(self, inputs: tf.Tensor, deltas: tf.Tensor) -> OuterProduct:
    """The same of other tensors."""
    return OuterProduct(inputs, deltas, self.shape)


Factor = Union[Materialised, OuterProduct]


def _sum_of_products(
  left: tf.Tensor, right: tf.Tensor, block: int | None
) -> tf.Tensor:
  """sum_i l_i^T r_i of [batch, positions, p] and [batch, positions, q].

  In float64; with `block`, of float32 sums over at most so many rows each.
  """
  rows, positions = left.shape[:2]
  if block is None:
    left, right = tf.cast(left, tf.float64), tf.cast(right, tf.float64)
  size = max(n for n in range(1, (block or rows) + 1) if rows % n == 0)
  left, right = (
    tf.reshape(part, [rows // size, size * positions, part.shape[2]])
    for part in (left, right)
  )
  if rows // size > _FEW_BLOCKS:
    parts = tf.linalg.matmul(left, right, transpose_a=True)
    return tf.reduce_sum(tf.cast(parts, tf.float64), axis=0)
  return sum(
    tf.cast(tf.linalg.matmul(one, other, transpose_a=True), tf.float64)
    for one, other in zip(tf.unstack(left), tf.unstack(right))
  )


def summing(most_rows: int) -> tuple[int | None, float]:
  """How to add up so many rows, and the share of C that it may be off.

  Rows of norm at most C, added up in float32 in blocks of b and these in
  float64, are off by at most rounding(b) C a row, in whatever order a block is
  added (Higham 2002, Section 4.2). The sums of two neighbours, in which a row
  may stand in another block, are both off: by 2 N rounding(b) C for N rows.
  Blocks are as long as that is at most one part in a hundred; where even short
  ones would exceed it, all is added in float64.

  It is a bound where a row's part is one vector: formed before, or one product.
  Rows of several positions that are not formed are added in float64.

  Returns:
    b, None for float64; and the margin, by which clipping stays below C. It
    follows from public numbers: that of rows, or their probability of taking
    part.
  """
  for block in _BLOCKS:
    margin = 2 * most_rows * _rounding(block)
    if margin <= _LARGEST_MARGIN:
      return block, max(margin, SMALLEST_MARGIN)
  return None, SMALLEST_MARGIN


def over_positions(tensor: tf.Tensor) -> tf.Tensor:
  """sum_t x_it of [batch, positions, p]: of each row as at any other place.

  A sum over an axis in the middle is vectorised across rows, and the order in
  which a row is added then depends on where it stands.
  """
  ones = tf.ones([tensor.shape[0], 1, tensor.shape[1]], tensor.dtype)
  return tf.linalg.matmul(ones, tensor)[:, 0]


def _lengths(tensor: tf.Tensor) -> tf.Tensor:
  """Upper bounds of the norms over the last axis."""
  size = tensor.shape[-1]
  squares = tf.reduce_sum(tensor**2, axis=-1) + size * _TINY
  return (1 + _rounding(size)) * tf.sqrt(squares)


def norms(squares: Sequence[tf.Tensor]) -> tf.Tensor:
  """Upper bounds of |g_i| over all variables, from `squared_norms` of each.

  Not finite where an entry is not, and where a square overflows: each row by
  itself, whatever the others are.
  """
  return (1 + _rounding(len(squares))) * tf.sqrt(tf.add_n(squares))


def without(bad: tf.Tensor, found: Sequence[Factor]) -> list[Factor]:
  """The factors, ready for `weighted_sum`, with zeros in the rows of `bad`.

  Zero times NaN is NaN, so a weight of 0 is not enough. Where no row is bad
  nothing is touched.
  """
  found = [factor.summable() for factor in found]

  def zeroed():
    return [
      tuple(zero_rows(bad, tensor) for tensor in factor.tensors)
      for factor in found
    ]

  tensors = tf.cond(
    tf.reduce_any(bad), zeroed, lambda: [factor.tensors for factor in found]
  )
  return [factor.made_of(*parts) for factor, parts in zip(found, tensors)]


def zero_rows(bad: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
  """The tensor [batch, ...] with zeros in the rows of `bad`."""
  rows = tf.reshape(bad, [-1] + [1] * (tensor.shape.rank - 1))
  return tf.where(rows, tf.zeros([], tensor.dtype), tensor)


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
  copies = shape[0] // batch
  by_copy = tf.reshape(factor.gradients, [batch, copies, math.prod(shape[1:])])
  return Materialised(tf.reshape(over_positions(by_copy), [batch, *shape[1:]]))
