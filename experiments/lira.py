"""Infers membership by a likelihood ratio over reference models (LiRA).

python -m experiments.infer --run_dir=runs/first
python -m experiments.lira --run_dir=runs/first --num_references=8

Trains models as the run was trained, each on half of the judged examples, and
adds to membership.json how well their scores tell members from non-members
(Carlini et al. 2022). What is trained is kept; a killed run goes on with the
same command.
"""

from __future__ import annotations

import shlex
import sys

from absl import flags

from experiments import command
from tf_privrob.runs import infer as inferring
from tf_privrob.runs import references

_RUN_DIR = flags.DEFINE_string("run_dir", None, "Run folder to attack.")
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Folder with <name>.npz; default $TF_PRIVROB_DATA."
)
_REFERENCES = flags.DEFINE_integer(
  "num_references", 8, "Reference models to train; even, at least 4."
)
_SEED = flags.DEFINE_integer(
  "seed", 0, "Of coins, and of trainings without privacy."
)


def main() -> None:
  """Attacks as the flags say and prints a table."""
  from tf_privrob import run_folder

  if not _RUN_DIR.value:
    raise ValueError("Expected --run_dir, the folder of the run.")
  references.coins(_REFERENCES.value, 2, 0)  # refuse before the imports
  # Only now what takes long to import.
  import tf_privrob.methods  # noqa: F401  (Keras must know what it loads)
  from tf_privrob.runs.audit import source as audit_source

  folder = run_folder.RunFolder(_RUN_DIR.value)
  source = audit_source.load(folder, _DATA_DIR.value)
  rows = references.lira(
    folder,
    source,
    _REFERENCES.value,
    seed=_SEED.value,
    command_line=f"python -m experiments.lira {shlex.join(sys.argv[1:])}",
  )
  print(inferring.table(rows))
  print(f"Assumed: {references.ASSUMPTION}.")
  print(f"Next: python -m experiments.report --run_dir={_RUN_DIR.value}")


if __name__ == "__main__":
  command.run(main)
