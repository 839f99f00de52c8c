"""Is the statement in a run folder that of the run, and does it count enough?

The statement is written when a training ends. Whoever goes on with the run, or
puts another run's files into the folder, leaves a statement that counts less
than was released; the ledger, which is written before every step, knows better,
and has a hash of the text that was written. Whoever reads privacy.json reads it
here.
"""

from __future__ import annotations

from tf_privrob import files
from tf_privrob import run_folder
from tf_privrob.privacy import ledger_format
from tf_privrob.privacy import stated as stated_lib
from tf_privrob.privacy import statement as statement_lib
from tf_privrob.records import schema

_ANOTHER = "{} and {} are not of one run: one of them is of another run"
_ROUNDING = 1e-9


def read(
  folder: run_folder.RunFolder,
) -> statement_lib.PrivacyStatement | None:
  """The statement of privacy.json, as far as the run folder supports it.

  Its proven figure is taken away, with the reason, unless privacy.json,
  run.json and the ledger name one run and the same weights, its text is the one
  that was written, it accounts at least what the ledger has counted, and it
  states no less than its accountant found. Files that are missing contradict
  nothing, and a ledger of an earlier version no text.
  A statement of an earlier version, which names no run, needs a ledger that
  agrees with it and with run.json.

  Args:
    folder: of the run.

  Returns:
    the statement; None if there is no privacy.json.

  Raises:
    ValueError: privacy.json does not hold a statement.
  """
  payload = folder.privacy
  if payload is None:
    return None
  statement = statement_lib.PrivacyStatement.from_dict(payload)
  statement.text()  # refuses a release or an accountant without its figures
  if statement.proven is None:
    return statement
  reason = _understated(statement) or _contradiction(statement, folder)
  if reason is None:
    return statement
  return statement.unproven(f"No finite figure is known: {reason}.")


def _understated(statement: statement_lib.PrivacyStatement) -> str | None:
  """A proven figure below the one that the statement's accountant found."""
  known = statement.accountant
  found = {name: schema.as_number(known.get(name)) for name in ("rdp", "pld")}
  least = found.get(str(known.get("name")))
  if least is None:  # the other one is stated then
    least = min((f for f in found.values() if f is not None), default=0.0)
  stated = statement.proven.dp_epsilon
  if stated >= least * (1 - _ROUNDING):
    return None
  return (
    f"privacy.json states dp_epsilon {stated:g} as proven, and its accountant"
    f" found {least:g}"
  )


def _contradiction(
  statement: statement_lib.PrivacyStatement, folder: run_folder.RunFolder
) -> str | None:
  """Why the statement is not one of this run, or counts too little."""
  ledger = None
  try:
    run = folder.run
    if folder.has(stated_lib.LEDGER):
      ledger = ledger_format.read(folder.file(stated_lib.LEDGER))
  except ValueError as error:
    return f"a file of the run cannot be believed ({error})"
  named = statement.run_id is not None or statement.weights is not None
  if run is not None and (named or ledger is None):
    ours = (statement.run_id, statement.weights)
    if ours != (run.get("run_id"), run.get("weights")):
      return _ANOTHER.format("privacy.json", "run.json")
  if ledger is None:
    return None
  if ledger.facts:
    facts = ", ".join(sorted(ledger.facts))
    return f"the ledger notes what takes a proof away ({facts})"
  if statement.run_id not in (None, ledger.run):
    return _ANOTHER.format("privacy.json", "the ledger")
  if (run or {}).get("run_id") not in (None, ledger.run):
    return _ANOTHER.format("run.json", "the ledger")
  if not ledger.noted(files.read_bytes(folder.file("privacy.json"))):
    return "privacy.json was changed: the ledger has the hash of another text"
  stated = schema.as_number((run or {}).get("steps"))
  if stated is None:
    return "run.json does not say for how many steps the statement is"
  if ledger.steps > stated:
    return (
      f"the ledger has counted {ledger.steps:,} steps, and the statement is for"
      f" {stated:,}"
    )
  return _unaccounted(statement, ledger)


def _unaccounted(
  statement: statement_lib.PrivacyStatement, ledger: ledger_format.History
) -> str | None:
  """What the ledger counted or planned and the statement does not account."""
  plan = {**ledger.parameters, **(ledger.plan or {})}
  sampler = plan.get("sampler") or {}
  first = statement.releases[0] if statement.releases else {}
  accounted = first.get("parameters", {})
  noise = plan.get("noise_multiplier")
  if noise is None and statement.run_id is None:
    return "privacy.json names no run, and the ledger no noise to compare"
  if noise is not None:
    if plan.get("units") == "mean":  # TransDenoiser's noise is that of a mean
      noise *= sampler["expected_batch_size"]
    if not accounted.get("noise_multiplier", 0) <= noise * (1 + _ROUNDING):
      return f"the statement accounts more noise than the ledger, {noise:g}"
  if statement.sampler != sampler.get("kind", statement.sampler):
    return f"the statement is not about the ledger's sampler, {sampler['kind']}"
  if statement.sampler == "shuffle":  # counted by participations
    return None
  prob = sampler.get("sampling_prob", 0.0)
  if accounted.get("sampling_probability", 1.0) < prob * (1 - _ROUNDING):
    return f"the statement accounts a sampling_prob below the ledger's, {prob}"
  if first.get("count", ledger.steps) < ledger.steps:
    return f"the statement accounts fewer steps than the ledger, {ledger.steps}"
  return None
