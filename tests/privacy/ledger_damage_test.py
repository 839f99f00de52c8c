"""Ledgers that were killed, cut, edited or copied: never counted too low."""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

import tf_privrob
from tests.privacy import ledger_cases
from tf_privrob import privacy
from tf_privrob.privacy import ledger as ledger_lib
from tf_privrob.privacy import ledger_file
from tf_privrob.privacy import ledger_format

_ROOT = pathlib.Path(tf_privrob.__file__).parents[1]
# Written by the version before runs had an identity.
_OLD = (
  b'{"type": "header", "format": 1, "library": "tf_privrob",'
  b' "version": "0.1.0", "time": "2026-11-18T03:53:00.391576+00:00",'
  b' "max_steps": 9, "parameters": {"noise": 1.1}, "crc": "a841896b"}\n'
  b'{"type": "session", "session": 0, "steps": 0, "max_steps": 9,'
  b' "version": "0.1.0", "pid": 8968,'
  b' "time": "2026-11-18T03:53:00.391976+00:00", "crc": "77bbc847"}\n'
  b'{"type": "charge", "count": 1, "steps": 1, "session": 0,'
  b' "time": "2026-11-18T03:53:00.392258+00:00", "crc": "fbd8290a"}\n'
  b'{"type": "charge", "count": 3, "steps": 4, "session": 0,'
  b' "time": "2026-11-18T03:53:00.392380+00:00", "crc": "e288c689"}\n'
)

