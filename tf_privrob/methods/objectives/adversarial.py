"""PGD adversarial training (Madry et al. 2018)."""

from __future__ import annotations

import dataclasses
import functools
from typing import Optional  # flags read these annotations on Python 3.9

import tensorflow as tf

from tf_privrob import losses
from tf_privrob import validate
from tf_privrob.attacks import norms
from tf_privrob.bounds import domain as domain_lib
from tf_privrob.methods import objective as objective_lib
from tf_privrob.methods.objectives import content_hash
from tf_privrob.methods.objectives import inner
from tf_privrob.methods.objectives import ramp as ramp_lib


@dataclasses.dataclass(frozen=True)
class SignSteps(objective_lib.Objective):
  """Losses of examples that sign steps in an l_inf ball have found.

  Attributes:
    attack_eps: radius of the ball, in units of the value range.
    ramp: how the radius grows.
    attack_steps: k.
    step_size: of a step; None: step_factor * attack_eps / attack_steps, with
      the radius of the moment.
    step_factor: see `step_size`.
  """

  attack_eps: float = 0.1
  ramp: ramp_lib.Ramp = ramp_lib.NO_RAMP
  attack_steps: int = 10
  step_size: Optional[float] = None
  step_factor: float = 2.5

  def __post_init__(self):
    validate.non_negative(attack_eps=self.attack_eps)
    validate.instance(ramp_lib.Ramp, ramp=self.ramp)
    validate.positive_int(attack_steps=self.attack_steps)
    validate.positive(step_factor=self.step_factor)
    if self.step_size is not None:
      validate.positive(step_size=self.step_size)
    self.ramp.require_growth(self.attack_eps)

  def check_value_range(self, value_range: tuple[float, float]) -> None:
    """Warns of a radius that is more than half of the range."""
    domain_lib.check_radius(self.attack_eps, value_range)

  def check_copies(self, augmentation: str) -> None:
    """Refuses copies that leave the value range."""
    objective_lib.require_shifts(augmentation)

  def attack_radius(self, context: objective_lib.Context) -> tf.Tensor:
    """The radius at this step."""
    return self.ramp.radius(context, self.attack_eps)

  def scaled(self, factor: float) -> SignSteps:
    """For a run that is `factor` times as long."""
    return dataclasses.replace(self, ramp=self.ramp.scaled(factor))

  def walk(self, context, loss, rows, start) -> tf.Tensor:
    """X <- project(x + step * sign(gradient)), k times (CCS 2019, Eq. 9).

    Args:
      context: of the step.
      loss: of rows, to climb.
      rows: the centres of the balls.
      start: of the walk.
    """
    size = self.step_size
    if size is None:
      radius = self.attack_radius(context)
      size = self.step_factor * radius / self.attack_steps
    ball = self.ball(context, rows)
    return inner.ascend(
      loss,
      start,
      lambda _, x, grad: ball.project(x + ball.move(grad, x, size)),
      self.attack_steps,
    )

  def ball(self, context, rows: tf.Tensor) -> norms.Ball:
    """The ball around each row, cut to the value range."""
    radius = self.attack_radius(context)
    return norms.ball("linf", rows, radius, context.value_range)


