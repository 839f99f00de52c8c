"""Checkpoints and the ledger that paid for them: what may be continued."""

from __future__ import annotations

import io
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import privacy
from tf_privrob.methods import checkpoint

_ROOT = pathlib.Path(__file__).parents[2]
_RUN = "0123456789abcdef" * 2
_SUM = "ab" * 32


def _variables(value=0.0):
  return [
    tf.Variable([value, value + 1.0], name="kernel"),
    tf.Variable(3, dtype=tf.int64, name="counter"),
  ]


def _save(folder, step, value=0.0, run=_RUN, charged=None):
  charged = step if charged is None else charged
  return checkpoint.save(folder, step, _variables(value), run, charged, _SUM)


def _restore(folder, charged=1000, variables=None, run=_RUN, knows=None):
  variables = _variables(-7.0) if variables is None else variables
  restored = checkpoint.restore(folder, variables, run, charged, knows)
  return restored, variables


def _refused(folder, message, **kwargs):
  """Restoring is one ValueError, and leaves the variables alone."""
  variables = kwargs.pop("variables", None) or _variables(-7.0)
  before = [variable.numpy() for variable in variables]
  with pytest.raises(ValueError, match=message) as caught:
    _restore(folder, variables=variables, **kwargs)
  assert "\n" not in str(caught.value)
  for variable, value in zip(variables, before):
    np.testing.assert_array_equal(variable, value)


# A checkpoint by itself.


def test_round_trip(tmp_path):
  path = _save(tmp_path / "deep" / "checkpoints", 12, 5.0)
  restored, variables = _restore(path.parent, charged=12)
  assert restored == checkpoint.Restored(12, 12, _SUM, path, ())
  np.testing.assert_array_equal(variables[0], [5.0, 6.0])
  assert variables[1].numpy() == 3
  assert os.listdir(path.parent) == ["step-000000012.npz"]


def test_bound_anew_it_keeps_its_weights_and_knows_a_later_ledger(tmp_path):
  _save(tmp_path, 11, 4.0)
  path = _save(tmp_path, 12, 5.0)
  checkpoint.bind(tmp_path, "cd" * 32)
  restored, variables = _restore(tmp_path, charged=12)
  assert restored == checkpoint.Restored(12, 12, "cd" * 32, path, ())
  np.testing.assert_array_equal(variables[0], [5.0, 6.0])
  _refused(tmp_path, "never had", knows=lambda checksum: checksum == _SUM)
  path.write_bytes(b"broken")
  checkpoint.bind(tmp_path, "ef" * 32)  # the older one, which can be read
  assert _restore(tmp_path)[0].ledger_checksum == "ef" * 32


@pytest.mark.parametrize(
  ("values", "dtype"),
  [
    ([np.nan, -np.nan, np.inf, -0.0, 1e-45], tf.float32),
    ([1.5, -2.0, 3e38], tf.bfloat16),
    ([1.5, 6e-8], tf.float16),
    ([[True, False]], tf.bool),
    ([], tf.float64),
    (7, tf.uint8),
    ([1 + 2j], tf.complex64),
  ],
)
def test_every_bit_comes_back(tmp_path, values, dtype):
  variable = tf.Variable(values, dtype=dtype)
  checkpoint.save(tmp_path, 1, [variable], _RUN, 1, _SUM)
  other = tf.Variable(tf.zeros_like(variable))
  _restore(tmp_path, variables=[other])
  assert other.numpy().tobytes() == variable.numpy().tobytes()


def test_only_numbers_are_kept(tmp_path):
  with pytest.raises(ValueError, match=r"Expected numbers in .*string"):
    checkpoint.save(tmp_path, 1, [tf.Variable("text")], _RUN, 1, _SUM)
  assert list(tmp_path.iterdir()) == []


def test_two_are_kept(tmp_path):
  for step in (0, 5, 10, 15):
    _save(tmp_path, step)
  assert sorted(os.listdir(tmp_path)) == [
    "step-000000010.npz",
    "step-000000015.npz",
  ]


def test_steps_are_ordered_as_numbers(tmp_path):
  _save(tmp_path, 999_999_999, 1.0)
  _save(tmp_path, 1_000_000_000, 2.0)
  assert _restore(tmp_path, charged=10**9)[0].step == 10**9


