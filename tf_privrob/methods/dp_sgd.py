"""DP-SGD (Abadi et al. 2016) as a Keras model around any Keras network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import data
from tf_privrob import gradients
from tf_privrob import privacy
from tf_privrob.methods import checks
from tf_privrob.methods import config as method_config
from tf_privrob.methods import method
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.methods import plan as training_plan

_COPIES_STREAM = 1
_CHECKED_EXAMPLES, _CHECKED_ROWS = 3, 16


@tf.keras.saving.register_keras_serializable("tf_privrob")
class DPSGD(method.Method):
  """Trains a network by noisy sums of clipped per-example gradients.

  One step (Abadi et al. 2016, Algorithm 1), on a Poisson sample B of the data:

    w <- optimizer(w, (sum_{i in B} min(1, C / |g_i|) g_i + N(0, z^2 C^2)) / b)

  with C = `l2_clip_norm`, z = `noise_multiplier` and the expected batch size b,
  a public constant.

  Guarantee: (dp_epsilon, dp_delta)-DP of the weights after every step, for
  neighbours that differ by one added or removed example; the figure of
  `privacy_statement()` accounts all planned steps, also of a training that was
  ended early. Training metrics called `nonprivate/...` are not covered.

  Args:
    network: any Keras classifier that returns logits, without batch
      normalisation.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    **kwargs: Keras' own.
  """

  config_class = method_config.DPSGDConfig
  not_private = (
    "Trained without privacy: gradients were neither clipped nor noisy, so"
    " nothing is known to protect the training examples."
  )

  def __init__(
    self,
    network: tf.keras.Model,
    config: method_config.DPSGDConfig | None = None,
    record: dict[str, Any] | None = None,
    **kwargs,
  ):
    super().__init__(network, config, record, **kwargs)
    self._check_network(network)
    if network.built and checks.input_shape(network):
      self(tf.zeros([1, *checks.input_shape(network)]))

  def _check_network(self, network: tf.keras.Model) -> None:
    """Refuses layers that tie the examples of a batch together."""
    gradients.refuse_batch_normalization(network)
    refuse_activity_regularizers(network)
    _refuse_embeddings(network)

  def make_optimizer(self, steps: int | None) -> tf.keras.optimizers.Optimizer:
    """SGD or Adam with the config's schedule."""
    rate = self._learning_rate(steps)
    if self.config.optimizer == "adam":
      return tf.keras.optimizers.Adam(rate)
    return tf.keras.optimizers.SGD(rate, momentum=self.config.momentum)

  def _learning_rate(self, steps: int | None):
    """A number, or Keras' schedule over the steps."""
    rate = self.config.learning_rate
    if steps and self.config.learning_rate_schedule == "cosine":
      return tf.keras.optimizers.schedules.CosineDecay(rate, steps)
    return rate

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.TrainingPlan:
    """Sampler, noise and steps; without privacy there is no budget."""
    shape = tuple(input_shape or checks.input_shape(self.network))
    if not self._private:
      return training_plan.without_privacy(self.config, num_examples, shape)
    return training_plan.make(self.config, num_examples, shape)

  @property
  def _private(self) -> bool:
    """Whether gradients are clipped and noisy; some methods leave it open."""
    return getattr(self.config, "private", True)

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Builds what `train_step` uses and checks that examples stand alone."""
    self.optimizer.build(self.network.trainable_variables)
    averaged = self.config.ema_decay > 0
    self._state = method.RunState(
      self.network.trainable_variables if averaged else ()
    )
    jit_compile = self.config.jit_compile
    if jit_compile is None:
      jit_compile = bool(tf.config.list_physical_devices("GPU"))
    self._clipped = self._make_gradients(jit_compile)
    rng = np.random.default_rng(0)
    images = rng.uniform(*value_range, (_CHECKED_EXAMPLES, *shape))
    labels = rng.integers(0, num_classes, _CHECKED_EXAMPLES)
    self._clipped.check(
      (tf.constant(images, tf.float32), tf.constant(labels, tf.int64)),
      sizes=(_CHECKED_ROWS,),
      rows=plan.sampler.physical_batch_size,
    )

  def _make_gradients(self, jit_compile: bool) -> gradients.ClippedGradients:
    """What sums the gradients of a batch."""
    if not self._private:
      return gradients.UnclippedGradients(
        self._example_losses, self.network, jit_compile
      )
    return gradients.ClippedGradients(
      self._example_losses,
      self.network,
      self.config.l2_clip_norm,
      self.config.engine,
      jit_compile,
      most_rows=self.sampler.most_rows,
    )

  def _example_losses(self, batch, seed):
    """Cross-entropy of each example, averaged over its K copies."""
    images, labels = batch
    count, copies = images.shape[0], self.config.augmentation_multiplicity
    images = data.augment(
      tf.repeat(images, copies, axis=0),
      self.config.augmentation,
      seed,
      self.config.augmentation_stddev,
    )
    logits = self._training_logits(images, seed)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      tf.repeat(labels, copies), logits
    )
    predictions = tf.argmax(logits, axis=1, output_type=labels.dtype)[::copies]
    return (
      tf.reduce_mean(tf.reshape(losses, [count, copies]), axis=1),
      {"correct": predictions == labels},
    )

  def _training_logits(self, images: tf.Tensor, seed) -> tf.Tensor:
    """Logits of the copies; a subclass may add noise inside the network."""
    del seed
    return self.network(images, training=True)

  def _after_update(self) -> None:
    """What a subclass makes of the new weights, without looking at data."""

  def train_step(self, batch) -> dict[str, tf.Tensor]:
    """One logical step: clipped sum over all chunks, noise once, update."""
    images, labels, mask = batch
    state, plan = self._state, self._plan
    total = self._clipped.over_chunks(
      (images, labels), mask, state.seed(_COPIES_STREAM)
    )
    variables = self.network.trainable_variables
    regularization = self._regularization_gradients(variables)
    size = plan.sampler.expected_batch_size
    update = self._noisy_sum(total).map(
      lambda noisy: [
        tf.cast(g / size, r.dtype) + r for g, r in zip(noisy, regularization)
      ]
    )
    self.apply(update, variables)
    self._after_update()
    state.step.assign_add(1)
    for average, variable in zip(state.averages, variables):
      # The average forgets the initial weights first: min(decay, t / (t + 9)).
      count = tf.cast(state.step, tf.float32)
      decay = tf.minimum(self.config.ema_decay, count / (count + 9.0))
      average.assign(decay * average + (1 - decay) * variable)
    return self._step_metrics(total)

  def nonprivate_sum(self, images, labels, mask) -> list[tf.Tensor]:
    """The exact clipped sum of a logical batch: for audits and tests."""
    seed = self._state.seed(_COPIES_STREAM)
    return self._clipped.over_chunks((images, labels), mask, seed).gradients

  def _noisy_sum(self, total: gradients.ClippedSum) -> outlet_lib.Released:
    """The clipped sum of a logical batch with the noise of one step."""
    if self._plan.noise_multiplier == 0:
      return self.outlet.without_noise(total.gradients)
    sensitivity = self._clipped.sensitivity("add_or_remove_one")
    stddev = self._plan.noise_multiplier * sensitivity
    return self.outlet.gaussian(total.gradients, stddev, sensitivity)

  def _step_metrics(self, total: gradients.ClippedSum) -> dict[str, tf.Tensor]:
    """What a step shows of the private data, without any noise."""
    count = tf.maximum(total.count, 1.0)
    found = {
      "nonprivate/loss": total.loss / count,
      "nonprivate/clipped_fraction": total.clipped / count,
      "nonprivate/dropped_fraction": total.dropped / count,
    }
    if "correct" in total.metrics:  # a denoiser's loss has no prediction
      found["nonprivate/accuracy"] = total.metrics["correct"] / count
    return found

  def _regularization_gradients(self, variables) -> list[tf.Tensor]:
    """Weight regularisers see no data: they are added after the noise.

    They are computed in a graph of their own that reads variables only.
    """

    @tf.function
    def gradients_of_losses():
      with tf.GradientTape() as tape:
        total = tf.add_n([tf.constant(0.0), *self.network.losses])
      return tape.gradient(
        total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
      )

    alone = gradients_of_losses.get_concrete_function()
    known = {id(weight.handle) for weight in self.network.variables}
    if not known.issuperset(map(id, alone.captured_inputs)):
      raise ValueError(
        "Expected regularisers of weights alone, received one that reads other"
        " tensors: what it adds has no noise. Put it into the loss."
      )
    return alone()

  @property
  def draws_initial_weights(self) -> bool:
    """Without privacy a network is trained from the weights that it has."""
    return self._private and super().draws_initial_weights

  def statement(self) -> privacy.PrivacyStatement:
    """What the accountant says of the steps that the outlet counted."""
    record = self._run_record
    if not record.get("steps"):
      raise ValueError(
        "Expected a trained model: nothing was released yet. Call fit first."
      )
    if not self._private:
      return privacy.PrivacyStatement(
        claimed=None,
        proven=None,
        sampler=record["sampler"],
        caveats=(self.not_private,),
      )
    return privacy.PrivacyStatement.for_dp_sgd(
      facts=self.run_facts,
      noise_multiplier=record["noise_multiplier"],
      sampling_prob=record["sampling_prob"],
      steps=record.get("steps_accounted", record["steps"]),
      dp_delta=self.accounted_dp_delta,
      sampler=record["sampler"],
      num_examples=record["num_examples"],
      epochs=record["participations"],
      accountant=self.config.accountant,
      extra_releases=self.extra_releases(),
    )

  @property
  def accounted_dp_delta(self) -> float:
    """At which the accountant states dp_epsilon."""
    return self.config.dp_delta

  def extra_releases(self) -> list[privacy.Release]:
    """What a subclass releases besides the gradients."""
    return []

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """All that the guarantee depends on."""
    return {
      "noise_multiplier": plan.noise_multiplier,
      "l2_clip_norm": self.config.l2_clip_norm,
      "dp_delta": self.config.dp_delta,
      "neighbouring": "add_or_remove_one",
      "sampler": plan.sampler.describe(),
    }

  def spent_dp_epsilon(self, steps: int) -> float:
    """The proven figure after `steps` steps, at the config's dp_delta."""
    return training_plan.dp_epsilon(self.config, self._plan, steps)

  def count_steps(self, steps: int, sessions: int) -> None:
    """Notes what was released so far, for the statement."""
    self._run_record.update(training_plan.record(self._plan, steps, sessions))


def _refuse_embeddings(network: tf.keras.Model) -> None:
  """Raises where a look-up would end the training for one example."""
  for layer in network.submodules:
    if isinstance(layer, tf.keras.layers.Embedding):
      raise ValueError(
        f"Expected no Embedding, received {layer.name!r}: its look-up raises"
        " where an index is outside of the vocabulary, so that one example"
        " decides whether the training ends. Use one-hot inputs and Dense."
      )


def refuse_activity_regularizers(network: tf.keras.Model) -> None:
  """Raises where a layer's regulariser depends on the batch."""
  for layer in network.submodules:
    if getattr(layer, "activity_regularizer", None) is not None:
      raise ValueError(
        f"Expected no activity regulariser, received one in {layer.name!r}: it"
        " depends on the whole batch. Put the term into the loss of each"
        " example, or regularise the weights."
      )
