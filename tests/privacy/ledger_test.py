from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tf_privrob
from tf_privrob import privacy
from tf_privrob.privacy import ledger as ledger_lib

_PARAMETERS = {
  "noise_multiplier": 1.1,
  "l2_clip_norm": 1.0,
  "dp_delta": 1e-5,
  "neighbouring": "add_or_remove_one",
  "sampler": {"kind": "poisson", "sampling_prob": 0.01, "num_examples": 1000},
}
_ROOT = pathlib.Path(tf_privrob.__file__).parents[1]

# Charges, then replaces the "weights" (the steps they have seen) atomically.
_CHILD = """
import os, sys
from tf_privrob import privacy
folder, resume = sys.argv[1], sys.argv[2] == "resume"
with privacy.Ledger.open(folder + "/ledger.jsonl", {"noise": 1.1},
                         resume=resume) as ledger:
  weights = folder + "/weights"
  seen = int(open(weights).read()) if os.path.exists(weights) else 0
  print("session", ledger.session, flush=True)
  while True:
    ORDER
"""
_CHARGE = "ledger.charge()"
_STEP = (
  "seen += 1; open(weights + '.new', 'w').write(str(seen));"
  " os.replace(weights + '.new', weights)"
)


@pytest.fixture
def path(tmp_path):
  return tmp_path / "ledger.jsonl"


def _open(path, resume=False, max_steps=None, extend=False, **changes):
  return privacy.Ledger.open(
    path, {**_PARAMETERS, **changes}, max_steps, resume, extend
  )


def test_charges_are_on_the_disk_at_once(path):
  with _open(path, max_steps=10) as ledger:
    assert (ledger.steps, ledger.session, ledger.remaining) == (0, 0, 10)
    assert ledger.charge() == 1
    assert privacy.read_ledger(path).steps == 1
    assert ledger.charge(4) == 5
    assert privacy.read_ledger(path).steps == 5
    assert (ledger.steps, ledger.remaining) == (5, 5)


def test_synced_before_charge_returns(path, monkeypatch):
  synced = []
  real = ledger_lib._sync
  monkeypatch.setattr(
    ledger_lib,
    "_sync",
    lambda fd: (real(fd), synced.append(os.fstat(fd).st_size)),
  )
  folders = []
  real_folder = ledger_lib._sync_folder
  monkeypatch.setattr(
    ledger_lib,
    "_sync_folder",
    lambda folder: (real_folder(folder), folders.append(folder)),
  )
  with _open(path) as ledger:
    assert folders == [str(path.parent)]
    for _ in range(3):
      ledger.charge()
      assert synced[-1] == path.stat().st_size
  assert len(synced) == 5  # Header, session, three charges.


def test_session_grows_and_is_written_before_any_step(path):
  for session in range(4):
    with _open(path, resume=session > 0) as ledger:
      assert ledger.session == session
      history = privacy.read_ledger(path)
      assert [s["session"] for s in history.sessions] == list(
        range(session + 1)
      )
      ledger.charge(2)
  assert privacy.read_ledger(path).steps == 8


def test_file_is_enough_for_an_auditor(path):
  with _open(path, max_steps=7) as ledger:
    ledger.charge()
  header, session, charge = map(json.loads, path.read_text().splitlines())
  assert header["parameters"] == _PARAMETERS
  assert header["version"] == tf_privrob.__version__
  assert header["time"].endswith("+00:00")
  assert header["max_steps"] == 7
  assert session["pid"] == os.getpid()
  assert (charge["count"], charge["steps"], charge["session"]) == (1, 1, 0)
  assert sorted(os.listdir(path.parent)) == ["ledger.jsonl"]


def test_budget_stops_before_the_step(path):
  with _open(path, max_steps=5) as ledger:
    ledger.charge(3)
    before = path.read_bytes()
    with pytest.raises(
      privacy.BudgetExceeded, match=r"3 steps performed \+ 3 requested > 5"
    ):
      ledger.charge(3)
    assert path.read_bytes() == before
    ledger.charge(2)
    with pytest.raises(privacy.BudgetExceeded, match=r"5 .* \+ 1 .* > 5"):
      ledger.charge()
    assert ledger.remaining == 0
  with _open(path, resume=True, max_steps=5) as ledger:
    with pytest.raises(RuntimeError, match="allowed by the privacy budget"):
      ledger.charge()


