"""The run folder: the one place where a run is written down and read back.

Every JSON file is replaced atomically, so that a killed run leaves either the
old file or the new one, never half of one. `history.jsonl` only grows; a line
that a crash cut short is ignored, and when a resumed run trains an epoch
again, its later line counts. What was computed on private data without noise is
in a file of its own below `nonprivate/`, so that the rest can be shown.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any
from typing import Union

import numpy as np

PathLike = Union[str, "os.PathLike[str]"]
NONPRIVATE = "nonprivate/"  # begins the names of such figures and files
_HISTORY = "history.jsonl"


def to_jsonable(value: Any) -> Any:
  """Turns a result into plain JSON values; NaN and infinities become null.

  Accepts numpy scalars and arrays, dataclasses, paths, mappings and
  sequences, nested in any way.

  Raises:
    TypeError: for anything else, by its type, rather than writing its repr.
  """
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    fields = dataclasses.fields(value)
    return {f.name: to_jsonable(getattr(value, f.name)) for f in fields}
  if isinstance(value, Mapping):
    return {str(key): to_jsonable(item) for key, item in value.items()}
  if isinstance(value, (list, tuple, set, frozenset)):
    items = sorted(value) if isinstance(value, (set, frozenset)) else value
    return [to_jsonable(item) for item in items]
  if isinstance(value, (np.ndarray, np.generic)):
    return to_jsonable(value.tolist())
  if isinstance(value, os.PathLike):
    return os.fspath(value)
  if isinstance(value, float):
    return value if math.isfinite(value) else None
  if value is None or isinstance(value, (bool, int, str)):
    return value
  raise TypeError(
    f"Expected plain data for a JSON file, received {type(value).__name__}."
    " Convert it to numbers, text, lists or mappings first."
  )


def read_arrays(path: PathLike, advice: str = "") -> dict[str, np.ndarray]:
  """The arrays of an npz file, read without pickle.

  Args:
    path: of the file.
    advice: what to do if it cannot be read, for the error.

  Raises:
    ValueError: there is no such file, or it holds anything else.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise ValueError(
      f"Expected an npz file, but there is no file {os.fspath(path)!r}."
    )
  try:
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
      return {name: archive[name] for name in archive.files}
  except Exception as error:  # zipfile, zlib, numpy: each has its own
    raise ValueError(
      f"Expected {os.fspath(path)!r} to be an npz file of plain arrays, but it"
      f" cannot be read ({error}).{advice}"
    ) from error


class RunFolder:
  """Paths of a run, and tolerant reading and atomic writing of its files.

  A file that does not exist reads as None (`history`: an empty list): that
  part was not run. A file that exists but does not hold what it should is an
  error with the path, since silently ignoring it could hide a spent budget.

  Args:
    path: the folder; it is created on the first write, not before.
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
    return self.file(name).exists()

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
    path = self.file(name)
    if not path.exists():
      return {}
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines():
      try:
        row = json.loads(line)
      except ValueError:
        continue  # cut short by a crash; append_history starts a new line
      if isinstance(row, dict) and isinstance(row.get("epoch"), (int, float)):
        rows[row["epoch"]] = row
    return rows

  @property
  def examples(self) -> dict[str, np.ndarray] | None:
    """The arrays of `examples.npz`, read without pickle."""
    path = self.file("examples.npz")
    if not path.exists():
      return None
    return read_arrays(path, " Run the evaluation again.")

  def read_json(self, name: str) -> dict[str, Any] | None:
    """Reads the JSON object in `name`, or None if there is no such file.

    Raises:
      ValueError: if the file exists but is not a JSON object.
    """
    path = self.file(name)
    try:
      payload = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
      return None
    except ValueError as error:
      raise ValueError(
        f"Expected JSON in {path}, but it cannot be read ({error}). Restore it"
        " or delete it and run that step again."
      ) from error
    if not isinstance(payload, dict):
      raise ValueError(
        f"Expected a JSON object in {path}, received a"
        f" {type(payload).__name__}. Run that step again."
      )
    return payload

  def write_json(self, name: str, payload: Any) -> pathlib.Path:
    """Writes `payload` atomically as readable, strictly valid JSON."""
    text = json.dumps(
      to_jsonable(payload), indent=2, allow_nan=False, ensure_ascii=False
    )
    return self.write_text(name, text + "\n")

  def write_text(self, name: str, text: str) -> pathlib.Path:
    """Replaces `name` by `text`: on any crash the old file is still whole."""
    path = self.file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(
      dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"
    )
    try:
      with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
      os.chmod(temporary, _file_mode(path))
      os.replace(temporary, path)
    except BaseException:
      os.unlink(temporary)
      raise
    return path

  def append_history(self, row: Mapping[str, Any]) -> None:
    """Adds one epoch's row and flushes it to the disk.

    What is called `nonprivate/...` in it goes to a file of its own there.

    Raises:
      ValueError: if the row has no `epoch`, by which rows are ordered.
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
    line = json.dumps(to_jsonable(row), allow_nan=False) + "\n"
    path = self.file(name)
    try:
      path.parent.mkdir(parents=True, exist_ok=True)
      with open(path, "a+b") as stream:
        if stream.tell() > 0:
          stream.seek(-1, os.SEEK_END)
          if stream.read(1) != b"\n":
            line = "\n" + line
        stream.write(line.encode("utf-8"))
        stream.flush()
        os.fsync(stream.fileno())
    except OSError as error:
      raise ValueError(
        f"Expected to write {path}, but it failed ({error}). Free the disk or"
        " its name, and resume."
      ) from error


def _file_mode(path: pathlib.Path) -> int:
  """The mode to give a replaced file: its own, or what a new file gets."""
  try:
    return path.stat().st_mode & 0o777
  except FileNotFoundError:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
