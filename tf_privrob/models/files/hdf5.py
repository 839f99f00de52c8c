"""HDF5 in memory: only what lies in the very bytes, as Keras writes it."""

from __future__ import annotations

import contextlib
import io
import itertools
import struct
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from tf_privrob.models.files import known

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HEAP = b"GCOL\x01"  # where HDF5 keeps strings
_MOST_NAMES, _LONGEST_NAME, _MOST_PARTS = 64, 4096, 100_000
_AGAIN = " Write it by model.save(path)."


class Store:
  """Groups, numbers and strings of an HDF5 file.

  Links lead to the file's own objects only, numbers lie in one piece in the
  bytes, so that neither another file nor a filter is ever opened, and no array
  is larger than the bytes.
  """

  def __init__(self, file: h5py.File, content: bytes):
    self._file, self._size = file, len(content)
    self._longest, self._read = _longest_heap(content), 0

  def group(self, *path: str) -> h5py.Group:
    """The group under a path of names, each of which may have slashes."""
    found = self._follow(path)
    if not isinstance(found, h5py.Group):
      raise known.RefusedError(
        f"has numbers where a group {path} is due." + _AGAIN
      )
    return found

  def _follow(self, path: tuple[str, ...]) -> Any:
    found, names = self._file, "/".join(path).split("/")
    if len(names) > _MOST_NAMES or max(map(len, names)) > _LONGEST_NAME:
      raise known.RefusedError(
        f"has a weight under {len(names)} names, or a name that is too long."
        + _AGAIN
      )
    for name in names:
      # `name in group` would follow the link, into another file too.
      if not isinstance(found, h5py.Group) or not found.id.links.exists(
        name.encode()
      ):
        raise KeyError(name)
      if found.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
        raise known.RefusedError(
          f"has a link {name[:200]!r} that leads elsewhere." + _AGAIN
        )
      found = found[name]
    return found

  def numbers(
    self, shape: tuple[int, ...], dtype: np.dtype, *path: str
  ) -> np.ndarray:
    """The array under the path; shape and type are checked before it is read.

    Raises:
      RefusedError: it is missing, another or not in the bytes.
    """
    name = "/".join(path)[:200]
    try:
      found = self._follow(path)
    except KeyError as error:
      raise known.RefusedError(f"has no weight {name!r}." + _AGAIN) from error
    if not isinstance(found, h5py.Dataset):
      raise known.RefusedError(f"has no numbers at {name!r}." + _AGAIN)
    if found.shape != tuple(shape) or found.dtype != dtype:
      raise known.RefusedError(
        f"has a weight {name!r} of shape {found.shape} and type {found.dtype},"
        f" expected {tuple(shape)} and {dtype}." + _AGAIN
      )
    layout = found.id.get_create_plist()
    kinds = (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT)
    if (
      layout.get_layout() not in kinds
      or layout.get_external_count()
      or layout.get_nfilters()
      or found.nbytes > self._size
    ):
      raise known.RefusedError(
        f"has a weight {name!r} that does not lie in the file in one piece"
        " (chunks, filters, a virtual or external dataset)." + _AGAIN
      )
    return found[()]

  def arrays(self) -> list[str]:
    """The places of all arrays, by the file's own groups."""
    found, seen = [], 0

    def visit(name, item):
      nonlocal seen
      seen += 1
      if seen > _MOST_PARTS or name.count("/") > _MOST_NAMES:
        raise known.RefusedError(
          f"has more than {_MOST_PARTS} groups, or some under more than"
          f" {_MOST_NAMES} names." + _AGAIN
        )
      if isinstance(item, h5py.Dataset):
        found.append(name)

    self._file.visititems(visit)
    return found

  def text(self, group: h5py.Group | None, name: str) -> str | None:
    """An attribute that is one string; None: there is none."""
    values = self._strings(group or self._file, name, one=True)
    return values if values is None else values[0]

  def texts(self, group: h5py.Group, name: str) -> list[str]:
    """A list of strings, which Keras cuts in parts `name0`, ... if long."""
    whole = self._strings(group, name)
    if whole is not None:
      return whole
    found = []
    for number in itertools.count():
      part = self._strings(group, f"{name}{number}")
      if part is None:
        return found
      found += part

  def _strings(
    self, group: h5py.Group, name: str, one: bool = False
  ) -> list[str] | None:
    """Strings of an attribute; each could be the longest of the file."""
    if name not in group.attrs:
      return None
    about = group.attrs.get_id(name)
    text = h5py.check_string_dtype(about.dtype)
    if len(about.shape) > 1 or (one and about.shape) or text is None:
      if about.shape == (0,):
        return []  # of a layer without weights, which has no strings' type
      raise known.RefusedError(
        f"has an attribute {name!r} of no text." + _AGAIN
      )
    count = about.shape[0] if about.shape else 1
    self._read += count * (text.length or self._longest)
    if self._read > 4 * self._size + 2**20:
      raise known.RefusedError(
        f"has too many strings in {name!r}. Save it as .keras, or load it"
        " yourself and pass the model."
      )
    found = np.atleast_1d(np.asarray(group.attrs[name], object))
    return [
      value.decode() if isinstance(value, bytes) else str(value)
      for value in found.tolist()
    ]


def _longest_heap(content: bytes) -> int:
  """The most bytes that a string of variable length can have."""
  longest, place = 4096, content.find(_HEAP)
  while place >= 0:
    size = content[place + 8 : place + 16].ljust(8, b"\0")
    longest = max(longest, struct.unpack("<Q", size)[0])
    place = content.find(_HEAP, place + 1)
  return min(longest, len(content))


@contextlib.contextmanager
def opened(content: bytes) -> Iterator[Store]:
  """The file in these bytes; errors of HDF5 are refusals.

  Raises:
    RefusedError: it is no HDF5 file, or a broken one.
  """
  try:
    with h5py.File(io.BytesIO(content), "r") as file:
      yield Store(file, content)
  except known.RefusedError:
    raise
  except Exception as error:  # whatever broken bytes make HDF5 raise
    raise known.RefusedError(
      f"is no whole HDF5 file ({type(error).__name__}: {str(error)[:100]})."
      + _AGAIN
    ) from error
