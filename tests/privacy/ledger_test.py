from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

import tf_privrob
from tests.privacy import ledger_cases
from tf_privrob import files
from tf_privrob import privacy
from tf_privrob.privacy import ledger_file
from tf_privrob.privacy import ledger_format

_ROOT = pathlib.Path(tf_privrob.__file__).parents[1]


@pytest.fixture
def path(tmp_path):
  return tmp_path / "ledger.jsonl"


def _lines(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def test_charges_are_on_the_disk_at_once(path):
  with ledger_cases.open_ledger(path, max_steps=10) as ledger:
    assert (ledger.steps, ledger.session, ledger.max_steps) == (0, 0, 10)
    assert ledger.charge() == 1
    assert privacy.read_ledger(path).steps == 1
    assert ledger.charge(4) == 5
    assert privacy.read_ledger(path).steps == 5
    assert (ledger.steps, ledger.max_steps) == (5, 10)


def test_synced_before_charge_returns(path, monkeypatch):
  synced = []
  real = ledger_file.sync_data
  monkeypatch.setattr(
    ledger_file,
    "sync_data",
    lambda fd: (real(fd), synced.append(os.fstat(fd).st_size)),
  )
  folders = []
  real_folder = files.sync
  monkeypatch.setattr(
    files,
    "sync",
    lambda folder: (real_folder(folder), folders.append(folder)),
  )
  with ledger_cases.open_ledger(path) as ledger:
    assert folders == [str(path.parent)]
    for _ in range(3):
      ledger.charge()
      assert synced[-1] == path.stat().st_size
    ledger.begin_release("moments", {})
    assert synced[-1] == path.stat().st_size
    ledger.finish_release("moments", ledger_cases.DIGEST)
    assert synced[-1] == path.stat().st_size
  assert len(synced) == 8  # Header, session, plan, three charges, release.


def test_session_grows_and_is_written_before_any_step(path):
  for session in range(4):
    with ledger_cases.open_ledger(path, resume=session > 0) as ledger:
      assert ledger.session == session
      history = privacy.read_ledger(path)
      assert [s["session"] for s in history.sessions] == list(
        range(session + 1)
      )
      ledger.charge(2)
  assert privacy.read_ledger(path).steps == 8


def test_file_is_enough_for_an_auditor(path):
  with ledger_cases.open_ledger(path, max_steps=7) as ledger:
    ledger.charge()
  header, session, plan, charge = _lines(path)
  assert header["parameters"] == ledger_cases.PARAMETERS
  assert header["version"] == tf_privrob.__version__
  assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d\+00:00", header["time"])
  assert header["run"] == ledger.run
  assert int(ledger.run, 16) < 2**128
  assert len(ledger.run) == len(session["id"]) == 32
  assert session["pid"] == os.getpid()
  assert (plan["parameters"], plan["max_steps"]) == (ledger_cases.PLAN, 7)
  assert (charge["count"], charge["steps"], charge["session"]) == (1, 1, 0)
  assert sorted(os.listdir(path.parent)) == ["ledger.jsonl"]


def test_a_charge_has_no_time(path):
  """Steps take longer with more examples: intervals would tell the sizes."""
  with ledger_cases.open_ledger(path) as ledger:
    ledger.charge()
    ledger.begin_release("moments", {})
    ledger.finish_release("moments", ledger_cases.DIGEST)
    ledger.charge(3)
  with path.open("ab") as file:
    file.write(b'{"type": "charge", "count": 2, "st')
  ledger_cases.open_ledger(path, resume=True).close()
  charges = [line for line in _lines(path) if line["type"] == "charge"]
  assert [line["count"] for line in charges] == [1, 3, 2]
  assert not any("time" in line for line in charges)
  for line in _lines(path):
    if line["type"] != "charge":
      assert re.fullmatch(r"[\d-]+T\d\d:\d\d\+00:00", line["time"]), line


def test_charges_with_times_of_earlier_versions_are_read(path):
  with ledger_cases.open_ledger(path) as ledger:
    ledger.charge()
  line = {"type": "charge", "count": 2, "steps": 3, "session": 0}
  line["time"] = "2026-11-18T03:53:00.392380+00:00"
  before = privacy.read_ledger(path).checksum
  with path.open("ab") as file:
    file.write(ledger_format.encode(line, before)[0])
  with ledger_cases.open_ledger(path, resume=True) as ledger:
    assert ledger.charge() == 4


def test_budget_stops_before_the_step(path):
  with ledger_cases.open_ledger(path, max_steps=5) as ledger:
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
    assert ledger.steps == ledger.max_steps
  with ledger_cases.open_ledger(path, resume=True, max_steps=5) as ledger:
    with pytest.raises(RuntimeError, match="allowed by the privacy budget"):
      ledger.charge()


def test_budget_is_never_raised(path):
  with ledger_cases.open_ledger(path, max_steps=5) as ledger:
    ledger.charge()
  for larger in (6, None):
    with pytest.raises(privacy.LedgerError, match=f"max_steps: 5 -> {larger}"):
      ledger_cases.open_ledger(path, resume=True, max_steps=larger)
  ledger_cases.open_ledger(path, resume=True, max_steps=4).close()
  assert privacy.read_ledger(path).max_steps == 4
  with pytest.raises(privacy.LedgerError, match="max_steps: 4 -> 5"):
    ledger_cases.open_ledger(path, resume=True, max_steps=5)


def test_no_charge_without_a_plan(path):
  for resume in (False, True):
    with privacy.Ledger.open(path, ledger_cases.PARAMETERS, resume) as ledger:
      before = path.read_bytes()
      with pytest.raises(privacy.LedgerError, match="call settle first"):
        ledger.charge()
      assert path.read_bytes() == before
      ledger.settle(ledger_cases.PLAN, 5)
      ledger.charge()


def test_the_plan_is_written_once(path):
  ledger_cases.open_ledger(path, max_steps=5).close()
  before = path.read_text().count('"plan"')
  with ledger_cases.open_ledger(path, resume=True, max_steps=5) as ledger:
    ledger.charge()
  assert path.read_text().count('"plan"') == before == 1
  assert privacy.read_ledger(path).plan == ledger_cases.PLAN


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"noise_multiplier": 0.5}, r"noise_multiplier: 1\.1 -> 0\.5"),
    (
      {"sampler": {"kind": "poisson", "sampling_prob": 0.1}, "extra": 2},
      r"extra: 'absent' -> 2; sampler\.sampling_prob: 0\.01 -> 0\.1",
    ),
  ],
)
def test_another_plan_is_refused_once_steps_were_charged(
  path, changes, message
):
  with ledger_cases.open_ledger(path) as ledger:
    ledger.charge()
  with privacy.Ledger.open(
    path, ledger_cases.PARAMETERS, resume=True
  ) as ledger:
    before = path.read_bytes()
    with pytest.raises(privacy.LedgerError, match=message):
      ledger.settle({**ledger_cases.PLAN, **changes}, None)
    with pytest.raises(privacy.LedgerError, match="call settle first"):
      ledger.charge()
    assert path.read_bytes() == before


