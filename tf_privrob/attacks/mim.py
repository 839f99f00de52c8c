"""The momentum iterative method."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.attacks import iterative


@dataclasses.dataclass(frozen=True, repr=False)
class MIM(iterative.IterativeAttack):
  """Iterative FGSM along an accumulated gradient (Dong et al. 2018, Eq. 6-7).

  g_{t+1} = decay * g_t + grad / ||grad||_1 and x_{t+1} = project(x_t +
  step_size * steepest(g_{t+1})). The default step is attack_eps / steps, the
  paper's.

  cleverhans divides by the mean of |grad| where the paper has the sum. The two
  differ by the constant factor d in every g_t, which no steepest step sees: the
  examples are the same. It also leaves gradients with a mean below 1e-12 short;
  here they are normalised.

  Attributes:
    decay: weight of the past; 1 keeps all of it, 0 is BIM.
  """

  decay: float = 1.0

  name = "mim"

  def __post_init__(self):
    super().__post_init__()
    validate.non_negative(decay=self.decay)

  def memory(self, x):
    """The accumulated gradient."""
    return tf.zeros_like(x)

  def step(self, ball, x_adv, grad, memory, size):
    """Adds the normalised gradient to the memory and follows the memory."""
    axes = ball.axes
    # Twice: a sum of subnormal numbers would keep too few digits.
    grad = tf.math.divide_no_nan(
      grad, tf.reduce_max(tf.abs(grad), axes, keepdims=True)
    )
    memory = self.decay * memory + tf.math.divide_no_nan(
      grad, tf.reduce_sum(tf.abs(grad), axes, keepdims=True)
    )
    return super().step(ball, x_adv, memory, memory, size)

  def project(self, ball, x_adv):
    """Ball first, then range: the order of cleverhans' MIM."""
    delta = ball.shrink(x_adv - ball.center)
    return ball.clip_to_range(ball.center + delta)
