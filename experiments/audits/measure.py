"""Repeats a training step in two worlds, and bounds what it gives away."""

from __future__ import annotations

from experiments.audits import cells as audits_cells
from tf_privrob.runs.audit import perform as auditing
from tf_privrob.runs.audit import record as audit_record
from tf_privrob.runs.audit import steps as audit_steps

_LEAST = 200  # runs of each world


def audit(
  case: audits_cells.Case, scale: audits_cells.Scale, folder, seed: int
) -> dict:
  """One audit as a result; its runs are on disk as they come."""
  from tf_privrob import privacy
  from tf_privrob import progress

  repeated = case.make()
  statement = repeated.statement()
  stated = statement.proven or statement.claimed
  claimed, proven = auditing.figures(statement, repeated, stated.dp_delta)
  target = min(f["dp_epsilon"] for f in (claimed, proven) if f)
  pilots = max(_LEAST, round(case.share * scale.pilots))
  # At least as many as could refute what is stated.
  needed = privacy.runs_for(target, stated.dp_delta)
  runs = max(_LEAST, round(case.share * scale.runs), needed)
  settings = {"kind": "suite", "label": case.label, "runs": runs}
  store = audit_record.Store(folder, settings, seed)
  shown = progress.Progress(2 * (runs + pilots), "audit", store.done)
  found = privacy.audit_two_world(
    None,
    runs,
    pilots=pilots,
    statistics=audit_steps.STATISTICS,
    dp_delta=stated.dp_delta,
    refute=target,
    seed=store.seed,
    collect=store.collecting(repeated.collect, progress=shown),
  )
  store.close()
  return {
    **found.to_json(),
    "label": case.label,
    "canary": case.canary,
    "scope": case.scope,
    "neighbouring": repeated.worlds.neighbouring,
    "gaussian": found.gaussian if case.gaussian else None,
    "claimed": claimed,
    "proven": proven,
    "condition": statement.condition,
    "verdict": audit_record.verdict(found.audited, claimed, proven),
  }
