"""A through a code t of the image, if there is a narrow one.

A_i = (d/dt grad_theta l) dt/dx, so that only as many columns as the code is
wide need be formed, and M is the same with any L of L L^T = (dt/dx)(dt/dx)^T
in place of dt/dx.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_privrob.papers.transdenoiser.s_min import mixed
from tf_privrob.papers.transdenoiser.s_min import singularity

_ZERO = tf.UnconnectedGradients.ZERO


class Path(NamedTuple):
  """How the slice sees the image: x -> t -> g(x)."""

  prefix: tf.keras.Model | None
  """From the image to the code t; None if t is the image."""
  suffix: tf.keras.Model
  """From the code to the output."""
  width: int
  """Of the code."""


def narrowest(twin, variables, known: dict[int, Path]) -> Path:
  """The narrowest way from the image to the slice; one object for each."""
  cut = singularity.narrowest_cut(twin, variables)
  if id(cut) not in known:
    whole = cut is twin.inputs[0]
    known[id(cut)] = Path(
      None if whole else tf.keras.Model(twin.inputs, cut),
      twin if whole else tf.keras.Model(cut, twin.outputs),
      int(np.prod(cut.shape[1:])),
    )
  return known[id(cut)]


def code_and_frame(path: Path, images):
  """The code t(x) and L [rows, c, c] with L L^T = (dt/dx)(dt/dx)^T.

  L is None, the identity, where the code is the image.
  """
  if path.prefix is None:
    return tf.identity(images), None
  rows = images.shape[0]
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(images)
    code = path.prefix(images, training=False)
    total = tf.reduce_sum(tf.reshape(code, [rows, path.width]), axis=0)

  def of(index):
    unit = tf.one_hot(index, path.width, dtype=tf.float64)
    return tape.gradient(
      total, images, output_gradients=unit, unconnected_gradients=_ZERO
    )

  jacobian = tf.vectorized_map(of, tf.range(path.width))
  jacobian = tf.reshape(jacobian, [path.width, rows, -1])  # dt/dx
  # (dt/dx)^T = Q R, so L = R^T; no condition number is squared.
  triangle = tf.linalg.qr(tf.transpose(jacobian, [1, 2, 0])).r
  return code, tf.linalg.matrix_transpose(triangle)


def columns(
  path: Path,
  slices: Sequence[Sequence[tf.Variable]],
  factored: Collection,
  images: tf.Tensor,
  first: tf.Tensor,
  step: int,
) -> list[tf.Tensor]:
  """d/dt grad_theta l along `step` directions of t, [step, rows, w_s].

  Forward mode: h(u) = d/dt <u, grad_theta l> is linear in u, and its own
  gradient by u is the Jacobian times a direction.
  """
  code, frame = code_and_frame(path, images)
  count, width = images.shape[0], path.width
  dual = [tf.zeros([count, _size(part)], tf.float64) for part in slices]
  with tf.GradientTape(watch_accessed_variables=False) as outer:
    outer.watch(dual)
    with tf.GradientTape(watch_accessed_variables=False) as inner:
      inner.watch(code)
      gradients = mixed.gradients(path.suffix, code, images, factored)
      found = [
        tf.concat([gradients[variable.ref()] for variable in part], axis=1)
        for part in slices
      ]
      product = tf.add_n(
        [tf.reduce_sum(u * gradient) for u, gradient in zip(dual, found)]
      )
    by_code = inner.gradient(product, code, unconnected_gradients=_ZERO)

  def along(index):
    unit = tf.one_hot(index, width, dtype=tf.float64)
    if frame is None:
      direction = tf.broadcast_to(unit, [count, width])
    else:
      direction = tf.linalg.matvec(frame, unit)
    return outer.gradient(
      by_code,
      dual,
      output_gradients=tf.reshape(direction, code.shape),
      unconnected_gradients=_ZERO,
    )

  return tf.vectorized_map(along, first + tf.range(step))


def rows(
  path: Path,
  variables: Sequence[tf.Variable],
  factored: Collection,
  images: tf.Tensor,
  step: int,
) -> tf.Tensor:
  """d/dt grad_theta l of one slice, [w, rows, directions].

  Reverse mode, `step` parameters at a time. Examples do not mix, so the
  derivative of grad_theta sum_j l_j by t_i is that of l_i alone.
  """
  code, frame = code_and_frame(path, images)
  size, width = _size(variables), path.width

  def some(part):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(code)
      gradients = mixed.gradients(path.suffix, code, images, factored)
      parts = [tf.reduce_sum(gradients[v.ref()], axis=0) for v in variables]
      total = tf.concat(parts, axis=0)

    def of(index):
      unit = tf.one_hot(index, size, dtype=tf.float64)
      return tape.gradient(
        total, code, output_gradients=unit, unconnected_gradients=_ZERO
      )

    return tf.vectorized_map(of, part * step + tf.range(step))

  factor = tf.map_fn(
    some,
    tf.range(-(-size // step)),
    fn_output_signature=tf.float64,
    parallel_iterations=1,
  )
  factor = tf.reshape(factor, [-1, images.shape[0], width])[:size]
  if frame is not None:
    factor = tf.einsum("wbt,btc->wbc", factor, frame)
  return factor


def _size(variables: Sequence[tf.Variable]) -> int:
  return sum(int(np.prod(variable.shape)) for variable in variables)
