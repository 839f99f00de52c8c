"""Killed, resumed, refused: a run never counts less than its weights saw."""

import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.methods import interrupt
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import privacy

pytestmark = pytest.mark.usefixtures("checked_once")

_CONFIG = methods.DPSGDConfig(
  noise_multiplier=1.0,
  batch_size=16,
  epochs=3,
  dp_epsilon=50.0,
  dp_delta=1e-3,
  momentum=0.9,
  ema_decay=0.5,
)


def _arrays():
  rng = np.random.default_rng(0)
  x = rng.random((64, 6), "float32")
  return x, (x[:, 0] * 3).astype("int64")


def _fit(
  run_dir,
  resume=False,
  stop_after=None,
  arrays=None,
  callbacks=(),
  activation="relu",
  **changes,
):
  network = models.mlp((6,), 3, hidden=(5,), activation=activation)
  method = methods.DPSGD(network, dataclasses.replace(_CONFIG, **changes))
  callbacks = [*callbacks]
  if stop_after:
    callbacks.append(interrupt.StopAfter(stop_after))
  method.fit(
    *(arrays or _arrays()),
    validation_data=_arrays(),
    run_dir=run_dir,
    resume=resume,
    callbacks=callbacks,
    verbose=0,
  )
  return method


def _ledger(run_dir):
  return privacy.read_ledger(run_dir / "ledger.jsonl")


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
  """A run without a seed that came to its end."""
  folder = tmp_path_factory.mktemp("complete")
  return folder, _fit(folder)


def test_interrupted_run_goes_on_where_it_was(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    _fit(tmp_path, stop_after=5)
  assert _ledger(tmp_path).steps == 5
  method = _fit(tmp_path, resume=True, physical_batch_size=8)
  assert _ledger(tmp_path).steps == method.run_record["steps"] == 12
  assert method.run_record["sessions"] == 2
  assert int(method.optimizer.iterations) in (11, 12)


def test_a_full_disk_is_not_taken_for_an_example(tmp_path, monkeypatch):
  """Keras' fit forgets what caused an error, so that its type must say it."""
  replace = os.replace

  def full(draft, path):
    if path.name == "step-000000005.npz":
      raise OSError(28, "No space left on device")
    replace(draft, path)

  monkeypatch.setattr(os, "replace", full)
  with pytest.raises(ValueError, match=r"No space left.*Free the disk"):
    _fit(tmp_path)
  monkeypatch.undo()
  assert _ledger(tmp_path).facts == frozenset()
  assert _fit(tmp_path, resume=True).privacy_statement().proven is not None


def test_resuming_a_complete_run_gives_its_model_and_costs_nothing(complete):
  folder, done = complete
  again = _fit(folder, resume=True)
  assert _ledger(folder).steps == 12
  assert again.privacy_statement().proven == done.privacy_statement().proven
  for a, b in zip(done.network.get_weights(), again.network.get_weights()):
    np.testing.assert_array_equal(a, b)


class _Draws(tf.keras.callbacks.Callback):
  """Collects who takes part in a step, and its public seed."""

  def __init__(self):
    super().__init__()
    self.found = []

  def on_train_batch_begin(self, batch, logs=None):
    rows = self.model.session.nonprivate_rows()
    self.found.append(
      (rows.tolist(), self.model.run_state.key.numpy().tolist())
    )


@pytest.mark.slow
@pytest.mark.usefixtures("one_noise")
def test_another_session_draws_other_rows_and_seeds(tmp_path):
  """Same seed, same step, another session: never the same draw."""
  whole, first, second = _Draws(), _Draws(), _Draws()
  _fit(tmp_path / "a", seed=0, callbacks=[whole])
  with pytest.raises(KeyboardInterrupt):
    _fit(tmp_path / "b", seed=0, callbacks=[first], stop_after=5)
  _fit(tmp_path / "b", seed=0, callbacks=[second], resume=True)
  assert first.found == whole.found[:5]
  assert len(second.found) == 7
  for a, b in zip(second.found, whole.found[5:]):
    assert a[0] != b[0]
    assert a[1] != b[1]


def test_a_resume_with_another_network_of_the_same_shapes(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    _fit(tmp_path, stop_after=2)
  before = (tmp_path / "ledger.jsonl").read_bytes()
  with pytest.raises(ValueError, match=r"Cannot resume .*layers: '"):
    _fit(tmp_path, resume=True, activation="tanh")
  assert (tmp_path / "ledger.jsonl").read_bytes() == before


def test_another_session_draws_other_noise(tmp_path):
  """Everybody takes part in every step, so that the noise alone differs."""
  settings = {"seed": 0, "sampler": "full_batch", "epochs": 2}
  whole = _fit(tmp_path / "a", **settings).network.get_weights()
  with pytest.raises(KeyboardInterrupt):
    _fit(tmp_path / "b", stop_after=1, **settings)
  resumed = _fit(tmp_path / "b", resume=True, **settings).network.get_weights()
  again = _fit(tmp_path / "c", **settings).network.get_weights()
  for a, b, c in zip(whole, resumed, again):
    assert (a != b).all()
    np.testing.assert_array_equal(a, c)


def _tags(folder):
  """Names of all scalars in a folder of TensorBoard."""
  (events,) = folder.glob("events*")
  return {
    value.tag
    for record in tf.data.TFRecordDataset(str(events))
    for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value
  }


def test_history_and_tensorboard_keep_apart_what_is_private(tmp_path):
  _fit(tmp_path, seed=0)
  lines = (tmp_path / "history.jsonl").read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  assert [row["step"] for row in rows] == [4, 8, 12]
  spent = [row["dp_epsilon"] for row in rows]
  assert spent == sorted(spent)
  known = {"epoch", "step", "dp_epsilon", "eval_accuracy", "seconds"}
  assert set().union(*rows) == known
  assert _tags(tmp_path / "tb") == {
    "eval/accuracy",
    "eval/loss",
    "privacy/dp_epsilon_proven_only_against_those_who_do_not_know_the_seed",
  }
  private = {
    "nonprivate/accuracy",
    "nonprivate/clipped_fraction",
    "nonprivate/dropped_fraction",
    "nonprivate/loss",
  }
  assert _tags(tmp_path / "nonprivate" / "tb") == private
  path = tmp_path / "nonprivate" / "history.jsonl"
  assert private <= set(json.loads(path.read_text().splitlines()[0]))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
  """A run with a seed that was stopped after two steps."""
  folder = tmp_path_factory.mktemp("stopped")
  with pytest.raises(KeyboardInterrupt):
    _fit(folder, stop_after=2, seed=0)
  return folder


@pytest.mark.usefixtures("not_rehearsed")
@pytest.mark.parametrize(
  "left",
  ["ledger.jsonl", "checkpoints", "nonprivate/resume.json", "history.jsonl"],
)
def test_an_existing_run_is_not_overwritten(stopped, tmp_path, left):
  (tmp_path / "nonprivate").mkdir()
  source = stopped / left
  if source.is_dir():
    shutil.copytree(source, tmp_path / left)
  else:
    (tmp_path / left).touch()
  with pytest.raises(ValueError, match=rf"found {left}.*resume=True"):
    _fit(tmp_path)


@pytest.mark.usefixtures("not_rehearsed")
def test_a_misspelt_folder_is_not_resumed(tmp_path):
  with pytest.raises(ValueError, match=r"found no ledger\.jsonl"):
    _fit(tmp_path / "mispelt", resume=True)
  assert not (tmp_path / "mispelt").exists()


@pytest.mark.usefixtures("not_rehearsed")
@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"noise_multiplier": 0.9}, r"noise_multiplier: 1\.0 -> 0\.9"),
    ({"l2_clip_norm": 2.0}, r"l2_clip_norm: 1\.0 -> 2\.0"),
    ({"batch_size": 32}, "batch_size: 16 -> 32"),
    ({"dp_delta": 1e-4}, r"dp_delta: 0\.001 -> 0\.0001"),
    ({"momentum": 0.5}, r"momentum: 0\.9 -> 0\.5"),
    ({"ema_decay": 0.1}, r"ema_decay: 0\.5 -> 0\.1"),
    ({"learning_rate": 0.1}, r"learning_rate: 0\.25 -> 0\.1"),
    ({"seed": 1}, "the seed that the run began with"),
    ({"seed": None}, "seeded: [Tt]rue -> [Ff]alse"),
    ({"arrays": (_arrays()[0] / 2, _arrays()[1])}, "the training data that"),
    ({"arrays": (_arrays()[0], 2 - _arrays()[1])}, "the training data that"),
  ],
)
def test_resume_with_anything_else_is_refused(stopped, changes, message):
  before = _ledger(stopped).steps
  with pytest.raises(ValueError, match=message):
    _fit(stopped, resume=True, **{"seed": 0, **changes})
  assert _ledger(stopped).steps == before == 2


