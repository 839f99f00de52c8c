"""A CSV file of rows that a killed process can go on with."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from tf_privrob import files
from tf_privrob import randomness
from tf_privrob.certify import certificate
from tf_privrob.certify import gate

_REPLACE = "Pass resume=False to replace it, or another path."


class Record:
  """Rows in `path`, certificates by default; what made them in a ".json".

  The sidecar is complete before the first row is; a row is one write ended by
  a newline, so after SIGKILL at any moment the file holds whole rows and at
  most one torn one, which `open` removes.

  Where no seed makes the draws, the key that does is in the ".json" too, so
  that whoever goes on with the file draws the same: certificates are about
  models that were made before, and whoever reads the key later learns nothing
  that harms them.

  Args:
    path: The CSV file.
    settings: JSON values that determine the rows; a file with others is
      refused.
    model: The whole `models.model_hash` of what made the rows; a file of
      another is refused, and one without a hash cannot be gone on with.
    fields: Names of the columns.
    parse: Makes a row of cells; a row writes itself by `to_csv_row()`.
  """

  def __init__(
    self,
    path: str,
    settings: dict[str, Any],
    model: str,
    fields: Sequence[str] = certificate.csv_fields(),
    parse: Callable[
      [Sequence[str]], Any
    ] = certificate.Certificate.from_csv_row,
  ):
    self._fields = tuple(fields)
    self._parse_row = parse
    self._path = os.fspath(path)
    self._sidecar = self._path + ".json"
    self._settings = files.to_jsonable(settings)
    self._model = model
    self._secret = os.urandom(32).hex()
    self._file = None

  @property
  def key(self) -> randomness.Key:
    """The key of the file's draws, after `open`."""
    return randomness.Key(bytes.fromhex(self._secret))

  @property
  def stamp(self) -> str:
    """What each row of the file has, after `open`; see `stamp_of`."""
    return stamp_of(self._content())

  def _content(self) -> dict[str, Any]:
    return {
      "settings": self._settings,
      "model": self._model,
      "key": self._secret,
    }

  def open(self, resume: bool) -> list[Any]:
    """Makes the file ready for `append`; returns the rows it has."""
    rows = []
    if resume and os.path.exists(self._path):
      self._check_sidecar()
      rows = self._repair()
    else:
      self._start()
    with files.told(f"write {self._path}", "Choose another csv_path"):
      self._file = open(self._path, "a", newline="", encoding="utf-8")
    return rows

  def append(self, row: Any) -> None:
    """Writes one row and hands it to the operating system."""
    with files.told(f"write {self._path}", "Free the disk, and resume"):
      self._file.write(_line(row.to_csv_row()))
      self._file.flush()

  def close(self) -> None:
    """Closes the file; it is valid whether or not every row is there."""
    if self._file is not None:
      self._file.close()
      self._file = None

  def _start(self) -> None:
    files.remove(self._path)  # rows are never beside another record
    files.write_json(self._sidecar, self._content())
    files.write_text(self._path, _line(self._fields))

  def _check_sidecar(self) -> None:
    if not os.path.exists(self._sidecar):
      raise ValueError(
        f"Expected {self._sidecar} beside {self._path}: without it nobody"
        " knows what made the rows. Pass resume=False to replace the file, or"
        " another csv_path."
      )
    found = _sidecar(self._sidecar)
    differences = [
      f"{name} = {found['settings'].get(name)!r} in the file,"
      f" {self._settings.get(name)!r} now"
      for name in sorted({*found["settings"], *self._settings})
      if found["settings"].get(name) != self._settings.get(name)
    ]
    if not differences:
      differences = _other_model(found.get("model"), self._model)
    if differences:
      raise ValueError(
        f"Cannot resume {self._path}: it was made with other settings or"
        f" another model ({'; '.join(differences)}). Pass resume=False to"
        " replace it, or another csv_path."
      )
    self._secret = _secret(found, self._sidecar)

  def _repair(self) -> list[Any]:
    """Drops a torn last row from the file and returns the others."""
    content = files.read_bytes(self._path, _REPLACE) or b""
    whole = content[: content.rfind(b"\n") + 1]
    whole = whole or _line(self._fields).encode()
    lines = _cells(self._path, whole)
    if whole != content:
      files.write_bytes(self._path, whole)
    if tuple(lines[0]) != self._fields:
      raise ValueError(
        f"Expected the columns {list(self._fields)} in"
        f" {self._path}, received {lines[0]}. It is of another version: pass"
        " resume=False to certify again."
      )
    return [self._parse(number, line) for number, line in enumerate(lines)][1:]

  def _parse(self, number: int, line: list[str]):
    if number == 0:
      return None
    try:
      return self._parse_row(line)
    except ValueError as error:
      raise ValueError(
        f"Cannot read line {number + 1} of {self._path}: {error} Remove the"
        " line (it will be computed again), or pass resume=False."
      ) from error