def test_on_the_disk_before_old_ones_go(tmp_path, monkeypatch):
  events = []

  def noted(owner, name):
    real = getattr(owner, name)

    def call(*args, **kwargs):
      events.append(name)
      return real(*args, **kwargs)

    return call

  for step in (1, 2):
    _save(tmp_path, step)
  # Up to Python 3.9 a path does not ask `os` again for `unlink`.
  for owner, name in (
    (os, "fsync"),
    (os, "replace"),
    (pathlib.Path, "unlink"),
  ):
    monkeypatch.setattr(owner, name, noted(owner, name))
  _save(tmp_path, 3)
  assert events == ["fsync", "replace", "fsync", "unlink"]


def test_an_interrupted_write_leaves_the_old_one(tmp_path, monkeypatch):
  _save(tmp_path, 1, 5.0)

  def interrupt(file, **arrays):
    file.write(b"PK half")
    raise KeyboardInterrupt

  monkeypatch.setattr(np, "savez", interrupt)
  with pytest.raises(KeyboardInterrupt):
    _save(tmp_path, 2)
  monkeypatch.undo()
  restored, variables = _restore(tmp_path)
  assert (restored.step, restored.skipped) == (1, ())
  np.testing.assert_array_equal(variables[0], [5.0, 6.0])
  assert _save(tmp_path, 2).exists()


def test_a_folder_in_the_way_of_a_new_one(tmp_path):
  (tmp_path / "step-000000002.npz").mkdir()
  with pytest.raises(ValueError, match=r"Expected to write .*step-000000002"):
    _save(tmp_path, 2)


def test_a_full_disk(tmp_path, monkeypatch):
  def full(*unused):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(os, "fsync", full)
  with pytest.raises(ValueError, match="Free the disk"):
    _save(tmp_path, 2)
  assert not (tmp_path / "step-000000002.npz").exists()


# Files that cannot be used.


def _as_npy(path):
  with path.open("wb") as file:
    np.save(file, np.zeros(3))


def _as_objects(path):
  np.savez(path, v0=np.array([{}, None], dtype=object))


def _without_about(path):
  """As checkpoints were before they knew their run."""
  np.savez(path, step=2, v0=np.zeros(2, "float32"), v1=np.int64(3))


def _resaved(change):
  """The same file, changed, with the old digest over it."""

  def spoil(path):
    with np.load(path) as archive:
      arrays = {name: archive[name] for name in archive.files}
    change(arrays)
    np.savez(path, **arrays)

  return spoil


def _forged(**changes):
  """Another thing said of the weights, and a digest that fits."""

  def change(arrays):
    about = {**json.loads(str(arrays["about"])), **changes}
    arrays["about"] = np.array(json.dumps(about))
    del arrays["sha256"]
    arrays["sha256"] = np.array(checkpoint.digest(arrays))

  return _resaved(change)


def _charge_less(arrays):
  about = json.loads(str(arrays["about"]))
  arrays["about"] = np.array(json.dumps({**about, "charged": 0}))


_SPOILT = {
  "empty": lambda path: path.write_bytes(b""),
  "half": lambda path: path.write_bytes(path.read_bytes()[:300]),
  "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
  "nan": lambda path: path.write_bytes(np.full(200, np.nan).tobytes()),
  "text": lambda path: path.write_text("weights"),
  "npy": _as_npy,
  "objects": _as_objects,
  "old": _without_about,
  "folder": lambda path: (path.unlink(), path.mkdir()),
  "dangling": lambda path: (path.unlink(), path.symlink_to("nowhere")),
  "weights": _resaved(lambda arrays: arrays["v0"].fill(9.0)),
  "kind": _resaved(lambda a: a.update(v0=a["v0"].view("int32"))),
  "shape": _resaved(lambda a: a.update(v0=a["v0"].reshape(2, 1))),
  "more": _resaved(lambda a: a.update(v2=np.zeros(1))),
  "fewer": _resaved(lambda a: a.pop("v1")),
  "charged": _resaved(_charge_less),
  "no digest": _resaved(lambda a: a.pop("sha256")),
  "about": _resaved(lambda a: a.update(about=np.array("[]"))),
  "not json": _resaved(lambda a: a.update(about=np.array("{"))),
  "charged text": _forged(charged="1"),
  "no run": _forged(run=None),
  "numbers": _resaved(lambda a: a.update(about=np.zeros(3))),
}


