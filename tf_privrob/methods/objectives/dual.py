"""Training on the dual bound (Wong and Kolter 2018; Wong et al. 2018)."""

from __future__ import annotations

import dataclasses

from tf_privrob import bounds
from tf_privrob import validate
from tf_privrob.bounds import dual as dual_bounds
from tf_privrob.methods.objectives import verified

_PROJECTION_STREAM = 2  # of the step's seed


@dataclasses.dataclass(frozen=True)
class DualLoss(verified.Verified):
  """Training on CE(v, y), v of `bounds.Dual`.

  With norm="l1_median" the bounds inside the network are estimates from random
  projections, drawn anew at each step. Then nothing is verified while training;
  `certifier()` takes the exact dual. Other guarantees as in `Verified`.

  Attributes:
    natural_share: alpha, the weight of the natural loss; 0 as published.
    norm: "l1" for exact bounds inside, "l1_median" for estimates from random
      projections, with which nothing is verified while training.
    projections: number of Cauchy vectors.
    intersect: cut exact bounds by intervals; False as published.
  """

  natural_share: float = 0.0
  norm: str = "l1"
  projections: int = 50
  intersect: bool = False

  def __post_init__(self):
    super().__post_init__()
    validate.closed_probability(natural_share=self.natural_share)
    validate.one_of(dual_bounds.NORMS, norm=self.norm)
    validate.positive_int(projections=self.projections)
    validate.boolean(intersect=self.intersect)

  @property
  def natural_weight(self) -> float:
    """Alpha."""
    return self.natural_share

  @property
  def training_domain(self) -> bounds.Domain:
    """The dual, exact or estimated."""
    return bounds.Dual(
      norm=self.norm, projections=self.projections, intersect=self.intersect
    )

  @property
  def sound_domain(self) -> bounds.Domain:
    """The exact dual, whatever was trained with."""
    return bounds.Dual(intersect=self.intersect)

  def domain_of(self, context):
    """The dual with the projections of this step."""
    # The seed is the step's, not the example's: public, and shared by all.
    seed = context.step_seed(_PROJECTION_STREAM)
    return dataclasses.replace(self.training_domain, seed=seed)
