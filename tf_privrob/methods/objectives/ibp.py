"""Interval bound propagation (Gowal et al. 2018)."""

from __future__ import annotations

import dataclasses

from tf_privrob import bounds
from tf_privrob import validate
from tf_privrob.methods.objectives import verified


@dataclasses.dataclass(frozen=True)
class IBP(verified.Verified):
  """Training on intervals, with the last layer elided.

  The loss of an example is kappa CE(f(x), y) + (1 - kappa) CE(v, y), v of
  `bounds.Interval`; kappa falls from 1 to `natural_share` over the ramp on
  which the radius grows. Guarantees as in `Verified`.

  Attributes:
    natural_share: kappa, the weight of the natural loss at the end.
    ramp_natural_share: kappa falls from 1 while the radius grows.
    elide: bound differences of logits together with the last layer.
  """

  natural_share: float = 0.5
  ramp_natural_share: bool = True
  elide: bool = True

  def __post_init__(self):
    super().__post_init__()
    validate.closed_probability(natural_share=self.natural_share)
    validate.boolean(
      ramp_natural_share=self.ramp_natural_share, elide=self.elide
    )

  @property
  def natural_weight(self) -> float:
    """Kappa."""
    return self.natural_share

  @property
  def training_domain(self) -> bounds.Domain:
    """Intervals."""
    return bounds.Interval(elide=self.elide)

  def alpha(self, context):
    """Kappa at this step."""
    return self.ramp.natural_share(
      context, self.natural_share, self.ramp_natural_share
    )
