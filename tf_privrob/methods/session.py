"""A stretch of training: rehearses, pays, trains, writes; and can be resumed.

Order of events: one step on synthetic data, so that whatever can go wrong does
so before anything is paid; then the ledger is opened, and for every step the
outlet charges it, on disk, before the noisy sum exists; the checkpoint follows
the step. A killed run therefore counts at least the steps that its weights have
seen, and loses at most the steps since its last checkpoint (one by default).
Every session has a key of its own, so a step that is run again after a crash is
a new release, with new noise, and is paid for again.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import warnings
from collections.abc import Iterator
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tf_privrob import files
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import checkpoint
from tf_privrob.methods import identity
from tf_privrob.methods import journal as journal_lib
from tf_privrob.methods import outlet as outlet_lib

_VALIDATION_BATCH = 1000
_REHEARSED_ROWS, _REHEARSED_STEPS = 16, 2
_LEDGER, _CHECKPOINTS = "ledger.jsonl", "checkpoints"
_MAY_END = (
  "No privacy will be proven: one example may end this training by the"
  " operation {}, and whether it ended tells of that example. The usual cause"
  " is a look-up, a size or a divisor that is computed from the input. Use"
  " operations that answer for all numbers, such as a product with tf.one_hot."
)


class Session:
  """One session of a run.

  Args:
    model: the method.
    root: key of the run's randomness.

  Attributes:
    outlet: what the steps of this session release through.
    watch: what sees whether callbacks change weights; None before training.
  """

  def __init__(self, model, root: randomness.Key):
    self._model = model
    self._root = root
    self._folder = self._ledger = self._key = None
    self._resumed = self._permitted = self._finished = False
    self.outlet = outlet_lib.Outlet()
    self.watch: journal_lib.Watch | None = None

  # Before anything is paid.

  def rehearse(
    self, shape, value_range, num_classes: int, validates: bool
  ) -> None:
    """Two steps on synthetic data, after which everything is as before.

    Whatever would stop the first steps (memory, types, a rate that overflows)
    stops here, before any budget is spent.
    """
    model = self._model
    rng = np.random.default_rng(0)
    rows = rng.uniform(*value_range, (_REHEARSED_ROWS, *shape))
    labels = rng.integers(0, num_classes, _REHEARSED_ROWS)
    variables = [
      *model.state_variables(),
      model.run_state.key,
      model.run_state.step,
    ]
    before = [variable.numpy() for variable in variables]
    try:
      batches = iter(_rehearsed(model.sampler, rows.astype("float32"), labels))
      with self.outlet.rehearsal(), self._training():
        self._permitted = True
        step = model.make_train_function()
        for _ in range(_REHEARSED_STEPS):
          step(batches)
      overflown = _overflown(model.network, rows)
      if validates:
        _rehearse_validation(model, rows.astype("float32"), labels)
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
      raise ValueError(
        "Expected chunks that fit into memory, received physical_batch_size="
        f"{getattr(model.sampler, 'physical_batch_size', len(rows))}."
        " Lower it; the result stays the same."
      ) from error
    finally:
      for variable, value in zip(variables, before):
        variable.assign(value)
    self._note_endings()
    if overflown:
      names = ("learning_rate", "l2_clip_norm")
      found = {name: getattr(model.config, name, None) for name in names}
      said = " and ".join(f"{k}={v}" for k, v in found.items() if v is not None)
      raise ValueError(
        "Expected weights and logits that stay finite, but two steps on"
        f" synthetic data made {overflown} overflow with {said}. Lower them."
      )

  def _note_endings(self) -> None:
    """Notes an operation by which one example may end the training."""
    model = self._model
    model._run_record.pop("may_end", None)
    found = model.may_end()
    if found:
      model._run_record["may_end"] = found
      if getattr(model.settled_plan, "noise_multiplier", 1.0):
        warnings.warn(_MAY_END.format(found), stacklevel=5)

  def open(
    self,
    run_dir,
    resume: bool,
    data,
    value_range,
    callbacks=(),
    nonprivate_logs: bool = False,
  ) -> None:
    """Opens or resumes the run in `run_dir`."""
    model, record = self._model, self._model._run_record
    parameters = identity.parameters(model, data, value_range)
    made = record.setdefault("made_once", {})
    if run_dir is not None:
      _refuse_made(made)
      folder = pathlib.Path(run_dir).absolute()
      self._resumed = resume
      if resume:
        self._refuse_resume(folder)
      identity.make_folder(folder)
      if not resume:
        identity.require_fresh(folder)
      self._ledger = privacy.Ledger.open(folder / _LEDGER, parameters, resume)
      self._folder = folder
      identity.bind(folder, self._ledger.run, data, model.config.seed, resume)
      if record.get("may_end"):
        self._ledger.note_fact("may_end")
      record.update({f: record.get(f) or True for f in self._ledger.facts})
    if nonprivate_logs:
      self.remember("nonprivate_logs")
    if model.config.seed is None or resume:
      # A session that goes on repeats nothing, whatever was put back.
      self._key = randomness.Key.of(None)
    else:
      digest = identity.digest(model, parameters, data, callbacks)
      self._key = self._root.child("run", digest)
    self.outlet.open(self._key.child("noise"), self._ledger, self._folder, made)

  def remember(self, fact: str) -> None:
    """Notes what bears on the proof, for later sessions of the run too."""
    self._model._run_record[fact] = True
    if self._ledger is not None:
      self._ledger.note_fact(fact)
      checkpoint.bind(self._folder / _CHECKPOINTS, self._ledger.checksum)

  def _refuse_resume(self, folder: pathlib.Path) -> None:
    plan = self._model.settled_plan
    if not os.path.exists(folder / _LEDGER):
      raise ValueError(
        f"Expected a run to resume in {folder}, found no {_LEDGER}. If the run"
        " never began, start it without resume; if the file was lost, the steps"
        " that its weights have seen are unknown: begin a new run_dir."
      )
    if plan.sampler.kind == "shuffle" and plan.noise_multiplier:
      raise ValueError(
        "Expected sampler='poisson' to resume a private run: a resumed shuffle"
        " deals an epoch anew, so an example may take part twice in it and the"
        " budget would not cover that."
      )

  def settle(self) -> None:
    """Binds the run to its plan, and restores what earlier sessions left."""
    model, plan = self._model, self._model.settled_plan
    self.outlet.limit_to(plan.limit)
    if self._ledger is None:
      return
    self.outlet.require_all_asked()
    self._ledger.settle(model.ledger_parameters(plan), plan.limit)
    if not self._resumed:
      self.save()
      return
    ledger = self._ledger
    checkpoint.restore(
      self._folder / _CHECKPOINTS,
      model.state_variables(),
      ledger.run,
      ledger.steps,
      ledger.knows,
    )

  # Training.

  def train(
    self, x, y, validation_data, callbacks, nonprivate_logs: bool, verbose
  ) -> tf.keras.callbacks.History:
    """Runs the steps that are left; returns the history of this session."""
    model, plan = self._model, self._model.settled_plan
    models.mark_released(model.network.variables, dict(model._run_record))
    self.begin_step()
    model.take_run_key(self._lasting_key())
    model.begin_session()
    if model.planted is not None:
      model.planted.begin()
    journal = journal_lib.Journal(model, self, self._folder, verbose)
    self.watch = journal_lib.Watch(model, self, active=bool(callbacks))
    self.watch.look()
    if not nonprivate_logs:
      public = journal_lib.PublicHistory()
      callbacks = [public, *map(journal_lib.PublicLogs, callbacks)]
    with self._training(), journal.interrupted_well():
      for start, epochs, steps in self._blocks():
        batches = plan.sampler.batches(
          x, y, self._key.child("sampling"), start, epochs * steps
        )
        first = start // plan.round_steps
        self._permitted = True
        tf.keras.Model.fit(
          model,
          batches,
          initial_epoch=first,
          epochs=first + epochs,
          steps_per_epoch=steps,
          validation_data=validation_data,
          validation_batch_size=_VALIDATION_BATCH,
          callbacks=[journal, *callbacks, self.watch],
          verbose=0,
        )
        if model.stop_training:
          break
      self.watch.compare()
      self.require_finite()
      model.swap_average()
      self._finished = True
    model.history = journal.history
    return journal.history

  def _blocks(self):
    """(first step, epochs, steps an epoch): Keras' epochs have one length."""
    plan = self._model.settled_plan
    end, length = plan.steps, plan.round_steps
    start = self.outlet.steps
    if start < end and start % length:
      rest = min(length - start % length, end - start)
      yield start, 1, rest
      start += rest
    whole = (end - start) // length
    if whole > 0:
      yield start, whole, length
      start += whole * length
    if start < end:
      yield start, 1, end - start

  def _lasting_key(self) -> randomness.Key:
    """A secret of the run: the same in all its sessions."""
    if self._folder is None or self._model.config.seed is not None:
      return self._root.child("lasting")
    return identity.lasting_key(self._folder)

  @contextlib.contextmanager
  def _training(self) -> Iterator[None]:
    """While it lasts, the model trains; errors of the outlet come out so."""
    self._model._session = self
    try:
      with self.remembering():
        try:
          yield
        except tf.errors.OpError:
          if self.outlet.failure is None:
            raise
          raise self.outlet.failure from None
    finally:
      self._model._session = None

  @contextlib.contextmanager
  def remembering(self) -> Iterator[None]:
    """Notes an error within it that an example may have caused."""
    try:
      yield
    except Exception as error:
      if _may_be_of_an_example(error):
        self.remember("ended_by_error")
      raise

  def permits_training(self) -> bool:
    """Whether Keras may train now; a callback that tries to may not."""
    permitted, self._permitted = self._permitted, False
    return permitted

  def begin_step(self) -> None:
    """Gives the coming step its public seed; refuses one beyond the budget."""
    number = self.outlet.steps
    seed = self._key.child("step", number).stateless_seed()
    self._model.set_step(seed, number)

  def nonprivate_rows(self) -> np.ndarray:
    """Who takes part in the coming step: for audits, which know everything."""
    sampler = self._model.sampler
    return sampler.indices(self._key.child("sampling"), self.outlet.steps)

  def note(self) -> None:
    """Writes into the record what was released so far."""
    record = self._model._run_record
    steps = self.outlet.steps
    if not steps or self._key is None:
      return
    sessions = self._ledger.session + 1 if self._ledger else 1
    self._model.count_steps(steps, sessions)
    record.update(
      outlet_multiplier=self.outlet.noise_multiplier,
      seeded=self._model.config.seed is not None,
      in_ledger=self._ledger is not None,
    )
    if self._ledger:
      record.update(run=self._ledger.run, moved=self._ledger.moved)

  def save(self) -> None:
    """Writes a checkpoint that is bound to the run and to what it paid."""
    ledger = self._ledger
    if ledger is not None:
      checkpoint.save(
        self._folder / _CHECKPOINTS,
        ledger.steps,
        self._model.state_variables(),
        ledger.run,
        ledger.steps,
        ledger.checksum,
      )

  def require_finite(self) -> None:
    """Stops a training whose weights, which are released, have diverged."""
    name = _not_finite(self._model.network)
    if name:
      spent = self._model.spent_dp_epsilon(self.outlet.steps)
      if spent is None:
        spent = "no known budget"
      else:
        spent = f"dp_epsilon {privacy.rounded_up(spent)}"
      raise ValueError(
        f"The weights diverged: {name!r} is NaN or infinite after step"
        f" {self.outlet.steps}, which has cost {spent}. Lower the learning rate"
        " and begin a new run."
      )

  def close(self) -> None:
    """Ends the session, however it went: counts, and lets the ledger go."""
    try:
      self.note()
      if self.outlet.steps and self._key is not None:
        network, record = self._model.network, self._model._run_record
        # An interruption may have come before anybody compared.
        interrupted = self.watch is not None and not self._finished
        expected = self.watch.expected if interrupted else None
        record["weights"] = expected or models.fingerprint(self._model)
        models.mark_released(network.variables, dict(record))
    finally:
      self.outlet.close()
      if self._ledger is not None:
        self._ledger.close()


