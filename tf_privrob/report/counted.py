"""Does a run's statement count what its ledger counted?

The statement is written when a training ends. Whoever goes on with the run, or
puts another run's files into the folder, leaves a statement that counts less
than was released; the ledger, which is written before every step, knows better.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_privrob import run_folder
from tf_privrob.privacy import ledger_format
from tf_privrob.privacy import statement as statement_lib
from tf_privrob.report import metrics as metrics_lib

_LEDGER = "ledger.jsonl"


def as_counted(
  statement: statement_lib.PrivacyStatement,
  folder: run_folder.RunFolder,
  run: Mapping[str, Any],
) -> statement_lib.PrivacyStatement:
  """The statement, without its proven figure where the ledger contradicts it.

  Args:
    statement: of privacy.json.
    folder: of the run; one without a ledger contradicts nothing.
    run: run.json, with the steps that the statement was written for.
  """
  reason = _contradiction(folder, run)
  if reason is None or statement.proven is None:
    return statement
  return statement.unproven(f"No finite figure is known: {reason}.")


def _contradiction(
  folder: run_folder.RunFolder, run: Mapping[str, Any]
) -> str | None:
  """Why the statement does not count what the ledger counts, if so."""
  if not folder.has(_LEDGER):
    return None
  try:
    ledger = ledger_format.read(folder.file(_LEDGER))
  except ledger_format.LedgerError as error:
    return f"the ledger cannot be believed ({error})"
  stated = metrics_lib.whole(run.get("steps"))
  if stated is None:
    return "run.json does not say for how many steps the statement is"
  if run.get("run_id") not in (None, ledger.run):
    return "the ledger belongs to another run than the statement"
  if ledger.steps > stated:
    return (
      f"the ledger has counted {ledger.steps:,} steps, and the statement is for"
      f" {stated:,}"
    )
  return None
