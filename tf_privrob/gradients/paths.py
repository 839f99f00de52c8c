"""How the slice sees the image: through a code t, if there is a narrow one.

A_i = (d/dt grad_theta l) dt/dx, so that only as many columns as the code is
wide need be formed, and M is the same with any L of L L^T = (dt/dx)(dt/dx)^T
in place of dt/dx.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_privrob.gradients import singularity

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
