"""Certifies the model of a run folder, and attacks nothing.

python -m tf_privrob certify --run_dir=runs/first --num_certified=500

Certificates are written as they come; --resume keeps the ones that are there.
Results of attacks on the same model stay.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from tf_privrob.console import command
from tf_privrob.runs import evaluate as evaluation


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of the command, which `evaluate` has too.

  Attributes:
    run_dir: Run folder of the model.
    model: A Keras file; default: model.keras of the run folder.
    dataset: Data set; default: the one of the run, whose report shows no
      results on another.
    data_dir: Folder with <name>.npz; default $TF_PRIVROB_DATA.
    smoothing_stddev: Noise of the smoothed classifier. Default: the method's
      own certificate, or 0.25 if it has none.
    claimed: Take the sizes that the method's authors claim and nobody proved:
      what audit_certificates then attacks.
    claimed_attack_eps: The attack size mu that claims are about, where they
      depend on one. Default: of dpal each radius at its own, of secure_sgd the
      one it was trained for.
    num_selection: Draws that pick a class.
    num_estimation: Draws that bound its probability.
    confidence: Confidence of each certificate.
    num_certified: Test examples that are certified, evenly spread.
    seed: Seed of the smoothing noise, which is then repeated: certificates hold
      only for models made without knowledge of it. Default: from the operating
      system.
    resume: Keep results that are there.
  """

  run_dir: Optional[str] = None
  model: Optional[str] = None
  dataset: Optional[str] = None
  data_dir: Optional[str] = None
  smoothing_stddev: Optional[float] = None
  claimed: bool = False
  claimed_attack_eps: Optional[float] = None
  num_selection: int = 100
  num_estimation: int = 10_000
  confidence: float = 0.999
  num_certified: int = 500
  seed: Optional[int] = None
  resume: bool = False


def run(options: Options, call: command.Call, attacks, **attacking) -> dict:
  """Evaluates by the flags that `evaluate` and `certify` share.

  Args:
    options: Flags of either command.
    call: How it was called.
    attacks: Triples (name, norm, attack_eps).
    **attacking: Settings of the attacks, as in `runs.evaluate.run`.
  """
  command.folder(options.run_dir, trained=not options.model)
  shared = {
    field.name: getattr(options, field.name)
    for field in dataclasses.fields(Options)
  }
  return evaluation.run(
    attacks=attacks, **shared, **attacking, command_line=call.line
  )


def main(options: Options, call: command.Call) -> None:
  """Certifies as the flags say."""
  from tf_privrob import validate

  validate.positive_int(num_certified=options.num_certified)
  metrics = run(options, call, ())
  found = metrics["certified"]
  condition = f", {found['condition']}" if found["condition"] else ""
  print(
    f"{found['count']} inputs, {found['abstained']} without an answer; radii"
    f" are {found['kind']}{condition}"
  )
  for point in found["curve"][:: max(1, len(found["curve"]) // 8)]:
    print(f"radius {point['radius']:<5g} accuracy {point['accuracy']:.4f}")
  print(command.next_steps(options.run_dir, "audit_certificates", "report"))
