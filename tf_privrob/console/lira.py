"""Infers membership by a likelihood ratio over reference models (LiRA).

python -m tf_privrob infer --run_dir=runs/first
python -m tf_privrob lira --run_dir=runs/first --num_references=8

Trains models as the run was trained, each on half of the judged examples, and
adds to membership.json how well their scores tell members from non-members
(Carlini et al. 2022). What is trained is kept; a killed run goes on with the
same command.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from tf_privrob.console import command
from tf_privrob.runs import infer as inferring
from tf_privrob.runs import references


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of the command.

  Attributes:
    run_dir: Run folder to attack.
    data_dir: Folder with <name>.npz; default $TF_PRIVROB_DATA.
    num_references: Reference models to train; even, at least 4.
    seed: Seed of coins, and of trainings without privacy.
  """

  run_dir: Optional[str] = None
  data_dir: Optional[str] = None
  num_references: int = 8
  seed: int = 0


def main(options: Options, call: command.Call) -> None:
  """Attacks as the flags say and prints a table."""
  folder = command.folder(options.run_dir, trained=False)
  # Refuses before the imports.
  references.coins(options.num_references, 2, options.seed)
  # Only now what takes long to import.
  import tf_privrob.methods  # noqa: F401  (Keras must know what it loads)
  from tf_privrob.runs.audit import source as audit_source

  source = audit_source.load(folder, options.data_dir)
  rows = references.lira(
    folder,
    source,
    options.num_references,
    seed=options.seed,
    command_line=call.line,
  )
  why = inferring.unchecked(folder, source.dataset)
  if why:
    print(f"Note that {why}.")
  print(inferring.table(rows))
  print(f"Assumed: {references.ASSUMPTION}.")
  print(command.next_steps(options.run_dir, "report"))