def test_a_plan_without_charges_may_be_replaced(path):
  """A release that crashed and was repeated needs more noise in the steps."""
  ledger_cases.open_ledger(path, max_steps=5).close()
  other = {**ledger_cases.PLAN, "noise_multiplier": 1.3}
  with privacy.Ledger.open(
    path, ledger_cases.PARAMETERS, resume=True
  ) as ledger:
    ledger.settle(other, 9)
    assert ledger.max_steps == 9
    ledger.charge()
  history = privacy.read_ledger(path)
  assert (history.plan, history.max_steps) == (other, 9)
  with pytest.raises(privacy.LedgerError, match="noise_multiplier"):
    ledger_cases.open_ledger(path, resume=True)


def test_existing_ledger_needs_resume(path):
  ledger_cases.open_ledger(path).close()
  content = path.read_bytes()
  with pytest.raises(
    privacy.LedgerError, match="pass resume=True or choose another run_dir"
  ):
    ledger_cases.open_ledger(path)
  assert path.read_bytes() == content
  assert os.listdir(path.parent) == ["ledger.jsonl"]


def test_missing_ledger_cannot_be_resumed(path):
  with pytest.raises(privacy.LedgerError, match="found none"):
    ledger_cases.open_ledger(path, resume=True)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"num_examples": 999}, "num_examples: 1000 -> 999"),
    ({"method": "ADLM"}, "method: 'DPSGD' -> 'ADLM'"),
    ({"value_range": [-1, 1]}, r"value_range: \[0\.0, 1\.0\] -> \[-1, 1\]"),
    (
      {
        "config": {
          **ledger_cases.PARAMETERS["config"],
          "momentum": 0.5,
          "ema": 0.9,
        }
      },
      r"config\.ema: None -> 0\.9; config\.momentum: 0\.9 -> 0\.5",
    ),
    ({"new": 1}, "new: 'absent' -> 1"),
    ({"config.ema": None}, r"config\.ema: 'absent' -> None"),
    ({"config": {}}, r"config\.learning_rate: 0\.1 -> 'absent'"),
    (
      {"num_examples": 2, "method": 3},
      r"method: .*; num_examples: 1000 -> 2.*choose another run_dir",
    ),
  ],
)
def test_resume_of_another_mechanism_is_refused(path, changes, message):
  ledger_cases.open_ledger(path).close()
  content = path.read_bytes()
  with pytest.raises(privacy.LedgerError, match=message):
    ledger_cases.open_ledger(path, resume=True, **changes)
  assert path.read_bytes() == content
  ledger_cases.open_ledger(
    path, resume=True
  ).close()  # The refusal gave the lock back.


