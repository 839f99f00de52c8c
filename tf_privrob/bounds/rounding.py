"""What rounding can do to a network: the difference "outward" pays for.

The network is computed in float32, with unit roundoff u = 2^-24. A sum of n
products, in any order and with or without fused operations, is off by at most
gamma_n times the sum of the products' sizes, gamma_n = n u / (1 - n u) (Higham,
Accuracy and Stability of Numerical Algorithms, Section 3.1). So behind an
affine layer the computed value differs from W h + b, h what the layer was
really given, by at most gamma_n (|W| |h| + |b|); `slack` bounds that over a
box, and domains add it to the radius of the layer's output. Their own
arithmetic is then done in float64, whose roundoff is 2^-29 of float32's: the
one percent that is added to each slack covers it wherever bounds are made layer
by layer, and `Dual` adds an allowance for its longer chains.

Numbers below 2^-126 may be taken for 0 or not, weights and inputs too: an error
of 2^-126 each, which large weights and values beside them multiply
(`Affine.reach`).

What this assumes: IEEE sums and products, so CPUs, or GPUs without TF32 (no
Winograd or FFT convolutions), and the approximations of tanh and the like to
within `Activation.rounding`. Where a value or a part of its sum might overflow
float32, the slack of its whole example is infinite; as tanh and its like would
make a finite number of it again, while the network has NaN, it is infinite
behind every activation of such a value too. Then nothing is verified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from tf_privrob.bounds import affine
from tf_privrob.bounds import program as program_lib
from tf_privrob.models import precision

_UNIT = 2.0**-24
_MARGIN = 1.01
_TINY = 1e-30  # more than what that costs an activation or a sum
_HUGE = 1e37


def slack(
  step: program_lib.Step, inputs: Sequence[tf.Tensor], output: tf.Tensor
) -> tf.Tensor | None:
  """How far a step's computed outputs can be from the exact ones.

  Args:
    step: its inputs are what was computed, not what is exact.
    inputs: the largest size of each input.
    output: the largest size of the exact output.

  Returns:
    A tensor of the output's shape, or None for a step without arithmetic.
  """
  operation = step.operation
  if step.is_affine:
    return spread(operation, inputs[0]) if operation.terms else None
  if step.is_activation:
    found = _MARGIN * operation.rounding * (output + 1)
    largest = _total(inputs[0])
  else:
    total = tf.add_n(list(inputs))
    found = _MARGIN * _gamma(len(inputs)) * total
    largest = _total(total)
  return found + _TINY + _if_huge(largest)


def spread(
  operation: affine.Affine, size: tf.Tensor, radius: float | tf.Tensor = 0.0
) -> tf.Tensor:
  """The radius behind an affine map: |W| radius and the slack, together.

  Args:
    operation: a map with arithmetic, `terms` > 0.
    size: the largest size of each input.
    radius: how far each input can be from its centre.
  """
  share = _MARGIN * _gamma(operation.terms)
  total = _total(size, len(operation.output_shape))
  weights, bias = operation.most(size.dtype)
  reach = operation.reach(total, weights)
  # A mean is a sum first, a factor is a quotient of weights.
  largest = operation.terms * (total * weights + bias) + reach
  rest = _MARGIN * precision.SMALLEST * reach + _TINY + _if_huge(largest)
  return operation.magnitude(size, radius, share) + rest


def _total(size: tf.Tensor, rank: int | None = None) -> tf.Tensor:
  """The sum of the sizes in each example, [n, 1, ...]: at least the largest.

  NaN and inf stay what they are in a sum, as they need not in a maximum.
  """
  total = tf.reduce_sum(size, list(range(1, size.shape.rank)))
  rank = size.shape.rank - 1 if rank is None else rank
  return tf.reshape(total, [-1] + [1] * rank)


def _if_huge(largest: tf.Tensor) -> tf.Tensor:
  """Infinite where float32 might overflow, else 0; NaN is not below."""
  return tf.where(largest < _HUGE, tf.zeros_like(largest), math.inf)


def _gamma(terms: int) -> float:
  if terms * _UNIT >= 0.5:
    raise ValueError(
      f"Expected fewer than 2^23 terms in a float32 sum, received {terms}: its"
      " rounding error has no useful bound. Use a smaller layer."
    )
  return terms * _UNIT / (1 - terms * _UNIT)
