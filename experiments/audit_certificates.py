"""Attacks inside the certified radii of a run folder.

python -m experiments.audit_certificates --run_dir=runs/demo --num=100

Reads certificates.csv and its record, attacks the very classifier that they
are about, each input inside its own radius, and writes
certificate_audit.json. An audit that was stopped goes on with --resume.
"""

from __future__ import annotations

import shlex
import sys

from absl import flags

from experiments import command
from tf_privrob.runs import certificates as certificate_audit
from tf_privrob.runs import train as training

_RUN_DIR = flags.DEFINE_string("run_dir", None, "Run folder to audit.")
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Folder with <name>.npz; default $TF_PRIVROB_DATA."
)
_NUM = flags.DEFINE_integer("num", 100, "Certified rows attacked, spread.")
_STEPS = flags.DEFINE_integer("steps", 40, "Of each gradient attack.")
_DRAWS = flags.DEFINE_integer(
  "draws", 16, "Draws a step that gradients are averaged over (EOT)."
)
_RANDOM = flags.DEFINE_integer("num_random", 32, "Random points a row.")
_VERDICT = flags.DEFINE_integer(
  "verdict_draws", None, "Draws of a verdict; default: the certificates' own."
)
_SEED = flags.DEFINE_integer("seed", 0, "Of attacks and verdicts.")
_RESUME = flags.DEFINE_bool("resume", False, "Go on with a stopped audit.")


def main() -> None:
  """Audits as the flags say."""
  from tf_privrob import models

  if not _RUN_DIR.value:
    raise ValueError("Expected --run_dir, the folder of the run.")
  folder, dataset, model = training.open_run(
    _RUN_DIR.value, data_dir=_DATA_DIR.value
  )
  result = certificate_audit.audit_run(
    folder,
    models.as_logits(model),
    dataset,
    num=_NUM.value,
    steps=_STEPS.value,
    draws=_DRAWS.value,
    num_random=_RANDOM.value,
    verdict_draws=_VERDICT.value,
    seed=_SEED.value,
    resume=_RESUME.value,
    command_line="python -m experiments.audit_certificates"
    f" {shlex.join(sys.argv[1:])}",
  )
  print(result)
  print(f"Written to {folder.file(certificate_audit.RESULT)}")


if __name__ == "__main__":
  command.run(main)
