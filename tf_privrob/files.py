"""The one writer and reader of files: whole or absent, one sentence on errors.

A file is written under another name in its own folder, flushed to the disk and
then renamed, and the folder is flushed after it: whoever is killed at any
moment leaves the old file or the new one, never half of one. A file that only
grows (`append`) may end in a torn line, which the next line does not touch.
Whatever the disk refuses is a `DiskError`, and whatever a file holds in place
of what it should another ValueError: both say where, what was expected and what
to do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import pathlib
import re
import secrets
import zipfile
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Union

import numpy as np

try:
  import fcntl
except ImportError:  # Not on Windows: there, nothing guards against two runs.
  fcntl = None

PathLike = Union[str, "os.PathLike[str]"]
# A small archive may expand to so many bytes, a larger one to so many times it.
_FREE_BYTES, _MOST_RATIO = 2**28, 100
_DRAFT = ".draft"  # in the names of files that have not got their own yet
# What moves a cursor, turns the direction of a text, or is no character at all.
_UNSEEN = re.compile(
  "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
  "\ud800-\udfff]"
)
_FREE = "Free the disk, or choose a folder that this user may write"
_AGAIN = "Restore it, or delete it and run that step again."


class DiskError(ValueError):
  """What the system refused: of the disk, never of an example."""


def to_jsonable(value: Any) -> Any:
  """Turns a result into plain JSON values; NaN and infinities become null.

  Accepts numpy scalars and arrays, dataclasses, paths, mappings and
  sequences, nested in any way.

  Raises:
    TypeError: For anything else, by its type, rather than writing its repr.
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


def shown(value: Any) -> Any:
  """Text with U+FFFD for each control character but newline and tab.

  Such characters in a file would steer a terminal or turn a line around.

  Args:
    value: Text, or JSON values with text at any depth.
  """
  if isinstance(value, str):
    return _UNSEEN.sub("\ufffd", value)
  if isinstance(value, dict):
    return {shown(key): shown(item) for key, item in value.items()}
  return [*map(shown, value)] if isinstance(value, list) else value


# Writing.


@contextlib.contextmanager
def writing(path: PathLike) -> Iterator[pathlib.Path]:
  """A draft to write within the block; at its end it is the file `path`.

  The draft has the suffix of `path`, by which Keras and Matplotlib know the
  format. Where the block fails, the draft is removed and `path` is as before.

  Args:
    path: The file; its folder is made if it is not there.

  Raises:
    DiskError: If the disk is full, or the place cannot be written.
  """
  path = pathlib.Path(path)
  draft = path.with_name(
    f".{path.stem}.{secrets.token_hex(4)}{_DRAFT}{path.suffix}"
  )
  with told(f"write {path}", _FREE):
    make_folder(path.parent)
    try:
      yield draft
      with contextlib.suppress(FileNotFoundError):  # a new file has its own
        os.chmod(draft, path.stat().st_mode & 0o777)
      sync(draft)
      os.replace(draft, path)
    except BaseException:
      with contextlib.suppress(OSError):
        draft.unlink()
      raise
    sync(path.parent)


def write_bytes(path: PathLike, content: bytes) -> pathlib.Path:
  """Replaces the file `path` by these bytes."""
  with writing(path) as draft:
    draft.write_bytes(content)
  return pathlib.Path(path)


def write_text(path: PathLike, text: str) -> pathlib.Path:
  """Replaces the file `path` by this text, in UTF-8."""
  return write_bytes(path, text.encode("utf-8"))


def write_json(path: PathLike, payload: Any) -> pathlib.Path:
  """Replaces the file `path` by readable, strictly valid JSON."""
  text = json.dumps(
    to_jsonable(payload), indent=2, allow_nan=False, ensure_ascii=False
  )
  return write_text(path, text + "\n")


