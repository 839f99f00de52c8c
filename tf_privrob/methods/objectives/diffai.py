"""DiffAI: training on abstract interpretation (Mirman et al. 2018)."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_privrob import bounds
from tf_privrob import validate
from tf_privrob.bounds import zonotope
from tf_privrob.methods.objectives import verified

DOMAINS = ("box", "hybrid_zonotope")


@dataclasses.dataclass(frozen=True)
class DiffAI(verified.Verified):
  """Training on certified margins up to a floor.

  The loss of an example is (sw CE(f(x), y) + tw L_rob) / (sw + tw) with

    L_rob = softplus(max(max_{j != y} v_j, -margin_floor)),

  CCS 2019's Eq. 14 with the floor that the code has: it fills the slot of y
  with a margin of +1, so that L_rob is never below softplus(-1) = 0.313 and has
  no gradient once every margin -v_j exceeds 1. v is of the Box domain, or of
  hybrid zonotopes. Guarantees as in `Verified`.

  Attributes:
    domain: "box" or "hybrid_zonotope".
    relu: rule of the zonotope: "box", "switch" or "smooth".
    robust_term_weight: tw, of the robust loss.
    natural_term_weight: sw, of the natural one; their sum divides the loss.
    margin_floor: certified margins beyond it are not asked for.
  """

  domain: str = "box"
  relu: str = "box"
  robust_term_weight: float = 0.2
  natural_term_weight: float = 1.0
  margin_floor: float = 1.0
  clip_to_range: bool = False

  def __post_init__(self):
    super().__post_init__()
    validate.one_of(DOMAINS, domain=self.domain)
    validate.one_of(zonotope.RELUS, relu=self.relu)
    validate.positive(robust_term_weight=self.robust_term_weight)
    validate.non_negative(
      natural_term_weight=self.natural_term_weight,
      margin_floor=self.margin_floor,
    )

  @property
  def natural_weight(self) -> float:
    """The share sw / (sw + tw)."""
    natural = self.natural_term_weight
    return natural / (natural + self.robust_term_weight)

  @property
  def training_domain(self) -> bounds.Domain:
    """Margins on the difference of two logits, without elision."""
    if self.domain == "box":
      return bounds.Interval(elide=False)
    return bounds.HybridZonotope(relu=self.relu, elide=False)

  def robust_loss(self, worst, labels):
    """The softplus of the worst margin, floored."""
    own = tf.one_hot(labels, worst.shape[1], on_value=True, off_value=False)
    floor = tf.fill(tf.shape(worst), -self.margin_floor)
    return tf.nn.softplus(tf.reduce_max(tf.where(own, floor, worst), axis=1))
