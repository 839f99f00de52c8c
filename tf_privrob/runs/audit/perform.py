"""Audits a run into its folder; no flags."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time

from tf_privrob import records
from tf_privrob.privacy import stated as stated_lib
from tf_privrob.runs.audit import record as audit_record

KINDS = ("step", "two_world", "one_run", "planted")
_LOCK = ".audit.lock"
_USUAL, _SURE, _USUAL_CANARIES = 0.95, 0.999, 200
_SECOND = (
  "The audit of {created} trained a second model on the private records (proven"
  " {budget}); it was deleted. The statement is about the run's own model:"
  " whatever was copied of the second one costs as much again."
)


def run(
  run_dir,
  kind: str = "step",
  *,
  runs: int = 1000,
  steps: int = 4,
  pilots: int | None = None,
  num_canaries: int | None = None,
  guesses=None,
  score: str = "white_box",
  canary: str = "mislabelled",
  dp_delta: float | None = None,
  confidence: float | None = None,
  seed: int | None = None,
  data_dir: str | None = None,
  command_line: str = "",
) -> dict:
  """Audits the training of a run folder; returns the audit of audit.json.

  Args:
    run_dir: The run folder.
    kind: One of KINDS.
    runs: See `short_audit`.
    steps: See `short_audit`.
    pilots: See `short_audit`.
    num_canaries: See `one_run_audit` and `planted_audit`; None: 200, or as many
      as the bound needs.
    guesses: See `one_run_audit`.
    score: See `one_run_audit`.
    canary: Its kind.
    dp_delta: At which dp_epsilon is bounded; None: the statement's.
    confidence: Of the bound; None: 0.95, for "planted" 0.999.
    seed: Of the audit's noise; None: from the operating system.
    data_dir: The folder with <name>.npz, or None.
    command_line: For audit.json.

  Raises:
    ValueError: If another process audits this run.
  """
  from tf_privrob import files
  from tf_privrob import run_folder
  from tf_privrob import validate
  from tf_privrob.runs.audit import source as audit_source

  validate.one_of(KINDS, kind=kind)
  validate.positive_int(runs=runs, steps=steps)
  folder = run_folder.RunFolder(run_dir)
  source = audit_source.load(folder, data_dir)
  if seed is None:
    seed = int.from_bytes(os.urandom(4), "little") >> 1
  confidence = confidence or (_SURE if kind == "planted" else _USUAL)
  shared = {
    "dp_delta": dp_delta,
    "confidence": confidence,
    "seed": seed,
    "command_line": command_line,
  }
  with files.locked(folder.file(_LOCK), f"the audit of {folder.path}"):
    if kind == "planted":
      return planted_audit(folder, source, num_canaries, **shared)
    shared["canary"] = canary
    num_canaries = num_canaries or _USUAL_CANARIES
    if kind == "one_run":
      return one_run_audit(
        folder, source, num_canaries, guesses=guesses, score=score, **shared
      )
    return short_audit(
      folder, source, kind, runs, steps=steps, pilots=pilots, **shared
    )


def short_audit(
  folder,
  source,
  kind: str,
  runs: int,
  *,
  steps: int = 4,
  pilots: int | None = None,
  canary: str = "mislabelled",
  dp_delta: float | None = None,
  confidence: float = 0.95,
  seed: int = 0,
  command_line: str = "",
) -> dict:
  """`step` or `two_world`: the audit as audit.json has it.

  Args:
    folder: the run's.
    source: what it was made of.
    kind: "step" or "two_world".
    runs: judged runs of each world.
    steps: of a training of "two_world".
    pilots: runs of each world that settle the test.
    canary: its kind.
    dp_delta: at which dp_epsilon is bounded; None: the statement's.
    confidence: of the bound.
    seed: of canary and runs.
    command_line: for audit.json.
  """
  from tf_privrob import privacy
  from tf_privrob import progress
  from tf_privrob.runs.audit import source as audit_source
  from tf_privrob.runs.audit import steps as audit_steps

  started = time.monotonic()
  steps = None if kind == "step" else steps
  settings = {
    "kind": kind,
    "steps": steps,
    "canary": canary,
    "runs": runs,
    "pilots": pilots,
    "confidence": confidence,
    "config": dataclasses.asdict(source.config),
    "noise_multiplier": source.noise_multiplier,
  }
  if dp_delta is None:
    dp_delta = _stated_delta(source.statement)
  _require_delta(dp_delta)
  privacy.require_reachable(runs, None, dp_delta, confidence)
  store = audit_record.Store(folder, settings, seed)
  repeated = audit_source.short_runs(source, steps, canary, store.seed % 1000)
  statement = repeated.statement()
  claimed, proven = figures(statement, repeated, dp_delta)
  target = min((f["dp_epsilon"] for f in (claimed, proven) if f), default=None)
  privacy.require_reachable(runs, target, dp_delta, confidence)
  total = 2 * (runs + (pilots or runs))
  shown = progress.Progress(total, "audit", store.done)
  found = privacy.audit_two_world(
    None,
    runs,
    pilots=pilots,
    statistics=audit_steps.STATISTICS,
    dp_delta=dp_delta,
    confidence=confidence,
    seed=store.seed,
    collect=store.collecting(repeated.collect, progress=shown),
  )
  scope = f"short training of {repeated.steps} steps"
  if kind == "step":
    scope = "one step"
    if repeated.steps > 1:
      scope = f"one step of each of {repeated.steps} halfspaces"
  relation = repeated.worlds.neighbouring
  entry = {
    "id": store.audit_id,
    "name": kind,
    "label": f"{kind}, {found.statistic}, {canary} canary, {relation}",
    "statistic": found.statistic,
    "canary": canary,
    "audited": found.audited,
    "gaussian": found.gaussian if repeated.gaussian else None,
    "dp_delta": dp_delta,
    "confidence": confidence,
    "runs": runs,
    "caught": found.caught,
    "false_alarms": found.false_alarms,
    "claimed": claimed,
    "proven": proven,
    "neighbouring": relation,
    "sampling_prob": _sampling_prob(repeated),
    "verdict": audit_record.verdict(found.audited, claimed, proven),
    "reachable": found.reachable,
    "scope": scope,
    "created": audit_record.now(),
    "seconds": round(time.monotonic() - started, 2),
    "command": command_line,
  }
  audit = records.Audit.from_json(entry).to_json()
  stated_lib.append(folder, audit)
  store.close()
  return audit


def figures(statement, repeated, dp_delta: float):
  """Claimed and proven for what was run, as audit.json has them.

  Where a record is replaced and the figures are for one that is added or
  removed, they are those of a group of two.
  """
  from tf_privrob import privacy

  claimed = statement.claimed and dataclasses.asdict(statement.claimed)
  proven = statement.proven and dataclasses.asdict(statement.proven)
  relation = repeated.worlds.neighbouring
  if relation == statement.neighbouring or relation == "add_or_remove_one":
    return claimed, proven
  record = repeated.method.run_record
  release = privacy.poisson_sgd(
    record["noise_multiplier"], record["sampling_prob"], record["steps"]
  )
  group = privacy.group_dp_epsilon([release], dp_delta, 2, "rdp")
  found = {"dp_epsilon": group, "dp_delta": dp_delta}
  return claimed and found, proven and found


def one_run_audit(
  folder,
  source,
  num_canaries: int,
  *,
  canary: str = "mislabelled",
  guesses=None,
  score: str = "white_box",
  dp_delta: float | None = None,
  confidence: float = 0.95,
  seed: int = 0,
  command_line: str = "",
) -> dict:
  """`one_run`: the audit as audit.json has it.

  Args: see `short_audit`.
    num_canaries: m.
    guesses: numbers of guesses that are tried; None: m / 4, m / 2 and m.
    score: "white_box" or "loss".
  """
  from tf_privrob import privacy
  from tf_privrob import validate
  from tf_privrob.runs.audit import one_run as audit_one_run

  started = time.monotonic()
  validate.positive_int(num_canaries=num_canaries)
  if dp_delta is None:
    dp_delta = _stated_delta(source.statement)
  _require_delta(dp_delta)
  if guesses is None:
    guesses = sorted({max(1, num_canaries // part) for part in (4, 2, 1)})
  if not guesses:
    raise ValueError(
      "Expected at least one number of guesses, received none. Leave guesses"
      " out to try a quarter, half and all of the canaries."
    )
  for number in guesses:
    validate.positive_int(guesses=number)
  audit_one_run.check(source, num_canaries)
  share = 1 - (1 - confidence) / len(guesses)
  most = max(
    privacy.one_run_reachable(num_canaries, dp_delta, share, number)
    for number in guesses
  )
  stated = source.statement.proven or source.statement.claimed
  if stated and most <= stated.dp_epsilon:
    needed = privacy.canaries_for(stated.dp_epsilon, dp_delta, share)
    raise ValueError(
      f"Expected enough canaries to show more than dp_epsilon="
      f"{stated.dp_epsilon:.4g} at dp_delta={dp_delta:g}, received num_canaries"
      f"={num_canaries}, which can show {most:.4g} at most. Set num_canaries="
      f"{needed} or more."
    )
  stated_lib.caution(folder, stated_lib.BEGUN)
  scores, coins, statement = audit_one_run.train(
    folder, source, canary, num_canaries, score, seed
  )
  found = privacy.audit_one_run(scores, coins, guesses, dp_delta, confidence)
  audit = _of_second_training(
    folder,
    source,
    statement,
    started,
    found,
    id=statement.run_id,  # of the second training
    name="one_run",
    label=f"one run, {score} score, {canary} canaries",
    statistic=score,
    canary=canary,
    runs=num_canaries,
    guesses=found.guesses,
    tried=list(found.tried),
    command=command_line,
  )
  _remove_training(folder)
  return audit


def planted_audit(
  folder,
  source,
  num_canaries: int | None = None,
  *,
  dp_delta: float | None = None,
  confidence: float = _SURE,
  seed: int = 0,
  command_line: str = "",
) -> dict:
  """`planted`: the audit as audit.json has it.

  The run is trained once more with canary gradients in it, of which an
  adversary sees every step. Nothing of that training is kept.

  Args: see `short_audit`.
    num_canaries: None: as many as the bound needs.
  """
  from tf_privrob import privacy
  from tf_privrob.runs.audit import planted as audit_of_planted

  started = time.monotonic()
  if dp_delta is None:
    dp_delta = _stated_delta(source.statement)
  _require_delta(dp_delta)
  audit_of_planted.check(source)
  stated_lib.caution(folder, stated_lib.BEGUN)
  canaries, method = audit_of_planted.train(source, num_canaries, seed)
  statement = method.privacy_statement()
  found = privacy.audit_planted(
    canaries.nonprivate_seen,
    canaries.included,
    source.noise_multiplier,
    source.sampling_prob,
    dp_delta,
    confidence,
    canaries.groups,
  )
  return _of_second_training(
    folder,
    source,
    statement,
    started,
    found,
    name="planted",
    label="one training, gradient canaries, read as Gaussian noise",
    statistic=found.statistic,
    canary="one coordinate",
    any_mechanism=found.any_mechanism,
    noise_found=found.noise_found,
    runs=canaries.count,
    guesses=found.canaries,
    sampling_prob=source.sampling_prob,
    command=command_line,
  )


def _of_second_training(folder, source, statement, started, found, **own):
  """Writes the audit by a second training, and what that training was.

  Args:
    folder: the run's.
    source: what the run was made of.
    statement: of the second training.
    started: by `time.monotonic`.
    found: the bound.
    **own: what this kind of audit has besides.
  """
  claimed = statement.claimed and dataclasses.asdict(statement.claimed)
  proven = statement.proven and dataclasses.asdict(statement.proven)
  same = _same_release(source.statement, statement)
  created = audit_record.now()
  entry = {
    "audited": found.audited,
    "dp_delta": found.dp_delta,
    "confidence": found.confidence,
    "correct": found.correct,
    "claimed": claimed,
    "proven": proven,
    "neighbouring": "add_or_remove_one",
    "verdict": audit_record.verdict(found.audited, claimed, proven),
    "reachable": found.reachable,
    "scope": stated_lib.OWN_SETTINGS if same else "a training like this run",
    "second_training": _SECOND.format(
      created=created, budget=statement.proven or "none known"
    ),
    "created": created,
    "seconds": round(time.monotonic() - started, 2),
    **own,
  }
  audit = records.Audit.from_json(entry).to_json()
  stated_lib.append(folder, audit)
  return audit


def _same_release(first, second) -> bool:
  """Whether noise, sampling and steps of two statements are the same."""

  def key(statement):
    return [
      (release["count"], release["parameters"])
      for release in statement.releases
    ]

  return bool(first.releases) and key(first) == key(second)


def _remove_training(folder) -> None:
  """What a finished audit's training left of the private records."""
  from tf_privrob.runs.audit import one_run as audit_one_run

  shutil.rmtree(folder.file(audit_one_run.TRAINING))


def _require_delta(dp_delta: float) -> None:
  if not 0 <= dp_delta < 1:
    raise ValueError(
      f"Expected 0 <= dp_delta < 1, received {dp_delta!r}. Leave it out to take"
      " the dp_delta of the run."
    )


def _stated_delta(statement) -> float:
  budget = statement.proven or statement.claimed
  return budget.dp_delta if budget else 0.0


def _sampling_prob(repeated) -> float | None:
  sampler = repeated.method.sampler
  return getattr(sampler, "sampling_prob", 1.0)
