"""RunFolder: atomic writes, tolerant reads, a history that survives a kill."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib

import numpy as np
import pytest

from tf_privrob import files
from tf_privrob import report


@dataclasses.dataclass
class _Config:
  rate: float
  shape: tuple


def test_missing_files_read_as_not_run_and_create_nothing(tmp_path):
  folder = report.RunFolder(tmp_path / "none")
  assert folder.config is None
  assert folder.run is None
  assert folder.privacy is None
  assert folder.metrics is None
  assert folder.examples is None
  assert folder.history == []
  assert not folder.path.exists()


def test_write_json_round_trip_of_numpy_and_dataclasses(tmp_path):
  folder = report.RunFolder(tmp_path / "a" / "b")
  payload = {
    "array": np.arange(3),
    "number": np.float32(0.5),
    "config": _Config(rate=0.1, shape=(1, 2)),
    "path": pathlib.PurePosixPath("x/y"),
    "bad": [float("nan"), np.inf, -np.inf],
    "text": "\u00e9 \u221e <b>",
  }
  folder.write_json("config.json", payload)
  assert folder.config == {
    "array": [0, 1, 2],
    "number": 0.5,
    "config": {"rate": 0.1, "shape": [1, 2]},
    "path": "x/y",
    "bad": [None, None, None],
    "text": "\u00e9 \u221e <b>",
  }


def test_write_json_refuses_what_is_not_data(tmp_path):
  with pytest.raises(TypeError, match=r"plain data .* received object"):
    report.RunFolder(tmp_path).write_json("x.json", {"a": object()})
  assert os.listdir(tmp_path) == []


def test_failed_replace_keeps_the_old_file_and_no_temporary(
  tmp_path, monkeypatch
):
  folder = report.RunFolder(tmp_path)
  folder.write_json("run.json", {"steps": 1})

  def fail(*_):
    raise OSError("disk full")

  monkeypatch.setattr(os, "replace", fail)
  with pytest.raises(ValueError, match=r"disk full.*Free the disk"):
    folder.write_json("run.json", {"steps": 2})
  assert folder.run == {"steps": 1}
  assert os.listdir(tmp_path) == ["run.json"]


def test_corrupt_json_is_an_error_with_its_path(tmp_path):
  (tmp_path / "config.json").write_text('{"method": ')
  (tmp_path / "run.json").write_text("[1]")
  folder = report.RunFolder(tmp_path)
  with pytest.raises(ValueError, match=r"Expected JSON in .*config\.json"):
    _ = folder.config
  with pytest.raises(ValueError, match=r"JSON object in .*run\.json.*a list"):
    _ = folder.run


def test_history_appends_in_order_and_later_lines_win(tmp_path):
  folder = report.RunFolder(tmp_path / "run")
  for epoch, loss in ((2, 0.5), (1, 0.9), (2, np.float64(0.4))):
    folder.append_history({"epoch": epoch, "nonprivate/loss": loss})
  assert folder.history == [
    {"epoch": 1, "nonprivate/loss": 0.9},
    {"epoch": 2, "nonprivate/loss": 0.4},
  ]


def test_history_without_noise_is_in_a_file_of_its_own(tmp_path):
  folder = report.RunFolder(tmp_path)
  folder.append_history({"epoch": 1, "step": 4, "nonprivate/loss": 0.5})
  assert "nonprivate" not in folder.file("history.jsonl").read_text()
  whole = [{"epoch": 1, "step": 4, "nonprivate/loss": 0.5}]
  assert folder.history == whole
  folder.file("nonprivate/history.jsonl").unlink()
  assert folder.history == [{"epoch": 1, "step": 4}]


def test_history_survives_a_line_cut_short(tmp_path):
  folder = report.RunFolder(tmp_path)
  folder.append_history({"epoch": 1})
  with open(folder.file("history.jsonl"), "a", encoding="utf-8") as stream:
    stream.write('{"epoch": 2, "st')
  folder.append_history({"epoch": 3})
  assert [row["epoch"] for row in folder.history] == [1, 3]


def test_history_row_without_epoch_is_refused(tmp_path):
  with pytest.raises(ValueError, match=r"number under 'epoch'.*'step'"):
    report.RunFolder(tmp_path).append_history({"step": 3})


def test_examples_with_objects_are_never_unpickled(tmp_path):
  np.savez(tmp_path / "examples.npz", clean=np.array([{}], dtype=object))
  with pytest.raises(ValueError, match=r"plain arrays"):
    _ = report.RunFolder(tmp_path).examples


def test_replaced_file_keeps_its_mode_and_new_one_follows_the_umask(tmp_path):
  folder = report.RunFolder(tmp_path)
  old = os.umask(0o027)
  try:
    path = folder.write_text("a.txt", "x")
    assert path.stat().st_mode & 0o777 == 0o640
    path.chmod(0o604)
    folder.write_text("a.txt", "y")
    assert path.stat().st_mode & 0o777 == 0o604
  finally:
    os.umask(old)


def test_jsonable_output_is_strict_json():
  text = json.dumps(
    files.to_jsonable({"a": np.array([[np.nan, 1.0]]), 3: {2, 1}}),
    allow_nan=False,
  )
  assert json.loads(text) == {"a": [[None, 1.0]], "3": [1, 2]}
