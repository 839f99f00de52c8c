"""The statement in a run folder, with what was found out about the run.

privacy.json is written when a training ends. An audit of the run adds its lower
bound to it, and whoever trains on the private records again adds a caveat,
which a later session of the training does not forget. Whoever writes it notes
the hash of its text in the ledger first, by which `report.counted` knows it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from tf_privrob import files
from tf_privrob import run_folder
from tf_privrob.privacy import ledger_file
from tf_privrob.privacy import statement as statement_lib

LEDGER = "ledger.jsonl"
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


def append(folder: run_folder.RunFolder, audit: Mapping[str, Any]) -> None:
  """Adds an audit to audit.json; privacy.json gets what it says of the run.

  An audit that is there already, by its "id", is replaced: whoever was killed
  after this and goes on with the audit does not write it down twice.
  """
  known = audit.get("id")
  others = [
    found
    for found in _audits(folder)
    if known is None or found.get("id") != known
  ]
  audits = [*others, {"run_id": _run_id(folder), **audit}]
  folder.write_json("audit.json", {"audits": audits})
  statement = _statement(folder)
  if statement is not None:
    caveats = [caveat for caveat in statement.caveats if caveat != BEGUN]
    _write(folder, statement.replace(caveats=caveats), anew=False)


def state(
  folder: run_folder.RunFolder, statement: statement_lib.PrivacyStatement
) -> None:
  """Writes privacy.json anew; what was found out before is not forgotten."""
  before = _statement(folder)
  known = before.caveats if before is not None else ()
  kept = [caveat for caveat in known if caveat in _CAUTIONS]
  caveats = (*statement.caveats, *kept)
  _write(folder, statement.replace(caveats=caveats), anew=True)


def _write(
  folder: run_folder.RunFolder,
  statement: statement_lib.PrivacyStatement,
  anew: bool,
) -> None:
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
  _put(folder, statement, anew)


def _put(
  folder: run_folder.RunFolder,
  statement: statement_lib.PrivacyStatement,
  anew: bool = False,
) -> None:
  """Writes the statement, once the run's ledger has noted its text."""
  text, path = statement.to_json(), folder.file("privacy.json")
  noting = contextlib.nullcontext()
  if folder.has(LEDGER):
    noting = ledger_file.noting(folder.file(LEDGER), path, text, anew)
  with noting:
    files.write_text(path, text)


def _audits(folder: run_folder.RunFolder) -> list[dict[str, Any]]:
  """The audits so far.

  Raises:
    ValueError: If audit.json holds anything but a list of them.
  """
  found = (folder.read_json("audit.json") or {"audits": []}).get("audits")
  if not isinstance(found, list) or not all(map(_is_audit, found)):
    raise ValueError(
      f"Expected a list of audits in {folder.file('audit.json')}, received"
      " something else. Restore it, or delete it and audit again."
    )
  return found


def _is_audit(entry: Any) -> bool:
  """Whether an entry has what a statement takes from it."""
  return (
    isinstance(entry, dict)
    and isinstance(entry.get("scope"), str)
    and all(
      isinstance(entry.get(name), (int, float))
      for name in ("audited", "dp_delta", "confidence")
    )
  )


def _run_id(folder: run_folder.RunFolder) -> str | None:
  """Which run it is; None in folders of earlier versions."""
  return (folder.run or {}).get("run_id")


def caution(folder: run_folder.RunFolder, caveat: str) -> None:
  """Adds a caveat to privacy.json, once."""
  statement = _statement(folder)
  if statement is not None and caveat not in statement.caveats:
    caveats = (*statement.caveats, caveat)
    _put(folder, statement.replace(caveats=caveats))


def _statement(
  folder: run_folder.RunFolder,
) -> statement_lib.PrivacyStatement | None:
  payload = folder.privacy
  if payload is None:
    return None
  return statement_lib.PrivacyStatement.from_dict(payload)