def test_private_shuffle_cannot_be_resumed(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    _fit(tmp_path, stop_after=2, sampler="shuffle")
  with pytest.raises(ValueError, match="sampler='poisson'"):
    _fit(tmp_path, resume=True, sampler="shuffle")


def test_resume_needs_a_folder():
  with pytest.raises(ValueError, match="run_dir"):
    _fit(None, resume=True)


_CHILD = """
import os
import numpy as np
from tf_privrob import methods, models
rng = np.random.default_rng(0)
x = rng.random((64, 6), "float32")
y = (x[:, 0] * 3).astype("int64")
config = methods.DPSGDConfig(
  noise_multiplier=20.0, batch_size=16, epochs=1e5, dp_epsilon=50.0,
  dp_delta=1e-3, accountant="rdp")
print("ready", flush=True)
methods.DPSGD(models.mlp((6,), 3, hidden=(5,)), config).fit(
  x, y, run_dir={folder!r}, resume=os.path.exists({ledger!r}), verbose=0)
"""


def _charges(ledger):
  return ledger.read_text().count('"charge"') if ledger.exists() else 0


def test_sigkill_never_undercounts(tmp_path):
  """Kills training at random moments; the ledger covers the weights."""
  chance = random.Random(0)
  root = pathlib.Path(__file__).parents[2]
  ledger = tmp_path / "ledger.jsonl"
  code = textwrap.dedent(
    _CHILD.format(folder=str(tmp_path), ledger=str(ledger))
  )
  counted = 0
  for _ in range(2):
    child = subprocess.Popen(
      [sys.executable, "-c", code],
      cwd=root,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while _charges(ledger) < counted + 10:
      assert child.poll() is None, "training ended by itself"
      assert time.monotonic() < deadline
      time.sleep(0.02)
    time.sleep(chance.uniform(0, 0.3))
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    charged = _ledger(tmp_path).steps
    newest = max((tmp_path / "checkpoints").glob("step-*.npz"))
    seen = int(newest.stem.removeprefix("step-"))
    assert counted < seen <= charged <= seen + 1
    counted = charged