def _refuse_made(made: Mapping[str, int]) -> None:
  """Refuses a ledger that would begin after what it is to count."""
  if made:
    raise ValueError(
      f"Expected a method that has released nothing, received one that made"
      f" {min(made)!r} in memory, which no ledger has counted. Build a fresh"
      " one, or fit without run_dir."
    )


def _may_be_of_an_example(error: BaseException | None) -> bool:
  """Whether an example may have caused it, so that the end tells of the data.

  Not an interruption, a budget that is spent, or a disk.
  """
  of_the_ledger = (privacy.BudgetExceeded, privacy.LedgerError)
  public = (OSError, files.DiskError, *of_the_ledger)
  return isinstance(error, Exception) and not isinstance(error, public)


def _rehearsed(sampler, x, y) -> tf.data.Dataset:
  """Elements like those of the training, so that a step is traced once."""
  alike = [
    np.broadcast_to(rows[:1], (sampler.num_examples, *rows.shape[1:]))
    for rows in (x, y)
  ]
  real = sampler.batches(*alike, randomness.Key.of(None), 0, 1)
  element = sampler.rehearsal(x, y)
  return tf.data.Dataset.from_generator(
    lambda: [element] * _REHEARSED_STEPS, output_signature=real.element_spec
  )


def _overflown(network: tf.keras.Model, rows: np.ndarray) -> str | None:
  """A weight, or the logits of these rows, if they are not finite."""
  found = _not_finite(network)
  if found is None:
    logits = network(tf.constant(rows, tf.float32), training=False)
    found = None if np.isfinite(logits.numpy()).all() else "the logits"
  return found


def _rehearse_validation(model, rows: np.ndarray, labels: np.ndarray) -> None:
  """Loss and metrics that do not fit fail here, not after paid steps."""
  try:
    model.evaluate(rows, labels, verbose=0)
  except Exception as error:  # whatever a metric of the user raises
    said = " ".join(str(error).split())[-200:]
    raise ValueError(
      "Expected a loss and metrics that take logits and sparse labels, received"
      f" some that raise {type(error).__name__}: {said}. Compile with others."
    ) from error
  model.reset_metrics()


def _not_finite(network: tf.keras.Model) -> str | None:
  """The first weight that is NaN or infinite."""
  for weight in network.weights:
    if weight.dtype.is_floating and not np.isfinite(weight.numpy()).all():
      return weight.name
  return None
