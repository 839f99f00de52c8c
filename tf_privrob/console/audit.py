"""Audits the training of a run folder: a lower bound on its dp_epsilon.

python -m tf_privrob audit --run_dir=runs/first --kind=planted
python -m tf_privrob audit --run_dir=runs/first --kind=step --runs=2000
python -m tf_privrob audit --run_dir=runs/first --kind=two_world --steps=4 \
  --runs=1000
python -m tf_privrob audit --run_dir=runs/first --kind=one_run \
  --num_canaries=400

`step` repeats one step that the canary is in, at the run's noise and clip norm,
and is compared with what is stated for that one step; `two_world` short
trainings at the run's sampling probability, compared with what is stated for
exactly those. `planted` and `one_run` train once more with the run's own
settings and many canaries, and are set beside the run's own budget: `planted`
with gradients that are canaries, for an adversary who sees every step, which
comes close to what is proven; `one_run` with inputs that are. Results go to
audit.json. A killed audit goes on with the same command, `planted` from its
beginning.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from tf_privrob.console import command
from tf_privrob.runs.audit import perform as auditing
from tf_privrob.runs.audit import record as audit_record


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of the command.

  Attributes:
    run_dir: Run folder to audit.
    kind: Step, two_world, one_run or planted.
    runs: Judged runs of each world (step, two_world).
    pilots: Runs of each world that settle the test; default as many.
    steps: Steps of each training of two_world.
    canary: Blank, mislabelled, out_of_distribution or own_direction.
    num_canaries: Canaries of one_run (default 200) or planted (default as many
      as the bound needs).
    guesses: Numbers of guesses of one_run, settled beforehand; several share
      the failure probability. Default: a quarter, half and all of the canaries.
    score: Score of one_run: white_box or loss.
    dp_delta: At which dp_epsilon is bounded; default the run's.
    confidence: Confidence of the bound; default 0.95, of planted 0.999.
    seed: Seed of the audit's noise; default from the operating system.
    data_dir: Folder with <name>.npz; default $TF_PRIVROB_DATA.
  """

  run_dir: Optional[str] = None
  kind: str = "step"
  runs: int = 1000
  pilots: Optional[int] = None
  steps: int = 4
  canary: str = "mislabelled"
  num_canaries: Optional[int] = None
  guesses: Optional[tuple[int, ...]] = None
  score: str = "white_box"
  dp_delta: Optional[float] = None
  confidence: Optional[float] = None
  seed: Optional[int] = None
  data_dir: Optional[str] = None


def main(options: Options, call: command.Call) -> None:
  """Audits as the flags say and prints the verdict."""
  from tf_privrob.report import counted

  folder = command.folder(options.run_dir, trained=False)
  audit = auditing.run(**vars(options), command_line=call.line)
  print(audit_record.line(audit))
  print(f"The run itself: {counted.read(folder).text().split('. ')[0]}.")
  print(command.next_steps(options.run_dir, "report"))
