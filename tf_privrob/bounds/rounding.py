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
float32, the slack is infinite; as tanh and its like would make a finite number
of it again, while the network has NaN, it is infinite behind every activation
of such a value too. Then nothing is verified.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_privrob.bounds import program as program_lib

_UNIT = 2.0**-24
_MARGIN = 1.01
SMALLEST = 2.0**-126  # what is below may be flushed to zero
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
    if not operation.terms:
      return None
    size = operation.magnitude(inputs[0])
    reach = operation.reach(inputs[0])
    found = _gamma(operation.terms) * size + SMALLEST * reach
    # A mean is a sum first, a factor is a quotient of weights.
    largest = operation.terms * size + reach
  elif step.is_activation:
    found = operation.rounding * (output + 1)
    largest = inputs[0]
  else:
    largest = tf.add_n(list(inputs))
    found = _gamma(len(inputs)) * largest
  found = _MARGIN * found + _TINY
  # NaN is not below anything.
  safe = (largest < _HUGE) & (output < _HUGE)
  return tf.where(safe, found, tf.constant(float("inf"), found.dtype))


def _gamma(terms: int) -> float:
  if terms * _UNIT >= 0.5:
    raise ValueError(
      f"Expected fewer than 2^23 terms in a float32 sum, received {terms}: its"
      " rounding error has no useful bound. Use a smaller layer."
    )
  return terms * _UNIT / (1 - terms * _UNIT)
