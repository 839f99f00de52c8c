"""The write-ahead ledger: every release is paid for before it is made.

`ledger.jsonl` has one JSON object a line: a header (library, version, the run's
identity and parameters), a line for every session that opened it, for the plan
(noise, clip norm, allowed steps), for every charge, for everything that is
released once, for facts that take a proof away, and for every statement that
is written (`ledger_file.noting`). A line carries a checksum over itself and all
lines before it, and is on the disk (fdatasync) before the call that wrote it
returns. So the ledger can count a step that never happened, after a crash
between charge and step, but never miss one that did. Lines have the time to the
minute, charges and facts none: how long a step took tells how many examples it
had.

A file that was cut back to earlier whole lines looks like an earlier ledger.
That is what checkpoints are for: each has the run's identity, what was charged
and the checksum at its moment, which `knows` looks up.

A resumed run must not draw the same noise for another batch, nor see a step's
noise twice: `session` grows with every opening and is on the disk before it is
known to anybody. Noise keys are derived from (seed, session, step).
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from tf_privrob import validate
from tf_privrob.privacy import ledger_file
from tf_privrob.privacy import ledger_format


class BudgetExceeded(RuntimeError):  # noqa: N818
  """Raised before the step that would exceed the allowed ones."""


class Ledger:
  """An open ledger; made by `Ledger.open`, closed by `close` or `with`.

  Args:
    file: Open and locked.
    history: What it says.
  """

  def __init__(
    self, file: ledger_file.LedgerFile, history: ledger_format.History
  ):
    self._file = file
    self._path = file.path
    self._run = history.run
    self._session = history.sessions[-1]["session"]
    self._moved = history.moved
    self._steps = history.steps
    self._plan = history.plan
    self._max_steps = history.max_steps
    self._releases = dict(history.releases)
    self._facts = history.facts
    self._settled = False
    self._mutex = threading.Lock()

  @classmethod
  def open(
    cls,
    path: str | os.PathLike,
    parameters: Mapping[str, Any],
    resume: bool = False,
  ) -> Ledger:
    """Begins a ledger, or continues one after checking that it is the same run.

    Args:
      path: Path of `ledger.jsonl`.
      parameters: All that makes it this run: method, settings, number of
        examples, value range, network, ... JSON values, may be nested.
      resume: Continue the ledger at `path`. Without it, none may exist.

    Raises:
      LedgerError: If it exists (or not), is damaged, is used by another
        process, or belongs to a run with other parameters.
    """
    path = os.path.abspath(os.fspath(path))
    parameters = ledger_format.plain(parameters=parameters)
    if resume:
      file = ledger_file.resume(path, parameters)
    else:
      file = ledger_file.begin(path, parameters)
    try:
      return cls(file, ledger_format.read(path))
    except BaseException:
      file.close()
      raise

  @property
  def run(self) -> str:
    """Identity of the run: 32 random hexadecimal digits."""
    return self._run

  @property
  def checksum(self) -> str:
    """Over all lines so far; a checkpoint keeps it."""
    return self._file.checksum

  def knows(self, checksum: str) -> bool:
    """Whether this was the ledger's checksum at any time."""
    return self._file.knows(checksum)

  @property
  def steps(self) -> int:
    """Steps charged so far, over all sessions."""
    return self._steps

  @property
  def session(self) -> int:
    """Number of times the ledger was opened before."""
    return self._session

  @property
  def moved(self) -> bool:
    """Whether any session was opened in another place than the first.

    The folder was then copied, or moved to another file system: a copy that was
    left behind can be continued too, and no ledger counts both.
    """
    return self._moved

  @property
  def max_steps(self) -> int | None:
    """Steps allowed in all, None for no limit."""
    return self._max_steps

  @property
  def closed(self) -> bool:
    """Whether nothing can be charged any more."""
    return self._file.closed

  def settle(
    self, parameters: Mapping[str, Any], max_steps: int | None
  ) -> None:
    """Writes down the plan that the charges pay for, or compares it.

    As long as nothing was charged, another plan may take the place of the
    recorded one: the noise depends on how often a release had to be repeated.

    Args:
      parameters: Noise multiplier, clip norm, sampler, ... JSON values.
      max_steps: The steps that the budget allows, None for no limit.

    Raises:
      LedgerError: If steps were charged for another plan, or for fewer steps.
    """
    parameters = ledger_format.plain(parameters=parameters)
    if max_steps is not None:
      validate.positive_int(max_steps=max_steps)
      max_steps = int(max_steps)
    with self._mutex:
      self._file.check()
      if self._plan is not None and self._steps:
        ledger_format.require_same(self._path, "plan", self._plan, parameters)
        self._require_no_more(max_steps)
      if (self._plan, self._max_steps) != (parameters, max_steps):
        with self._closed_on_failure():
          self._plan, self._max_steps = parameters, max_steps
          line = {"max_steps": max_steps, "parameters": parameters}
          self._file.append({"type": "plan", **line})
      self._settled = True

  def _require_no_more(self, max_steps: int | None) -> None:
    before = self._max_steps
    if before is not None and (max_steps is None or max_steps > before):
      raise ledger_format.LedgerError(
        f"Cannot resume {self._path}: max_steps: {before} -> {max_steps} would"
        " raise the budget that this run was promised. Resume with the recorded"
        " value, or choose another run_dir."
      )

  def charge(self, count: int = 1) -> int:
    """Pays for `count` steps; on return they are on the disk.

    Returns:
      The steps charged in all.

    Raises:
      BudgetExceeded: If they are not allowed; nothing is charged then.
      LedgerError: If there is no plan, or the ledger is closed or cannot be
        written. The step must not be taken then.
    """
    validate.positive_int(count=count)
    with self._mutex:
      self._file.check()
      if not self._settled:
        raise ledger_format.LedgerError(
          f"Expected a plan before the first charge of {self._path}, received"
          " none: call settle first."
        )
      total = self._steps + int(count)
      if self._max_steps is not None and total > self._max_steps:
        raise BudgetExceeded(
          f"{self._steps} steps performed + {count} requested >"
          f" {self._max_steps} allowed by the privacy budget. The step was not"
          " taken. Stop here, or begin a run with a larger budget or more"
          " noise."
        )
      line = {"type": "charge", "count": int(count), "steps": total}
      with self._closed_on_failure():
        self._steps = total
        self._file.append({**line, "session": self._session})
    return total

  def begin_release(self, name: str, settings: Mapping[str, Any]) -> int:
    """Pays for a release that is made once; on return it is on the disk.

    Args:
      name: Name of the release: letters, digits and any of `_.-`.
      settings: What its cost depends on, as JSON values.

    Returns:
      How many of this name were begun in all, 1 for the first.

    Raises:
      LedgerError: If earlier ones had other settings, or the ledger is closed
        or cannot be written. The data must not be touched then.
    """
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
      raise ValueError(
        f"Expected letters, digits or any of '_.-' in name={name!r}."
      )
    settings = ledger_format.plain(settings=settings)
    with self._mutex:
      self._file.check()
      known = self._releases.get(name, ledger_format.ReleaseEntry(0, None))
      if known.settings is not None:
        ledger_format.require_same(self._path, name, known.settings, settings)
      count = known.count + 1
      line = {"type": "release", "name": name, "count": count}
      line = {**line, "settings": settings, "session": self._session}
      with self._closed_on_failure():
        self._releases[name] = ledger_format.ReleaseEntry(
          count, settings, known.digest
        )
        self._file.append(line)
    return count

  def finish_release(self, name: str, digest: str) -> None:
    """Writes down that the result is whole.

    Args:
      name: Name of a release that was begun.
      digest: SHA-256 of the file of the result, 64 hexadecimal digits.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
      raise ValueError(f"Expected a SHA-256 in digest={digest!r}.")
    with self._mutex:
      self._file.check()
      if name not in self._releases:
        raise ledger_format.LedgerError(
          f"Expected a release that was begun in {self._path}, received"
          f" {name!r}: call begin_release before the data are touched."
        )
      line = {"type": "finished", "name": name, "digest": digest}
      with self._closed_on_failure():
        self._file.append({**line, "session": self._session})
        known = self._releases[name]
        self._releases[name] = ledger_format.ReleaseEntry(
          known.count, known.settings, digest
        )

  @property
  def releases(self) -> Mapping[str, ledger_format.ReleaseEntry]:
    """All that was begun, by name."""
    return dict(self._releases)

  def release_of(self, name: str) -> ledger_format.ReleaseEntry | None:
    """What is known of the releases of a name, None if none was begun."""
    return self._releases.get(name)

  @property
  def facts(self) -> frozenset[str]:
    """What was noted of the run, by this session or an earlier one."""
    return self._facts

  def note_fact(self, fact: str) -> None:
    """Writes down what takes a proof away; on return it is on the disk.

    Args:
      fact: One of `ledger_format.FACTS`.

    Raises:
      LedgerError: If the ledger is closed or cannot be written. Nothing may be
        released then.
    """
    validate.one_of(ledger_format.FACTS, fact=fact)
    with self._mutex:
      if fact in self._facts:
        return
      self._file.check()
      line = {"type": "fact", "name": fact, "session": self._session}
      with self._closed_on_failure():
        self._facts |= {fact}
        self._file.append(line)

  @contextlib.contextmanager
  def _closed_on_failure(self) -> Iterator[None]:
    """After an interruption only a resume knows what is on the disk."""
    try:
      yield
    except BaseException:
      self.close()
      raise

  def close(self) -> None:
    """Closes the file and lets other processes resume."""
    self._file.close()

  def __enter__(self) -> Ledger:
    return self

  def __exit__(self, *unused) -> None:
    self.close()


def diverged(first: str | os.PathLike, second: str | os.PathLike) -> bool:
  """Whether two ledgers continue one run in different ways.

  Then a run folder was copied and both copies were continued: each counts its
  own steps only, and what both released together costs more than either says.

  Raises:
    LedgerError: If one of them cannot be read or is damaged.
  """
  histories = ledger_format.read(first), ledger_format.read(second)
  if histories[0].run != histories[1].run:
    return False
  pairs = zip(*(found.checksums[: found.counted] for found in histories))
  return any(one != other for one, other in pairs)
