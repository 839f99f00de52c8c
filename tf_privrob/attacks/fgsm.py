"""The fast gradient (sign) method."""

from __future__ import annotations

import dataclasses

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
