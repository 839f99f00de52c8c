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

import shlex
import sys

from absl import flags

from experiments import command
from tf_privrob.runs.audit import perform as auditing
from tf_privrob.runs.audit import record as audit_record

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


def main() -> None:
  """Audits as the flags say and prints the verdict."""
  from tf_privrob import run_folder
  from tf_privrob.report import counted

  if not _RUN_DIR.value:
    raise ValueError("Expected --run_dir, the folder of the run.")
  audit = auditing.run(
    _RUN_DIR.value,
    _KIND.value,
    runs=_RUNS.value,
    steps=_STEPS.value,
    pilots=_PILOTS.value,
    num_canaries=_CANARIES.value,
    guesses=_GUESSES.value and [int(g) for g in _GUESSES.value],
    score=_SCORE.value,
    canary=_CANARY.value,
    dp_delta=_DELTA.value,
    confidence=_CONFIDENCE.value,
    seed=_SEED.value,
    data_dir=_DATA_DIR.value,
    command_line=f"python -m experiments.audit {shlex.join(sys.argv[1:])}",
  )
  folder = run_folder.RunFolder(_RUN_DIR.value)
  print(audit_record.line(audit))
  print(f"The run itself: {counted.read(folder).text().split('. ')[0]}.")
  print(f"Next: python -m experiments.report --run_dir={_RUN_DIR.value}")


if __name__ == "__main__":
  command.run(main)