@dataclasses.dataclass(frozen=True)
class Adversarial(SignSteps):
  """Training on PGD's examples.

  The loss of an example (CCS 2019, Eq. 8, with alpha = 0 as Madry et al.) is

    alpha CE(f(x), y) + (1 - alpha) CE(f(x_adv), y),

  x_adv after k steps of Eq. 9 from a random point of the ball, against the
  network in inference mode. Examples outside the share `adversarial_ratio`
  (Table 5), and all during the warm-up, have x in place of x_adv. With
  `domain_adaptation_weight` the distance of benign and adversarial logits is
  added (Table 11, `losses.domain_adaptation`).

  Robustness is measured by attacks; nothing is proven. x_adv is made from the
  example itself, so that both terms can be one clipped gradient.

  Attributes:
    natural_share: alpha, the weight of the natural loss; 0 is Madry et al.'s.
    random_start: start at a uniform point of the ball.
    clip_start: bring the start into the value range before the first gradient.
    adversarial_ratio: the share r of the training set that has an adversarial
      loss, always the same examples, chosen by a hash of their content; the
      others have a natural loss (CCS 2019, Table 5).
    domain_adaptation_weight: of the distance of the logits of benign and
      adversarial batches (Table 11); 0: none. Not under DP-SGD.
    mean_divisor: of the distance of mean logits. None: the number of classes.
    covariance_divisor: of that of covariances. None: its square.
  """

  natural_share: float = 0.0
  random_start: bool = True
  clip_start: bool = True
  adversarial_ratio: float = 1.0
  domain_adaptation_weight: float = 0.0
  mean_divisor: Optional[float] = None
  covariance_divisor: Optional[float] = None

  def __post_init__(self):
    super().__post_init__()
    validate.closed_probability(
      natural_share=self.natural_share,
      adversarial_ratio=self.adversarial_ratio,
    )
    validate.boolean(random_start=self.random_start, clip_start=self.clip_start)
    validate.non_negative(
      domain_adaptation_weight=self.domain_adaptation_weight
    )
    for name in ("mean_divisor", "covariance_divisor"):
      if getattr(self, name) is not None:
        validate.positive(**{name: getattr(self, name)})

  @property
  def mixes(self) -> str:
    """Means and covariances of domain adaptation are those of a batch."""
    if not self.domain_adaptation_weight:
      return ""
    return (
      f"domain_adaptation_weight={self.domain_adaptation_weight!r}, whose means"
      " and covariances tie them together. Set domain_adaptation_weight=0"
    )

  def example_losses(self, context, images, labels, seed):
    """The loss of each example; which of them are attacked, they say."""
    chosen = None
    if self.adversarial_ratio < 1:
      chosen = content_hash.chosen(images, labels, self.adversarial_ratio)
      chosen = tf.repeat(chosen, context.copies.count)
    row_losses = functools.partial(self.row_losses, context, chosen=chosen)
    return context.over_copies(row_losses, images, labels, seed)

  def row_losses(self, context, rows, labels, seed, chosen=None):
    """Of rows; those that are not `chosen` keep the natural loss."""
    found = self.adversarial_examples(context, rows, labels, seed)
    if chosen is None:
      chosen = tf.ones_like(labels, tf.bool)
    attacked = chosen & self.ramp.is_warm(context)
    wide = tf.reshape(attacked, [-1] + [1] * (len(rows.shape) - 1))
    network = context.network
    logits = network(tf.where(wide, found, rows), training=True)
    total = objective_lib.cross_entropy(labels, logits)
    metrics = {"robust_correct": objective_lib.correct(labels, logits)}
    if not (self.natural_share or self.domain_adaptation_weight):
      return total, metrics
    clean = network(rows, training=True)
    metrics["correct"] = objective_lib.correct(labels, clean)
    share = self.ramp.natural_share(context, self.natural_share)
    natural = objective_lib.cross_entropy(labels, clean)
    total = share * natural + (1 - share) * total
    if self.domain_adaptation_weight:
      # The same number for every example: its mean is the term itself.
      total += self.domain_adaptation_weight * losses.domain_adaptation(
        clean, logits, self.mean_divisor, self.covariance_divisor
      )
    return total, metrics

  def adversarial_examples(self, context, rows, labels, seed) -> tf.Tensor:
    """What a training step makes of these examples, at this step's radius."""
    start, network = rows, context.network
    if self.random_start:
      ball = self.ball(context, rows)
      start = rows + ball.uniform(seed)
      if self.clip_start:
        start = ball.project(start)

    def loss(x):
      return objective_lib.cross_entropy(labels, network(x, training=False))

    return self.walk(context, loss, rows, start)
