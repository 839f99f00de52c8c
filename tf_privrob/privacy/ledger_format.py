"""The lines of `ledger.jsonl`: how they are written, checked and read.

A line may be unfinished only at the end of the file, where a crash cut it
short. What it was to pay for never began, since the call that wrote it did not
return; it is counted all the same, as far as it can be read: a charge with its
count, a release under its name, an opening as a session. A line that is cut
before its kind can be read is counted as one step, a release that is cut before
its name as one more of every release that was begun, and a fact as all facts.
Plans, finished results and notes of a statement pay for nothing, and are
dropped.

A note of a statement has the hash of the text that privacy.json is about to
have and of the one that it had, if that was noted: whoever is killed between
note and file leaves the one or the other. A second note, once the file is
written, leaves the earlier text out: put back, it is another text.

Earlier versions wrote the time into charges too; it is not read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

FORMAT = 2
# What may be told of a run besides what it paid: each lowers what its statement
# proves, and the statement says so.
FACTS = ("nonprivate_logs", "foreign_weights", "ended_by_error", "may_end")


class LedgerError(ValueError):
  """The ledger on the disk cannot be used as asked."""


@dataclasses.dataclass(frozen=True)
class ReleaseEntry:
  """The releases of one name.

  Attributes:
    count: Begun so far, a torn line included.
    settings: What one costs depends on; None if only a torn line was left.
    digest: SHA-256 of the file of the last whole result, None without one.
  """

  count: int
  settings: dict | None
  digest: str | None = None


@dataclasses.dataclass(frozen=True)
class History:
  """What a ledger says, for resuming and for auditors.

  Attributes:
    format: Format of the file; format 1 had neither run nor plan nor releases.
    run: Identity of the run, 32 hexadecimal digits.
    parameters: Parameters of the run, as recorded when it began.
    plan: Parameters of the last plan, None before the first.
    max_steps: Steps that the last plan allows, None for no limit.
    steps: Charged so far, a torn line included.
    releases: What was released once, by name, a torn line included.
    facts: Those of `FACTS` that hold, a torn line included.
    sessions: The line of each opening, with process and time to the minute.
    version: Version of the library that began the run.
    torn: bytes of an unfinished last line, empty if there is none.
    mended: The line that counts for the torn one, None if none has to.
    checksums: After each complete line, over it and all lines before it.
    size: bytes of all complete lines.
    statements: SHA-256 that privacy.json may have by the last note of it.
    counted: Complete lines up to the last one that is no such note.
  """

  format: int
  run: str
  parameters: dict
  plan: dict | None
  max_steps: int | None
  steps: int
  releases: Mapping[str, ReleaseEntry]
  facts: frozenset[str]
  sessions: tuple
  version: str
  torn: bytes
  mended: dict | None
  checksums: tuple
  size: int
  statements: tuple[str, ...] = ()
  counted: int = 0

  @property
  def checksum(self) -> str:
    """Over all complete lines."""
    return self.checksums[-1]

  @property
  def moved(self) -> bool:
    """Whether sessions were opened in different places."""
    return len({s["place"] for s in self.sessions if "place" in s}) > 1

  def noted(self, statement: bytes | None) -> bool:
    """Whether privacy.json may hold these bytes; any where none was noted."""
    if not self.statements or statement is None:
      return not self.statements
    return hashlib.sha256(statement).hexdigest() in self.statements


def read(path: str | os.PathLike) -> History:
  """Reads a ledger without opening it for charges.

  Raises:
    LedgerError: If it cannot be read, has no header, or a line is damaged.
  """
  try:
    with open(path, "rb") as file:
      content = file.read()
  except OSError as error:
    raise LedgerError(
      f"Expected a ledger at {os.fspath(path)}, but it cannot be read"
      f" ({error}). Name the ledger.jsonl of a run folder."
    ) from error
  *lines, torn = content.split(b"\n")
  if not lines:
    raise _damaged(path, 1, "has no header")
  reader, checksums = _Reader(), [""]
  old = re.search(rb', "crc": "[0-9a-f]{8}"\}$', lines[0]) is not None
  for number, raw in enumerate(lines, start=1):
    try:
      line, checksum = _decode(raw, checksums[-1], old)
      reader.take(line)
    except LedgerError:
      raise
    except (AttributeError, KeyError, TypeError):
      raise _damaged(path, number, "lacks a field") from None
    except ValueError as error:
      raise _damaged(path, number, str(error)) from None
    checksums.append(checksum)
  if not reader.sessions:
    raise _damaged(path, 2, "is not a session")
  size = len(content) - len(torn)
  return reader.history(torn, tuple(checksums[1:]), size)


class _Reader:
  """Adds up whole lines, one after the other."""

  def __init__(self):
    self.header: dict | None = None
    self.sessions: list[dict] = []
    self.plan: dict | None = None
    self.max_steps: int | None = None
    self.steps = 0
    self.releases: dict[str, ReleaseEntry] = {}
    self.facts: set[str] = set()
    self.statements: tuple[str, ...] = ()
    self.lines = self.counted = 0

  def take(self, line: dict) -> None:
    kind = line["type"]
    if (self.header is None) != (kind == "header"):
      which = "not the" if self.header is None else "a second"
      raise ValueError(f"is {which} header")
    kinds = {
      "header": self._header,
      "session": self._session,
      "plan": self._plan,
      "charge": self._charge,
      "release": self._release,
      "finished": self._finished,
      "fact": self._fact,
      "statement": self._statement,
    }
    if kind not in kinds:
      raise ValueError(f"is of an unknown kind, {kind!r}")
    kinds[kind](line)
    self.lines += 1
    if kind != "statement":
      self.counted = self.lines

  def _header(self, line: dict) -> None:
    if line["format"] not in (1, FORMAT):
      raise LedgerError(
        f"Expected a ledger of format 1 or {FORMAT}, received format"
        f" {line['format']!r}: another version of the library wrote it. Use"
        f" that version, {line['version']}."
      )
    self.header = {"run": "", **line}
    self.max_steps = line.get("max_steps")

  def _session(self, line: dict) -> None:
    if self.sessions and line["session"] <= self.sessions[-1]["session"]:
      raise ValueError("does not continue the sessions")
    self.sessions.append(line)
    self.max_steps = line.get("max_steps", self.max_steps)

  def _plan(self, line: dict) -> None:
    self.plan, self.max_steps = line["parameters"], line["max_steps"]

  def _charge(self, line: dict) -> None:
    if line["count"] < 1 or line["steps"] != self.steps + line["count"]:
      raise ValueError("does not continue the count")
    self.steps = line["steps"]

  def _release(self, line: dict) -> None:
    names = [*self.releases] if line["name"] is None else [line["name"]]
    for name in names:
      before = self.releases.get(name, ReleaseEntry(0, None))
      if line["name"] and line["count"] != before.count + 1:
        raise ValueError("does not continue the count")
      known = before.settings
      self.releases[name] = dataclasses.replace(
        before,
        count=before.count + 1,
        settings=line["settings"] if known is None else known,
      )

  def _finished(self, line: dict) -> None:
    before = self.releases[line["name"]]
    self.releases[line["name"]] = dataclasses.replace(
      before, digest=line["digest"]
    )

  def _fact(self, line: dict) -> None:
    names = FACTS if line["name"] is None else (line["name"],)
    if not set(names) <= set(FACTS):
      raise ValueError(f"tells an unknown fact, {line['name']!r}")
    self.facts.update(names)

  def _statement(self, line: dict) -> None:
    self.statements = tuple(filter(None, (line["sha256"], line["before"])))

  def history(self, torn: bytes, checksums: tuple, size: int) -> History:
    mended = self._mended(torn) if torn else None
    if mended:
      self.take(mended)
    return History(
      format=self.header["format"],
      run=self.header["run"],
      parameters=self.header["parameters"],
      plan=self.plan,
      max_steps=self.max_steps,
      steps=self.steps,
      releases=self.releases,
      facts=frozenset(self.facts),
      sessions=tuple(self.sessions),
      version=self.header["version"],
      torn=torn,
      mended=mended,
      checksums=checksums,
      size=size,
      statements=self.statements,
      counted=self.counted,
    )

  def _mended(self, torn: bytes) -> dict | None:
    """What a torn line counts as: never too little, see above."""
    kind = _found(rb'^\{"type": "(\w+)"', torn)
    mended = {"repaired": "the last line was unfinished"}
    if kind in ("plan", "finished", "statement"):
      return None
    if kind == "session":
      session = self.sessions[-1]["session"] + 1
      return {"type": kind, "session": session, **mended}
    name = _found(rb', "name": "([\w.-]+)"', torn)
    if kind == "fact":
      name = name if name in FACTS else None
      return {"type": kind, "name": name, **mended}
    if kind == "release":
      count = self.releases[name].count + 1 if name in self.releases else 1
      line = {"type": kind, "name": name, "count": count}
      return {**line, "settings": _settings(torn), **mended}
    count = max(1, int(_found(rb', "count": (\d{1,15}),', torn) or 1))
    line = {"type": "charge", "count": count, "steps": self.steps + count}
    return {**line, **mended}


def _found(pattern: bytes, torn: bytes) -> str | None:
  match = re.search(pattern, torn)
  return match.group(1).decode() if match else None


def _settings(torn: bytes) -> Any:
  """The settings in a torn line, None if they are not whole."""
  text = torn.decode(errors="replace").partition(', "settings": ')[2]
  try:
    return json.JSONDecoder().raw_decode(text)[0]
  except ValueError:
    return None


def encode(line: dict, checksum: str) -> tuple[bytes, str]:
  """The bytes of a line, and the checksum over it and all before it."""
  body = json.dumps(line, allow_nan=False)[:-1].encode()
  checksum = _link(body, checksum)
  return body + b', "checksum": "%s"}\n' % checksum.encode(), checksum


def _link(body: bytes, before: str) -> str:
  return hashlib.sha256(before.encode() + body).hexdigest()


def _decode(raw: bytes, before: str, old: bool) -> tuple[dict, str]:
  """A line and its checksum; `old` is for those of format 1."""
  name = b"crc" if old else b"checksum"
  body, mark, found = raw.rpartition(b', "%s": ' % name)
  if old:
    checksum = f"{zlib.crc32(body, int(before or '0', 16)):08x}"
  else:
    checksum = _link(body, before)
  if not mark or found != b'"%s"}' % checksum.encode():
    raise ValueError("does not match its checksum")
  return json.loads(raw), checksum


def _damaged(path: str | os.PathLike, number: int, what: str) -> LedgerError:
  return LedgerError(
    f"Ledger {os.fspath(path)} is damaged: line {number} {what}. What was paid"
    " for is not known, so it cannot be continued. Restore the file from a"
    " backup, or begin a new run_dir."
  )


# The parameters that a ledger keeps: as JSON, and compared by name.


def plain(**named: Mapping[str, Any]) -> dict:
  """The one mapping that is given by its name, as JSON gives it back."""
  ((name, mapping),) = named.items()
  values = dict(mapping)
  try:
    text = json.dumps(values, allow_nan=False, default=_scalar)
  except (TypeError, ValueError) as error:
    raise ValueError(
      "Expected finite numbers, strings, lists or dicts in"
      f" {name}={values!r}: {error}."
    ) from None
  return json.loads(text)


def _scalar(value: Any) -> Any:
  """NumPy scalars as Python ones."""
  if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
    return value.item()
  raise TypeError(f"{type(value).__name__} has no JSON form")


def require_same(path: str, what: str, old: dict, new: dict) -> None:
  """Refuses to continue another mechanism, and names all that changed."""
  changed = list(_changes(old, new))
  if changed:
    raise LedgerError(
      f"Cannot resume {path}: it paid for a {what} with other parameters ("
      + "; ".join(changed)
      + "). Resume with the recorded values, or choose another run_dir."
    )


class _Absent:
  def __repr__(self) -> str:
    return "'absent'"


_ABSENT = _Absent()


def _changes(old: dict, new: dict, prefix: str = "") -> Iterator[str]:
  """Every value that differs, under its dotted name."""
  for name in sorted({*old, *new}):
    before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
    if isinstance(before, dict) and isinstance(after, dict):
      yield from _changes(before, after, f"{prefix}{name}.")
    elif before != after:
      yield f"{prefix}{name}: {before!r} -> {after!r}"
