"""The run folder: the one place where a run is written down and read back.

Every JSON file is replaced atomically, so that a killed run leaves either the
old file or the new one, never half of one. `history.jsonl` only grows; a line
that a crash cut short is ignored, and when a resumed run trains an epoch
again, its later line counts. What was computed on private data without noise is
in a file of its own below `nonprivate/`, so that the rest can be shown.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any
from typing import Callable

import numpy as np

from tf_privrob import files

PathLike = files.PathLike
NONPRIVATE = "nonprivate/"  # begins the names of such figures and files
_HISTORY = "history.jsonl"


class RunFolder:
  """Paths of a run, and tolerant reading and atomic writing of its files.

  A file that does not exist reads as None (`history`: an empty list): that
  part was not run. A file that exists but does not hold what it should is an
  error with the path, since silently ignoring it could hide a spent budget.

  Args:
    path: The folder; it is created on the first write, not before.
  """

  def __init__(self, path: PathLike):
    self.path = pathlib.Path(path)

  def __fspath__(self) -> str:
    return os.fspath(self.path)

  def __repr__(self) -> str:
    return f"RunFolder({os.fspath(self.path)!r})"

  def file(self, name: str) -> pathlib.Path:
    """The path of `name` inside the folder, whether it exists or not."""
    return self.path / name

  def has(self, name: str) -> bool:
    """Whether the file or folder `name` exists in the run."""
    return os.path.exists(self.file(name))

  @property
  def config(self) -> dict[str, Any] | None:
    """Method, data set, network, config fields and flags of the run."""
    return self.read_json("config.json")

  @property
  def run(self) -> dict[str, Any] | None:
    """When, where, how long and with which versions it was trained."""
    return self.read_json("run.json")

  @property
  def privacy(self) -> dict[str, Any] | None:
    """The JSON form of the run's PrivacyStatement."""
    return self.read_json("privacy.json")

  @property
  def metrics(self) -> dict[str, Any] | None:
    """What the evaluation measured: clean, attacks, certified, commands."""
    return self.read_json("metrics.json")

  @property
  def history(self) -> list[dict[str, Any]]:
    """One row per epoch, in order; the last line written for it counts.

    Figures without noise are part of it where `nonprivate/` is still there.
    """
    rows, private = self._rows(_HISTORY), self._rows(NONPRIVATE + _HISTORY)
    return [{**private.get(epoch, {}), **rows[epoch]} for epoch in sorted(rows)]

  def _rows(self, name: str) -> dict[float, dict[str, Any]]:
    """Rows of a history by their epoch."""
    return {
      row["epoch"]: row
      for row in files.read_lines(self.file(name))
      if isinstance(row.get("epoch"), (int, float))
    }

  @property
  def examples(self) -> dict[str, np.ndarray] | None:
    """The arrays of `examples.npz`, read without pickle."""
    if not self.has("examples.npz"):
      return None
    path = self.file("examples.npz")
    return files.read_arrays(path, " Run the evaluation again.")

  def read_json(self, name: str) -> dict[str, Any] | None:
    """Reads the JSON object in `name`, or None if there is no such file.

    Its text can be shown: control characters are replaced.

    Raises:
      ValueError: If the file exists but is not a JSON object.
    """
    return files.shown(files.read_json(self.file(name)))

  def write_json(self, name: str, payload: Any) -> pathlib.Path:
    """Writes `payload` atomically as readable, strictly valid JSON."""
    return files.write_json(self.file(name), payload)

  def write_text(self, name: str, text: str) -> pathlib.Path:
    """Replaces `name` by `text`: on any crash the old file is still whole."""
    return files.write_text(self.file(name), text)

  def append_history(self, row: Mapping[str, Any]) -> None:
    """Adds one epoch's row and flushes it to the disk.

    What is called `nonprivate/...` in it goes to a file of its own there.

    Raises:
      ValueError: If the row has no `epoch`, by which rows are ordered.
    """
    if not isinstance(row.get("epoch"), (int, float, np.number)):
      raise ValueError(
        f"Expected a number under 'epoch' in a history row, received keys"
        f" {sorted(row)}."
      )
    private = {k: v for k, v in row.items() if k.startswith(NONPRIVATE)}
    public = {k: v for k, v in row.items() if k not in private}
    if private:
      self._append(NONPRIVATE + _HISTORY, {"epoch": row["epoch"], **private})
    self._append(_HISTORY, public)

  def _append(self, name: str, row: Mapping[str, Any]) -> None:
    """Adds a line, on the disk when it returns."""
    line = json.dumps(files.to_jsonable(row), allow_nan=False)
    files.append(self.file(name), line + "\n")


def alone(lock: str, meaning: str) -> Callable[[Callable], Callable]:
  """Decorates a function of a run folder, which one process runs at a time.

  Args:
    lock: The lock file in the folder.
    meaning: What the function does, before the path of the folder.

  Returns:
    A decorator; what it makes raises a ValueError while another process is at
    it.
  """

  def decorate(function):
    @functools.wraps(function)
    def locked(folder, *args, **kwargs):
      with files.locked(folder.file(lock), f"{meaning} {folder.path}"):
        return function(folder, *args, **kwargs)

    return locked

  return decorate
