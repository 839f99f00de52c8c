"""What the tests of several studies do alike."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).parents[2]


def measured(experiment, cells=None):
  """The experiment, run from its beginning and written down.

  Args:
    experiment: Of a fresh folder.
    cells: Those that are run; None: all.
  """
  experiment.open(resume=False)
  experiment.run(experiment.cells if cells is None else cells)
  experiment.write()
  return experiment


def rows(page: str, start: str) -> list[list[str]]:
  """The cells of those lines of a page's tables that begin so."""
  return [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in page.splitlines()
    if line.startswith(f"| {start}")
  ]


def require_refusal(study: str, words, message: str, folder) -> None:
  """A binary ends with code 2 and this message, and leaves nothing behind."""
  done = subprocess.run(
    [sys.executable, "-m", f"experiments.{study}", *words],
    cwd=folder,
    env={**os.environ, "PYTHONPATH": str(_ROOT)},
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 2, done.stderr
  assert message in done.stderr
  assert "Traceback" not in done.stderr
  assert not list(pathlib.Path(folder).iterdir())
