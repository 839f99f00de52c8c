"""Training without privacy: plain gradients of any objective."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any
from typing import Optional  # flags read these annotations on Python 3.9

import tensorflow as tf

from tf_privrob import gradients
from tf_privrob import privacy
from tf_privrob import validate
from tf_privrob.methods import checks
from tf_privrob.methods import method
from tf_privrob.methods import objective as objective_lib
from tf_privrob.methods import plan as training_plan
from tf_privrob.methods import settings
from tf_privrob.methods import updates
from tf_privrob.methods.objectives import natural
from tf_privrob.methods.objectives import schedules

REDUCTIONS = ("mean", "sum")
_COPIES_STREAM = 1


@dataclasses.dataclass(frozen=True)
class PlainConfig(settings.SGDConfig):
  """Settings of a training without privacy, whatever its loss.

  Attributes:
    sampler: "shuffle", "poisson" or "full_batch".
    learning_rate_drops: "10000:0.5,15000:0.1" is half of learning_rate from
      step 10,000 on and a tenth of it from step 15,000 on. Moments are numbers
      of steps, or epochs as in "20e", or shares of the run as in "50%".
    reduction: "mean" of the batch's losses, or their "sum", beside which a
      weight decay is weaker.
    weight_decay: w adds w/2 times the squared kernels to the loss.
    decay_all: biases and normalisation decay too, as PyTorch's optimizers have
      it; otherwise they are left alone.
    update_clip_norm: bound on the norm of the batch's gradient; it has nothing
      to do with privacy. None: none.
  """

  batch_size: int = 100
  sampler: str = "shuffle"
  optimizer: str = "adam"
  learning_rate: float = 1e-3
  checkpoint_every: int = 100
  learning_rate_drops: str = ""
  reduction: str = "mean"
  weight_decay: float = 0.0
  decay_all: bool = False
  update_clip_norm: Optional[float] = None

  def __post_init__(self):
    super().__post_init__()
    validate.one_of(REDUCTIONS, reduction=self.reduction)
    validate.non_negative(weight_decay=self.weight_decay)
    validate.boolean(decay_all=self.decay_all)
    if self.update_clip_norm is not None:
      validate.positive(update_clip_norm=self.update_clip_norm)
    drops = schedules.parse_drops(self.learning_rate_drops)
    if drops and self.learning_rate_schedule != "constant":
      raise ValueError(
        "Expected learning_rate_schedule='constant' with learning_rate_drops,"
        f" received {self.learning_rate_schedule!r}. Choose one of the two."
      )

  def scaled(self, factor: float) -> PlainConfig:
    """The same run, `factor` times as long: epochs and all moments."""
    drops = schedules.scaled_drops(self.learning_rate_drops, factor)
    return dataclasses.replace(
      super().scaled(factor), learning_rate_drops=drops
    )


@dataclasses.dataclass(frozen=True)
class TrainingConfig(PlainConfig):
  """Settings of `Trainer`.

  Attributes:
    objective: what a step minimises; its settings are a part of these.
  """

  objective: objective_lib.Objective = natural.NATURAL

  def __post_init__(self):
    super().__post_init__()
    objective_lib.require(self.objective, self.augmentation)


@tf.keras.saving.register_keras_serializable("tf_privrob")
class Trainer(updates.ByObjective, method.Method):
  """Trains a network for an objective, without privacy.

  One step on a batch B of b examples is

    w <- optimizer(w, (1/b) sum_{i in B} grad loss_i + weight_decay * kernels),

  without the division if reduction="sum". Nothing is clipped for each example
  and nothing is noisy; no budget is counted, and the network is trained from
  the weights that it has.

  Batch normalisation is allowed. The loss itself then sees batch statistics,
  attacks and bounds see the moving ones, as at inference. A batch whose
  examples see each other is never cut into chunks.

  Guarantee: privacy none. Robustness: that of the objective.

  Args:
    network: any Keras classifier that returns logits.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    objective: in place of the one in the settings.
    **kwargs: Keras' own.

  Attributes:
    unclipped_gradients: what sums the gradients of a batch, which `prepare`
      makes.
  """

  config_class = TrainingConfig
  unclipped_gradients: gradients.UnclippedGradients
  not_private = (
    "Trained without privacy: gradients were neither clipped nor noisy, so"
    " nothing is known to protect the training examples. Robust training can"
    " make members easier to recognise (Song, Shokri and Mittal 2019)."
  )

  def refuse(self, network: tf.keras.Model) -> None:
    """Refuses averages of weights whose statistics would be others."""
    super().refuse(network)
    if self.config.ema_decay and _normalises_batches(network):
      raise ValueError(
        "Expected ema_decay=0 with batch normalisation, whose moving statistics"
        f" are those of the last weights, received {self.config.ema_decay!r}."
      )

  @property
  def draws_initial_weights(self) -> bool:
    """A network is trained from the weights that it has."""
    return False

  def make_optimizer(self, steps: int | None) -> tf.keras.optimizers.Optimizer:
    """SGD or Adam with the config's schedule or drops."""
    return updates.optimizer_of(self.config, self.learning_rate(steps))

  def learning_rate(self, steps: int | None):
    """A number, or Keras' schedule over the steps."""
    config = self.config
    if steps and config.learning_rate_drops:
      return schedules.learning_rate(
        config.learning_rate, config.learning_rate_drops, steps, config.epochs
      )
    return updates.learning_rate(config, steps)

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.TrainingPlan:
    """Sampler and steps; a batch whose examples see each other stays whole."""
    config = self.config
    shape = tuple(input_shape or checks.input_shape(self.network))
    plan = training_plan.without_privacy(config, num_examples, shape)
    if not (self.objective.mixes or _normalises_batches(self.network)):
      return plan
    if config.sampler == "poisson":
      raise ValueError(
        "Expected sampler='shuffle' where the examples of a batch see each"
        " other (batch normalisation or a term of the loss), received"
        " 'poisson', whose batches are padded."
      )
    whole = int(plan.sampler.expected_batch_size)
    if config.physical_batch_size not in (None, whole):
      raise ValueError(
        f"Expected physical_batch_size={whole} or None where the examples of a"
        " batch see each other (batch normalisation or a term of the loss),"
        f" received {config.physical_batch_size}."
      )
    sampler = dataclasses.replace(plan.sampler, physical_batch_size=whole)
    return dataclasses.replace(plan, sampler=sampler)

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Builds what `train_step` uses."""
    self.settle_context(plan, value_range)
    self.unclipped_gradients = gradients.UnclippedGradients(
      self.example_losses, self.network, updates.compiles(self.config)
    )

  def train_step(self, batch) -> dict[str, tf.Tensor]:
    """One logical step: the sum over all chunks, then the update."""
    images, labels, mask = batch
    state, config = self.run_state, self.config
    total = self.unclipped_gradients.over_chunks(
      (images, labels), mask, state.seed(_COPIES_STREAM)
    )
    variables = self.network.trainable_variables
    regular = self._regularization(variables)
    size = self.sampler.expected_batch_size

    def update(found):
      if config.reduction == "sum":
        found = [size * gradient for gradient in found]
      if config.update_clip_norm is not None:
        most = size * config.update_clip_norm
        found, _ = tf.clip_by_global_norm(found, most)
      return [tf.cast(g / size, r.dtype) + r for g, r in zip(found, regular)]

    released = self.outlet.without_noise(total.gradients)
    self.apply(released.map(update), variables)
    self.after_update()
    state.step.assign_add(1)
    updates.average(state, variables, config.ema_decay)
    return updates.step_metrics(total)

  def _regularization(self, variables) -> list[tf.Tensor]:
    """The gradients of the layers' regularisers, and of the weight decay."""
    found = updates.regularization_gradients(self.network, variables)
    decay, least = self.config.weight_decay, 0 if self.config.decay_all else 2
    return [
      gradient + decay * variable if variable.shape.rank >= least else gradient
      for gradient, variable in zip(found, variables)
    ]

  def statement(self) -> privacy.PrivacyStatement:
    """That nothing is claimed, and nothing proven."""
    record = self._run_record
    if not record.get("steps"):
      raise ValueError(
        "Expected a trained model: nothing was released yet. Call fit first."
      )
    return privacy.PrivacyStatement(
      claimed=None,
      proven=None,
      sampler=record["sampler"],
      caveats=(self.not_private,),
    )

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """What a resumed run shares with the one that it goes on with."""
    return {
      "noise_multiplier": plan.noise_multiplier,
      "sampler": plan.sampler.describe(),
    }

  def spent_dp_epsilon(self, steps: int) -> None:
    """None: no budget is counted."""
    del steps

  def count_steps(self, steps: int, sessions: int) -> None:
    """Notes what was trained so far, for the statement."""
    self._run_record.update(
      training_plan.record(self.settled_plan, steps, sessions)
    )


def _normalises_batches(network: tf.keras.Model) -> bool:
  kind = tf.keras.layers.BatchNormalization
  return any(
    isinstance(layer, kind) and layer.trainable for layer in network.submodules
  )
