"""Projected gradient descent, the attack of Madry et al."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from tf_privrob import validate
from tf_privrob.attacks import iterative


@dataclasses.dataclass(frozen=True, repr=False)
class PGD(iterative.IterativeAttack):
  """Iterative steps from a random point of the ball (Madry et al. 2018).

  The default step is 2.5 * attack_eps / steps, Madry's rule: the far side of
  the ball can be reached from any start. Starts are uniform in the ball of
  the norm. Of several restarts, each example keeps its worst one, by success
  and then by margin; the first restart equals the run without restarts, so
  that more restarts never help the defender.

  cleverhans has no l_1 variant; here an l_1 step fills up the top coordinates
  of the gradient within the value range, see `norms.L1Ball.move`.

  Attributes:
    steps: number of steps per restart.
    random_start: False starts at the clean input, as BIM does.
    restarts: number of random starts.
  """

  steps: int = 40
  random_start: bool = True
  restarts: int = 1

  name = "pgd"
  step_factor: ClassVar[float] = 2.5

  def __post_init__(self):
    super().__post_init__()
    validate.positive_int(restarts=self.restarts)
    validate.boolean(random_start=self.random_start)
    if self.restarts > 1 and not self.random_start:
      raise ValueError(
        f"Expected random_start=True with restarts={self.restarts}: without it"
        " every restart is the same run."
      )
