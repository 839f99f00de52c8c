"""How the size of the changes to train against grows with the steps."""

from __future__ import annotations

import dataclasses
from typing import Optional  # flags read these annotations on Python 3.9

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.methods import objective as objective_lib
from tf_privrob.methods.objectives import schedules


@dataclasses.dataclass(frozen=True)
class Ramp:
  """A warm-up, and a radius that grows in a line to its full size.

  Moments are numbers of steps, or epochs as in "20e", or shares of the run as
  in "50%".

  Attributes:
    warmup: up to this moment only the natural loss counts.
    length: moments over which the radius grows.
    start: when it begins to; None: at the end of the warm-up.
    first_eps: the radius up to there.
  """

  warmup: str = "0"
  length: str = "0"
  start: Optional[str] = None
  first_eps: float = 0.0

  def __post_init__(self):
    schedules.check(warmup=self.warmup, length=self.length)
    if self.start is not None:
      schedules.check(start=self.start)
    validate.non_negative(first_eps=self.first_eps)

  def require_growth(self, attack_eps: float) -> None:
    """Refuses a radius that would shrink."""
    if self.first_eps > attack_eps:
      raise ValueError(
        f"Expected first_eps={self.first_eps!r} <= attack_eps={attack_eps!r}:"
        " the radius grows."
      )

  def radius(
    self, context: objective_lib.Context, attack_eps: float
  ) -> tf.Tensor:
    """The radius at this step."""
    low = self.first_eps
    return low + self._progress(context) * (attack_eps - low)

  def is_warm(self, context: objective_lib.Context) -> tf.Tensor:
    """Whether the warm-up is over."""
    return context.step >= self._in_steps(context, self.warmup)

  def natural_share(
    self, context: objective_lib.Context, share: float, ramped: bool = False
  ) -> tf.Tensor:
    """The weight alpha of the natural loss at this step: 1 in the warm-up.

    Args:
      context: of the step.
      share: after warm-up and ramp.
      ramped: alpha falls from 1 to `share` while the radius grows.
    """
    progress = self._progress(context) if ramped else 1.0
    return tf.where(self.is_warm(context), 1 + progress * (share - 1), 1.0)

  def scaled(self, factor: float) -> Ramp:
    """That of a run that is `factor` times as long."""
    names = ("warmup", "length", "start")
    return dataclasses.replace(
      self, **{n: schedules.scaled(getattr(self, n), factor) for n in names}
    )

  def _progress(self, context: objective_lib.Context) -> tf.Tensor:
    start = self.warmup if self.start is None else self.start
    return schedules.progress(
      context.step,
      self._in_steps(context, start),
      self._in_steps(context, self.length),
    )

  def _in_steps(self, context: objective_lib.Context, moment: str) -> int:
    return schedules.in_steps(moment, context.steps, context.epochs)


NO_RAMP = Ramp()
