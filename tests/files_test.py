"""files.py: whole or absent, and one sentence where the disk refuses."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from tf_privrob import files


def _full(*unused):
  raise OSError(28, "No space left on device")


_WRITES = {
  "bytes": lambda path: files.write_bytes(path, b"new"),
  "text": lambda path: files.write_text(path, "new"),
  "json": lambda path: files.write_json(path, {"new": 1}),
  "arrays": lambda path: files.write_arrays(path, {"new": np.ones(3)}),
  "append": lambda path: files.append(path, "new\n"),
}


@pytest.mark.parametrize("kind", _WRITES)
@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, kind, failing):
  path = tmp_path / "file"
  path.write_text("old\n")
  monkeypatch.setattr(os, failing, _full)
  if (kind, failing) == ("append", "replace"):
    return  # it replaces nothing
  with pytest.raises(ValueError, match=r"No space left.*Free the disk"):
    _WRITES[kind](path)
  assert path.read_text().startswith("old\n")
  assert os.listdir(tmp_path) == ["file"]


def test_arrays_that_do_not_fit_leave_nothing_open(tmp_path, monkeypatch):
  """An npz file that is being written complains again when it is freed."""
  resource = pytest.importorskip("resource")
  unraised = []
  monkeypatch.setattr(sys, "unraisablehook", unraised.append)
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
  try:
    with pytest.raises(files.DiskError, match="File too large"):
      files.write_arrays(
        tmp_path / "a.npz", {"a": np.ones(99_999)}, compressed=False
      )
    gc.collect()
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, ignored)
  assert unraised == []
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", _WRITES)
@pytest.mark.parametrize(
  "place", ["folder", "file/below", "n" * 300, "file/below/it"]
)
def test_places_that_cannot_be_written(tmp_path, kind, place):
  (tmp_path / "folder").mkdir()
  (tmp_path / "file").write_text("")
  with pytest.raises(ValueError, match=r"^Expected to .*, but it failed \("):
    _WRITES[kind](tmp_path / place)
  assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_text_of_a_file_steers_no_terminal():
  given = {"a\x1b[2J": ["\u202eb\tc\nd", {"e": "\x9b\x00\ud800"}], "f": 1.5}
  assert files.shown(given) == {
    "a\ufffd[2J": ["\ufffdb\tc\nd", {"e": "\ufffd\ufffd\ufffd"}],
    "f": 1.5,
  }
  assert files.shown("\u00e9, \u2264 and \U0001f469\u200d") == (
    "\u00e9, \u2264 and \U0001f469\u200d"
  )


def test_an_interruption_removes_the_draft(tmp_path):
  path = tmp_path / "a.keras"

  def interrupted():
    with files.writing(path) as draft:
      assert (draft.parent, draft.suffix) == (tmp_path, ".keras")
      draft.write_text("half")
      raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    interrupted()
  assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_writer_leaves_the_old_file_or_the_new_one(tmp_path):
  code = """
    import sys
    from tf_privrob import files
    for number in range(10**6):
      files.write_text(sys.argv[1], f"{number} " + "x" * 10**6 + " end")
  """
  path = tmp_path / "file.txt"
  for wait in (0.0, 0.01, 0.02):
    worker = subprocess.Popen(
      [sys.executable, "-c", textwrap.dedent(code), path]
    )
    while not path.exists() and worker.poll() is None:
      time.sleep(0.005)
    time.sleep(wait)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert path.read_text().endswith(" end")
  files.remove_drafts(tmp_path, "file")
  assert os.listdir(tmp_path) == ["file.txt"]


def test_only_the_named_drafts_are_removed(tmp_path):
  names = [".model.0a.draft.keras", ".other.0b.draft.keras", ".model.keras"]
  for name in names:
    (tmp_path / name).write_text("")
  files.remove_drafts(tmp_path, "model")
  assert sorted(os.listdir(tmp_path)) == sorted(names[1:])


def test_a_line_after_a_torn_one_is_whole(tmp_path):
  path = tmp_path / "lines.jsonl"
  files.append(path, '{"a": 1}\n')
  path.write_bytes(path.read_bytes() + b'{"a": ')
  files.append(path, '{"a": 3}\n{"a": 4}\n')
  assert [row["a"] for row in files.read_lines(path)] == [1, 3, 4]
  assert files.read_lines(tmp_path / "none") == []


_BAD_JSON = {
  "cut off": b'{"a": [1, 2',
  "a list": b"[1]",
  "a string": b'"text"',
  "NaN": b'{"a": NaN}',
  "infinity": b'{"a": -Infinity}',
  "overflow": b'{"a": 1e999}',
  "twice": b'{"a": 1, "b": {"c": 2, "d": 3, "c": 4}}',
  "bytes": bytes(range(128, 256)),
  "nothing": b"",
  "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("kind", _BAD_JSON)
def test_json_of_another_kind_is_one_sentence(tmp_path, kind):
  path = tmp_path / "a.json"
  path.write_bytes(_BAD_JSON[kind])
  with pytest.raises(ValueError, match=r"^Expected .*a\.json.*again\.$"):
    files.read_json(path)


def _objects(path):
  np.savez(path, a=np.array([{}], dtype=object))


def _cut(path):
  np.savez(path, a=np.arange(1000))
  path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
  "damage", [_objects, _cut, lambda p: p.mkdir(), lambda p: p.write_bytes(b"")]
)
def test_arrays_of_another_kind_are_one_sentence(tmp_path, damage):
  damage(tmp_path / "a.npz")
  with pytest.raises(ValueError, match=r"^Expected .*a\.npz.*Do that\.$"):
    files.read_arrays(tmp_path / "a.npz", " Do that.")


def test_what_is_not_there_is_none(tmp_path):
  path = tmp_path / "none"
  assert files.read_bytes(path) is None
  assert files.read_text(path) is None
  assert files.read_json(path) is None
  with pytest.raises(ValueError, match="there is no file"):
    files.read_arrays(path)
  (tmp_path / "folder").mkdir()
  with pytest.raises(ValueError, match="Expected to read"):
    files.read_json(tmp_path / "folder")


def test_arrays_round_trip_and_objects_are_refused(tmp_path):
  path = tmp_path / "a.npz"
  files.write_arrays(path, {"a": np.arange(3), "b": np.array("text")})
  found = files.read_arrays(path)
  np.testing.assert_array_equal(found["a"], [0, 1, 2])
  assert str(found["b"]) == "text"
  with pytest.raises(ValueError, match="array 'a', received objects"):
    files.write_arrays(path, {"a": [None]})


def test_a_lock_is_held_once(tmp_path):
  path = tmp_path / "below" / ".lock"
  with files.locked(path, "a thing"):
    with pytest.raises(ValueError, match=r"alone with a thing, but another"):
      with files.locked(path, "a thing"):
        pass
  with files.locked(path, "a thing"):
    pass
