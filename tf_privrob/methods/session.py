"""A stretch of training: pays, trains, writes; and can be resumed.

Order of events for every step: the ledger is charged and on disk, the step
runs, the checkpoint is written. A killed run therefore counts at least the
steps that its weights have seen, and loses at most the steps since its last
checkpoint (one by default). Every session has its own randomness, so a step
that is run again after a crash is a new release, with new noise, and is paid
for again.
"""

from __future__ import annotations

import os
import pathlib
import time

import numpy as np
import tensorflow as tf

from tf_privrob import privacy
from tf_privrob import progress
from tf_privrob import run_folder
from tf_privrob.methods import checkpoint
from tf_privrob.methods import plan as training_plan

_VALIDATION_BATCH = 1000


class Session:
  """One session of a run; `open` restores what earlier ones left."""

  def __init__(self, model, plan, folder, ledger):
    self._model = model
    self._plan = plan
    self._folder = folder
    self._ledger = ledger
    self.index = ledger.session if ledger else 0
    self.charged = ledger.steps if ledger else 0

  @classmethod
  def open(
    cls,
    model,
    plan: training_plan.TrainingPlan,
    run_dir: str | os.PathLike | None,
    resume: bool,
  ) -> Session:
    """Opens or resumes the run in `run_dir` and restores its weights."""
    if run_dir is None:
      if resume:
        raise ValueError("Expected run_dir with resume=True, received None.")
      return cls(model, plan, None, None)
    folder = pathlib.Path(run_dir)
    resumed = resume and (folder / "ledger.jsonl").exists()
    if resumed and plan.sampler.kind == "shuffle" and plan.noise_multiplier:
      raise ValueError(
        "Expected sampler='poisson' to resume a private run: a resumed shuffle"
        " deals an epoch anew, so an example may take part twice in it and the"
        " budget would not cover that."
      )
    folder.mkdir(parents=True, exist_ok=True)
    ledger = privacy.Ledger.open(
      folder / "ledger.jsonl",
      parameters={
        "method": type(model).__name__,
        **model.ledger_parameters(plan),
      },
      max_steps=plan.limit,
      resume=resumed,
    )
    if resumed:
      checkpoint.restore(folder / "checkpoints", model.state_variables())
    return cls(model, plan, folder, ledger)

  def train(
    self, x, y, validation_data, callbacks, verbose
  ) -> tf.keras.callbacks.History:
    """Runs the steps that are left; returns the history of this session."""
    model, sampler = self._model, self._plan.sampler
    seed = model.config.seed
    if seed is None:
      seed = int.from_bytes(os.urandom(8), "little")
    words = np.random.SeedSequence([seed, self.index]).generate_state(2)
    model.set_session(key=words.view(np.int32), step=self.charged)
    if self.charged:
      model.count_steps(self.charged, self.index + 1)
    journal = _Journal(model, self._plan, self._ledger, self._folder, verbose)
    history = tf.keras.callbacks.History()
    history.history, history.epoch = {}, []
    try:
      for start, epochs, steps in self._blocks():
        batches = sampler.batches(x, y, seed, self.index, start, epochs * steps)
        first = start // self._plan.round_steps
        block = tf.keras.Model.fit(
          model,
          batches,
          initial_epoch=first,
          epochs=first + epochs,
          steps_per_epoch=steps,
          validation_data=validation_data,
          validation_batch_size=_VALIDATION_BATCH,
          callbacks=[journal, *callbacks],
          verbose=0,
        )
        history.epoch += block.epoch
        for name, values in block.history.items():
          history.history.setdefault(name, []).extend(values)
        if model.stop_training:
          break
      model.swap_average()
    finally:
      if self._ledger:
        self._ledger.close()
    return history

  def _blocks(self):
    """(first step, epochs, steps an epoch): Keras' epochs have one length."""
    end, length = self._plan.steps, self._plan.round_steps
    start = self.charged
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


class _Journal(tf.keras.callbacks.Callback):
  """Charges the ledger before a step and writes down what came of it."""

  def __init__(self, model, plan, ledger, folder, verbose):
    super().__init__()
    self._method = model
    self._plan = plan
    self._ledger = ledger
    self._folder = folder
    self._steps = ledger.steps if ledger else 0
    self._started = time.monotonic()
    self._writer = (
      tf.summary.create_file_writer(str(folder / "tb")) if folder else None
    )
    self._progress = (
      progress.Progress(plan.steps, "train", done=self._steps)
      if verbose
      else None
    )
    self._note = ""

  def on_train_batch_begin(self, batch, logs=None):
    """Pays for the step before it runs."""
    if self._ledger:
      self._ledger.charge()
    self._steps += 1

  def on_train_batch_end(self, batch, logs=None):
    """Keeps the weights, so that a crash loses at most a few steps."""
    sessions = self._ledger.session + 1 if self._ledger else 1
    self._method.count_steps(self._steps, sessions)
    due = self._steps % self._method.config.checkpoint_every == 0
    if self._folder and (due or self._steps == self._plan.steps):
      checkpoint.save(
        self._folder / "checkpoints",
        self._steps,
        self._method.state_variables(),
      )
    if self._progress:
      self._progress.update(1, self._note)

  def on_test_begin(self, logs=None):
    """Validation looks at the averaged weights, which are what comes out."""
    self._method.swap_average()

  def on_test_end(self, logs=None):
    """Back to the weights that are being trained."""
    self._method.swap_average()

  def on_epoch_end(self, epoch, logs=None):
    """One line of history and the TensorBoard scalars."""
    logs = dict(logs or {})
    spent = self._method.spent_dp_epsilon(self._steps)
    row = {
      "epoch": epoch + 1,
      "step": self._steps,
      "dp_epsilon": spent,
      "eval_accuracy": logs.get("val_accuracy"),
      **{k: float(v) for k, v in logs.items() if k.startswith("nonprivate/")},
      "seconds": round(time.monotonic() - self._started, 3),
    }
    if logs.get("val_accuracy") is not None:
      self._note = f"eval {logs['val_accuracy']:.4f}"
    if not self._folder:
      return
    run_folder.RunFolder(self._folder).append_history(row)
    scalars = {
      "privacy/dp_epsilon_proven": spent,
      "eval/accuracy": logs.get("val_accuracy"),
      "eval/loss": logs.get("val_loss"),
      **{k: v for k, v in row.items() if k.startswith("nonprivate/")},
    }
    with self._writer.as_default(step=self._steps):
      for name, value in scalars.items():
        if value is not None:
          tf.summary.scalar(name, value)
    self._writer.flush()
