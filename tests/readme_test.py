"""The README's example runs as it stands."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).parents[1]


def _example():
  text = (_ROOT / "README.md").read_text(encoding="utf-8")
  return re.search(r"```python\n(.+?)```", text, re.S).group(1)


def _run(code, folder):
  return subprocess.run(
    [sys.executable, "-c", code],
    cwd=folder,
    env={**os.environ, "PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
    capture_output=True,
    text=True,
    check=False,
  )


@pytest.mark.slow
def test_example_runs_with_one_epoch(tmp_path):
  code = _example().replace("epochs=40", "epochs=1")
  assert code != _example()
  done = _run(code, tmp_path)
  assert done.returncode == 0, done.stderr
  assert "/ proven dp_epsilon=" in done.stdout
  assert "under attack" in done.stdout
  assert (tmp_path / "mine.keras").exists()
  assert (tmp_path / "plain.keras").exists()


@pytest.mark.slow
def test_example_runs_as_it_stands(tmp_path):
  done = _run(_example(), tmp_path)
  assert done.returncode == 0, done.stderr
  assert "certified radius" in done.stdout