def write_arrays(
  path: PathLike, arrays: Mapping[str, np.ndarray], compressed: bool = True
) -> pathlib.Path:
  """Replaces the npz file `path` by these arrays; there is no pickle in it."""
  plain = {name: _plain(name, arrays[name]) for name in arrays}
  save = np.savez_compressed if compressed else np.savez
  content = io.BytesIO()  # a zip file on a full disk cannot even be closed
  save(content, **plain)
  return write_bytes(path, content.getvalue())


def _plain(name: str, array: np.ndarray) -> np.ndarray:
  array = np.asarray(array)
  if array.dtype.hasobject:
    raise ValueError(
      f"Expected numbers or text in array {name!r}, received objects. Convert"
      " them first: an npz file is read without pickle."
    )
  return array


def write_model(path: PathLike, model: Any) -> pathlib.Path:
  """Replaces the .keras file `path` by this Keras model."""
  with writing(path) as draft:
    model.save(draft)
  return pathlib.Path(path)


def append(path: PathLike, text: str) -> None:
  """Adds whole lines to the file `path`; on return they are on the disk.

  They begin on a line of their own, also where a crash has cut the last one.
  """
  path = pathlib.Path(path)
  with told(f"write {path}", f"{_FREE}, and resume"):
    make_folder(path.parent)
    with open(path, "a+b") as stream:
      fresh = stream.tell() == 0
      if not fresh:
        stream.seek(-1, os.SEEK_END)
        if stream.read(1) != b"\n":
          text = "\n" + text
      stream.write(text.encode("utf-8"))
      stream.flush()
      os.fsync(stream.fileno())
    if fresh:
      sync(path.parent)


def make_folder(path: PathLike) -> None:
  """Makes a folder, with those above it, unless it is there.

  Raises:
    ValueError: If something else has its name, or it cannot be made.
  """
  with told(f"make the folder {path}", "Choose another name or place"):
    pathlib.Path(path).mkdir(parents=True, exist_ok=True)


def remove(path: PathLike) -> None:
  """Removes a file, if it is there."""
  with told(f"remove {path}", "Give this user the right to"):
    pathlib.Path(path).unlink(missing_ok=True)


def remove_drafts(folder: PathLike, pattern: str = "*") -> None:
  """Removes what killed writers have left in a folder.

  Only for whoever is known to be the only writer of these files.

  Args:
    folder: Where to look.
    pattern: Of the names that the drafts were to have, without the suffix.
  """
  for draft in pathlib.Path(folder).glob(f".{pattern}.*{_DRAFT}.*"):
    with contextlib.suppress(OSError):
      draft.unlink()


def sync(path: PathLike) -> None:
  """Puts a file, or the names in a folder, on the disk."""
  if os.path.isdir(path) and os.name != "posix":
    return  # only there folders can be synced
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


@contextlib.contextmanager
def locked(path: PathLike, meaning: str) -> Iterator[None]:
  """Holds the lock file `path` for this process alone, until the block ends.

  Args:
    path: The lock file, which stays behind and means nothing by itself.
    meaning: What the lock is for, such as "an evaluation of runs/first".

  Raises:
    ValueError: If another process holds it.
  """
  path = pathlib.Path(path)
  with told(f"lock {path}", "Choose a folder on a local disk"):
    make_folder(path.parent)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
  try:
    _take(descriptor, path, meaning)
    yield
  finally:
    os.close(descriptor)


def _take(descriptor: int, path: pathlib.Path, meaning: str) -> None:
  if fcntl is None:
    return
  try:
    with told(f"lock {path}", "Choose a folder on a local disk"):
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except ValueError as error:
    if not isinstance(error.__cause__, (BlockingIOError, PermissionError)):
      raise
    raise ValueError(
      f"Expected to be alone with {meaning}, but another process is at it."
      " Wait for it to end, or choose another folder."
    ) from error


# Reading.


def read_bytes(path: PathLike, advice: str = _AGAIN) -> bytes | None:
  """The bytes of a file; None if there is none.

  Args:
    path: The file.
    advice: What to do if it cannot be read, as a sentence for the error.

  Raises:
    ValueError: If it is no file, or this user may not read it.
  """
  try:
    with told(f"read {path}", advice.rstrip(".")):
      return pathlib.Path(path).read_bytes()
  except ValueError as error:
    if isinstance(error.__cause__, FileNotFoundError):
      return None
    raise


