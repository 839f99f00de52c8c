"""Attacks inside the certified radii of a run folder.

python -m tf_privrob audit_certificates --run_dir=runs/demo --num=100

Reads certificates.csv and its record, attacks the very classifier that they
are about, each input inside its own radius, and writes
certificate_audit.json. An audit that was stopped goes on with --resume.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from tf_privrob.console import command
from tf_privrob.runs import certificates as certificate_audit
from tf_privrob.runs import train as training


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of the command.

  Attributes:
    run_dir: Run folder to audit.
    data_dir: Folder with <name>.npz; default $TF_PRIVROB_DATA.
    num: Certified rows that are attacked, evenly spread.
    steps: Steps of each gradient attack.
    draws: Draws per step that gradients are averaged over (EOT).
    num_random: Random points per row.
    verdict_draws: Draws of a verdict; default: the certificates' own.
    seed: Seed of attacks and verdicts.
    resume: Go on with a stopped audit.
  """

  run_dir: Optional[str] = None
  data_dir: Optional[str] = None
  num: int = 100
  steps: int = 40
  draws: int = 16
  num_random: int = 32
  verdict_draws: Optional[int] = None
  seed: int = 0
  resume: bool = False


def main(options: Options, call: command.Call) -> None:
  """Audits as the flags say."""
  from tf_privrob import models

  command.folder(options.run_dir)
  folder, dataset, model = training.open_run(
    options.run_dir, data_dir=options.data_dir
  )
  settings = dict(vars(options))
  del settings["run_dir"], settings["data_dir"]
  result = certificate_audit.audit_run(
    folder,
    models.as_logits(model),
    dataset,
    **settings,
    command_line=call.line,
  )
  print(result)
  print(f"Written to {folder.file(certificate_audit.RESULT)}")
