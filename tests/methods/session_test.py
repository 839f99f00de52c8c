"""Killed, resumed, refused: a run never counts less than its weights saw."""

import dataclasses
import json
import os
import pathlib
import random
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
from tf_privrob.methods import checkpoint

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


def _fit(run_dir, resume=False, stop_after=None, **changes):
  network = models.mlp((6,), 3, hidden=(5,))
  method = methods.DPSGD(network, dataclasses.replace(_CONFIG, **changes))
  callbacks = [interrupt.StopAfter(stop_after)] if stop_after else []
  x, y = _arrays()
  method.fit(
    x,
    y,
    validation_data=(x, y),
    run_dir=run_dir,
    resume=resume,
    callbacks=callbacks,
    verbose=0,
  )
  return method


def _ledger(run_dir):
  return privacy.read_ledger(run_dir / "ledger.jsonl")


def test_interrupted_run_goes_on_where_it_was(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    _fit(tmp_path, stop_after=5)
  assert _ledger(tmp_path).steps == 5
  method = _fit(tmp_path, resume=True)
  assert _ledger(tmp_path).steps == method.run_record["steps"] == 12
  assert method.run_record["sessions"] == 2
  assert int(method.optimizer.iterations) in (11, 12)


def test_resuming_a_complete_run_gives_its_model_and_costs_nothing(tmp_path):
  done = _fit(tmp_path)
  again = _fit(tmp_path, resume=True)
  assert _ledger(tmp_path).steps == 12
  assert again.privacy_statement().proven == done.privacy_statement().proven
  for a, b in zip(done.network.get_weights(), again.network.get_weights()):
    np.testing.assert_array_equal(a, b)


def test_resumed_session_draws_other_noise(tmp_path):
  """Same seed, same step, another session: never the same draw."""
  whole = _fit(tmp_path / "a")
  with pytest.raises(KeyboardInterrupt):
    _fit(tmp_path / "b", stop_after=5)
  resumed = _fit(tmp_path / "b", resume=True)
  pairs = zip(whole.network.get_weights(), resumed.network.get_weights())
  assert any(not np.array_equal(a, b) for a, b in pairs)
  again = _fit(tmp_path / "c")
  for a, b in zip(whole.network.get_weights(), again.network.get_weights()):
    np.testing.assert_array_equal(a, b)


class _Keys(tf.keras.callbacks.Callback):
  """Collects the base of a session's noise seeds."""

  def __init__(self, found):
    super().__init__()
    self._found = found

  def on_train_begin(self, logs=None):
    self._found.append(tuple(self.model._state.key.numpy()))


def test_noise_seeds_of_sessions_never_meet(tmp_path):
  found = []
  x, y = _arrays()
  for resume in (False, True, True):
    network = models.mlp((6,), 3, hidden=(5,))
    method = methods.DPSGD(network, _CONFIG)
    with pytest.raises(KeyboardInterrupt):
      method.fit(
        x,
        y,
        run_dir=tmp_path,
        resume=resume,
        callbacks=[_Keys(found), interrupt.StopAfter(2)],
        verbose=0,
      )
  assert len(set(found)) == len(found) == 3


def test_history_and_tensorboard_hide_nothing_private(tmp_path):
  _fit(tmp_path)
  lines = (tmp_path / "history.jsonl").read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  assert [row["step"] for row in rows] == [4, 8, 12]
  spent = [row["dp_epsilon"] for row in rows]
  assert spent == sorted(spent)
  events = next((tmp_path / "tb").glob("events*"))
  tags = set()
  for record in tf.data.TFRecordDataset(str(events)):
    event = tf.compat.v1.Event.FromString(record.numpy())
    tags |= {value.tag for value in event.summary.value}
  assert tags == {
    "eval/accuracy",
    "eval/loss",
    "nonprivate/accuracy",
    "nonprivate/clipped_fraction",
    "nonprivate/loss",
    "privacy/dp_epsilon_proven",
  }


def test_existing_run_is_not_overwritten(tmp_path):
  _fit(tmp_path)
  with pytest.raises(ValueError, match="resume=True"):
    _fit(tmp_path)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"noise_multiplier": 0.9}, "noise_multiplier: 1.0 -> 0.9"),
    ({"l2_clip_norm": 2.0}, "l2_clip_norm: 1.0 -> 2.0"),
    ({"batch_size": 32}, r"sampling_prob: 0\.25 -> 0\.5"),
    ({"dp_delta": 1e-4}, "dp_delta: 0.001 -> 0.0001"),
  ],
)
def test_resume_with_other_parameters_is_refused(tmp_path, changes, message):
  with pytest.raises(KeyboardInterrupt):
    _fit(tmp_path, stop_after=2)
  with pytest.raises(ValueError, match=message):
    _fit(tmp_path, resume=True, **changes)


def test_private_shuffle_cannot_be_resumed(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    _fit(tmp_path, stop_after=2, sampler="shuffle")
  with pytest.raises(ValueError, match="sampler='poisson'"):
    _fit(tmp_path, resume=True, sampler="shuffle")


def test_resume_needs_a_folder():
  with pytest.raises(ValueError, match="run_dir"):
    _fit(None, resume=True)


def test_checkpoint_round_trip_and_spoilt_file(tmp_path):
  variables = [tf.Variable([1.0, 2.0]), tf.Variable(3, dtype=tf.int64)]
  checkpoint.save(tmp_path, 1, variables)
  variables[0].assign([5.0, 6.0])
  newest = checkpoint.save(tmp_path, 2, variables)
  newest.write_bytes(newest.read_bytes()[:50])  # a power cut
  assert checkpoint.restore(tmp_path, variables) == 1
  np.testing.assert_array_equal(variables[0], [1.0, 2.0])
  with pytest.raises(ValueError, match="not the one that the run was started"):
    checkpoint.restore(tmp_path, [tf.Variable([1.0]), variables[1]])


_CHILD = """
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
  x, y, run_dir={folder!r}, resume=True, verbose=0)
"""


def test_sigkill_never_undercounts(tmp_path):
  """Kills training at random moments; the ledger covers the weights."""
  chance = random.Random(0)
  root = pathlib.Path(__file__).parents[2]
  counted = 0
  for _ in range(3):
    child = subprocess.Popen(
      [
        sys.executable,
        "-c",
        textwrap.dedent(_CHILD.format(folder=str(tmp_path))),
      ],
      cwd=root,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
    )
    ledger = tmp_path / "ledger.jsonl"
    before = ledger.stat().st_size if ledger.exists() else 0
    deadline = time.monotonic() + 120
    while not ledger.exists() or ledger.stat().st_size < before + 2000:
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