@pytest.mark.parametrize("spoil", _SPOILT.values(), ids=_SPOILT)
def test_a_spoilt_newest_one_is_skipped_and_named(tmp_path, spoil):
  older = _save(tmp_path, 1, 5.0)
  spoil(_save(tmp_path, 2, 6.0))
  restored, variables = _restore(tmp_path)
  assert (restored.step, restored.path) == (1, older)
  assert len(restored.skipped) == 1
  assert restored.skipped[0].startswith("step-000000002.npz: ")
  np.testing.assert_array_equal(variables[0], [5.0, 6.0])


@pytest.mark.parametrize("spoil", _SPOILT.values(), ids=_SPOILT)
def test_without_a_whole_one_the_run_is_lost(tmp_path, spoil):
  """Such a run went on from new weights, without a word."""
  spoil(_save(tmp_path, 1))
  spoil(_save(tmp_path, 2))
  message = "weights that were paid for are lost: begin a new run_dir"
  _refused(tmp_path, f"step-000000002.*step-000000001.*{message}")
  _refused(tmp_path, message, charged=0)


@pytest.mark.parametrize("make", [True, False])
def test_lost_checkpoints(tmp_path, make):
  folder = tmp_path / "checkpoints"
  if make:
    folder.mkdir()
    (folder / "notes.txt").write_text("")
    (folder / "step-.npz").write_text("")
  _refused(
    folder,
    "32 steps were charged.*there is none.*weights that were paid for are lost",
    charged=32,
  )
  # Killed before the first charge: nothing was paid for, nothing is lost.
  restored, variables = _restore(folder, charged=0)
  assert restored == checkpoint.Restored(0, 0)
  np.testing.assert_array_equal(variables[0], [-7.0, -6.0])


def test_a_file_in_the_place_of_the_folder(tmp_path):
  (tmp_path / "checkpoints").write_text("")
  _refused(tmp_path / "checkpoints", "Expected a folder of checkpoints")
  with pytest.raises(ValueError, match="Expected to make the folder"):
    _save(tmp_path / "checkpoints", 1)


def test_files_that_may_not_be_read(tmp_path, monkeypatch):
  _save(tmp_path, 1)

  def denied(*unused, **named):
    raise PermissionError(13, "Permission denied")

  with monkeypatch.context() as patch:
    patch.setattr(np, "load", denied)
    _refused(tmp_path, "Permission denied.*paid for are lost")
  with monkeypatch.context() as patch:
    patch.setattr(pathlib.Path, "read_bytes", denied)
    _refused(tmp_path, "Permission denied.*paid for are lost")
  with monkeypatch.context() as patch:
    patch.setattr(os, "listdir", denied)
    _refused(tmp_path, "cannot be read .*Permission denied")


def test_a_renamed_one_is_not_the_newest(tmp_path):
  shutil.copy(_save(tmp_path, 1, 5.0), tmp_path / "step-000000777.npz")
  _save(tmp_path, 2, 6.0)
  restored, variables = _restore(tmp_path)
  assert restored.step == 2
  assert "step-000000777.npz" in restored.skipped[0]
  np.testing.assert_array_equal(variables[0], [6.0, 7.0])


def test_every_spoilt_byte_is_seen_or_harmless(tmp_path):
  """Weights and paid steps are as they were written, or are not used."""
  path = _save(tmp_path, 2, 6.0)
  whole = path.read_bytes()
  lost = 0
  for position in range(0, len(whole), 3):
    spoilt = bytearray(whole)
    spoilt[position] ^= random.Random(position).randrange(1, 256)
    path.write_bytes(spoilt)
    variables = _variables(-7.0)
    try:
      restored = checkpoint.restore(tmp_path, variables, _RUN, 1000)
    except ValueError as error:
      assert "paid for are lost" in str(error)  # noqa: PT017
      lost += 1
      continue
    assert (restored.step, restored.charged) == (2, 2)
    np.testing.assert_array_equal(variables[0], [6.0, 7.0])
  assert lost > len(whole) // 3 // 4
  for length in range(0, len(whole), 7):
    path.write_bytes(whole[:length])
    _refused(tmp_path, "paid for are lost")


def test_a_bomb_is_not_unpacked(tmp_path):
  """A header that promises more numbers than there is memory."""
  header = io.BytesIO()
  np.lib.format.write_array_header_1_0(
    header, {"descr": "<f8", "fortran_order": False, "shape": (2**50,)}
  )
  with zipfile.ZipFile(tmp_path / "step-000000001.npz", "w") as archive:
    archive.writestr("v0.npy", header.getvalue())
  _refused(tmp_path, "paid for are lost")


