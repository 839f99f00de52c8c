"""DP-SGD (Abadi et al. 2016) as a Keras model around any Keras network."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import data
from tf_privrob import gradients
from tf_privrob import mechanisms
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import validate
from tf_privrob.methods import config as method_config
from tf_privrob.methods import plan as training_plan
from tf_privrob.methods import session as training_session

_NOISE_STREAM, _COPIES_STREAM = 0, 1
_CHECKED_EXAMPLES = 3
_SEED_CAVEAT = (
  "The run is reproducible from its seed: the guarantee holds against those who"
  " do not know the seed. Train a model that is to be released with seed=None."
)


class _RunState:
  """Counters of a run. Keras does not track it, so no model file holds a key.

  Attributes:
    key: base of all seeds of a session; whoever knows it knows the noise.
    step: logical steps begun, over all sessions.
    averages: moving averages of the weights.
  """

  def __init__(self, variables: Sequence[tf.Variable], averaged: bool):
    self.key = tf.Variable([0, 0], dtype=tf.int32, trainable=False)
    self.step = tf.Variable(0, dtype=tf.int64, trainable=False)
    self.averages = [
      tf.Variable(variable, trainable=False)
      for variable in (variables if averaged else ())
    ]


@tf.keras.saving.register_keras_serializable("tf_privrob")
class DPSGD(tf.keras.Model):
  """Trains a network by noisy sums of clipped per-example gradients.

  One step (Abadi et al. 2016, Algorithm 1), on a Poisson sample B of the data:

    w <- optimizer(w, (sum_{i in B} min(1, C / |g_i|) g_i + N(0, z^2 C^2)) / b)

  with C = `l2_clip_norm`, z = `noise_multiplier` and the expected batch size b,
  a public constant.

  Guarantee: (dp_epsilon, dp_delta)-DP of the weights after every step, for
  neighbours that differ by one added or removed example; the figure of
  `privacy_statement()` counts the steps that were paid for. Training metrics
  called `nonprivate/...` are not covered.

  Args:
    network: any Keras classifier that returns logits, without batch
      normalisation.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    **kwargs: Keras' own.
  """

  def __init__(
    self,
    network: tf.keras.Model,
    config: method_config.DPSGDConfig | None = None,
    record: dict[str, Any] | None = None,
    **kwargs,
  ):
    super().__init__(**kwargs)
    if models.returns_probabilities(network):
      raise ValueError(
        f"Expected a network that returns logits, received {network.name!r},"
        " which ends in a softmax. Pass models.as_logits(network)."
      )
    gradients.refuse_batch_normalization(network)
    _refuse_activity_regularizers(network)
    self.network = network
    self.config = config or method_config.DPSGDConfig()
    self._run_record = dict(record or {})
    self._compile_arguments = None
    if network.built and _input_shape(network):
      self(tf.zeros([1, *_input_shape(network)]))

  def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    """Logits."""
    return self.network(inputs, training=training)

  def compile(self, optimizer=None, loss=None, metrics=None, **kwargs):
    """Keras' own; what is not given is taken from the config."""
    if kwargs.get("steps_per_execution") not in (None, 1):
      raise ValueError(
        "Expected steps_per_execution=1: every step is paid for in the ledger"
        " before it runs."
      )
    # Without an optimizer `fit` compiles again, once it knows how many steps a
    # learning-rate schedule has.
    self._compile_arguments = (
      {"loss": loss, "metrics": metrics, **kwargs} if not optimizer else None
    )
    super().compile(
      optimizer=optimizer or self._optimizer(None),
      loss=loss
      or tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      metrics=["accuracy"] if metrics is None else metrics,
      **kwargs,
    )

  def _optimizer(self, steps: int | None) -> tf.keras.optimizers.Optimizer:
    rate = self.config.learning_rate
    if steps and self.config.learning_rate_schedule == "cosine":
      rate = tf.keras.optimizers.schedules.CosineDecay(rate, steps)
    if self.config.optimizer == "adam":
      return tf.keras.optimizers.Adam(rate)
    return tf.keras.optimizers.SGD(rate, momentum=self.config.momentum)

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.TrainingPlan:
    """Sampler, noise and steps for a training set of this size."""
    shape = tuple(input_shape or _input_shape(self.network))
    return training_plan.make(self.config, num_examples, shape)

  def fit(
    self,
    x: np.ndarray | data.Dataset,
    y: np.ndarray | None = None,
    *,
    value_range: tuple[float, float] = (0.0, 1.0),
    validation_data: tuple[np.ndarray, np.ndarray] | None = None,
    run_dir: str | os.PathLike | None = None,
    resume: bool = False,
    callbacks: Sequence[tf.keras.callbacks.Callback] = (),
    verbose: int = 1,
  ) -> tf.keras.callbacks.History:
    """Trains within the budget; everything is checked before it is touched.

    Args:
      x: training inputs [n, ...], or a `Dataset`, whose test part then serves
        as validation data.
      y: sparse labels [n].
      value_range: declared range of the inputs; a `Dataset` knows its own.
      validation_data: evaluated after each epoch; taken to be public.
      run_dir: run folder for ledger, checkpoints, history and TensorBoard.
        Without it nothing is written and nothing can be resumed.
      resume: go on with the run in `run_dir`.
      callbacks: Keras callbacks.
      verbose: 0 is silent.

    Returns:
      Keras' history of the last epochs.
    """
    if isinstance(x, data.Dataset):
      dataset, value_range = x, x.value_range
      x, y = dataset.x_train, dataset.y_train
      validation_data = validation_data or (dataset.x_test, dataset.y_test)
    x, y = np.asarray(x), np.asarray(y)
    shape = _input_shape(self.network) or x.shape[1:]
    validate.examples(value_range, 1 + len(shape), x_train=x)
    classes = self(tf.zeros([1, *shape])).shape[-1]
    validate.labels(classes, len(x), y_train=y)
    if validation_data is not None:
      x_test, y_test = validation_data
      validate.examples(value_range, 1 + len(shape), x_test=x_test)
      validate.labels(classes, len(x_test), y_test=y_test)
    if self._run_record.get("steps"):
      raise ValueError(
        f"This model has been trained for {self._run_record['steps']} steps: a"
        " second fit would release more than its statement says. Wrap a fresh"
        " network; with resume=True its weights come from the run folder."
      )
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
      raise ValueError(
        "Expected one replica: noise is added once per step. Train under the"
        " default strategy."
      )
    plan = self.plan(len(x), shape)
    if not self.optimizer or self._compile_arguments is not None:
      arguments = dict(self._compile_arguments or {})
      self.compile(optimizer=self._optimizer(plan.steps), **arguments)
    self._prepare(plan, shape, value_range, classes)
    run = training_session.Session.open(self, plan, run_dir, resume)
    return run.train(x, y, validation_data, list(callbacks), verbose)

  def _prepare(self, plan, shape, value_range, classes) -> None:
    """Builds what `train_step` uses and checks that examples stand alone."""
    self.optimizer.build(self.network.trainable_variables)
    self._plan = plan
    self._state = _RunState(
      self.network.trainable_variables, self.config.ema_decay > 0
    )
    jit_compile = self.config.jit_compile
    if jit_compile is None:
      jit_compile = bool(tf.config.list_physical_devices("GPU"))
    self._clipped = gradients.ClippedGradients(
      self._example_losses,
      self.network,
      self.config.l2_clip_norm,
      self.config.engine,
      jit_compile,
    )
    rng = np.random.default_rng(0)
    images = rng.uniform(*value_range, (_CHECKED_EXAMPLES, *shape))
    labels = rng.integers(0, classes, _CHECKED_EXAMPLES)
    self._clipped.check(
      (tf.constant(images, tf.float32), tf.constant(labels, tf.int64))
    )
    self.make_train_function(force=True)

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
    logits = self.network(images, training=True)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      tf.repeat(labels, copies), logits
    )
    predictions = tf.argmax(logits, axis=1, output_type=labels.dtype)[::copies]
    return (
      tf.reduce_mean(tf.reshape(losses, [count, copies]), axis=1),
      {"correct": predictions == labels},
    )

  def train_step(self, batch) -> dict[str, tf.Tensor]:
    """One logical step: clipped sum over all chunks, noise once, update."""
    images, labels, mask = batch
    state, plan = self._state, self._plan
    fold_in = tf.random.experimental.stateless_fold_in
    seed = fold_in(state.key, state.step)
    total = self._clipped.over_chunks(
      (images, labels), mask, fold_in(seed, _COPIES_STREAM)
    )
    noisy = self._add_noise(total.gradients, fold_in(seed, _NOISE_STREAM))
    update = [gradient / plan.sampler.expected_batch_size for gradient in noisy]
    variables = self.network.trainable_variables
    regularization = self._regularization_gradients(variables)
    update = [g + r for g, r in zip(update, regularization)]
    self.optimizer.apply_gradients(zip(update, variables))
    state.step.assign_add(1)
    for average, variable in zip(state.averages, variables):
      # The average forgets the initial weights first: min(decay, t / (t + 9)).
      count = tf.cast(state.step, tf.float32)
      decay = tf.minimum(self.config.ema_decay, count / (count + 9.0))
      average.assign(decay * average + (1 - decay) * variable)
    count = tf.maximum(total.count, 1.0)
    return {
      "nonprivate/loss": total.loss / count,
      "nonprivate/accuracy": total.metrics["correct"] / count,
      "nonprivate/clipped_fraction": total.clipped / count,
    }

  def _add_noise(self, sums: list[tf.Tensor], seed) -> list[tf.Tensor]:
    """One draw of N(0, (z * sensitivity)^2) for all variables together."""
    if self._plan.noise_multiplier == 0:
      return sums
    sensitivity = self._clipped.sensitivity("add_or_remove_one")
    mechanism = mechanisms.GaussianMechanism(
      sensitivity, self._plan.noise_multiplier * sensitivity
    )
    sizes = [int(np.prod(gradient.shape)) for gradient in sums]
    noise = tf.split(mechanism.sample([sum(sizes)], seed), sizes)
    return [g + tf.reshape(n, g.shape) for g, n in zip(sums, noise)]

  def _regularization_gradients(self, variables) -> list[tf.Tensor]:
    """Weight regularisers see no data: they are added after the noise."""
    with tf.GradientTape() as tape:
      total = tf.add_n([tf.constant(0.0), *self.network.losses])
    return tape.gradient(
      total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )

  def privacy_statement(self) -> privacy.PrivacyStatement:
    """Claimed, proven and audited privacy of the weights as they are now."""
    record = self._run_record
    if not record.get("steps"):
      raise ValueError(
        "Expected a trained model: nothing was released yet. Call fit first."
      )
    return privacy.PrivacyStatement.for_dp_sgd(
      noise_multiplier=record["noise_multiplier"],
      sampling_prob=record["sampling_prob"],
      steps=record["steps"],
      dp_delta=self.config.dp_delta,
      sampler=record["sampler"],
      num_examples=record["num_examples"],
      epochs=record["participations"],
      accountant=self.config.accountant,
      extra_caveats=record["caveats"],
    )

  def certifier(self) -> None:
    """None: the network has no certificate of its own; it can be smoothed."""
    return None

  @property
  def run_record(self) -> dict[str, Any]:
    """What the training released: steps, sessions, noise, sampling."""
    return dict(self._run_record)

  def set_session(self, key: np.ndarray, step: int) -> None:
    """Starts a session: fresh randomness, steps counted on."""
    self._state.key.assign(key)
    self._state.step.assign(step)

  def count_steps(self, steps: int, sessions: int) -> None:
    """Notes what was released so far, for the statement."""
    sampler = self._plan.sampler
    self._run_record.update(
      steps=steps,
      sessions=sessions,
      noise_multiplier=self._plan.noise_multiplier,
      sampler=sampler.kind,
      sampling_prob=sampler.expected_batch_size / sampler.num_examples,
      num_examples=sampler.num_examples,
      participations=sampler.max_participations(0, steps),
      caveats=[] if self.config.seed is None else [_SEED_CAVEAT],
    )

  def swap_average(self) -> None:
    """Exchanges the trained weights and their moving average."""
    pairs = zip(self._state.averages, self.network.trainable_variables)
    for average, variable in pairs:
      value = tf.identity(variable)
      variable.assign(average)
      average.assign(value)

  def state_variables(self) -> list[tf.Variable]:
    """All that a checkpoint must hold to go on."""
    return [
      *self.network.variables,
      *self.optimizer.variables,
      *self._state.averages,
    ]

  def get_config(self) -> dict[str, Any]:
    """For saving: network, settings and what the training released."""
    settings = dataclasses.asdict(self.config)
    settings["seed"] = None  # whoever knows it can subtract the noise
    return {
      "name": self.name,
      "network": tf.keras.saving.serialize_keras_object(self.network),
      "config": settings,
      "record": dict(self._run_record),
    }

  @classmethod
  def from_config(cls, config: dict[str, Any], custom_objects=None) -> DPSGD:
    """For loading."""
    config = dict(config)
    network = tf.keras.saving.deserialize_keras_object(
      config.pop("network"), custom_objects=custom_objects
    )
    settings = method_config.DPSGDConfig(**config.pop("config"))
    return cls(network, settings, **config)


def _input_shape(network: tf.keras.Model) -> tuple[int, ...] | None:
  """Shape of one input where the network knows it: a subclass may not."""
  shape = getattr(network, "input_shape", None)
  return tuple(shape[1:]) if isinstance(shape, tuple) else None


def _refuse_activity_regularizers(network: tf.keras.Model) -> None:
  for layer in network.submodules:
    if getattr(layer, "activity_regularizer", None) is not None:
      raise ValueError(
        f"Expected no activity regulariser, received one in {layer.name!r}: it"
        " depends on the whole batch. Put the term into the loss of each"
        " example, or regularise the weights."
      )
