"""What robust trainers share, and natural training beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_privrob import data
from tf_privrob import gradients
from tf_privrob import randomness
from tf_privrob.bounds import domain as domain_lib
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.methods import plan as training_plan
from tf_privrob.methods.objectives import robust_config
from tf_privrob.methods.objectives import schedules

_AUGMENTATION_STREAM, _ROWS_STREAM = 0, 1
# Metric of the loss function: name in the history.
_METRICS = {
  "robust_correct": "nonprivate/robust_accuracy",
  "verified": "nonprivate/verified_accuracy",
}


class RobustTraining(dp_sgd.DPSGD):
  """Trains with a loss of one's choice, private or not.

  A subclass gives `_row_losses`. One step on a batch B of b examples is

    w <- optimizer(w, (1/b) sum_{i in B} grad loss_i + weight_decay * kernels),

  without the division if reduction="sum". With private=False batches are
  shuffled and nothing is clipped or noisy. With private=True the step is that
  of `DPSGD`: all terms of loss_i (clean, adversarial, worst-case logits, copies
  by augmentation) depend on example i, weights and public randomness only, and
  are clipped as one gradient.

  Batch normalisation is refused with private=True. Without privacy the loss
  itself sees batch statistics, attacks and bounds see the moving ones, as at
  inference, and a batch is never cut into chunks.
  """

  config_class = robust_config.RobustConfig
  not_private = (
    "Trained with private=False: gradients were neither clipped nor noisy, so"
    " nothing is known to protect the training examples. Robust training can"
    " make members easier to recognise (Song, Shokri and Mittal 2019)."
  )

  def _check_network(self, network: tf.keras.Model) -> None:
    if self._private:
      super()._check_network(network)
      return
    dp_sgd.refuse_activity_regularizers(network)
    if self.config.ema_decay and _normalises_batches(network):
      raise ValueError(
        "Expected ema_decay=0 with batch normalisation, whose moving statistics"
        f" are those of the last weights, received {self.config.ema_decay!r}."
      )

  def _learning_rate(self, steps: int | None):
    config = self.config
    if steps and config.learning_rate_drops:
      return schedules.learning_rate(
        config.learning_rate, config.learning_rate_drops, steps, config.epochs
      )
    return super()._learning_rate(steps)

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.TrainingPlan:
    """As DP-SGD's; a batch whose examples see each other stays whole."""
    plan = super().plan(num_examples, input_shape)
    if self._private or not self._needs_whole_batches():
      return plan
    if self.config.sampler == "poisson":
      raise ValueError(
        "Expected sampler='shuffle' where the examples of a batch see each"
        " other (batch normalisation or a term of the loss), received"
        " 'poisson', whose batches are padded."
      )
    whole = int(plan.sampler.expected_batch_size)
    if self.config.physical_batch_size not in (None, whole):
      raise ValueError(
        f"Expected physical_batch_size={whole} or None where the examples of a"
        " batch see each other (batch normalisation or a term of the loss),"
        f" received {self.config.physical_batch_size}."
      )
    sampler = dataclasses.replace(plan.sampler, physical_batch_size=whole)
    return dataclasses.replace(plan, sampler=sampler)

  def _needs_whole_batches(self) -> bool:
    return self.config.needs_whole_batches or _normalises_batches(self.network)

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """Those of DP-SGD, and the objective, which is one for the whole run."""
    return {
      **super().ledger_parameters(plan),
      "objective": self.config.objective,
    }

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Notes the value range, then builds what DP-SGD needs."""
    self._value_range = tuple(float(end) for end in value_range)
    self._run_record["value_range"] = list(self._value_range)
    super().prepare(plan, shape, value_range, num_classes)

  def _example_losses(self, batch, seed):
    """The loss of each example, averaged over its copies."""
    images, labels = batch
    fold_in = randomness.fold_in
    count, copies = images.shape[0], self.config.augmentation_multiplicity
    rows = data.augment(
      tf.repeat(images, copies, axis=0),
      self.config.augmentation,
      fold_in(seed, _AUGMENTATION_STREAM),
    )
    chosen = tf.repeat(self._attacked(images, labels), copies)
    losses, metrics = self._row_losses(
      rows, tf.repeat(labels, copies), chosen, fold_in(seed, _ROWS_STREAM)
    )
    return (
      tf.reduce_mean(tf.reshape(losses, [count, copies]), axis=1),
      {name: metric[::copies] for name, metric in metrics.items()},
    )

  def _row_losses(self, rows, labels, chosen, seed):
    """Losses [rows] and metrics; `chosen` rows have a robust loss."""
    raise NotImplementedError

  def _attacked(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Which examples have a robust loss: all of them."""
    del images
    return tf.ones_like(labels, tf.bool)

  def _noisy_sum(self, total: gradients.ClippedSum) -> outlet_lib.Released:
    """What is divided by the batch size: scaled by the settings."""
    size = self._plan.sampler.expected_batch_size

    def scaled(found):
      if self.config.reduction == "sum":
        found = [size * gradient for gradient in found]
      if self.config.update_clip_norm is not None:
        most = size * self.config.update_clip_norm
        found, _ = tf.clip_by_global_norm(found, most)
      return found

    return super()._noisy_sum(total).map(scaled)

  def _regularization_gradients(self, variables) -> list[tf.Tensor]:
    """Those of the layers, and the weight decay of kernels."""
    found = super()._regularization_gradients(variables)
    decay = self.config.weight_decay
    return [
      gradient + decay * variable if variable.shape.rank > 1 else gradient
      for gradient, variable in zip(found, variables)
    ]

  def _step_metrics(self, total: gradients.ClippedSum) -> dict[str, tf.Tensor]:
    count = tf.maximum(total.count, 1.0)
    return {
      **super()._step_metrics(total),
      **{
        shown: total.metrics[name] / count
        for name, shown in _METRICS.items()
        if name in total.metrics
      },
    }


