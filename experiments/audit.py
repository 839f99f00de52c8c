"""Audits the training of a run folder: a lower bound on its dp_epsilon.

python -m experiments.audit --run_dir=runs/first --kind=step --runs=2000
python -m experiments.audit --run_dir=runs/first --kind=two_world --steps=4 \
  --runs=1000
python -m experiments.audit --run_dir=runs/first --kind=one_run \
  --num_canaries=400

`step` repeats one step that the canary is in, at the run's noise and clip norm,
and is compared with what is stated for that one step; `two_world` short
trainings at the run's sampling probability, compared with what is stated for
exactly those; `one_run` trains once more with the run's own settings and many
canaries, and is the audit that is set beside the run's own budget. Results go
to audit.json. A killed audit goes on with the same command.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
import time

from absl import flags

from experiments import audit_record
from experiments import command

KINDS = ("step", "two_world", "one_run")
_RUN_DIR = flags.DEFINE_string("run_dir", None, "Run folder to audit.")
_KIND = flags.DEFINE_string("kind", "step", "step, two_world or one_run.")
_RUNS = flags.DEFINE_integer(
  "runs", 1000, "Judged runs of each world (step, two_world)."
)
_PILOTS = flags.DEFINE_integer(
  "pilots", None, "Runs of each world that settle the test; default as many."
)
_STEPS = flags.DEFINE_integer("steps", 4, "Of each training of two_world.")
_CANARY = flags.DEFINE_string(
  "canary",
  "mislabelled",
  "blank, mislabelled, out_of_distribution or own_direction.",
)
_CANARIES = flags.DEFINE_integer("num_canaries", 200, "Of one_run.")
_GUESSES = flags.DEFINE_list(
  "guesses",
  None,
  "Numbers of guesses of one_run, settled beforehand; several share the failure"
  " probability. Default: a quarter, half and all of the canaries.",
)
_SCORE = flags.DEFINE_string("score", "white_box", "Of one_run, or loss.")
_DELTA = flags.DEFINE_float(
  "dp_delta", None, "At which dp_epsilon is bounded; default the run's."
)
_CONFIDENCE = flags.DEFINE_float("confidence", 0.95, "Of the bound.")
_SEED = flags.DEFINE_integer(
  "seed", None, "Of the audit's noise; default from the operating system."
)
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Folder with <name>.npz; default $TF_PRIVROB_DATA."
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
  """
  from experiments import audit_source
  from experiments import audit_steps
  from tf_privrob import privacy
  from tf_privrob import progress

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
  audit = {
    "name": kind,
    "label": f"{kind}, {found.statistic}, {canary} canary, {relation}",
    "statistic": found.statistic,
    "canary": canary,
    "audited": found.audited,
    "gaussian": found.gaussian if dp_delta else None,
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
    "command": _command(),
  }
  audit_record.append(folder, audit)
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
) -> dict:
  """`one_run`: the audit as audit.json has it.

  Args: see `short_audit`.
    num_canaries: m.
    guesses: numbers of guesses that are tried; None: m / 4, m / 2 and m.
    score: a name from `audit_one_run.SCORES`.
  """
  from experiments import audit_one_run
  from tf_privrob import privacy
  from tf_privrob import validate

  started = time.monotonic()
  validate.positive_int(num_canaries=num_canaries)
  if dp_delta is None:
    dp_delta = _stated_delta(source.statement)
  if guesses is None:
    guesses = sorted({max(1, num_canaries // part) for part in (4, 2, 1)})
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
  scores, coins, statement = audit_one_run.train(
    folder, source, canary, num_canaries, score, seed
  )
  found = privacy.audit_one_run(scores, coins, guesses, dp_delta, confidence)
  claimed = statement.claimed and dataclasses.asdict(statement.claimed)
  proven = statement.proven and dataclasses.asdict(statement.proven)
  same = _same_release(source.statement, statement)
  audit = {
    "name": "one_run",
    "label": f"one run, {score} score, {canary} canaries",
    "statistic": score,
    "canary": canary,
    "audited": found.audited,
    "dp_delta": dp_delta,
    "confidence": confidence,
    "runs": num_canaries,
    "guesses": found.guesses,
    "correct": found.correct,
    "tried": list(found.tried),
    "claimed": claimed,
    "proven": proven,
    "neighbouring": "add_or_remove_one",
    "verdict": audit_record.verdict(found.audited, claimed, proven),
    "reachable": found.reachable,
    "scope": audit_record.OWN_SETTINGS if same else "a training like this run",
    "created": audit_record.now(),
    "seconds": round(time.monotonic() - started, 2),
    "command": _command(),
  }
  audit_record.append(folder, audit)
  _put_away(folder)
  return audit


def _same_release(first, second) -> bool:
  """Whether noise, sampling and steps of two statements are the same."""

  def key(statement):
    return [
      (release["count"], release["parameters"])
      for release in statement.releases
    ]

  return bool(first.releases) and key(first) == key(second)


def _put_away(folder) -> None:
  """A finished audit's training is kept under another name."""
  place = folder.file("audit/one_run")
  done = sorted(place.parent.glob("one_run.done*"))
  place.rename(place.with_name(f"one_run.done{len(done)}"))


def _stated_delta(statement) -> float:
  budget = statement.proven or statement.claimed
  return budget.dp_delta if budget else 0.0


def _sampling_prob(repeated) -> float | None:
  sampler = repeated.method._plan.sampler
  return getattr(sampler, "sampling_prob", 1.0)


def _command() -> str:
  return f"python -m experiments.audit {shlex.join(sys.argv[1:])}"


def main() -> None:
  """Audits as the flags say and prints the verdict."""
  from experiments import audit_source
  from tf_privrob import run_folder
  from tf_privrob import validate

  if not _RUN_DIR.value:
    raise ValueError("Expected --run_dir, the folder of the run.")
  validate.one_of(KINDS, kind=_KIND.value)
  validate.positive_int(runs=_RUNS.value, steps=_STEPS.value)
  folder = run_folder.RunFolder(_RUN_DIR.value)
  source = audit_source.load(folder, _DATA_DIR.value)
  seed = _SEED.value
  if seed is None:
    seed = int.from_bytes(os.urandom(4), "little") >> 1
  shared = {
    "canary": _CANARY.value,
    "dp_delta": _DELTA.value,
    "confidence": _CONFIDENCE.value,
    "seed": seed,
  }
  if _KIND.value == "one_run":
    audit = one_run_audit(
      folder,
      source,
      _CANARIES.value,
      guesses=_GUESSES.value and [int(g) for g in _GUESSES.value],
      score=_SCORE.value,
      **shared,
    )
  else:
    audit = short_audit(
      folder,
      source,
      _KIND.value,
      _RUNS.value,
      steps=_STEPS.value,
      pilots=_PILOTS.value,
      **shared,
    )
  print(audit_record.line(audit))
  stated = folder.privacy and folder.privacy["text"].split(". ")[0]
  print(f"The run itself: {stated}.")
  print(f"Next: python -m experiments.report --run_dir={_RUN_DIR.value}")


if __name__ == "__main__":
  command.run(main)