# Networks that do not fit.


@pytest.mark.parametrize(
  ("variables", "message"),
  [
    ([tf.Variable([1.0])], "Expected 1 variables .* received 2"),
    ([*_variables(), tf.Variable(1.0)], "Expected 3 variables"),
    (
      [tf.Variable([1.0]), tf.Variable(3, dtype=tf.int64)],
      r"of shape \(1,\) of float32 .* received \(2,\) of float32",
    ),
    (
      [tf.Variable([1.0, 2.0]), tf.Variable(3.0)],
      r"of shape \(\) of float32 .* received \(\) of int64",
    ),
    (
      [tf.Variable([1, 2], dtype=tf.int32), tf.Variable(3, dtype=tf.int64)],
      "of int32 .* received .* of float32",
    ),
  ],
)
def test_another_network_is_refused(tmp_path, variables, message):
  _save(tmp_path, 1)
  _refused(
    tmp_path,
    f"{message}.*not the one that the run was started with",
    variables=variables,
  )


# Checkpoints and ledgers that do not belong together.


class _Run:
  """A run folder: charges, steps and checkpoints as a training makes them."""

  def __init__(self, folder, resume=False):
    self.folder = folder
    self.ledger = privacy.Ledger.open(
      folder / "ledger.jsonl", {"method": "toy"}, resume
    )
    self.ledger.settle({"noise_multiplier": 1.0}, None)
    self.weights = [tf.Variable(0, dtype=tf.int64)]  # the steps it has seen
    if resume:
      try:
        self.restored = checkpoint.restore(
          folder / "checkpoints",
          self.weights,
          self.ledger.run,
          self.ledger.steps,
          self.ledger.knows,
        )
      except BaseException:
        self.ledger.close()
        raise
    else:
      self.save()

  def save(self):
    checkpoint.save(
      self.folder / "checkpoints",
      self.ledger.steps,
      self.weights,
      self.ledger.run,
      self.ledger.steps,
      self.ledger.checksum,
    )

  def train(self, steps):
    for _ in range(steps):
      self.ledger.charge()
      self.weights[0].assign_add(1)
      self.save()
    self.ledger.close()
    return self


def _resume_refused(folder, message):
  before = (folder / "checkpoints").exists()
  with pytest.raises(ValueError, match=message) as caught:
    _Run(folder, resume=True)
  assert "new run_dir" in str(caught.value)
  assert (folder / "checkpoints").exists() == before


def _cut(folder, charges=None, lines=None):
  """Cuts a ledger back to so many charges, or by so many lines."""
  path = folder / "ledger.jsonl"
  found = path.read_bytes().splitlines(keepends=True)
  if lines is None:
    kinds = [json.loads(line)["type"] for line in found]
    lines = kinds.count("charge") - charges
  path.write_bytes(b"".join(found[:-lines]))


@pytest.fixture
def trained(tmp_path):
  _Run(tmp_path / "run").train(100)
  return tmp_path / "run"


def test_a_run_goes_on(trained):
  run = _Run(trained, resume=True)
  assert (run.restored.step, run.restored.charged) == (100, 100)
  assert run.weights[0].numpy() == 100
  run.train(3)
  assert _Run(trained, resume=True).train(2).ledger.steps == 105


def test_a_ledger_cut_to_ten_charges(trained):
  _cut(trained, charges=10)
  _resume_refused(trained, "at most the 10 steps .* received 100: the ledger")


@pytest.mark.parametrize("lines", [1, 2])
def test_the_last_lines_removed(trained, lines):
  _cut(trained, lines=lines)
  _resume_refused(trained, f"at most the {100 - lines} steps .* received 100")


def test_the_last_lines_removed_in_a_later_session(trained):
  """The count is right again after new charges; the checksum is not."""
  shutil.copytree(trained / "checkpoints", trained / "kept")
  _cut(trained, charges=90)
  shutil.rmtree(trained / "checkpoints")
  with privacy.Ledger.open(
    trained / "ledger.jsonl", {"method": "toy"}, resume=True
  ) as ledger:
    ledger.settle({"noise_multiplier": 1.0}, None)
    ledger.charge(50)
  (trained / "kept").rename(trained / "checkpoints")
  _resume_refused(trained, "which it never had: the ledger was replaced")