@tf.keras.saving.register_keras_serializable("tf_privrob")
class NaturalTraining(RobustTraining):
  """Natural training: the cross-entropy of clean examples (CCS 2019, Eq. 2).

  Guarantee: privacy none, or that of DP-SGD with private=True. Robustness none:
  this is what robust trainers, with the same optimizer, are compared with.
  """

  config_class = robust_config.NaturalConfig

  def _row_losses(self, rows, labels, chosen, seed):
    del chosen, seed
    logits = self.network(rows, training=True)
    return cross_entropy(labels, logits), {"correct": correct(labels, logits)}


class AttackedTraining(RobustTraining):
  """Training against changes of a size that may grow with the steps.

  The objective is alpha * natural loss + (1 - alpha) * robust loss (CCS 2019,
  Eq. 6), alpha = 1 up to the end of the warm-up.
  """

  config_class = robust_config.AttackedConfig

  def check_value_range(self, value_range: tuple[float, float]) -> None:
    """Warns of a radius that is more than half of the range."""
    domain_lib.check_radius(self.config.attack_eps, value_range)

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Settles the schedule in steps, then as every robust trainer."""
    config = self.config

    def steps(moment):
      return schedules.in_steps(moment, plan.steps, config.epochs)

    self._warmup_end = steps(config.warmup)
    start = config.attack_ramp_start
    self._ramp_start = self._warmup_end if start is None else steps(start)
    self._ramp_length = steps(config.attack_ramp)
    super().prepare(plan, shape, value_range, num_classes)

  def attack_radius(self) -> tf.Tensor:
    """The radius at this step."""
    low, high = self.config.attack_eps_start, self.config.attack_eps
    return low + self._ramp_progress() * (high - low)

  def _ramp_progress(self) -> tf.Tensor:
    return schedules.progress(
      self._state.step, self._ramp_start, self._ramp_length
    )

  def _warm(self) -> tf.Tensor:
    """Whether the warm-up is over."""
    return self._state.step >= self._warmup_end

  def _natural_share(self, share: float, ramped: bool = False) -> tf.Tensor:
    """The weight alpha of the natural loss at this step.

    Args:
      share: after warm-up and ramp.
      ramped: alpha falls from 1 to `share` while the radius grows.
    """
    progress = self._ramp_progress() if ramped else 1.0
    return tf.where(self._warm(), 1 + progress * (share - 1), 1.0)


def _normalises_batches(network: tf.keras.Model) -> bool:
  kind = tf.keras.layers.BatchNormalization
  return any(
    isinstance(layer, kind) and layer.trainable for layer in network.submodules
  )


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """-log softmax(logits)[label], one value a row (CCS 2019, Eq. 3)."""
  return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def correct(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Whether the largest logit is that of the label."""
  return tf.argmax(logits, axis=1, output_type=labels.dtype) == labels