def test_budget_is_not_raised_in_silence(path):
  _open(path, max_steps=5).close()
  for larger in (6, None):
    with pytest.raises(privacy.LedgerError, match=f"max_steps: 5 -> {larger}"):
      _open(path, resume=True, max_steps=larger)
  _open(path, resume=True, max_steps=4).close()
  with _open(path, resume=True, max_steps=9, extend=True) as ledger:
    assert ledger.remaining == 9
  assert privacy.read_ledger(path).max_steps == 9


def test_existing_ledger_needs_resume(path):
  _open(path).close()
  content = path.read_bytes()
  with pytest.raises(
    privacy.LedgerError, match="pass resume=True or choose another run_dir"
  ):
    _open(path)
  assert path.read_bytes() == content
  assert os.listdir(path.parent) == ["ledger.jsonl"]


def test_missing_ledger_cannot_be_resumed(path):
  with pytest.raises(privacy.LedgerError, match="found none"):
    _open(path, resume=True)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"noise_multiplier": 0.5}, r"noise_multiplier: 1\.1 -> 0\.5"),
    ({"dp_delta": 1e-6}, r"dp_delta: 1e-05 -> 1e-06"),
    ({"neighbouring": "replace_one"}, "'add_or_remove_one' -> 'replace_one'"),
    (
      {"sampler": {**_PARAMETERS["sampler"], "num_examples": 999}},
      r"sampler\.num_examples: 1000 -> 999",
    ),
    ({"new": 1}, "new: 'absent' -> 1"),
    (
      {"l2_clip_norm": 2.0, "dp_delta": 1e-6},
      r"dp_delta: .*; l2_clip_norm: 1\.0 -> 2\.0.*choose another run_dir",
    ),
  ],
)
def test_resume_of_another_mechanism_is_refused(path, changes, message):
  _open(path).close()
  content = path.read_bytes()
  with pytest.raises(privacy.LedgerError, match=message):
    _open(path, resume=True, **changes)
  assert path.read_bytes() == content
  _open(path, resume=True).close()  # The refusal gave the lock back.


def test_numpy_parameters_equal_plain_ones(path):
  _open(path, noise_multiplier=np.float64(1.1), n=np.int32(3)).close()
  _open(path, resume=True, noise_multiplier=1.1, n=3).close()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), object()])
def test_bad_parameters(path, bad):
  with pytest.raises(ValueError, match="Expected finite numbers, strings"):
    _open(path, x=bad)
  assert not path.exists()


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, None])
def test_bad_count(path, bad):
  with _open(path) as ledger, pytest.raises(ValueError, match="count="):
    ledger.charge(bad)


@pytest.mark.parametrize("count", [1, 25])
def test_every_torn_last_line_counts(path, count):
  with _open(path) as ledger:
    ledger.charge(3)
    before = path.stat().st_size
    ledger.charge(count)
  whole = path.read_bytes()
  for length in range(before + 1, len(whole)):
    path.write_bytes(whole[:length])
    history = privacy.read_ledger(path)
    known = f'"count": {count},'.encode() in whole[before:length]
    assert history.steps == 3 + (count if known else 1)
    with _open(path, resume=True) as ledger:
      assert ledger.steps == history.steps
      assert ledger.session == 1
      ledger.charge()
    history = privacy.read_ledger(path)
    assert history.torn == b""
    assert b"unfinished" in path.read_bytes()
    with _open(path, resume=True) as again:
      assert again.steps == history.steps


@pytest.mark.parametrize(
  ("damage", "message"),
  [
    (lambda lines: [lines[0], lines[1], b"{", lines[3]], "line 3 does not"),
    (
      lambda lines: [*lines[:2], lines[2].replace(b"1", b"0", 1), lines[3]],
      "line 3 does not match its checksum",
    ),
    (lambda lines: [*lines[:2], lines[3]], "line 3 does not match"),
    (lambda lines: lines[1:], "line 1 does not match"),
    (lambda lines: [*lines[:3], b"garbage"], "line 4 does not match"),
    (lambda lines: [lines[0]], "line 2 is not a session"),
    (lambda lines: [], "line 1 has no header"),
  ],
)
def test_damage_is_refused(path, damage, message):
  with _open(path) as ledger:
    ledger.charge()
    ledger.charge()
  lines = damage(path.read_bytes().splitlines())
  path.write_bytes(b"".join(line + b"\n" for line in lines))
  content = path.read_bytes()
  with pytest.raises(privacy.LedgerError, match=f"damaged: {message}"):
    _open(path, resume=True)
  assert path.read_bytes() == content