def test_the_ledger_of_another_run(trained, tmp_path):
  _Run(tmp_path / "other").train(120)
  shutil.copy(tmp_path / "other" / "ledger.jsonl", trained)
  _resume_refused(trained, r"to be of run \w{32}.* received one of run \w{32}")


def test_a_lost_ledger(trained):
  (trained / "ledger.jsonl").unlink()
  _resume_refused(trained, "Expected a ledger to resume at .* found none")
  # Begun anew in the same folder: the weights are not this run's.
  with privacy.Ledger.open(trained / "ledger.jsonl", {"method": "toy"}):
    pass
  _resume_refused(trained, "received one of run")


def test_both_checkpoints_broken(trained):
  for path in (trained / "checkpoints").iterdir():
    path.write_bytes(path.read_bytes()[:-40])
  _resume_refused(trained, "weights that were paid for are lost")


def test_a_checkpoint_of_another_run(trained, tmp_path):
  _Run(tmp_path / "other").train(1)
  shutil.copy(
    tmp_path / "other" / "checkpoints" / "step-000000001.npz",
    trained / "checkpoints" / "step-000000001.npz",
  )
  _Run(trained, resume=True).ledger.close()  # older than its own
  other = privacy.Ledger.open(tmp_path / "big.jsonl", {})
  checkpoint.save(
    trained / "checkpoints",
    999_999_999,
    [tf.Variable(0, dtype=tf.int64)],
    other.run,
    0,
    other.checksum,
  )
  other.close()
  _resume_refused(trained, "step-999999999.npz to be of run")


def test_one_broken_checkpoint_is_paid_again(trained):
  newest = trained / "checkpoints" / "step-000000100.npz"
  newest.write_bytes(newest.read_bytes()[:50])
  run = _Run(trained, resume=True)
  assert (run.restored.step, run.ledger.steps) == (99, 100)
  assert "step-000000100.npz" in run.restored.skipped[0]
  run.train(5)
  assert (run.weights[0].numpy(), run.ledger.steps) == (104, 105)


def test_a_copied_folder_that_is_continued_twice(trained, tmp_path):
  copy = tmp_path / "copy"
  shutil.copytree(trained, copy)
  first = _Run(trained, resume=True).train(5)
  second = _Run(copy, resume=True).train(7)
  assert (first.ledger.moved, second.ledger.moved) == (False, True)
  ledgers = trained / "ledger.jsonl", copy / "ledger.jsonl"
  assert privacy.ledger.diverged(*ledgers)
  # The longer one does not pay for the other's weights.
  shutil.copy(ledgers[1], ledgers[0])
  _resume_refused(trained, "the folder was copied and both were continued")


def test_a_ledger_cut_anywhere_is_seen(tmp_path):
  """Every truncation is refused, or counts all that the weights have seen."""
  folder = tmp_path / "run"
  _Run(folder).train(3)
  path = folder / "ledger.jsonl"
  whole = path.read_bytes()
  accepted = []
  for length in range(0, len(whole) + 1):
    path.write_bytes(whole[:length])
    try:
      run = _Run(folder, resume=True)
    except ValueError:
      continue
    run.ledger.close()
    accepted.append(length)
    assert run.ledger.steps >= run.weights[0].numpy() == 3
  assert accepted == [len(whole)]


_CHILD = """
import pathlib, sys
from tests.methods import checkpoint_test
folder, resume = pathlib.Path(sys.argv[1]), sys.argv[2] == "resume"
run = checkpoint_test._Run(folder, resume)
print("ready", flush=True)
run.train(10**9)
"""


def test_killed_at_any_moment(tmp_path):
  """The ledger covers the weights, and a resume is never refused."""
  chance = random.Random(0)
  seen = 0
  for kill in range(2):
    child = subprocess.Popen(
      [sys.executable, "-c", _CHILD, str(tmp_path), "resume" if kill else ""],
      cwd=_ROOT,
      stdout=subprocess.PIPE,
      text=True,
    )
    assert child.stdout.readline() == "ready\n"
    time.sleep(chance.uniform(0.0, 0.2))
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    run = _Run(tmp_path, resume=True)
    run.ledger.close()
    assert seen <= run.weights[0].numpy() <= run.ledger.steps
    assert run.ledger.steps <= run.weights[0].numpy() + kill + 1
    seen = run.weights[0].numpy()
  assert seen > 1  # both were killed at work
