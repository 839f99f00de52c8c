"""What audits say, and their statistics, which are written as they come."""

from __future__ import annotations

import datetime
import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_privrob import files

_FOLDER = "nonprivate/audit"
_FIRST, _SECONDS = 16, 5.0  # runs of a first block, seconds of the others


def verdict(
  audited: float,
  claimed: Mapping[str, float] | None,
  proven: Mapping[str, float] | None,
) -> str:
  """What a lower bound says about the figures for the same thing."""
  if proven and audited > proven["dp_epsilon"]:
    return "refutes proven"
  if claimed and audited > claimed["dp_epsilon"]:
    return "refutes claimed"
  if proven:
    return "below proven"
  return "below claimed, none proven" if claimed else "no claim"


def line(audit: Mapping[str, Any]) -> str:
  """Claimed, proven and audited for the same thing, and the verdict."""
  from tf_privrob import privacy

  def budget(figures, absent):
    if not figures:
      return absent
    dp_epsilon = privacy.rounded_up(figures["dp_epsilon"])
    return f"({dp_epsilon}, {figures['dp_delta']:g})"

  return (
    f"{audit['label']}, {audit['scope']}: claimed"
    f" {budget(audit['claimed'], 'none')} / proven"
    f" {budget(audit['proven'], 'none known')} / audited >="
    f" {privacy.rounded_down(audit['audited'])} at dp_delta"
    f" {audit['dp_delta']:g} (confidence {audit['confidence']:g}, reachable"
    f" {audit['reachable']:.4g}): {audit['verdict']}"
  )


def now() -> str:
  """For "created"."""
  return datetime.datetime.now(datetime.timezone.utc).isoformat(
    timespec="seconds"
  )


class Store:
  """Statistics of runs on disk, so that a killed audit goes on.

  Args:
    folder: the run's folder.
    settings: all that the statistics depend on; another value, another file.
    seed: of a fresh audit; a resumed one keeps its own.

  Attributes:
    seed: of the audit.
    audit_id: by which it is known whether the audit is written down already.
  """

  def __init__(self, folder, settings: Mapping[str, Any], seed: int):
    text = json.dumps(settings, sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    self._path = folder.file(f"{_FOLDER}/{settings['kind']}-{key}.jsonl")
    self.seed, self.audit_id = seed, secrets.token_hex(8)
    self._header = {
      "id": self.audit_id,
      "seed": seed,
      "settings": dict(settings),
    }
    self._known: dict[tuple[str, bool, int], list[float]] = {}
    if self._path.exists():
      self._read()

  @property
  def done(self) -> int:
    """Runs that are on disk."""
    return len(self._known)

  def collecting(self, collect, each: int = 250, progress=None):
    """A `collect` that asks only for what is missing, and writes it.

    It asks for as many runs at once as take some seconds, `each` at most.
    """
    size = min(_FIRST, each)

    def stored(run, part, present, seeds):
      nonlocal size
      missing = [s for s in seeds if (part, present, int(s)) not in self._known]
      while missing:
        block, missing = missing[:size], missing[size:]
        started = time.monotonic()
        rows = np.asarray(collect(run, part, present, block), float).tolist()
        spent = max(time.monotonic() - started, 1e-3)
        size = max(1, min(each, 4 * size, int(len(block) * _SECONDS / spent)))
        self._write(
          {"part": part, "present": present, "seed": int(s), "values": row}
          for s, row in zip(block, rows)
        )
        for s, row in zip(block, rows):
          self._known[part, present, int(s)] = row
        if progress:
          progress.update(len(block))
      return np.array([self._known[part, present, int(s)] for s in seeds])

    return stored

  def close(self) -> None:
    """The audit is written down: its runs are kept under another name."""
    done = sorted(self._path.parent.glob(f"{self._path.stem}.done*.jsonl"))
    self._path.rename(
      self._path.with_name(f"{self._path.stem}.done{len(done)}.jsonl")
    )

  def _write(self, rows) -> None:
    if not self._path.exists():
      rows = [self._header, *rows]
    text = "".join(
      json.dumps(row, allow_nan=False, default=str) + "\n" for row in rows
    )
    files.append(self._path, text)

  def _read(self) -> None:
    rows = files.read_lines(self._path)
    if not rows or "settings" not in rows[0]:
      files.remove(self._path)  # killed before the first line was whole
      return
    try:
      self.seed = int(rows[0]["seed"])
      self.audit_id = str(rows[0].get("id", self.audit_id))
      for row in rows[1:]:
        key = (str(row["part"]), bool(row["present"]), int(row["seed"]))
        self._known[key] = [float(value) for value in row["values"]]
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(
        f"Expected statistics of an audit in {self._path}, received a line of"
        f" something else ({error!r}). Delete the file and audit again."
      ) from error
