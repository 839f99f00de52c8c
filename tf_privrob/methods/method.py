"""What all training methods share: checks, fit, run folder, save and load."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import data
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import validate
from tf_privrob.methods import session as training_session

SEED_CAVEAT = (
  "The run is reproducible from its seed: the guarantee holds against those who"
  " do not know the seed. Train a model that is to be released with seed=None."
)


class RunState:
  """Counters of a run. Keras does not track it, so no model file holds a key.

  Attributes:
    key: base of all seeds of a session; whoever knows it knows the noise.
    step: logical steps begun, over all sessions.
    averages: moving averages of the weights.
  """

  def __init__(self, averaged: Sequence[tf.Variable] = ()):
    self.key = tf.Variable([0, 0], dtype=tf.int32, trainable=False)
    self.step = tf.Variable(0, dtype=tf.int64, trainable=False)
    self.averages = [
      tf.Variable(variable, trainable=False) for variable in averaged
    ]

  def seed(self, *numbers: int) -> tf.Tensor:
    """The seed of the step, folded with the numbers of a stream."""
    fold_in = tf.random.experimental.stateless_fold_in
    seed = fold_in(self.key, self.step)
    for number in numbers:
      seed = fold_in(seed, number)
    return seed


class Method(tf.keras.Model):
  """A Keras model that trains the network it is given.

  A subclass has the class of its settings in `config_class` and gives `plan`,
  `prepare`, `train_step`, `ledger_parameters`, `count_steps` and
  `privacy_statement`; see `methods.dp_sgd` and `methods.dpal`.

  Args:
    network: any Keras classifier that returns logits.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    **kwargs: Keras' own.
  """

  config_class: type

  def __init__(
    self,
    network: tf.keras.Model,
    config: Any = None,
    record: dict[str, Any] | None = None,
    **kwargs,
  ):
    super().__init__(**kwargs)
    if models.returns_probabilities(network):
      raise ValueError(
        f"Expected a network that returns logits, received {network.name!r},"
        " which ends in a softmax. Pass models.as_logits(network)."
      )
    self.network = network
    self.config = config or self.config_class()
    self._run_record = dict(record or {})
    self._compile_arguments = None

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
      optimizer=optimizer or self.make_optimizer(None),
      loss=loss
      or tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      metrics=["accuracy"] if metrics is None else metrics,
      **kwargs,
    )

  def make_optimizer(self, steps: int | None) -> tf.keras.optimizers.Optimizer:
    """The optimizer of the config; `steps` is the length of its schedule."""
    raise NotImplementedError

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> Any:
    """Sampler and steps for a training set of this size, before any cost."""
    raise NotImplementedError

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Builds what `train_step` uses."""
    raise NotImplementedError

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """What a resumed run must have in common with the one it goes on with."""
    raise NotImplementedError

  def spent_dp_epsilon(self, steps: int) -> float | None:
    """The proven figure after `steps` steps; None where none is known."""
    raise NotImplementedError

  def count_steps(self, steps: int, sessions: int) -> None:
    """Notes what was released so far, for the statement."""
    raise NotImplementedError

  def privacy_statement(self) -> privacy.PrivacyStatement:
    """Claimed, proven and audited privacy of the weights as they are now."""
    raise NotImplementedError

  def certifier(self):
    """None: the network has no certificate of its own; it can be smoothed."""
    return None

  def check_value_range(self, value_range: tuple[float, float]) -> None:
    """What a method requires of the declared range of the inputs."""

  def begin(self, x, y, run_dir, resume: bool, value_range) -> None:
    """What is released before the first step and the plan; default nothing."""

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
    shape = input_shape(self.network) or x.shape[1:]
    self.check_value_range(value_range)
    validate.examples(value_range, 1 + len(shape), x_train=x)
    _require_shape(shape, x_train=x)
    classes = self.network(tf.zeros([1, *shape])).shape[-1]
    validate.labels(classes, len(x), y_train=y)
    if validation_data is not None:
      x_test, y_test = validation_data
      validate.examples(value_range, 1 + len(shape), x_test=x_test)
      _require_shape(shape, x_test=x_test)
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
    if resume and run_dir is None:
      raise ValueError("Expected run_dir with resume=True, received None.")
    self.begin(x, y, run_dir, resume, value_range)
    plan = self.plan(len(x), shape)
    if not self.optimizer or self._compile_arguments is not None:
      arguments = dict(self._compile_arguments or {})
      self.compile(optimizer=self.make_optimizer(plan.steps), **arguments)
    self._plan = plan
    self.prepare(plan, shape, value_range, classes)
    self.make_train_function(force=True)
    run = training_session.Session.open(self, plan, run_dir, resume)
    return run.train(x, y, validation_data, list(callbacks), verbose)

  def state_variables(self) -> list[tf.Variable]:
    """All that a checkpoint must hold to go on."""
    return [
      *self.network.variables,
      *self.optimizer.variables,
      *self._state.averages,
    ]

  @property
  def run_record(self) -> dict[str, Any]:
    """What the training released: steps, sessions, noise, sampling."""
    return dict(self._run_record)

  def set_session(self, key: np.ndarray, step: int) -> None:
    """Starts a session: fresh randomness, steps counted on."""
    self._state.key.assign(key)
    self._state.step.assign(step)

  def swap_average(self) -> None:
    """Exchanges the trained weights and their moving average, if kept."""
    pairs = zip(self._state.averages, self.network.trainable_variables)
    for average, variable in pairs:
      value = tf.identity(variable)
      variable.assign(average)
      average.assign(value)

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
  def from_config(cls, config: dict[str, Any], custom_objects=None) -> Method:
    """For loading."""
    config = dict(config)
    network = tf.keras.saving.deserialize_keras_object(
      config.pop("network"), custom_objects=custom_objects
    )
    settings = cls.config_class(**config.pop("config"))
    return cls(network, settings, **config)


def input_shape(network: tf.keras.Model) -> tuple[int, ...] | None:
  """Shape of one input where the network knows it: a subclass may not."""
  shape = getattr(network, "input_shape", None)
  return tuple(shape[1:]) if isinstance(shape, tuple) else None


def _require_shape(shape: Sequence[int], **arrays: np.ndarray) -> None:
  """Refuses inputs of another shape than the network's, before any cost."""
  for name, array in arrays.items():
    if tuple(np.shape(array)[1:]) != tuple(shape):
      raise ValueError(
        f"Expected {name} with examples of shape {tuple(shape)}, which the"
        f" network takes, received {tuple(np.shape(array)[1:])}."
      )


def require_unit_range(value_range: tuple[float, float], name: str) -> None:
  """Refuses inputs beyond [-1, 1], where a sensitivity rests on |x| <= 1."""
  low, high = value_range
  if low < -1 or high > 1:
    raise ValueError(
      f"Expected inputs in [-1, 1], which {name}'s sensitivities rest on,"
      f" received value_range={tuple(value_range)}. Rescale the data set"
      " (Dataset.rescaled, or --value_range=-1,1)."
    )


def require_batch_size(x: tf.Tensor, batch_size: int) -> None:
  """Refuses a batch that noise per batch was not calibrated for."""
  if x.shape[0] != batch_size:
    raise ValueError(
      f"Expected batches of batch_size={batch_size}, which the noise was"
      f" calibrated for, received {x.shape[0]}."
    )
