"""What audits write: statistics as they come, audit.json, privacy.json."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

OWN_SETTINGS = "this run's settings"
BEGUN = (
  "An audit that is not done yet trains a second model on the private records,"
  " below nonprivate/: no figure counts it."
)
REFERENCES = (
  "Reference models for LiRA were trained on the private records, below"
  " nonprivate/: no figure counts them."
)
_CAUTIONS = (BEGUN, REFERENCES)
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


def append(folder, audit: Mapping[str, Any]) -> None:
  """Adds an audit to audit.json; privacy.json gets what it says of the run."""
  audits = [*_audits(folder), {"run_id": _run_id(folder), **audit}]
  folder.write_json("audit.json", {"audits": audits})
  statement = _statement(folder)
  if statement is not None:
    caveats = [caveat for caveat in statement.caveats if caveat != BEGUN]
    _write(folder, statement.replace(caveats=caveats))


def state(folder, statement) -> None:
  """Writes privacy.json anew; what was found out before is not forgotten."""
  before = _statement(folder)
  known = before.caveats if before is not None else ()
  kept = [caveat for caveat in known if caveat in _CAUTIONS]
  _write(folder, statement.replace(caveats=(*statement.caveats, *kept)))


def _write(folder, statement) -> None:
  """Writes the statement with what the run's audits found.

  Only an audit of this run and of its own settings, at the statement's
  dp_delta, is set beside the statement's figures. A second training stands
  among the caveats whatever it was.
  """
  audits = _audits(folder)
  stated = statement.proven or statement.claimed
  own = [
    found
    for found in audits
    if found["scope"] == OWN_SETTINGS
    and found.get("run_id") in (None, _run_id(folder))
    and stated is not None
    and found["dp_delta"] == stated.dp_delta
  ]
  if own:
    best = max(own, key=lambda found: found["audited"])
    note = (
      f"{best['label']}, {best['runs']} canaries, confidence"
      f" {best['confidence']:g}, best of {len(own)}"
    )
    statement = statement.replace(audited=best["audited"], audit_note=note)
  seconds = [f["second_training"] for f in audits if "second_training" in f]
  caveats = dict.fromkeys((*statement.caveats, *seconds))
  statement = statement.replace(caveats=tuple(caveats))
  folder.write_text("privacy.json", statement.to_json())


def _audits(folder) -> list[dict[str, Any]]:
  """The audits so far."""
  return (folder.read_json("audit.json") or {"audits": []})["audits"]


def _run_id(folder) -> str | None:
  """Which run it is; None in folders of earlier versions."""
  return (folder.run or {}).get("run_id")


def caution(folder, caveat: str) -> None:
  """Adds a caveat to privacy.json, once."""
  statement = _statement(folder)
  if statement is not None and caveat not in statement.caveats:
    statement = statement.replace(caveats=(*statement.caveats, caveat))
    folder.write_text("privacy.json", statement.to_json())


def _statement(folder):
  from tf_privrob import privacy

  if folder.privacy is None:
    return None
  return privacy.PrivacyStatement.from_dict(folder.privacy)


class Store:
  """Statistics of runs on disk, so that a killed audit goes on.

  Args:
    folder: the run's folder.
    settings: all that the statistics depend on; another value, another file.
    seed: of a fresh audit; a resumed one keeps its own.
  """

  def __init__(self, folder, settings: Mapping[str, Any], seed: int):
    text = json.dumps(settings, sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    self._path = folder.file(f"{_FOLDER}/{settings['kind']}-{key}.jsonl")
    self._header = {"seed": seed, "settings": dict(settings)}
    self._known: dict[tuple[str, bool, int], list[float]] = {}
    self.seed = seed
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
    rows = list(rows)
    if not self._path.exists():
      self._path.parent.mkdir(parents=True, exist_ok=True)
      rows.insert(0, self._header)
    text = "".join(
      json.dumps(row, allow_nan=False, default=str) + "\n" for row in rows
    )
    with open(self._path, "a", encoding="utf-8") as file:
      file.write(text)
      file.flush()
      os.fsync(file.fileno())

  def _read(self) -> None:
    text = self._path.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):  # cut short by a crash
      text = text[: text.rfind("\n") + 1]
      self._path.write_text(text, encoding="utf-8")
    for row in map(json.loads, text.splitlines()):
      if "values" in row:
        key = (row["part"], row["present"], row["seed"])
        self._known[key] = row["values"]
      else:
        self.seed = row["seed"]