def read_text(path: PathLike, advice: str = _AGAIN) -> str | None:
  """The text of a file; None if there is none. See `read_bytes`."""
  content = read_bytes(path, advice)
  if content is None:
    return None
  try:
    return content.decode("utf-8")
  except ValueError as error:
    raise ValueError(
      f"Expected text in {path}, received bytes that are none ({error})."
      f" {advice}"
    ) from error


def read_json(path: PathLike, advice: str = _AGAIN) -> dict[str, Any] | None:
  """The JSON object in a file; None if there is none.

  Raises:
    ValueError: If there is anything else: another value than an object, a
      number that is not finite, a key twice, a file that was cut off, a folder.
  """
  text = read_text(path, advice)
  if text is None:
    return None
  try:
    payload = _parsed(text)
  except (ValueError, RecursionError) as error:
    raise ValueError(
      f"Expected JSON in {path}, but it cannot be read ({error}). {advice}"
    ) from error
  if not isinstance(payload, dict):
    raise ValueError(
      f"Expected a JSON object in {path}, received a"
      f" {type(payload).__name__}. {advice}"
    )
  return payload


def _parsed(text: str) -> Any:
  """The value of a JSON text that everybody reads alike."""
  return json.loads(
    text,
    parse_constant=_refuse,
    parse_float=_finite,
    object_pairs_hook=_object,
  )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  found = dict(pairs)
  if len(found) < len(pairs):
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise ValueError(f"the key {twice!r} stands in one object twice")
  return found


def _refuse(text: str) -> None:
  raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
  value = float(text)
  return value if math.isfinite(value) else _refuse(text)


def read_lines(path: PathLike) -> list[dict[str, Any]]:
  """The JSON objects in the lines of a file; none if there is no file.

  A line that is none, as where a crash cut it short, is left out.
  """
  rows = []
  for line in (read_text(path) or "").splitlines():
    with contextlib.suppress(ValueError, RecursionError):
      row = _parsed(line)
      rows += [row] if isinstance(row, dict) else []
  return rows


def read_arrays(path: PathLike, advice: str = "") -> dict[str, np.ndarray]:
  """The arrays of an npz file, read without pickle.

  Args:
    path: The file.
    advice: What to do if it cannot be read, for the error.

  Raises:
    ValueError: If there is no such file, or it holds anything else.
  """
  content = read_bytes(path, advice.strip() or _AGAIN)
  if content is None:
    raise ValueError(
      f"Expected an npz file, but there is no file {os.fspath(path)!r}."
    )
  try:
    require_expansion(io.BytesIO(content), len(content))
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
      return {name: archive[name] for name in archive.files}
  except Exception as error:  # zipfile, zlib, numpy: each has its own
    raise ValueError(
      f"Expected {os.fspath(path)!r} to be an npz file of plain arrays, but it"
      f" cannot be read ({error}).{advice}"
    ) from error


def require_expansion(archive: PathLike | io.BytesIO, size: int) -> None:
  """Refuses a zip archive that is small and expands to far more.

  Args:
    archive: Its path or content.
    size: Its bytes.

  Raises:
    ValueError: It expands to more than 256 MiB and 100 times its size.
  """
  with zipfile.ZipFile(archive) as opened:
    total = sum(entry.file_size for entry in opened.infolist())
  if total > max(_FREE_BYTES, _MOST_RATIO * size):
    raise ValueError(
      f"it expands from {size} to {total} bytes, more than {_MOST_RATIO} times"
      " its size: write it without compression"
    )


@contextlib.contextmanager
def told(task: str, advice: str) -> Iterator[None]:
  """Says what the system refused in one sentence."""
  try:
    yield
  except OSError as error:
    said = error.strerror or str(error)
    raise DiskError(
      f"Expected to {task}, but it failed ({said}). {advice}."
    ) from error