def test_a_ledger_that_skips_a_charge_is_refused(path):
  """Checksums right, count wrong: as an edited file would be."""
  from tf_privrob.privacy import ledger_format

  _open(path).close()
  checksum = privacy.read_ledger(path).checksum
  line, _ = ledger_format.encode(
    {"type": "charge", "count": 1, "steps": 5}, checksum
  )
  with path.open("ab") as file:
    file.write(line)
  with pytest.raises(privacy.LedgerError, match="does not continue the count"):
    privacy.read_ledger(path)


def test_failed_write_forbids_the_step_and_can_be_resumed(path, monkeypatch):
  ledger = _open(path)
  ledger.charge()
  real = os.write

  def half(fd, data):
    real(fd, bytes(data[: len(data) // 2]))
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(ledger_lib.os, "write", half)
  with pytest.raises(privacy.LedgerError, match="must not be taken"):
    ledger.charge()
  monkeypatch.undo()
  with pytest.raises(privacy.LedgerError, match="is closed"):
    ledger.charge()
  with _open(path, resume=True) as again:
    assert again.steps == 2


def test_interrupted_charge_closes_the_ledger(path, monkeypatch):
  ledger = _open(path)

  def interrupt(fd):
    raise KeyboardInterrupt

  monkeypatch.setattr(ledger_lib, "_sync", interrupt)
  with pytest.raises(KeyboardInterrupt):
    ledger.charge()
  monkeypatch.undo()
  with pytest.raises(privacy.LedgerError, match="is closed"):
    ledger.charge()
  with _open(path, resume=True) as again:
    assert again.steps == 1


def test_two_processes_cannot_share_a_run(path):
  code = (
    "import sys; from tf_privrob import privacy\n"
    "try:\n  privacy.Ledger.open(sys.argv[1], {'noise': 1.1}, resume=True)\n"
    "except privacy.LedgerError as error:\n  print(error)\n"
    "else:\n  print('opened')"
  )

  def other():
    return subprocess.run(
      [sys.executable, "-c", code, str(path)],
      cwd=_ROOT,
      capture_output=True,
      text=True,
      check=True,
    ).stdout

  with privacy.Ledger.open(path, {"noise": 1.1}):
    assert "in use by another process" in other()
  assert other().strip() == "opened"


def test_file_system_without_links(path, monkeypatch):
  def refuse(*unused):
    raise OSError(1, "Operation not permitted")

  monkeypatch.setattr(ledger_lib.os, "link", refuse)
  _open(path).close()
  with pytest.raises(privacy.LedgerError, match="resume=True"):
    _open(path)
  assert os.listdir(path.parent) == ["ledger.jsonl"]


def _kill_often(folder, order, kills, rng):
  """Kills a training child at random moments; yields (ledger, weights)."""
  code = _CHILD.replace("ORDER", "\n    ".join(order))
  for kill in range(kills):
    mode = "resume" if kill else "new"
    child = subprocess.Popen(
      [sys.executable, "-c", code, str(folder), mode],
      cwd=_ROOT,
      stdout=subprocess.PIPE,
      text=True,
    )
    assert child.stdout.readline() == f"session {kill}\n"
    time.sleep(rng.uniform(0.0, 0.05))
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    weights = folder / "weights"
    seen = int(weights.read_text()) if weights.exists() else 0
    yield privacy.read_ledger(folder / "ledger.jsonl").steps, seen


def test_killed_runs_never_count_too_few(tmp_path):
  kills = 15
  charged = seen = 0
  for kill, (charged, seen) in enumerate(
    _kill_often(tmp_path, (_CHARGE, _STEP), kills, random.Random(0)), 1
  ):
    assert seen <= charged <= seen + kill  # At most one too many a kill.
  assert seen > 20  # The children did work.
  history = privacy.read_ledger(tmp_path / "ledger.jsonl")
  assert len(history.sessions) == kills


def test_the_kill_test_catches_a_charge_after_the_step(tmp_path):
  found = _kill_often(tmp_path, (_STEP, _CHARGE), 40, random.Random(1))
  assert any(seen > charged for charged, seen in found)
