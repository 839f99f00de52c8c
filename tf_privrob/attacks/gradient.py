"""Gradient attacks: FGSM, BIM, PGD and MIM."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.attacks import base


@dataclasses.dataclass(frozen=True, repr=False)
class FGSM(base.GradientAttack):
  """One step of the whole radius (Goodfellow et al. 2015).

  x_adv = clip(x + argmax_{||d|| <= attack_eps} <d, grad loss(x)>): the sign of
  the gradient in l_inf, the normalised gradient in l_2, the top coordinates in
  l_1. In l_inf and l_1 it is the exact optimum within the value range for a
  loss that is linear in x. Weak otherwise: report it beside an iterative
  attack, never alone.

  Differs from cleverhans in two places. In l_1, cleverhans moves one coordinate
  by the whole radius and clips it, here the length that the range cuts off goes
  to the next coordinates. In l_2, cleverhans leaves gradients of norm below
  1e-6 short, here they are normalised (confident models have them everywhere).
  """

  name = "fgsm"


@dataclasses.dataclass(frozen=True, repr=False)
class IterativeAttack(base.GradientAttack):
  """Several steps of gradient, move and projection.

  Attributes:
    steps: Number of steps, each one forward and one backward pass.
    step_size: Length of a step in the attack's norm; None: `step_factor *
      attack_eps / steps`.
    step_factor: See `step_size`; the default is in each attack's docstring.
    keep_best: Return, per example, the worst of all iterates and not the last
      one. With a fixed `step_size`, more steps then never help the defender.
      Costs one more forward pass.
  """

  steps: int = 10
  step_size: float | None = None
  step_factor: float = 1.0
  keep_best: bool = False

  def __post_init__(self):
    super().__post_init__()
    validate.positive_int(steps=self.steps)
    validate.positive(step_factor=self.step_factor)
    validate.boolean(keep_best=self.keep_best)
    if self.step_size is not None:
      validate.positive(step_size=self.step_size)


@dataclasses.dataclass(frozen=True, repr=False)
class BIM(IterativeAttack):
  """Repeated small FGSM steps from the clean input (Kurakin et al. 2017).

  x_{t+1} = project(x_t + step_size * steepest(grad loss(x_t))), x_0 = x. The
  default step is attack_eps / steps, as in DPAL: the last iterate can just
  reach the surface of the ball.

  cleverhans has no l_1 variant; here an l_1 step fills up the top coordinates
  of the gradient within the value range, see `norms.L1Ball.move`.
  """

  name = "bim"


@dataclasses.dataclass(frozen=True, repr=False)
class PGD(IterativeAttack):
  """Iterative steps from a random point of the ball (Madry et al. 2018).

  The default step is 2.5 * attack_eps / steps, Madry's rule: the far side of
  the ball can be reached from any start. Starts are uniform in the ball of
  the norm. Of several restarts, each example keeps its worst one, by success
  and then by margin; the first restart equals the run without restarts, so
  that more restarts never help the defender.

  cleverhans has no l_1 variant; here an l_1 step fills up the top coordinates
  of the gradient within the value range, see `norms.L1Ball.move`.

  Attributes:
    steps: Number of steps per restart.
    step_factor: See `IterativeAttack`.
    random_start: False starts at the clean input, as BIM does.
    restarts: Number of random starts.
  """

  steps: int = 40
  step_factor: float = 2.5
  random_start: bool = True
  restarts: int = 1

  name = "pgd"

  def __post_init__(self):
    super().__post_init__()
    validate.positive_int(restarts=self.restarts)
    validate.boolean(random_start=self.random_start)
    if self.restarts > 1 and not self.random_start:
      raise ValueError(
        f"Expected random_start=True with restarts={self.restarts}: without it"
        " every restart is the same run."
      )


@dataclasses.dataclass(frozen=True, repr=False)
class MIM(IterativeAttack):
  """Iterative FGSM along an accumulated gradient (Dong et al. 2018, Eq. 6-7).

  g_{t+1} = decay * g_t + grad / ||grad||_1 and x_{t+1} = project(x_t +
  step_size * steepest(g_{t+1})). The default step is attack_eps / steps, the
  paper's.

  cleverhans divides by the mean of |grad| where the paper has the sum. The two
  differ by the constant factor d in every g_t, which no steepest step sees: the
  examples are the same. It also leaves gradients with a mean below 1e-12 short;
  here they are normalised.

  Attributes:
    decay: Weight of the past; 1 keeps all of it, 0 is BIM.
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