def test_numpy_parameters_equal_plain_ones(path):
  ledger_cases.open_ledger(path, noise=np.float64(1.1), n=np.int32(3)).close()
  ledger_cases.open_ledger(path, resume=True, noise=1.1, n=3).close()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), object()])
def test_bad_parameters(path, bad):
  with pytest.raises(ValueError, match="Expected finite numbers, strings"):
    ledger_cases.open_ledger(path, x=bad)
  assert not path.exists()


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, None])
def test_bad_count(path, bad):
  with (
    ledger_cases.open_ledger(path) as ledger,
    pytest.raises(ValueError, match="count="),
  ):
    ledger.charge(bad)


def test_failed_write_forbids_the_step_and_can_be_resumed(path, monkeypatch):
  ledger = ledger_cases.open_ledger(path)
  ledger.charge()
  real = os.write

  def half(fd, data):
    real(fd, bytes(data[: len(data) // 2]))
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(ledger_file.os, "write", half)
  with pytest.raises(privacy.LedgerError, match="must not be taken"):
    ledger.charge()
  monkeypatch.undo()
  with pytest.raises(privacy.LedgerError, match="is closed"):
    ledger.charge()
  with ledger_cases.open_ledger(path, resume=True) as again:
    assert again.steps == 2


def test_interrupted_charge_closes_the_ledger(path, monkeypatch):
  ledger = ledger_cases.open_ledger(path)

  def interrupt(fd):
    raise KeyboardInterrupt

  monkeypatch.setattr(ledger_file, "sync_data", interrupt)
  with pytest.raises(KeyboardInterrupt):
    ledger.charge()
  monkeypatch.undo()
  assert ledger.closed
  with pytest.raises(privacy.LedgerError, match="is closed"):
    ledger.charge()
  with ledger_cases.open_ledger(path, resume=True) as again:
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

  monkeypatch.setattr(ledger_file.os, "link", refuse)
  ledger_cases.open_ledger(path).close()
  with pytest.raises(privacy.LedgerError, match="resume=True"):
    ledger_cases.open_ledger(path)
  assert os.listdir(path.parent) == ["ledger.jsonl"]


def test_another_working_folder_does_not_matter(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with ledger_cases.open_ledger(pathlib.Path("ledger.jsonl")) as ledger:
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert ledger.charge() == 1


def test_threads_do_not_lose_charges(path):
  with ledger_cases.open_ledger(path) as ledger:
    threads = [
      threading.Thread(target=lambda: [ledger.charge() for _ in range(20)])
      for _ in range(4)
    ]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    assert ledger.steps == privacy.read_ledger(path).steps == 80


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_cannot_charge(path):
  with ledger_cases.open_ledger(path) as ledger:
    child = os.fork()
    if not child:
      try:
        ledger.charge()
      except privacy.LedgerError:
        os._exit(7)
      os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert ledger.charge() == 1


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_in_the_place_of_a_ledger(path, resume):
  path.mkdir()
  with pytest.raises(privacy.LedgerError, match=r"run_dir|be opened"):
    ledger_cases.open_ledger(path, resume=resume)
  with pytest.raises(privacy.LedgerError, match="cannot be read"):
    privacy.read_ledger(path)


def test_a_file_in_the_place_of_the_run_folder(tmp_path):
  (tmp_path / "run").write_text("")
  with pytest.raises(privacy.LedgerError, match="Cannot begin a ledger"):
    ledger_cases.open_ledger(tmp_path / "run" / "ledger.jsonl")


# What is released once.


def test_releases_are_counted_before_they_are_made(path):
  with ledger_cases.open_ledger(path) as ledger:
    assert ledger.release_of("moments") is None
    assert ledger.begin_release("moments", {"dp_epsilon": 0.5}) == 1
    assert privacy.read_ledger(path).releases["moments"].count == 1
    assert ledger.release_of("moments").digest is None
    ledger.finish_release("moments", ledger_cases.DIGEST)
  with ledger_cases.open_ledger(path, resume=True) as ledger:
    entry = ledger.release_of("moments")
    assert (entry.count, entry.digest) == (1, ledger_cases.DIGEST)
    assert entry.settings == {"dp_epsilon": 0.5}
    assert ledger.begin_release("moments", {"dp_epsilon": 0.5}) == 2
    assert ledger.begin_release("relevance", {}) == 1
    assert ledger.release_of("moments").digest == ledger_cases.DIGEST
  assert privacy.read_ledger(path).releases["moments"].count == 2


def test_a_release_has_one_price(path):
  with ledger_cases.open_ledger(path) as ledger:
    ledger.begin_release("moments", {"dp_epsilon": 0.5, "clip": 1})
  with ledger_cases.open_ledger(path, resume=True) as ledger:
    with pytest.raises(
      privacy.LedgerError, match=r"clip: 1 -> 2; dp_epsilon: 0\.5 -> 0\.1"
    ):
      ledger.begin_release("moments", {"dp_epsilon": 0.1, "clip": 2})
    assert ledger.release_of("moments").count == 1


def test_bad_releases(path):
  with ledger_cases.open_ledger(path) as ledger:
    with pytest.raises(privacy.LedgerError, match="was begun"):
      ledger.finish_release("moments", ledger_cases.DIGEST)
    for name in ("", 'a"b', "a b", "ä"):
      with pytest.raises(ValueError, match="Expected letters"):
        ledger.begin_release(name, {})
    with pytest.raises(ValueError, match="settings="):
      ledger.begin_release("moments", {"x": float("nan")})
    with pytest.raises(ValueError, match="Expected a SHA-256"):
      ledger.finish_release("moments", "abc")
  assert privacy.read_ledger(path).releases == {}


# Facts.


def test_facts_are_read_by_later_sessions(path):
  with ledger_cases.open_ledger(path) as ledger:
    for _ in range(2):
      ledger.note_fact("foreign_weights")
    assert ledger.facts == {"foreign_weights"}
    ledger.charge()
  with ledger_cases.open_ledger(path, resume=True) as ledger:
    assert ledger.facts == {"foreign_weights"}
    ledger.note_fact("ended_by_error")
    with pytest.raises(ValueError, match="fact='all_is_well'"):
      ledger.note_fact("all_is_well")
  facts = [line for line in _lines(path) if line["type"] == "fact"]
  assert [line["name"] for line in facts] == [
    "foreign_weights",
    "ended_by_error",
  ]
  assert not any("time" in line for line in facts)


def test_a_fact_that_is_cut_out_is_missed(path):
  with ledger_cases.open_ledger(path) as ledger:
    ledger.note_fact("foreign_weights")
    ledger.charge()
  lines = path.read_bytes().splitlines(keepends=True)
  path.write_bytes(b"".join(line for line in lines if b"foreign" not in line))
  with pytest.raises(privacy.LedgerError, match="does not match its checksum"):
    privacy.read_ledger(path)
