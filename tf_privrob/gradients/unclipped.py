"""Plain sums of gradients, for training without privacy."""

from __future__ import annotations

import math

import tensorflow as tf

from tf_privrob.gradients import clipping


class UnclippedGradients(clipping.ClippedGradients):
  """The sum of all gradients, in one backward pass.

  Nothing bounds what one example adds: the sensitivity is infinite, so that
  noise cannot be calibrated to it by mistake. Layers and losses may mix the
  examples of a batch. Otherwise it answers as `ClippedGradients` does.

  Args:
    loss_fn: see `ClippedGradients`.
    network: the layer or model whose trainable weights are trained.
    jit_compile: compiles the sum with XLA.
  """

  def __init__(self, loss_fn, network, jit_compile: bool = False):
    super().__init__(loss_fn, network, 1.0, "loop", jit_compile)
    self.l2_clip_norm = math.inf

  def _refuse(self, network) -> None:
    """Nothing: no example is clipped on its own."""

  def check(self, batch, seed=None, sizes=(), rows=None) -> None:
    """Nothing: there is no example to keep apart."""

  def _sum(self, batch, mask, seed) -> clipping.ClippedSum:
    with tf.GradientTape() as tape:
      losses, metrics = self._losses(batch, seed)
      total = tf.reduce_sum(mask * losses)
    gradients = tape.gradient(
      total,
      self.variables,
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    return clipping.ClippedSum(
      gradients=[tf.cast(gradient, tf.float64) for gradient in gradients],
      loss=total,
      metrics={
        name: clipping.sum_of(metric, mask) for name, metric in metrics.items()
      },
      clipped=tf.zeros([]),
      count=tf.reduce_sum(mask),
      dropped=tf.zeros([]),
    )
