"""What objectives on verified bounds share: worst-case logits in the loss."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tf_privrob import bounds
from tf_privrob import certify
from tf_privrob import validate
from tf_privrob.bounds import domain as domain_lib
from tf_privrob.methods import objective as objective_lib
from tf_privrob.methods.objectives import ramp as ramp_lib


@dataclasses.dataclass(frozen=True)
class Verified(objective_lib.Objective):
  """Losses of upper bounds v_j of z_j - z_y over an l_inf ball.

  The loss of an example (CCS 2019, Eq. 13) is

    alpha CE(f(x), y) + (1 - alpha) L_rob(v, y), alpha = 1 in the warm-up,

  with v of `bounds`, at the radius of the step. A subclass gives L_rob. Bounds
  are of the network in inference mode, in float32; the training metric
  `nonprivate/verified_accuracy` is by them, at the radius of the step.

  Robustness: `certifier()` proves radii of the trained network; it computes
  them anew, outward rounded, and holds whatever the training did. Both terms
  see the example itself, so that they can be one clipped gradient; bounds use
  weights outside their layers, which the engine "ghost" cannot clip.

  Attributes:
    attack_eps: radius of the ball, in units of the value range.
    ramp: how the radius grows.
    clip_to_range: cut the ball to the value range.
  """

  engine = "vectorized"

  attack_eps: float = 0.1
  ramp: ramp_lib.Ramp = ramp_lib.NO_RAMP
  clip_to_range: bool = True

  def __post_init__(self):
    validate.non_negative(attack_eps=self.attack_eps)
    validate.instance(ramp_lib.Ramp, ramp=self.ramp)
    validate.boolean(clip_to_range=self.clip_to_range)
    self.ramp.require_growth(self.attack_eps)

  @property
  def natural_weight(self) -> float:
    """The share alpha of the natural loss after warm-up and ramp."""
    raise NotImplementedError

  @property
  def training_domain(self) -> bounds.Domain:
    """What worst-case logits are computed with in training."""
    raise NotImplementedError

  @property
  def sound_domain(self) -> bounds.Domain:
    """What they are certified with."""
    return self.training_domain

  def check(self, network: tf.keras.Model) -> None:
    """Refuses networks with layers whose bounds are not known."""
    self.sound_domain.check(network)

  def check_value_range(self, value_range: tuple[float, float]) -> None:
    """Warns of a radius that is more than half of the range."""
    domain_lib.check_radius(self.attack_eps, value_range)

  def check_copies(self, augmentation: str) -> None:
    """Refuses copies that leave the value range."""
    objective_lib.require_shifts(augmentation)

  def attack_radius(self, context: objective_lib.Context) -> tf.Tensor:
    """The radius at this step."""
    return self.ramp.radius(context, self.attack_eps)

  def alpha(self, context: objective_lib.Context) -> tf.Tensor:
    """The share of the natural loss at this step."""
    return self.ramp.natural_share(context, self.natural_weight)

  def scaled(self, factor: float) -> Verified:
    """For a run that is `factor` times as long."""
    return dataclasses.replace(self, ramp=self.ramp.scaled(factor))

  def row_losses(self, context, rows, labels, seed):
    """The natural loss and that of the worst-case logits."""
    del seed
    worst = self.domain_of(context).worst_case_logits(
      context.network,
      rows,
      labels,
      self.attack_radius(context),
      context.value_range if self.clip_to_range else None,
    )
    share = self.alpha(context)
    total = (1 - share) * self.robust_loss(worst, labels)
    clean = context.network(rows, training=True)
    total += share * objective_lib.cross_entropy(labels, clean)
    metrics = {"correct": objective_lib.correct(labels, clean)}
    if self.training_domain.is_bound:
      others = worst - tf.one_hot(labels, worst.shape[1], on_value=1.0)
      metrics["verified"] = tf.reduce_all(others < 0, axis=1)
    return total, metrics

  def domain_of(self, context: objective_lib.Context) -> bounds.Domain:
    """The domain of this step."""
    del context
    return self.training_domain

  def robust_loss(self, worst: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """CE(v, y): at least the cross-entropy of every input in the ball."""
    return objective_lib.cross_entropy(labels, worst)

  def certifier(self, model, **settings: Any) -> certify.VerifiedBound:
    """Proves radii up to attack_eps, with the same bounds.

    Args:
      model: that was trained.
      **settings: of `certify.VerifiedBound`: attack_eps, domain, largest, ...
    """
    value_range = None
    if self.clip_to_range and "value_range" in model.run_record:
      value_range = tuple(model.run_record["value_range"])
    return certify.VerifiedBound(
      **{
        "attack_eps": self.attack_eps,
        "domain": self.sound_domain,
        "value_range": value_range,
        **settings,
      }
    )
