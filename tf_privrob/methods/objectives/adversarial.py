"""PGD adversarial training (Madry et al. 2018)."""

from __future__ import annotations

import tensorflow as tf

from tf_privrob import losses
from tf_privrob.attacks import norms
from tf_privrob.methods.objectives import adversarial_config
from tf_privrob.methods.objectives import content_hash
from tf_privrob.methods.objectives import inner
from tf_privrob.methods.objectives import robust


class StepsTraining(robust.AttackedTraining):
  """Training on examples that sign steps in an l_inf ball have found."""

  config_class = adversarial_config.StepsConfig

  def _walk(self, objective, rows, start) -> tf.Tensor:
    """X <- project(x + step * sign(gradient)), k times (CCS 2019, Eq. 9)."""
    config, radius = self.config, self.attack_radius()
    size = config.step_size
    if size is None:
      size = config.step_factor * radius / config.attack_steps
    ball = self._ball(rows)
    return inner.ascend(
      objective,
      start,
      lambda _, x, grad: ball.project(x + ball.move(grad, x, size)),
      config.attack_steps,
    )

  def _ball(self, rows: tf.Tensor) -> norms.Ball:
    return norms.ball("linf", rows, self.attack_radius(), self._value_range)


@tf.keras.saving.register_keras_serializable("tf_privrob")
class AdversarialTraining(StepsTraining):
  """Trains on PGD's examples.

  The loss of an example (CCS 2019, Eq. 8, with alpha = 0 as Madry et al.) is

    alpha CE(f(x), y) + (1 - alpha) CE(f(x_adv), y),

  x_adv after k steps of Eq. 9 from a random point of the ball, against the
  network in inference mode. Examples outside the share `adversarial_ratio`
  (Table 5), and all during the warm-up, have x in place of x_adv. With
  `domain_adaptation_weight` the distance of benign and adversarial logits is
  added (Table 11, `losses.domain_adaptation`).

  Guarantee: privacy none, or with private=True that of DP-SGD: x_adv is made
  from the example itself, and both terms are one clipped gradient. Robustness
  is measured by attacks; nothing is proven.
  """

  config_class = adversarial_config.AdversarialConfig

  def _attacked(self, images, labels):
    if self.config.adversarial_ratio == 1:
      return super()._attacked(images, labels)
    return content_hash.chosen(images, labels, self.config.adversarial_ratio)

  def _row_losses(self, rows, labels, chosen, seed):
    config = self.config
    found = self.adversarial_examples(rows, labels, seed)
    wide = tf.reshape(chosen & self._warm(), [-1] + [1] * (len(rows.shape) - 1))
    logits = self.network(tf.where(wide, found, rows), training=True)
    total = robust.cross_entropy(labels, logits)
    metrics = {"robust_correct": robust.correct(labels, logits)}
    if not (config.natural_share or config.domain_adaptation_weight):
      return total, metrics
    clean = self.network(rows, training=True)
    metrics["correct"] = robust.correct(labels, clean)
    share = self._natural_share(config.natural_share)
    natural = robust.cross_entropy(labels, clean)
    total = share * natural + (1 - share) * total
    if config.domain_adaptation_weight:
      # The same number for every example: its mean is the term itself.
      total += config.domain_adaptation_weight * losses.domain_adaptation(
        clean, logits, config.mean_divisor, config.covariance_divisor
      )
    return total, metrics

  def adversarial_examples(
    self, rows: tf.Tensor, labels: tf.Tensor, seed
  ) -> tf.Tensor:
    """What a training step makes of these examples, at this step's radius."""
    start = rows
    if self.config.random_start:
      ball = self._ball(rows)
      start = rows + ball.uniform(seed)
      if self.config.clip_start:
        start = ball.project(start)
    return self._walk(
      lambda x: robust.cross_entropy(labels, self.network(x, training=False)),
      rows,
      start,
    )
