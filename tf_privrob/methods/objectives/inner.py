"""The inner maximisation of robust training: k steps up a loss."""

from __future__ import annotations

from typing import Callable

import tensorflow as tf

_Move = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def ascend(
  objective: Callable[[tf.Tensor], tf.Tensor],
  start: tf.Tensor,
  move: _Move,
  steps: int,
) -> tf.Tensor:
  """x_{t+1} = move(t, x_t, g_t), g_t the gradients of objective(x_t).

  Row i of the objective depends on row i of x, so that g_t has every row's own
  gradient. No gradient flows out of the result.

  Args:
    objective: from rows to one value a row.
    start: x_0.
    move: from t, x_t and g_t to x_{t+1}.
    steps: k; 0 returns the start.
  """

  def body(number, x):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(x)
      value = objective(x)
    return number + 1, move(number, x, tape.gradient(value, x))

  _, found = tf.while_loop(
    lambda number, x: number < steps,
    body,
    (tf.constant(0), tf.stop_gradient(start)),
    parallel_iterations=1,
  )
  return tf.stop_gradient(tf.ensure_shape(found, start.shape))
