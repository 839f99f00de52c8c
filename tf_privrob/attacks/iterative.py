"""Fields that all iterative attacks share."""

from __future__ import annotations

import dataclasses

from tf_privrob import validate
from tf_privrob.attacks import base


@dataclasses.dataclass(frozen=True, repr=False)
class IterativeAttack(base.GradientAttack):
  """Several steps of gradient, move and projection.

  Attributes:
    steps: number of steps, each one forward and one backward pass.
    step_size: length of a step in the attack's norm; None: `step_factor *
      attack_eps / steps`, with the factor of each attack in its docstring.
    keep_best: return, per example, the worst of all iterates and not the last
      one. With a fixed `step_size`, more steps then never help the defender.
      Costs one more forward pass.
  """

  steps: int = 10
  step_size: float | None = None
  keep_best: bool = False

  def __post_init__(self):
    super().__post_init__()
    validate.positive_int(steps=self.steps)
    validate.boolean(keep_best=self.keep_best)
    if self.step_size is not None:
      validate.positive(step_size=self.step_size)
