"""What private and other trainings make of a sum of gradients, data aside."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_privrob import gradients
from tf_privrob.methods import checks
from tf_privrob.methods import method
from tf_privrob.methods import objective as objective_lib
from tf_privrob.methods import settings
from tf_privrob.methods.objectives import natural

# Metric of the loss function: name in the history.
_METRICS = {
  "correct": "nonprivate/accuracy",  # a denoiser's loss has no prediction
  "robust_correct": "nonprivate/robust_accuracy",
  "verified": "nonprivate/verified_accuracy",
}


def optimizer_of(
  config: settings.SGDConfig, rate
) -> tf.keras.optimizers.Optimizer:
  """SGD or Adam with a learning rate, which may be a schedule."""
  if config.optimizer == "adam":
    return tf.keras.optimizers.Adam(rate)
  return tf.keras.optimizers.SGD(rate, momentum=config.momentum)


def learning_rate(config: settings.SGDConfig, steps: int | None):
  """A number, or Keras' schedule over the steps."""
  rate = config.learning_rate
  if steps and config.learning_rate_schedule == "cosine":
    return tf.keras.optimizers.schedules.CosineDecay(rate, steps)
  return rate


def compiles(config: settings.SGDConfig) -> bool:
  """Whether XLA compiles the gradients."""
  if config.jit_compile is None:
    return bool(tf.config.list_physical_devices("GPU"))
  return config.jit_compile


class ByObjective:
  """A part of methods that train a network for an objective.

  It stands before `Method`, and has the objective of the settings looked after.

  Args:
    network: any Keras classifier that returns logits.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    objective: in place of the one in the settings.
    **kwargs: Keras' own.
  """

  def __init__(
    self,
    network: tf.keras.Model,
    config: settings.SGDConfig | None = None,
    record: dict[str, Any] | None = None,
    objective: objective_lib.Objective | None = None,
    **kwargs,
  ):
    if objective is not None:
      config = dataclasses.replace(
        config or self.config_class(), objective=objective
      )
    super().__init__(network, config, record, **kwargs)
    self.refuse(network)
    if network.built and checks.input_shape(network):
      self(tf.zeros([1, *checks.input_shape(network)]))
    self.objective.check(network)

  def refuse(self, network: tf.keras.Model) -> None:
    """Refuses regularisers that depend on the batch."""
    for layer in network.submodules:
      if getattr(layer, "activity_regularizer", None) is not None:
        raise ValueError(
          f"Expected no activity regulariser, received one in {layer.name!r}:"
          " it depends on the whole batch. Put the term into the loss of each"
          " example, or regularise the weights."
        )

  @property
  def objective(self) -> objective_lib.Objective:
    """What a step minimises; a method with a loss of its own has no other."""
    return getattr(self.config, "objective", natural.NATURAL)

  @property
  def context(self) -> objective_lib.Context:
    """What the objective knows of the run that is prepared."""
    return self._context

  def settle_context(self, plan, value_range) -> None:
    """Settles what the objective may know, and begins to count steps."""
    config, variables = self.config, self.network.trainable_variables
    self.optimizer.build(variables)
    self._run_record["value_range"] = [float(end) for end in value_range]
    self.run_state = method.RunState(variables if config.ema_decay > 0 else ())
    self._context = objective_lib.Context(
      self.network,
      objective_lib.Copies(
        config.augmentation,
        config.augmentation_multiplicity,
        config.augmentation_stddev,
      ),
      tuple(float(end) for end in value_range),
      plan.steps,
      config.epochs,
      self.run_state.step,
      self.run_state.seed,
      self.training_logits,
    )

  def check_value_range(self, value_range: tuple[float, float]) -> None:
    """What the objective requires of it."""
    self.objective.check_value_range(value_range)

  def certifier(self, **settings: Any):
    """That of the objective, if it has one."""
    return self.objective.certifier(self, **settings)

  def example_losses(self, batch, seed):
    """The objective of each example, over its copies."""
    return self.objective.example_losses(self._context, *batch, seed)

  def training_logits(self, images: tf.Tensor, seed) -> tf.Tensor:
    """Logits of the copies; a subclass may add noise inside the network."""
    del seed
    return self.network(images, training=True)

  def after_update(self) -> None:
    """What a subclass makes of the new weights, without looking at data."""


def average(state: method.RunState, variables, decay: float) -> None:
  """Moves the averages towards the weights after a step."""
  for mean, variable in zip(state.averages, variables):
    # The average forgets the initial weights first: min(decay, t / (t + 9)).
    count = tf.cast(state.step, tf.float32)
    share = tf.minimum(decay, count / (count + 9.0))
    mean.assign(share * mean + (1 - share) * variable)


def regularization_gradients(
  network: tf.keras.Model, variables: Sequence[tf.Variable]
) -> list[tf.Tensor]:
  """Of the layers' weight regularisers, which see no data.

  They are added after the noise, and computed in a graph of their own that
  reads variables only.
  """

  @tf.function
  def gradients_of_losses():
    with tf.GradientTape() as tape:
      total = tf.add_n([tf.constant(0.0), *network.losses])
    return tape.gradient(
      total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )

  alone = gradients_of_losses.get_concrete_function()
  known = {id(weight.handle) for weight in network.variables}
  if not known.issuperset(map(id, alone.captured_inputs)):
    raise ValueError(
      "Expected regularisers of weights alone, received one that reads other"
      " tensors: what it adds has no noise. Put it into the loss."
    )
  return alone()


def step_metrics(total: gradients.ClippedSum) -> dict[str, tf.Tensor]:
  """What a step shows of the private data, without any noise."""
  count = tf.maximum(total.count, 1.0)
  return {
    "nonprivate/loss": total.loss / count,
    "nonprivate/clipped_fraction": total.clipped / count,
    "nonprivate/dropped_fraction": total.dropped / count,
    **{
      shown: total.metrics[name] / count
      for name, shown in _METRICS.items()
      if name in total.metrics
    },
  }
