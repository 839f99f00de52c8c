"""Bytes of model files: read once, into memory, within limits."""

from __future__ import annotations

import io
import json
import os
import pathlib
import stat
import struct
import zipfile
import zlib
from typing import Any

from tf_privrob.models.files import known

MAX_BYTES = 2**31
MAX_JSON = 2**23
MAX_RATIO = 10  # of weights that are compressed; Keras stores them
_END, _MAX_DIRECTORY = 22, 4096  # bytes at the end of an archive
_ENTRIES = ("metadata.json", "config.json", "model.weights.h5")
_AGAIN = " Write it by model.save(path)."


def read(path: pathlib.Path, most: int = MAX_BYTES) -> bytes:
  """The whole file as it is now; whoever changes it later changes nothing.

  Raises:
    RefusedError: it is no regular file, or a larger one.
  """
  try:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
  except OSError as error:
    raise known.RefusedError(f"cannot be opened: {error.strerror}.") from error
  with open(descriptor, "rb") as stream:
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
      raise known.RefusedError("is no regular file." + _AGAIN)
    content = stream.read(min(about.st_size, most) + 1)
  if len(content) > min(about.st_size, most):
    raise known.RefusedError(
      f"is larger than {most} bytes, or grows. Load it yourself and pass the"
      " model."
    )
  return content


def parse(text: bytes | str) -> Any:
  """JSON within limits.

  Raises:
    RefusedError: it is none, too long or too deep.
  """
  if len(text) > MAX_JSON:
    raise known.RefusedError(
      f"has a description of more than {MAX_JSON} characters. Load it yourself"
      " and pass the model."
    )
  try:
    return json.loads(text)
  except (RecursionError, ValueError) as error:
    raise known.RefusedError(
      f"has a description that is no JSON ({type(error).__name__}:"
      f" {str(error)[:100]})." + _AGAIN
    ) from error


def unzip(content: bytes) -> dict[str, bytes]:
  """The entries of a .keras file, which are Keras' three and no other.

  Nothing is written to a disk, so no entry has a path to go to. No more is
  expanded than the directory says.

  Raises:
    RefusedError: it is not such an archive, or expands to too much.
  """
  _check_end(content)
  try:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
      entries = archive.infolist()
      _check_entries(entries, len(content))
      return {entry.filename: _entry(archive, entry) for entry in entries}
  except (
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
  ) as error:
    raise known.RefusedError(
      f"is no whole archive ({type(error).__name__}: {str(error)[:100]})."
      + _AGAIN
    ) from error


def _entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
  """One entry; `ZipFile.read` would expand whatever the stream holds."""
  with archive.open(entry) as stream:
    return stream.read(entry.file_size) if entry.file_size else b""


def _check_end(content: bytes) -> None:
  """Refuses a directory that is too large to be parsed, or not at the end."""
  end = content[-_END:]
  small = len(end) == _END and struct.unpack("<I", end[12:16])[0]
  if (
    not end.startswith(b"PK\5\6")
    or not 0 < small <= _MAX_DIRECTORY
    or content[-_END - 20 :].startswith(b"PK\6\7")
  ):
    raise known.RefusedError("is no whole archive of a few entries." + _AGAIN)


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
  names = [entry.filename for entry in entries]
  for name in names:
    if name not in _ENTRIES or names.count(name) > 1:
      raise known.RefusedError(
        f"holds an entry {name[:200]!r}, expected each of"
        f" {', '.join(_ENTRIES)} once." + _AGAIN
      )
  for name in set(_ENTRIES[1:]) - set(names):
    raise known.RefusedError(
      f"holds no entry {name!r}: it is not a whole model." + _AGAIN
    )
  for entry in entries:
    json_text = not entry.filename.endswith(".h5")
    # What the directory says of the compressed size proves nothing.
    most = MAX_JSON if json_text else min(MAX_BYTES, MAX_RATIO * size)
    if entry.file_size > most:
      raise known.RefusedError(
        f"expands to {entry.file_size} bytes of {entry.filename!r}, more than"
        f" {most}. Load it yourself and pass the model."
      )
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
      raise known.RefusedError(
        f"holds {entry.filename!r} in a compression that is neither stored nor"
        " deflated." + _AGAIN
      )