class Recorded(NamedTuple):
  """A finished file: its rows, and what made them.

  Attributes:
    rows: Certificates, by index.
    settings: Settings of certifier, seed and data.
    model: The whole `models.model_hash` of what was certified, or "".
  """

  rows: list[certificate.Certificate]
  settings: dict[str, Any]
  model: str

  def check_model(self, model: str) -> None:
    """Refuses another model, and one that cannot be told from others."""
    differences = _other_model(self.model, model)
    if differences:
      raise ValueError(
        "Expected the model that was certified, received another one"
        f" ({differences[0]}). Certify this one first."
      )


def read(path: str | os.PathLike[str]) -> Recorded:
  """Reads certificates and what made them; changes nothing on disk."""
  path = os.fspath(path)
  for needed in (path, path + ".json"):
    if not os.path.exists(needed):
      raise ValueError(
        f"Expected certificates at {needed}, found none. Certify first."
      )
  content = _sidecar(path + ".json")
  lines = _cells(path, files.read_bytes(path) or b"")
  fields = certificate.csv_fields()
  if tuple(lines[0] if lines else ()) != fields or "model" not in content:
    raise ValueError(
      f"Expected the columns {list(fields)} in {path} and a hash of the model"
      f" beside it, received {lines[:1]}. It is of another version: certify"
      " again."
    )
  try:
    rows = [certificate.Certificate.from_csv_row(line) for line in lines[1:]]
  except ValueError as error:
    raise ValueError(
      f"Expected certificates in {path}, received a line of something else"
      f" ({error}). Certify again."
    ) from error
  rows.sort(key=lambda row: row.index)
  _secret(content, path + ".json")
  check_stamps(rows, content["model"], path)
  check_origin(rows, stamp_of(content), path)
  return Recorded(rows, content["settings"], content["model"])


def check_stamps(
  rows: Sequence[certificate.Certificate], model: str, path: str
) -> None:
  """Refuses rows of another model than the file's."""
  wrong = [row for row in rows if row.model != model[: gate.SHORT]]
  if wrong:
    raise ValueError(
      f"Expected rows of model {model[: gate.SHORT]!r} in {path}, received"
      f" {wrong[0].model!r} in that of input {wrong[0].index}. Certify again."
    )


def stamp_of(content: Mapping[str, Any]) -> str:
  """A hash of all that made the rows of a file: settings, inputs and model.

  Nothing in it is secret. It tells rows of another file apart that were put
  here by mistake; whoever forges rows can forge it as well.

  Args:
    content: Of the file's ".json".
  """
  made = [content["settings"], content["model"], content["key"]]
  text = json.dumps(made, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[: gate.SHORT]


def check_origin(
  rows: Sequence[certificate.Certificate], stamp: str, path: str
) -> None:
  """Refuses rows of another file."""
  wrong = [row for row in rows if row.stamp != stamp]
  if wrong:
    raise ValueError(
      f"Expected rows that were made by the settings, inputs and model beside"
      f" {path}, stamp {stamp!r}, received {wrong[0].stamp!r} in that of input"
      f" {wrong[0].index}: it belongs to another file. Certify again, with"
      " resume=False."
    )


def _secret(content: Mapping[str, Any], path: str) -> str:
  """The key in a file's ".json"."""
  found = content.get("key")
  if not isinstance(found, str) or not re.fullmatch("[0-9a-f]{64}", found):
    raise ValueError(
      f"Expected a key of 64 hexadecimal digits in {path}, received"
      f" {found!r}. The file is damaged or of another version: certify again,"
      " with resume=False."
    )
  return found


def _sidecar(path: str) -> dict[str, Any]:
  """What made the rows of a file."""
  try:
    content = files.read_json(path)
  except ValueError as error:
    content = error
  if not isinstance(content, dict) or not isinstance(
    content.get("settings"), dict
  ):
    raise ValueError(
      f"Expected settings in {path}, received a file that is cut off or of"
      " something else. Certify again, with resume=False."
    )
  return content


def _cells(path: str, content: bytes) -> list[list[str]]:
  """The lines of a CSV file."""
  try:
    return list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
  except (ValueError, csv.Error) as error:
    raise ValueError(
      f"Expected rows of text in {path}, received something else ({error})."
      f" {_REPLACE}"
    ) from error


def _line(cells) -> str:
  text = io.StringIO()
  csv.writer(text, lineterminator="\n").writerow(cells)
  return text.getvalue()


def _other_model(before: str | None, now: str) -> list[str]:
  """What tells two hashes apart, in words; empty: it is one model."""
  if not (before and now):
    return [
      "a function, or a model with layers of your own, has no hash: pass a name"
      " for it, model_id='...', when certifying and here"
      if before == ""
      else "no hash of the model is in the file, which is of another version"
      if before is None
      else "the one given now has no hash: pass the model_id of the file"
    ]
  if before == now:
    return []
  return [f"model {before[: gate.SHORT]} in the file, {now[: gate.SHORT]} now"]
