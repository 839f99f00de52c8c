"""What a training writes down as it goes, and what its callbacks may see."""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Iterator

import tensorflow as tf

from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import progress
from tf_privrob import run_folder
from tf_privrob.methods import checks
from tf_privrob.methods import proven

_NONPRIVATE = run_folder.NONPRIVATE


class Journal(tf.keras.callbacks.Callback):
  """Prepares every step and writes down what came of it.

  Args:
    model: the method.
    session: of the training.
    folder: run folder; None: nothing is written.
    verbose: 0 is silent.

  Attributes:
    history: as Keras', of all blocks of the training.
  """

  def __init__(self, model, session, folder: pathlib.Path | None, verbose: int):
    super().__init__()
    self.history = tf.keras.callbacks.History()
    self.history.history, self.history.epoch = {}, []
    self._method = model
    self._session = session
    self._folder = folder
    self._started = time.monotonic()
    self._writers = {}
    if folder:
      for part in ("", _NONPRIVATE):
        place = str(folder / part / "tb")
        self._writers[part] = tf.summary.create_file_writer(place)
    steps, done = model.planned_steps, session.outlet.steps
    self._progress = (
      progress.Progress(steps, "train", done=done) if verbose else None
    )
    self._note, self._swapped = "", False

  def on_train_batch_begin(self, batch, logs=None):
    """Refuses a step beyond the budget, and gives it its seed."""
    checks.refuse_eager_functions()
    self._session.outlet.require_budget()
    self._session.begin_step()

  def on_train_batch_end(self, batch, logs=None):
    """Keeps the weights, so that a crash loses at most a few steps."""
    session, steps = self._session, self._session.outlet.steps
    session.note()
    session.watch.look()
    due = steps % self._method.config.checkpoint_every == 0
    if due or steps == self._method.planned_steps:
      session.save()
    if self._progress:
      self._progress.update(1, self._note)

  def on_test_begin(self, logs=None):
    """Validation looks at the averaged weights, which are what comes out."""
    self._method.swap_average()
    self._swapped = True

  def on_test_end(self, logs=None):
    """Back to the weights that are being trained."""
    self._swapped = False
    self._method.swap_average()

  @contextlib.contextmanager
  def interrupted_well(self) -> Iterator[None]:
    """Where an interruption ends the training, looks at what was left."""
    try:
      yield
    except BaseException:
      if self._swapped:
        self.on_test_end()
      self._session.watch.compare()
      raise

  def on_epoch_end(self, epoch, logs=None):
    """One line of history and the TensorBoard scalars."""
    self._session.require_finite()
    logs, steps = dict(logs or {}), self._session.outlet.steps
    self.history.epoch.append(epoch)
    for name, value in logs.items():
      self.history.history.setdefault(name, []).append(value)
    spent = self._method.spent_dp_epsilon(steps)
    private = {
      k: float(v) for k, v in logs.items() if k.startswith(_NONPRIVATE)
    }
    row = {
      "epoch": epoch + 1,
      "step": steps,
      "dp_epsilon": spent,
      "eval_accuracy": logs.get("val_accuracy"),
      **private,
      "seconds": round(time.monotonic() - self._started, 3),
    }
    if logs.get("val_accuracy") is not None:
      self._note = f"eval {logs['val_accuracy']:.4f}"
    if not self._folder:
      return
    run_folder.RunFolder(self._folder).append_history(row)
    name = "privacy/dp_epsilon_accounted"
    if proven.stands(self._method):
      name = privacy.scalar_of_proven(self._method.run_facts.condition)
    public = {
      name: spent,
      "eval/accuracy": logs.get("val_accuracy"),
      "eval/loss": logs.get("val_loss"),
    }
    for part, scalars in (("", public), (_NONPRIVATE, private)):
      with self._writers[part].as_default(step=steps):
        for name, value in scalars.items():
          if value is not None:
            tf.summary.scalar(name, value)
      self._writers[part].flush()


class Watch(tf.keras.callbacks.Callback):
  """Sees whether anything but a step changes weights or optimizer.

  It is the last of the callbacks, so that it compares after all others. What
  they may set is the learning rate. Without callbacks of the user nobody is
  there to change anything, and nothing is compared.

  Args:
    model: the method.
    session: of the training.
    active: whether there are callbacks of the user.
  """

  def __init__(self, model, session, active: bool):
    super().__init__()
    self._method = model
    self._session = session
    self._active = active
    self._seen: tuple[str, str] | None = None
    self._steps = 0

  @property
  def weights(self) -> str | None:
    """Fingerprint of the weights that the last step left; None if unknown."""
    return self._seen and self._seen[0]

  def look(self) -> None:
    """Remembers what a step has left, or what the training begins with."""
    if self._active:
      self._seen = self._found()
      self._steps = self._session.outlet.steps

  @property
  def expected(self) -> str | None:
    """The same, where no step has begun since; otherwise None."""
    stepped = self._steps != self._session.outlet.steps
    return None if stepped else self.weights

  def compare(self) -> None:
    """Notes a change since the last look, if there was no step since."""
    if self.expected is not None and self._seen != self._found():
      self._method.note_foreign_weights()

  def on_train_batch_begin(self, batch, logs=None):
    """Directly before the step, after whatever other callbacks did."""
    self.compare()

  def _found(self) -> tuple[str, str]:
    """Of the weights alone, and of all that the next step builds on."""
    method = self._method
    rate = method.optimizer.learning_rate
    state = [v for v in method.state_variables() if v is not rate]
    return models.fingerprint(method), models.fingerprint_of(state)


class PublicHistory(tf.keras.callbacks.History):
  """What Keras shows callbacks as `model.history`: public logs only."""

  def on_epoch_end(self, epoch, logs=None):
    """As Keras' own, with what is public."""
    super().on_epoch_end(epoch, _public(logs))


def _forwarded(name: str):
  """A hook that hands on the public part of its logs."""

  def hook(self, *args, logs=None):
    if args and (args[-1] is None or isinstance(args[-1], dict)):
      *args, logs = args
    getattr(self._callback, name)(*args, _public(logs))

  hook.__name__, hook.__doc__ = name, "As the callback's own."
  return hook


class PublicLogs(tf.keras.callbacks.Callback):
  """A user's callback that sees nothing computed on data without noise.

  Otherwise a decision of the callback, such as to stop or to lower the rate,
  would be a release that nobody counts.

  Args:
    callback: any Keras callback.
  """

  def __init__(self, callback: tf.keras.callbacks.Callback):
    super().__init__()
    self._callback = callback

  def set_params(self, params):
    """As the callback's own."""
    self._callback.set_params(params)

  def set_model(self, model):
    """As the callback's own."""
    self._callback.set_model(model)


for _part in ("train", "test", "epoch", "train_batch", "test_batch"):
  for _end in ("begin", "end"):
    _name = f"on_{_part}_{_end}"
    setattr(PublicLogs, _name, _forwarded(_name))


def _public(logs: dict | None) -> dict | None:
  if logs is None:
    return None
  return {k: v for k, v in logs.items() if not k.startswith(_NONPRIVATE)}
