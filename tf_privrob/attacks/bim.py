"""The basic iterative method, also called I-FGSM."""

from __future__ import annotations

import dataclasses

from tf_privrob.attacks import iterative


@dataclasses.dataclass(frozen=True, repr=False)
class BIM(iterative.IterativeAttack):
  """Repeated small FGSM steps from the clean input (Kurakin et al. 2017).

  x_{t+1} = project(x_t + step_size * steepest(grad loss(x_t))), x_0 = x. The
  default step is attack_eps / steps, as in DPAL: the last iterate can just
  reach the surface of the ball.

  cleverhans has no l_1 variant; here an l_1 step fills up the top coordinates
  of the gradient within the value range, see `norms.L1Ball.move`.
  """

  name = "bim"
