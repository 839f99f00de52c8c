"""Random projections that estimate the l1 norms in the dual bound.

With nu, d, l and I as in `Dual`: since l max(nu, 0) = (l nu - |l nu|) / 2 for
l < 0, the dual's bounds of a unit are centre +- radius with

  centre = <nu_1, x> + sum <nu, b> - (1/2) sum_I l nu
  radius = sum_i r_i |nu_1i| + (1/2) sum_I |l nu|.

The centre is pushed forward exactly: c' = W c + b, and c' = d c - d l / 2 at a
ReLU. The radius is the l1 norm of coefficients a that need not be known one by
one: for independent standard Cauchy C_i, sum_i a_i C_i is Cauchy of scale
||a||_1, which is the median of its size (Wong et al. 2018, after Li et al.
2007). So k vectors are pushed forward, which are r C at the input and d s + (d
|l| / 2) C behind a ReLU, and the median of their sizes estimates the radius.
Wong et al. take one median for the input and one for each ReLU layer; as Cauchy
variables add up, one is enough here. Such an estimate is too small half of the
time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

from tf_privrob.bounds import domain
from tf_privrob.bounds import program as program_lib


class _Element(NamedTuple):
  """Centres [batch, *shape] and random sums [batch * k, *shape]."""

  centre: tf.Tensor
  sums: tf.Tensor


def relu_bounds(
  program: program_lib.Program,
  box: domain.Box,
  num_projections: int,
  seed: int | tf.Tensor,
) -> dict[int, tuple[tf.Tensor, tf.Tensor]]:
  """By ReLU step, ESTIMATES of the bounds of what it is given."""
  k, found = num_projections, {}
  radius = tf.broadcast_to(box.radius, tf.shape(box.centre))
  elements = [_Element(box.centre, _cauchy(radius, k, seed, 0))]
  for index, step in enumerate(program.steps):
    inputs = [elements[value] for value in step.inputs]
    if step.is_affine:
      centre, sums = inputs[0]
      element = _Element(
        step.operation.apply(centre), step.operation.linear(sums)
      )
    elif step.is_activation:
      found[index] = low, high = _ends(inputs[0], k)
      slope, below = relu_band(low, high)
      half = -slope * below / 2
      old = _grouped(inputs[0].sums, k) * slope[:, tf.newaxis]
      element = _Element(
        slope * inputs[0].centre + half,
        tf.reshape(old, [-1, *step.shape]) + _cauchy(half, k, seed, index + 1),
      )
    else:
      element = _Element(*(tf.add_n(parts) for parts in zip(*inputs)))
    elements.append(element)
  return found


def relu_band(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Slope d of a ReLU's band, and l where the unit is unstable, else 0."""
  unstable = (low < 0) & (high > 0)
  width = tf.where(unstable, high - low, tf.ones_like(low))
  slope = tf.where(unstable, high / width, tf.cast(low >= 0, low.dtype))
  return slope, tf.where(unstable, low, tf.zeros_like(low))


def _ends(element, k):
  """Centre +- median size of the sums."""
  ordered = tf.sort(tf.abs(_grouped(element.sums, k)), axis=1)
  radius = (ordered[:, (k - 1) // 2] + ordered[:, k // 2]) / 2
  return element.centre - radius, element.centre + radius


def _grouped(sums, k):
  """[batch, k, *shape]."""
  return tf.reshape(sums, [-1, k, *sums.shape[1:]])


def _cauchy(scale, k, seed, salt):
  """Draws Cauchy variables, k of each, times `scale`: [batch * k, ...]."""
  if not tf.is_tensor(seed):
    seed = tf.constant([0, seed], tf.int64)
  seed = tf.random.experimental.stateless_fold_in(seed, salt)
  shape = scale.shape[1:].as_list()
  uniform = tf.random.stateless_uniform(
    [tf.shape(scale)[0], k, *shape], seed, dtype=scale.dtype
  )
  draws = tf.tan(math.pi * (uniform - 0.5)) * scale[:, tf.newaxis]
  return tf.reshape(draws, [-1, *shape])
