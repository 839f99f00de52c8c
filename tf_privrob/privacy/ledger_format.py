"""The lines of `ledger.jsonl`: how they are written, checked and read."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import zlib

FORMAT = 1


class LedgerError(ValueError):
  """The ledger on the disk cannot be used as asked."""


@dataclasses.dataclass(frozen=True)
class History:
  """What a ledger says, for resuming and for auditors.

  Attributes:
    parameters: of the mechanism, as recorded when the run began.
    max_steps: allowed steps by the last session, None for no limit.
    steps: charged so far, a torn line included.
    sessions: the line of each opening, with time and process.
    version: of the library that began the run.
    torn: bytes of an unfinished last line, empty if there is none.
    checksum: over all complete lines.
    size: bytes of all complete lines.
  """

  parameters: dict
  max_steps: int | None
  steps: int
  sessions: tuple
  version: str
  torn: bytes
  checksum: int
  size: int


def read(path: str | os.PathLike) -> History:
  """Reads a ledger without opening it for charges.

  Raises:
    LedgerError: if it has no header, or a line is damaged.
  """
  with open(path, "rb") as file:
    content = file.read()
  *lines, torn = content.split(b"\n")
  if not lines:
    raise _damaged(path, 1, "has no header")
  checksum = steps = 0
  header, sessions = None, []
  for number, raw in enumerate(lines, start=1):
    line, checksum = _decode(path, number, raw, checksum)
    kind = line.get("type")
    if (header is None) != (kind == "header"):
      raise _damaged(
        path,
        number,
        "is not the header" if header is None else "is a second header",
      )
    if kind == "header":
      header = line
    elif kind == "session":
      sessions.append(line)
    elif kind == "charge" and line.get("steps") == steps + line.get("count"):
      steps = line["steps"]
    else:
      raise _damaged(path, number, "does not continue the count")
  if not sessions:
    raise _damaged(path, 2, "is not a session")
  if torn:
    steps += torn_count(torn)
  return History(
    parameters=header["parameters"],
    max_steps=sessions[-1]["max_steps"],
    steps=steps,
    sessions=tuple(sessions),
    version=header["version"],
    torn=torn,
    checksum=checksum,
    size=len(content) - len(torn),
  )


def torn_count(torn: bytes) -> int:
  """Steps of an unfinished line: at least one, never too few."""
  found = re.search(rb'"count": (\d+),', torn)
  return max(1, int(found.group(1))) if found else 1


def encode(line: dict, checksum: int) -> tuple[bytes, int]:
  """The bytes of a line, and the checksum over it and all before it."""
  body = json.dumps(line, allow_nan=False)[:-1].encode()
  checksum = zlib.crc32(body, checksum)
  return body + b', "crc": "%08x"}\n' % checksum, checksum


def _decode(path, number: int, raw: bytes, checksum: int) -> tuple[dict, int]:
  body, mark, found = raw.rpartition(b', "crc": ')
  checksum = zlib.crc32(body, checksum)
  if not mark or found != b'"%08x"}' % checksum:
    raise _damaged(path, number, "does not match its checksum")
  return json.loads(raw), checksum


def _damaged(path: str | os.PathLike, number: int, what: str) -> LedgerError:
  return LedgerError(
    f"Ledger {path} is damaged: line {number} {what}. How many steps were taken"
    " is not known, so it cannot be continued. Restore the file from a backup,"
    " or begin a new run_dir."
  )