# Charges, then replaces the "weights" (the steps they have seen) atomically.
_CHILD = """
import os, sys
from tf_privrob import privacy
folder, resume = sys.argv[1], sys.argv[2] == "resume"
with privacy.Ledger.open(folder + "/ledger.jsonl", {"noise": 1.1},
                         resume=resume) as ledger:
  ledger.settle({"clip": 1.0}, None)
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


@pytest.mark.parametrize("count", [1, 25])
def test_every_torn_last_line_counts(path, count):
  with ledger_cases.open_ledger(path) as ledger:
    ledger.begin_release("moments", {"dp_epsilon": 1})
    ledger.charge(3)
    before = path.stat().st_size
    ledger.charge(count)
  whole = path.read_bytes()
  for length in range(before + 1, len(whole)):
    path.write_bytes(whole[:length])
    history = privacy.read_ledger(path)
    known = f'"count": {count},'.encode() in whole[before:length]
    assert history.steps == 3 + (count if known else 1)
    assert history.releases["moments"].count == 1
    with ledger_cases.open_ledger(path, resume=True) as ledger:
      assert ledger.steps == history.steps
      assert ledger.session == 1
      ledger.charge()
    history = privacy.read_ledger(path)
    assert history.torn == b""
    assert b"unfinished" in path.read_bytes()
    with ledger_cases.open_ledger(path, resume=True) as again:
      assert again.steps == history.steps


@pytest.mark.parametrize(
  ("damage", "message"),
  [
    (lambda lines: [*lines[:3], b"{", lines[4]], "line 4 does not"),
    (
      lambda lines: [*lines[:3], lines[3].replace(b"1", b"0", 1), lines[4]],
      "line 4 does not match its checksum",
    ),
    (lambda lines: [*lines[:3], lines[4]], "line 4 does not match"),
    (lambda lines: lines[1:], "line 1 does not match"),
    (lambda lines: [*lines[:4], b"garbage"], "line 5 does not match"),
    (lambda lines: [lines[0]], "line 2 is not a session"),
    (lambda lines: [], "line 1 has no header"),
  ],
)
def test_damage_is_refused(path, damage, message):
  with ledger_cases.open_ledger(path) as ledger:
    ledger.charge()
    ledger.charge()
  lines = damage(path.read_bytes().splitlines())
  path.write_bytes(b"".join(line + b"\n" for line in lines))
  content = path.read_bytes()
  with pytest.raises(privacy.LedgerError, match=f"damaged: {message}"):
    ledger_cases.open_ledger(path, resume=True)
  assert path.read_bytes() == content


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ({"type": "charge", "count": 1, "steps": 5}, "does not continue the count"),
    ({"type": "charge", "count": -2, "steps": 1}, "does not continue the co"),
    ({"type": "charge", "count": 0, "steps": 3}, "does not continue the count"),
    ({"type": "charge", "steps": 4}, "lacks a field"),
    ({"type": "charge", "count": "1", "steps": 4}, "lacks a field"),
    ({"type": "session", "session": 0}, "does not continue the sessions"),
    (
      {"type": "release", "name": "m", "count": 2, "settings": {}},
      "does not continue the count",
    ),
    ({"type": "finished", "name": "m", "digest": ""}, "lacks a field"),
    ({"type": "fact", "name": "all_is_well"}, "tells an unknown fact"),
    ({"type": "header"}, "is a second header"),
    ({"type": "refund", "count": 3}, "is of an unknown kind, 'refund'"),
    ({"count": 1}, "lacks a field"),
  ],
)
def test_a_line_that_cannot_follow_is_refused(path, line, message):
  """Checksums right, content wrong: as an edited file would be."""
  with ledger_cases.open_ledger(path) as ledger:
    ledger.charge(3)
  text, _ = ledger_format.encode(line, privacy.read_ledger(path).checksum)
  with path.open("ab") as file:
    file.write(text)
  with pytest.raises(privacy.LedgerError, match=f"line 5 {message}"):
    ledger_cases.open_ledger(path, resume=True)


@pytest.mark.parametrize(
  "spoil",
  [
    lambda path: path.unlink(),
    lambda path: path.rename(path.with_name("other.jsonl")),
    lambda path: (path.unlink(), path.write_bytes(b"")),
    lambda path: os.truncate(path, path.stat().st_size - 5),
    lambda path: path.write_bytes(path.read_bytes() + b"{}\n"),
    lambda path: shutil.move(path.parent, f"{path.parent}-moved"),
  ],
)
def test_a_ledger_that_is_taken_away_stops_the_run(tmp_path, spoil):
  path = tmp_path / "run" / "ledger.jsonl"
  with ledger_cases.open_ledger(path) as ledger:
    ledger.charge()
    spoil(path)
    for _ in range(2):
      with pytest.raises(privacy.LedgerError, match="no step may be taken"):
        ledger.charge()
    with pytest.raises(privacy.LedgerError, match="no step may be taken"):
      ledger.begin_release("moments", {})


def test_every_torn_release_counts_under_its_name(path):
  with ledger_cases.open_ledger(path) as ledger:
    ledger.begin_release("moments", {"dp_epsilon": 1})
    ledger.begin_release("relevance", {"dp_epsilon": 2})
    before = path.stat().st_size
    ledger.begin_release("relevance", {"dp_epsilon": 2})
  whole = path.read_bytes()
  for length in range(before + 1, len(whole)):
    path.write_bytes(whole[:length])
    torn = whole[before:length]
    with ledger_cases.open_ledger(path, resume=True) as ledger:
      counts = [ledger.release_of(n).count for n in ("moments", "relevance")]
      if b'"relevance"' in torn:
        assert (counts, ledger.steps) == ([1, 2], 0)
      elif b'"release"' in torn:
        assert (counts, ledger.steps) == ([2, 2], 0)
      else:
        assert (counts, ledger.steps) == ([1, 1], 1)


def test_every_torn_fact_holds(path):
  """One that is cut before its name counts as all of them."""
  with ledger_cases.open_ledger(path) as ledger:
    before = path.stat().st_size
    ledger.note_fact("foreign_weights")
  whole = path.read_bytes()
  for length in range(before + 1, len(whole)):
    path.write_bytes(whole[:length])
    torn = whole[before:length]
    with ledger_cases.open_ledger(path, resume=True) as ledger:
      if b'"foreign_weights"' in torn:
        assert (ledger.facts, ledger.steps) == ({"foreign_weights"}, 0)
      elif b'"fact"' in torn:
        assert (ledger.facts, ledger.steps) == (set(ledger_format.FACTS), 0)
      else:  # what it was to stop never began
        assert (ledger.facts, ledger.steps) == (set(), 1)


def test_a_torn_first_release_keeps_its_price_if_it_can_be_read(path):
  with ledger_cases.open_ledger(path) as ledger:
    before = path.stat().st_size
    ledger.begin_release("moments", {"dp_epsilon": 5, "of": [1, {"a": 2}]})
  whole = path.read_bytes()
  for length in range(before + 1, len(whole)):
    path.write_bytes(whole[:length])
    entry = privacy.read_ledger(path).releases.get("moments")
    if b'"moments"' not in whole[before:length]:
      assert entry is None
      continue
    known = b"{}}]}" in whole[before:length].replace(b'"a": 2', b"{}")
    priced = {"dp_epsilon": 5, "of": [1, {"a": 2}]} if known else None
    assert (entry.count, entry.settings) == (1, priced)
    with ledger_cases.open_ledger(path, resume=True) as ledger:
      if known:
        with pytest.raises(privacy.LedgerError, match="dp_epsilon: 5 -> 1"):
          ledger.begin_release("moments", {"dp_epsilon": 1})
      else:
        assert ledger.begin_release("moments", {"dp_epsilon": 1}) == 2
        assert ledger.release_of("moments").settings == {"dp_epsilon": 1}


def test_a_torn_session_is_not_opened_again(path):
  """With a seed, two sessions of one number would draw the same noise."""
  ledger_cases.open_ledger(path).close()
  before = path.stat().st_size
  ledger_cases.open_ledger(path, resume=True).close()
  path.write_bytes(path.read_bytes()[:-1])
  with ledger_cases.open_ledger(path, resume=True) as ledger:
    assert (ledger.session, ledger.steps) == (2, 0)
  path.write_bytes(path.read_bytes()[: before + 5])  # not even its kind
  with ledger_cases.open_ledger(path, resume=True) as ledger:
    assert (ledger.session, ledger.steps) == (1, 1)


def test_a_torn_note_is_dropped(path):
  """The file that it was to announce was not written."""
  with ledger_cases.open_ledger(path) as ledger:
    ledger.charge(3)
  ledger_cases.note(path, "first")
  kind = len(b'{"type": "statement"')
  start = path.stat().st_size + kind
  ledger_cases.note(path, "second")
  whole = path.read_bytes()
  first_line = whole.index(b"\n", start)  # before the file; then one after it
  second = range(first_line + 1 + kind, len(whole))
  for length in (*range(start, first_line + 1), *second):
    path.write_bytes(whole[:length])
    history = privacy.read_ledger(path)
    assert history.steps == 3
    assert history.noted(b"first")
    assert history.noted(b"second") == (length > first_line)
    path.with_suffix(".statement").write_text("first")
    ledger_cases.note(path, "third")
    history = privacy.read_ledger(path)
    assert (history.steps, history.torn) == (3, b"")
    assert history.noted(b"third")


def test_a_note_that_does_not_fit_on_the_disk_leaves_the_ledger(
  path, monkeypatch
):
  ledger_cases.open_ledger(path).close()
  before, real = path.read_bytes(), os.write

  def few(fd, content):
    real(fd, bytes(content[:9]))
    raise OSError(28, "No space left on device")

  with monkeypatch.context() as patched:
    patched.setattr(ledger_file.os, "write", few)
    with pytest.raises(privacy.LedgerError, match=r"privacy\.json stays"):
      ledger_cases.note(path, "statement")
  assert path.read_bytes() == before


def test_a_torn_plan_or_result_is_dropped(path):
  with ledger_cases.open_ledger(path) as ledger:
    ledger.begin_release("moments", {})
    ledger.finish_release("moments", ledger_cases.DIGEST)
  whole = path.read_bytes()
  path.write_bytes(whole[:-3])
  entry = privacy.read_ledger(path).releases["moments"]
  assert (entry.count, entry.digest) == (1, None)
  lines = whole.splitlines(keepends=True)
  path.write_bytes(b"".join(lines[:3])[:-3])
  assert privacy.read_ledger(path).plan is None
  with ledger_cases.open_ledger(path, resume=True) as ledger:
    assert ledger.steps == 0


# Damage anywhere.


def _small(path):
  with ledger_cases.open_ledger(path, max_steps=50) as ledger:
    ledger.begin_release("moments", {"dp_epsilon": 1})
    ledger.charge(3)
  with ledger_cases.open_ledger(path, resume=True, max_steps=50) as ledger:
    ledger.charge(20)


def test_every_flipped_byte_is_refused_or_counted(path):
  _small(path)
  whole = path.read_bytes()
  accepted = []
  for position in range(len(whole)):
    for damage in (0x01, 0x20, 0x80, whole[position] ^ ord("\n")):
      spoilt = bytearray(whole)
      spoilt[position] ^= damage
      if spoilt == whole:
        continue
      path.write_bytes(spoilt)
      try:
        history = privacy.read_ledger(path)
      except privacy.LedgerError:
        continue
      accepted.append(position)
      assert history.steps >= 23
      assert history.releases["moments"].count >= 1
      assert len(history.sessions) >= 2
  assert set(accepted) == {len(whole) - 1}  # the last line's end


def test_every_truncation_is_refused_or_counted(path):
  """As many as whole lines are left, and one more for a torn one."""
  _small(path)
  whole = path.read_bytes()
  ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
  lines = [json.loads(line) for line in whole.splitlines()]
  for length in range(len(whole)):
    path.write_bytes(whole[:length])
    try:
      ledger = privacy.Ledger.open(path, ledger_cases.PARAMETERS, resume=True)
    except privacy.LedgerError:
      assert length < ends[1]  # not even one session
      continue
    ledger.close()
    left = lines[: sum(end <= length for end in ends)]
    steps = sum(line.get("count", 0) for line in left if "steps" in line)
    releases = sum(line["type"] == "release" for line in left)
    assert ledger.steps >= steps
    if length not in ends and lines[len(left)]["type"] == "charge":
      assert ledger.steps >= steps + 1
    entry = ledger.release_of("moments")
    assert (entry.count if entry else 0) >= releases


def test_a_ledger_of_the_old_format_can_be_read_but_not_resumed(path):
  path.write_bytes(_OLD)
  history = privacy.read_ledger(path)
  assert (history.format, history.run, history.plan) == (1, "", None)
  assert (history.steps, history.max_steps, history.moved) == (4, 9, False)
  assert history.parameters == {"noise": 1.1}
  with pytest.raises(
    privacy.LedgerError, match=r"expected a ledger of format 2.*new run_dir"
  ):
    privacy.Ledger.open(path, {"noise": 1.1}, resume=True)
  ledger_cases.note(path, "statement")  # it cannot have such a line
  assert path.read_bytes() == _OLD
  path.write_bytes(_OLD.replace(b'"steps": 4', b'"steps": 3'))
  with pytest.raises(privacy.LedgerError, match="line 4 does not match"):
    privacy.read_ledger(path)


def test_a_ledger_of_a_later_format_is_refused(path):
  line = {"type": "header", "format": 3, "version": "9.1"}
  path.write_bytes(ledger_format.encode(line, "")[0])
  with pytest.raises(privacy.LedgerError, match=r"received format 3.*9\.1"):
    privacy.read_ledger(path)


# Copies.


def test_a_run_that_stays_was_not_moved(tmp_path):
  path = tmp_path / "run" / "ledger.jsonl"
  with ledger_cases.open_ledger(path) as ledger:
    assert not ledger.moved
  (tmp_path / "run").rename(tmp_path / "renamed")  # the same file
  with ledger_cases.open_ledger(
    tmp_path / "renamed" / "ledger.jsonl", resume=True
  ) as ledger:
    assert not ledger.moved


def test_a_copied_run_is_seen(tmp_path):
  path, copy = tmp_path / "a" / "ledger.jsonl", tmp_path / "b" / "ledger.jsonl"
  with ledger_cases.open_ledger(path) as ledger:
    ledger.charge()
  shutil.copytree(path.parent, copy.parent)
  for _ in range(2):
    with ledger_cases.open_ledger(copy, resume=True) as ledger:
      assert ledger.moved
  assert privacy.read_ledger(copy).moved
  assert not privacy.read_ledger(path).moved
  shutil.copytree(copy.parent, tmp_path / "c")
  copy.unlink()
  with ledger_cases.open_ledger(
    tmp_path / "c" / "ledger.jsonl", resume=True
  ) as ledger:
    assert ledger.moved


def test_a_copy_that_is_continued_twice_has_diverged(tmp_path):
  path, copy = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
  with ledger_cases.open_ledger(path) as ledger:
    ledger.charge()
  shutil.copy(path, copy)
  assert not ledger_lib.diverged(path, copy)
  with ledger_cases.open_ledger(path, resume=True) as ledger:
    ledger.charge()
  assert not ledger_lib.diverged(path, copy)  # an older state of it
  assert not ledger_lib.diverged(copy, path)
  with ledger_cases.open_ledger(copy, resume=True) as ledger:
    ledger.charge()
    assert ledger.steps == 2  # each says 2, and 3 were taken
  assert ledger_lib.diverged(path, copy)
  assert ledger_lib.diverged(copy, path)


def test_notes_of_statements_are_no_divergence(tmp_path):
  """Two copies are audited; only what is released afterwards counts twice."""
  path, copy = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
  with ledger_cases.open_ledger(path) as ledger:
    ledger.charge()
  shutil.copy(path, copy)
  for number, place in enumerate((path, copy)):
    ledger_cases.note(place, f"statement {number}")
  assert not ledger_lib.diverged(path, copy)
  with ledger_cases.open_ledger(path, resume=True) as ledger:
    ledger.charge()
  assert not ledger_lib.diverged(path, copy)
  with ledger_cases.open_ledger(copy, resume=True) as ledger:
    ledger.charge()
  assert ledger_lib.diverged(path, copy)


def test_two_runs_have_not_diverged(tmp_path):
  paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
  for path in paths:
    with ledger_cases.open_ledger(path) as ledger:
      ledger.charge()
  assert privacy.read_ledger(paths[0]).run != privacy.read_ledger(paths[1]).run
  assert not ledger_lib.diverged(*paths)
  with pytest.raises(privacy.LedgerError, match="cannot be read"):
    ledger_lib.diverged(paths[0], tmp_path / "missing.jsonl")


def test_a_torn_line_and_its_repair_have_not_diverged(tmp_path):
  path, copy = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
  with ledger_cases.open_ledger(path) as ledger:
    ledger.charge()
  path.write_bytes(path.read_bytes()[:-2])
  shutil.copy(path, copy)
  ledger_cases.open_ledger(path, resume=True).close()
  assert not ledger_lib.diverged(path, copy)


def test_it_knows_its_checksums(path):
  with ledger_cases.open_ledger(path) as ledger:
    known = [ledger.checksum]
    ledger.charge()
    known.append(ledger.checksum)
  with ledger_cases.open_ledger(path, resume=True) as ledger:
    assert all(map(ledger.knows, [*known, ledger.checksum]))
    assert not ledger.knows("")
    assert not ledger.knows(ledger_cases.DIGEST)
    assert ledger.checksum == privacy.read_ledger(path).checksum
  lines = path.read_bytes().splitlines(keepends=True)
  path.write_bytes(b"".join(lines[:3]))
  with ledger_cases.open_ledger(path, resume=True) as ledger:
    assert list(map(ledger.knows, known)) == [True, False]


# Killed at any moment.


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
