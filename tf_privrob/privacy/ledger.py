"""The write-ahead ledger: every noisy step is paid for before it is taken.

`ledger.jsonl` has one JSON object a line: a header (library, version,
parameters, allowed steps), a line for every session that opened it, and a line
for every charge. A line carries the running total and a checksum over itself
and all lines before it, and is on the disk (fdatasync) before `charge` returns.
So the ledger can count a step that never happened, after a crash between charge
and step, but never miss one that did.

A resumed run must not draw the same noise for another batch, nor see a step's
noise twice: `session` grows with every opening and is on the disk before it is
known to anybody. Noise seeds are derived from (seed, session, step).
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import uuid
from collections.abc import Mapping
from typing import Any

import tf_privrob
from tf_privrob import validate
from tf_privrob.privacy import ledger_format

try:
  import fcntl
except ImportError:  # Not on Windows: there, nothing guards against two runs.
  fcntl = None

_sync = getattr(os, "fdatasync", os.fsync)


class BudgetExceeded(RuntimeError):  # noqa: N818
  """Raised before the step that would exceed the allowed ones."""


class Ledger:
  """An open ledger; made by `Ledger.open`, closed by `close` or `with`."""

  def __init__(self, fd: int, path: str, max_steps: int | None):
    self._fd: int | None = fd
    self._pid = os.getpid()
    self._path = path
    self._checksum = 0
    self._steps = 0
    self._session = 0
    self._max_steps = max_steps

  @classmethod
  def open(
    cls,
    path: str | os.PathLike,
    parameters: Mapping[str, Any],
    max_steps: int | None = None,
    resume: bool = False,
    extend: bool = False,
  ) -> Ledger:
    """Begins a ledger, or continues one after checking that it is the same run.

    Args:
      path: of `ledger.jsonl`.
      parameters: all that the guarantee depends on: noise multiplier, clip
        norm, sampling probability, number of examples, dp_delta, neighbouring
        relation, ... JSON values, may be nested.
      max_steps: the steps that the budget allows, None for no limit.
      resume: continue the ledger at `path`. Without it, none may exist.
      extend: let a resumed run have a larger `max_steps` than was recorded.

    Raises:
      LedgerError: if it exists (or not), is damaged, is used by another
        process, or belongs to a run with other parameters.
    """
    path = os.fspath(path)
    parameters = _plain(parameters)
    if max_steps is not None:
      validate.positive_int(max_steps=max_steps)
      max_steps = int(max_steps)
    if resume:
      return cls._resume(path, parameters, max_steps, extend)
    return cls._create(path, parameters, max_steps)

  @classmethod
  def _create(cls, path: str, parameters: dict, max_steps: int | None):
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    header = {
      "type": "header",
      "format": ledger_format.FORMAT,
      "library": "tf_privrob",
      "version": tf_privrob.__version__,
      "time": _now(),
      "max_steps": max_steps,
      "parameters": parameters,
    }
    # Complete and locked before it gets its name: no header is ever torn.
    draft = f"{path}.{uuid.uuid4().hex}.tmp"
    fd = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND, 0o644)
    ledger = cls(fd, path, max_steps)
    try:
      _lock(fd, path)
      ledger._append(header)
      ledger._append(_session_line(0, 0, max_steps))
      _give_name(draft, path)
    except BaseException:
      ledger.close()
      raise
    finally:
      with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    _sync_folder(folder)
    return ledger

  @classmethod
  def _resume(
    cls, path: str, parameters: dict, max_steps: int | None, extend: bool
  ):
    try:
      fd = os.open(path, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
      raise ledger_format.LedgerError(
        f"Expected a ledger to resume at {path}, found none. If the run never"
        " began, start it without resume; if the file was lost, the steps its"
        " weights have seen are unknown: begin a new run_dir."
      ) from None
    ledger = cls(fd, path, max_steps)
    try:
      _lock(fd, path)
      history = ledger_format.read(path)
      _check_same(path, history, parameters, max_steps, extend)
      ledger._checksum = history.checksum
      ledger._steps = history.steps
      ledger._session = 1 + max(line["session"] for line in history.sessions)
      if history.torn:
        ledger._repair(history)
      ledger._append(_session_line(ledger.session, ledger.steps, max_steps))
    except BaseException:
      ledger.close()
      raise
    return ledger

  def _repair(self, history: ledger_format.History) -> None:
    """Replaces an unfinished last line by a charge that says so.

    Its own charge never returned, so its step was never taken: a crash in here
    may lose the line, and the count is still not too low.
    """
    os.ftruncate(self._fd, history.size)
    self._append(
      {
        "type": "charge",
        "count": ledger_format.torn_count(history.torn),
        "steps": history.steps,
        "time": _now(),
        "repaired": "the last line was unfinished; counted as a charge",
      }
    )

  @property
  def steps(self) -> int:
    """Steps charged so far, over all sessions."""
    return self._steps

  @property
  def session(self) -> int:
    """Number of times the ledger was opened before."""
    return self._session

  @property
  def max_steps(self) -> int | None:
    """Steps allowed in all, None for no limit."""
    return self._max_steps

  @property
  def remaining(self) -> int | None:
    """Steps that may still be charged, None for no limit."""
    if self._max_steps is None:
      return None
    return max(0, self._max_steps - self._steps)

  def charge(self, count: int = 1) -> int:
    """Pays for `count` steps; on return they are on the disk.

    Returns:
      The steps charged in all.

    Raises:
      BudgetExceeded: if they are not allowed; nothing is charged then.
      LedgerError: if the ledger is closed or cannot be written. The step must
        not be taken then.
    """
    validate.positive_int(count=count)
    if self._fd is None or os.getpid() != self._pid:
      raise ledger_format.LedgerError(
        f"Ledger {self._path} is closed or was opened by another process:"
        " no step may be taken. Open it with resume=True."
      )
    total = self._steps + int(count)
    if self._max_steps is not None and total > self._max_steps:
      raise BudgetExceeded(
        f"{self._steps} steps performed + {count} requested >"
        f" {self._max_steps} allowed by the privacy budget. The step was not"
        " taken. Stop here, or begin a run with a larger budget or more noise."
      )
    line = {"type": "charge", "count": int(count), "steps": total}
    try:
      self._append({**line, "session": self._session, "time": _now()})
      self._steps = total
    except BaseException:
      # Interrupted or half written: what is on the disk is the truth now, and
      # only a resume reads it.
      self.close()
      raise
    return total

  def _append(self, line: dict) -> None:
    text, checksum = ledger_format.encode(line, self._checksum)
    try:
      written = 0
      while written < len(text):
        written += os.write(self._fd, text[written:])
      _sync(self._fd)
    except OSError as error:
      raise ledger_format.LedgerError(
        f"Cannot write ledger {self._path} ({error}): the step must not be"
        " taken. Free the disk and resume; what was half written counts."
      ) from error
    self._checksum = checksum

  def close(self) -> None:
    """Closes the file and lets other processes resume."""
    if self._fd is not None:
      os.close(self._fd)
      self._fd = None

  def __enter__(self) -> Ledger:
    return self

  def __exit__(self, *unused) -> None:
    self.close()


def _check_same(
  path: str,
  history: ledger_format.History,
  parameters: dict,
  max_steps: int | None,
  extend: bool,
) -> None:
  """Refuses to continue another mechanism, and names what changed."""
  old, new = _dotted(history.parameters), _dotted(parameters)
  changed = [
    f"{name}: {old.get(name, 'absent')!r} -> {new.get(name, 'absent')!r}"
    for name in sorted({*old, *new})
    if old.get(name, _ABSENT) != new.get(name, _ABSENT)
  ]
  if changed:
    raise ledger_format.LedgerError(
      f"Cannot resume {path}: it paid for a run with other parameters ("
      + "; ".join(changed)
      + "). Resume with the recorded values, or choose another run_dir."
    )
  before = history.max_steps
  if before is not None and not extend:
    if max_steps is None or max_steps > before:
      raise ledger_format.LedgerError(
        f"Cannot resume {path}: max_steps: {before} -> {max_steps} would raise"
        " the budget that this run was promised. Resume with the recorded"
        " value, or pass extend=True and state the new budget."
      )


_ABSENT = object()


def _dotted(values: Mapping, prefix: str = "") -> dict:
  """Nested fields under dotted names."""
  flat = {}
  for name, value in values.items():
    if isinstance(value, dict) and value:
      flat.update(_dotted(value, f"{prefix}{name}."))
    else:
      flat[prefix + name] = value
  return flat


def _plain(parameters: Mapping[str, Any]) -> dict:
  """The parameters as JSON gives them back."""
  values = dict(parameters)
  try:
    text = json.dumps(values, allow_nan=False, default=_scalar)
  except (TypeError, ValueError) as error:
    raise ValueError(
      "Expected finite numbers, strings, lists or dicts in"
      f" parameters={values!r}: {error}."
    ) from None
  return json.loads(text)


def _scalar(value: Any) -> Any:
  """NumPy scalars as Python ones."""
  if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
    return value.item()
  raise TypeError(f"{type(value).__name__} has no JSON form")


def _session_line(session: int, steps: int, max_steps: int | None) -> dict:
  return {
    "type": "session",
    "session": session,
    "steps": steps,
    "max_steps": max_steps,
    "version": tf_privrob.__version__,
    "pid": os.getpid(),
    "time": _now(),
  }


def _now() -> str:
  return datetime.datetime.now(datetime.timezone.utc).isoformat()


def _lock(fd: int, path: str) -> None:
  """Takes the ledger for this process alone, until it ends."""
  if fcntl is None:
    return
  try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except OSError as error:
    if error.errno not in (errno.EAGAIN, errno.EACCES):
      raise
    raise ledger_format.LedgerError(
      f"Ledger {path} is in use by another process: two runs cannot share a"
      " budget. Wait for it to end, or choose another run_dir."
    ) from None


def _give_name(draft: str, path: str) -> None:
  """Links the draft to its name unless that is taken."""
  taken = ledger_format.LedgerError(
    f"A ledger exists at {path}: pass resume=True or choose another run_dir."
  )
  try:
    os.link(draft, path)
  except FileExistsError:
    raise taken from None
  except OSError:  # A file system without links.
    if os.path.exists(path):
      raise taken from None
    os.rename(draft, path)


def _sync_folder(folder: str) -> None:
  """Makes the new name itself durable, where folders can be synced."""
  if os.name == "posix":
    fd = os.open(folder, os.O_RDONLY)
    try:
      os.fsync(fd)
    finally:
      os.close(fd)
