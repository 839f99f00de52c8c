"""What private and other trainings make of a sum of gradients, data aside."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_privrob import gradients
from tf_privrob.methods import method
from tf_privrob.methods import objective as objective_lib
from tf_privrob.methods import settings

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


def state_of(model: method.Method) -> method.RunState:
  """Counters of a run, with averages of the weights where they are kept."""
  averaged = model.config.ema_decay > 0
  variables = model.network.trainable_variables if averaged else ()
  return method.RunState(variables)


def context_of(
  model: method.Method, state: method.RunState, plan, value_range, logits
) -> objective_lib.Context:
  """What the model's objective may know of its run."""
  config = model.config
  return objective_lib.Context(
    model.network,
    objective_lib.Copies(
      config.augmentation,
      config.augmentation_multiplicity,
      config.augmentation_stddev,
    ),
    tuple(float(end) for end in value_range),
    plan.steps,
    config.epochs,
    state.step,
    state.seed,
    logits,
  )


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


def refuse_activity_regularizers(network: tf.keras.Model) -> None:
  """Raises where a layer's regulariser depends on the batch."""
  for layer in network.submodules:
    if getattr(layer, "activity_regularizer", None) is not None:
      raise ValueError(
        f"Expected no activity regulariser, received one in {layer.name!r}: it"
        " depends on the whole batch. Put the term into the loss of each"
        " example, or regularise the weights."
      )
