"""What all training methods share: checks, fit, run folder, save and load."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Callable

import numpy as np
import tensorflow as tf

from tf_privrob import data
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob import run_folder
from tf_privrob import validate
from tf_privrob.methods import checks
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.methods import proven
from tf_privrob.methods import run_files
from tf_privrob.methods import session as training_session
from tf_privrob.methods import settings as settings_lib
from tf_privrob.models.files import rebuilding


class RunState:
  """Counters of a run. Keras does not track it, so no model file holds a key.

  Attributes:
    key: seed of a step's public draws (augmentation, attacks, projections); it
      tells nothing of noise and sampling, which have keys of their own.
    step: logical steps begun, over all sessions.
    averages: moving averages of the weights.
  """

  def __init__(self, averaged: Sequence[tf.Variable] = ()):
    self.key = tf.Variable([0, 0], dtype=tf.int64, trainable=False)
    self.step = tf.Variable(0, dtype=tf.int64, trainable=False)
    self.averages = [
      tf.Variable(variable, trainable=False) for variable in averaged
    ]

  def seed(self, *numbers: int) -> tf.Tensor:
    """The seed of the step, folded with the numbers of a stream."""
    return randomness.fold_in(tf.convert_to_tensor(self.key), *numbers)


class _Record(dict):
  """What a training released. Keras makes checkpoints of plain dicts only."""


class Method(tf.keras.Model):
  """A Keras model that trains the network it is given.

  A subclass has the class of its settings in `config_class` and gives `plan`,
  `prepare`, `train_step`, `ledger_parameters`, `count_steps` and `statement`;
  see `methods.dp_sgd` and `methods.dpal`. Whatever its steps learn from data
  goes through `self.outlet` and `apply`.

  Args:
    network: any Keras classifier that returns logits.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    public_weights: why the weights that the network has now do not depend on
      the private data, e.g. "trained on ImageNet"; they are then kept. None:
      `fit` draws all weights anew, as the network's own configuration says.
    **kwargs: Keras' own.

  Attributes:
    run_state: counters of the run, which `prepare` makes.
    settled_plan: what `fit` or `simulate` settled by `plan`; None before.
    planted: canaries that take part in the training, for an audit of it; to be
      set before `fit`. None: there are none.
  """

  config_class: type
  run_state: RunState
  # Which layers a subclass freezes and sets itself, before the first step.
  _own_layers: tuple[tf.keras.layers.Layer, ...] = ()

  def __init__(
    self,
    network: tf.keras.Model,
    config: Any = None,
    record: dict[str, Any] | None = None,
    public_weights: str | None = None,
    **kwargs,
  ):
    super().__init__(**kwargs)
    if models.returns_probabilities(network):
      raise ValueError(
        f"Expected a network that returns logits, received {network.name!r},"
        " which ends in a softmax or sigmoid. Pass models.as_logits(network)."
      )
    checks.require_settings(config, self.config_class)
    if public_weights is not None and not str(public_weights).strip():
      raise ValueError(
        "Expected public_weights to say why the weights do not depend on the"
        f" private data, received {public_weights!r}."
      )
    self.network = network
    self._settings = config or self.config_class()
    self._public_weights = public_weights
    self._run_record = _Record(record or {})
    self._compile_arguments = None
    self.settled_plan = None
    self.planted = None
    self._session = None
    self._outlet = None

  def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    """Logits."""
    return self.network(inputs, training=training)

  @property
  def bounded_network(self) -> tf.keras.Model:
    """What `call` is, for whoever reads layers: see `models.graph`."""
    return self.network

  def compile(self, optimizer=None, loss=None, metrics=None, **kwargs):
    """Keras' own; what is not given is taken from the config."""
    if kwargs.get("steps_per_execution") not in (None, 1):
      raise ValueError(
        "Expected steps_per_execution=1: every step is paid for in the ledger"
        " before it runs."
      )
    if kwargs.get("run_eagerly"):
      raise ValueError(
        "Expected run_eagerly=False: a step is checked once, as a graph, and"
        " must stay what was checked."
      )
    if kwargs.get("jit_compile"):
      raise ValueError(
        "Expected jit_compile in the settings, which compile the gradients; a"
        " whole step draws its noise outside of XLA."
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

  def make_train_function(self, force: bool = False):
    """Keras' own, but only for the model's own `fit`, once for each call."""
    if self._session is None or not self._session.permits_training():
      raise ValueError(
        "Expected training by the model's own fit, which pays for every step;"
        " received Keras' fit or train_on_batch."
      )
    return super().make_train_function(force)

  @classmethod
  def has_fixed_batches(cls, config: Any) -> bool:
    """Whether all batches have one size, so that records can only be replaced.

    An audit of such a method has a record replaced, not removed.
    """
    del config
    return False

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

  def statement(self) -> privacy.PrivacyStatement:
    """Claimed and proven figures of what the outlet counted."""
    raise NotImplementedError

  @property
  def run_facts(self) -> privacy.RunFacts:
    """How the training was run, as far as the record knows."""
    record = self._run_record
    return privacy.RunFacts(
      ledger=record.get("in_ledger", False),
      randomness="seed" if record.get("seeded", True) else "operating_system",
      fresh_weights=record.get("initial_weights") == "drawn",
      public_weights=record.get("public_weights", ""),
      callbacks_saw_metrics=record.get("nonprivate_logs", False),
      moved=record.get("moved", False),
    )

  def privacy_statement(self) -> privacy.PrivacyStatement:
    """Claimed, proven and audited privacy of the weights as they are now.

    Proven is what `statement` says, where all that it rests on was seen: the
    method and sampler are among those that the tests run on neighbours
    (`methods.proven`), the outlet counted every step with the noise that is
    accounted, the initial weights were drawn by `fit` or declared public, and
    the weights are those that were released.
    """
    if self._session is not None:
      self._session.note()
    record = self._run_record
    found = proven.complete(self, self.statement())
    if self.planted is not None:
      found = found.replace(caveats=(*found.caveats, proven.PLANTED))
    return found.replace(
      run_id=record.get("run"), weights=record.get("weights")
    )

  def note_foreign_weights(self) -> None:
    """Notes that weights were changed by something else than a release."""
    self.session.remember("foreign_weights")

  @property
  def has_released_weights(self) -> bool:
    """Whether the weights are those that a training released.

    While a training goes on: those that its last step left.
    """
    return self._released_weights in (None, models.fingerprint(self))

  @property
  def _released_weights(self) -> str | None:
    """Fingerprint of what was released last; None: nobody could change it."""
    if self._session is None:
      return self._run_record.get("weights", "")
    watch = self._session.watch
    return watch and watch.weights

  def certifier(self):
    """None: the network has no certificate of its own; it can be smoothed."""
    return None

  def check_value_range(self, value_range: tuple[float, float]) -> None:
    """What a method requires of the declared range of the inputs."""

  def check_data(self, x: np.ndarray, y: np.ndarray, value_range) -> None:
    """What a method requires of the data, before anything is released."""

  def begin(self, x, y, value_range) -> None:
    """What is released before the first step and the plan; default nothing."""

  def given(self) -> dict[str, Any]:
    """What it was given besides its settings, for a resume to compare.

    JSON values that all may see: hashes of what is public, and none of private
    data.
    """
    return {}

  @property
  def config(self) -> Any:
    """The settings; not to be exchanged, since the statement rests on them."""
    return self._settings

  def may_end(self) -> str | None:
    """Names an operation by which one example may end a training, or None."""

  @property
  def public_weights(self) -> str | None:
    """Why the weights that the network came with are public, if declared."""
    return self._public_weights

  @property
  def draws_initial_weights(self) -> bool:
    """Whether a new run begins with weights that `fit` draws."""
    return self._public_weights is None

  @property
  def drawn_part(self) -> tf.keras.Model:
    """What of the network begins with weights that `fit` draws: all of it."""
    return self.network

  def draw_initial_weights(self, key: randomness.Key) -> None:
    """Gives it fresh weights, as its own configuration says."""
    models.redraw(self.drawn_part, key, self._own_layers)

  @property
  def outlet(self) -> outlet_lib.Outlet:
    """What every release of a step goes through."""
    if self._outlet is None:
      raise ValueError(
        "Expected a training in progress: nothing can be released. Call fit."
      )
    return self._outlet

  def apply(
    self,
    released: outlet_lib.Released,
    variables: Sequence[tf.Variable],
    optimizer: tf.keras.optimizers.Optimizer | None = None,
  ) -> None:
    """Updates weights by what has been released, the only way to do so."""
    if not isinstance(released, outlet_lib.Released):
      raise TypeError(
        "Expected what an Outlet released, received"
        f" {type(released).__name__}: it would be neither counted nor noisy."
      )
    pairs = zip(released.tensors, variables)
    (optimizer or self.optimizer).apply_gradients(pairs)

  def fit(
    self,
    x: np.ndarray | data.Dataset,
    y: np.ndarray | None = None,
    *,
    value_range: tuple[float, float] = (0.0, 1.0),
    validation_data: tuple[np.ndarray, np.ndarray] | None = None,
    run_dir: str | os.PathLike | None = None,
    resume: bool = False,
    callbacks: Sequence[tf.keras.callbacks.Callback] | None = None,
    nonprivate_logs: bool = False,
    verbose: int = 1,
    about: Mapping[str, Any] | None = None,
    **unknown: Any,
  ) -> tf.keras.callbacks.History:
    """Trains within the budget; everything is checked before it is touched.

    Args:
      x: training inputs [n, ...], or a `Dataset`, whose test part then serves
        as validation data.
      y: sparse labels [n].
      value_range: declared range of the inputs; a `Dataset` knows its own.
      validation_data: evaluated after each epoch; taken to be public.
      run_dir: run folder for ledger, checkpoints, history and TensorBoard,
        and for settings, statement and model when the training has ended.
        Without it nothing is written and nothing can be resumed.
      resume: go on with the run in `run_dir`.
      callbacks: Keras callbacks. They see public logs only, so that whatever
        they decide (to stop, to lower a rate) costs nothing. They may set the
        learning rate; where one sets weights, be it to earlier ones
        (restore_best_weights), nothing is proven any more.
      nonprivate_logs: show callbacks what was computed on private data without
        noise, under `nonprivate/`; the statement then says so.
      verbose: 0 is silent.
      about: What config.json is to say in place of its own words, such as the
        name that the network is built by.
      **unknown: what Keras' fit takes besides, such as `epochs`; refused, since
        the settings have it.

    Returns:
      Keras' history of the last epochs; what is called `nonprivate/` in it has
      no noise.
    """
    checks.refuse_arguments(unknown, self.config)
    started, given = time.monotonic(), x
    if isinstance(x, data.Dataset):
      dataset, value_range = x, x.value_range
      x, y = dataset.x_train, dataset.y_train
      validation_data = validation_data or (dataset.x_test, dataset.y_test)
    if resume and run_dir is None:
      raise ValueError("Expected run_dir with resume=True, received None.")
    if run_dir is not None and self.planted is not None:
      raise ValueError(
        "Expected no run_dir for a training with canaries, received"
        f" {os.fspath(run_dir)!r}: what is seen of them tells exact sums, so"
        " that nothing of it is kept."
      )
    callbacks = checks.callback_list(callbacks)
    # Where it is now, whatever the working directory becomes.
    folder = run_dir and run_folder.RunFolder(os.path.abspath(run_dir))

    def describe():
      one = tf.zeros([1, *np.shape(x)[1:]])
      classes = self.network(one).shape[-1]
      return run_files.describe_data(
        given, classes, value_range, validation_data
      )

    def note():
      if folder:
        run_files.begin(folder, self, describe(), about or {})

    with models.claimed(self.network):
      history = self._fit(
        x,
        y,
        value_range,
        validation_data,
        run_dir,
        resume,
        callbacks,
        nonprivate_logs,
        verbose,
        note,
      )
    if folder:
      run_files.finish(folder, self, describe(), started)
    return history

  def _fit(
    self,
    x,
    y,
    value_range,
    validation_data,
    run_dir,
    resume: bool,
    callbacks,
    nonprivate_logs: bool,
    verbose: int,
    note: Callable[[], None],
  ) -> tf.keras.callbacks.History:
    """The order of events in `fit`: look, rehearse, pay, note, train."""
    self._refuse_second_training()
    checks.refuse_replicas(self)
    checks.refuse_eager_functions()
    shape, classes = self._check(x, y, value_range, validation_data)
    x, y = np.asarray(x, np.float32), np.asarray(y).astype(np.int64)
    self.check_data(x, y, value_range)
    root = randomness.Key.of(self.config.seed)
    self._start_weights(root.child("initial weights"), resume)
    session = training_session.Session(self, root)
    self._outlet = session.outlet
    try:
      self._settle_plan(len(x), shape, value_range, classes)
      session.rehearse(shape, value_range, classes, validation_data is not None)
      session.open(
        run_dir, resume, (x, y), value_range, callbacks, nonprivate_logs
      )
      with session.remembering():
        self.begin(x, y, value_range)
      if self._with_canaries(len(x), shape) != self.settled_plan:
        self._settle_plan(len(x), shape, value_range, classes)
      session.settle()
      note()  # never over the files of another run, which is refused by now
      return session.train(
        x, y, validation_data, callbacks, nonprivate_logs, verbose
      )
    finally:
      session.close()
      self._outlet = None

  def _check(
    self, x, y, value_range, validation_data
  ) -> tuple[tuple[int, ...], int]:
    """Refuses data that do not fit; the shape of an input and the classes."""
    x = np.asarray(x)
    validate.value_range(value_range)
    checks.require_one_input(self.network)
    shape = checks.input_shape(self.network) or x.shape[1:]
    self.check_value_range(value_range)
    validate.examples(value_range, 1 + len(shape), x_train=x)
    checks.require_shape(shape, x_train=x)
    checks.require_float32(self.network)
    classes = checks.num_classes(self.network, shape)
    validate.labels(classes, len(x), y_train=np.asarray(y))
    if validation_data is not None:
      x_test, y_test = validation_data
      validate.examples(value_range, 1 + len(shape), x_test=x_test)
      checks.require_shape(shape, x_test=x_test)
      validate.labels(classes, len(x_test), y_test=y_test)
    return tuple(shape), classes

  def _refuse_second_training(self) -> None:
    if self._run_record.get("steps"):
      raise ValueError(
        f"This model has been trained for {self._run_record['steps']} steps: a"
        " second fit would release more than its statement says. Wrap a fresh"
        " network; with resume=True its weights come from the run folder."
      )
    earlier = models.released(self.network)
    if earlier is not None:
      raise ValueError(
        f"Expected a network that was not trained before, received"
        f" {self.network.name!r}, whose weights carry {earlier.get('steps', 0)}"
        " releases of an earlier training: no statement would count both. Build"
        " a fresh network."
      )

  def _start_weights(self, key: randomness.Key, resume: bool) -> None:
    """Draws the weights that a new run begins with, or keeps declared ones."""
    if not self.draws_initial_weights:
      checks.require_finite(self.network)
      if self._public_weights is not None:
        self._run_record.update(
          initial_weights="public", public_weights=self._public_weights
        )
      return
    signs = models.signs_of_training(self.drawn_part)
    if signs and not resume:
      raise ValueError(
        f"Expected a fresh network, whose weights fit draws anew, received"
        f" {self.network.name!r}, which shows signs of training: {signs}. Pass"
        " public_weights='why they do not depend on the private data' to keep"
        " its weights, or build it again."
      )
    self.draw_initial_weights(key)
    self._run_record.pop("public_weights", None)
    self._run_record["initial_weights"] = "drawn"

  def _settle_plan(self, num_examples, shape, value_range, classes) -> None:
    """Plans, compiles and builds what the steps use."""
    plan = self._with_canaries(num_examples, shape)
    if not self.optimizer or self._compile_arguments is not None:
      arguments = dict(self._compile_arguments or {})
      self.compile(optimizer=self.make_optimizer(plan.steps), **arguments)
      self._compile_arguments = arguments
    self.settled_plan = plan
    self.prepare(plan, shape, value_range, classes)
    checks.require_new_optimizer(self.optimizer, self.optimized_variables)
    self.outlet.forget_traces()
    self.train_function = None  # traced anew, with this plan

  def _with_canaries(self, num_examples: int, shape) -> Any:
    """The plan, with the canaries of an audit among those that take part."""
    plan = self.plan(num_examples, shape)
    if self.planted is None:
      return plan
    return dataclasses.replace(plan, sampler=self.planted.sampler(plan.sampler))

  def simulate(
    self,
    num_examples: int,
    value_range: tuple[float, float] = (0.0, 1.0),
    outlet: outlet_lib.Simulation | None = None,
  ) -> outlet_lib.Simulation:
    """Makes `train_step` run outside of `fit`: for audits, tests, benchmarks.

    Nothing is counted. `statement` then says what such steps would cost from
    public weights; `privacy_statement` proves nothing of them.

    Args:
      num_examples: n of the plan.
      value_range: of the inputs.
      outlet: what the steps release through; None: one with new noise.
    """
    shape = checks.input_shape(self.network)
    classes = self.network.output_shape[-1]
    self._outlet = outlet or outlet_lib.Simulation(randomness.Key.of(None))
    self._settle_plan(num_examples, shape, value_range, classes)
    self._run_record.update(public_weights="those of a simulation")
    return self._outlet

  def state_variables(self) -> list[tf.Variable]:
    """All that a checkpoint must hold to go on."""
    return [
      *self.network.variables,
      *self.optimizer.variables,
      *self.run_state.averages,
    ]

  @property
  def run_record(self) -> dict[str, Any]:
    """What the training released: steps, sessions, noise, sampling."""
    return dict(self._run_record)

  @property
  def optimized_variables(self) -> Sequence[tf.Variable]:
    """What the optimizer was built for."""
    return self.network.trainable_variables

  @property
  def session(self) -> training_session.Session:
    """The training in progress."""
    if self._session is None:
      raise ValueError("Expected a training in progress, received none.")
    return self._session

  @property
  def sampler(self) -> data.Sampler:
    """Of the plan that `fit` or `simulate` settled."""
    return self.settled_plan.sampler

  @property
  def planned_steps(self) -> int:
    """Steps of the whole run."""
    return self.settled_plan.steps

  def begin_session(self) -> None:
    """What a method draws once, when its first session begins."""

  def take_run_key(self, key: randomness.Key) -> None:
    """What a method makes of a secret key that all sessions of a run share.

    It is in no file that a run shows.
    """

  def set_step(self, seed: np.ndarray, step: int) -> None:
    """Begins a step: its public seed and its number."""
    self.run_state.key.assign(seed)
    self.run_state.step.assign(step)

  def swap_average(self) -> None:
    """Exchanges the trained weights and their moving average, if kept."""
    pairs = zip(self.run_state.averages, self.network.trainable_variables)
    for average, variable in pairs:
      value = tf.identity(variable)
      variable.assign(average)
      average.assign(value)

  def get_config(self) -> dict[str, Any]:
    """For saving: network, settings and what the training released."""
    settings = settings_lib.described(self.config)
    settings["seed"] = None  # whoever knows it can subtract the noise
    if self._session is not None:
      self._session.note()
    record = dict(self._run_record)
    if self._session is not None:  # saved by a callback
      record["weights"] = self._released_weights or models.fingerprint(self)
    return {
      "name": self.name,
      "network": tf.keras.saving.serialize_keras_object(self.network),
      "config": settings,
      "record": record,
    }

  @classmethod
  def from_config(cls, config: dict[str, Any], custom_objects=None) -> Method:
    """For loading; the network is built of known layers only."""
    config = dict(config)
    with tf.keras.saving.custom_object_scope(custom_objects or {}):
      network = rebuilding.rebuild(config.pop("network"))
    settings = settings_lib.restored(cls.config_class, config.pop("config"))
    return cls(network, settings, **config)
