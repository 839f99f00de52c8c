"""Attacks and certifies the model of a run folder.

python -m tf_privrob evaluate --run_dir=runs/first \
  --attacks=fgsm:linf,pgd:linf,pgd:l2 --linf_eps=0.05,0.1,0.2 --l2_eps=0.5,1

Results are written as they come; --resume keeps the ones that are there. Any
Keras classifier can be evaluated: --model=my.keras --dataset=mnist.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from tf_privrob.console import command
from tf_privrob.runs import evaluate as evaluation


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of the command.

  Attributes:
    run_dir: Run folder to evaluate.
    model: A Keras file; default: model.keras of the run folder.
    dataset: Data set; default: the one of the run.
    data_dir: Folder with <name>.npz; default $TF_PRIVROB_DATA.
    attacks: Attacks as name:norm.
    linf_eps: Sizes of l_inf attacks.
    l2_eps: Sizes of l_2 attacks.
    l1_eps: Sizes of l_1 attacks.
    steps: Steps of iterative attacks.
    num_attacked: Test examples that are attacked.
    smoothing_stddev: Noise of the smoothed classifier. Default: the method's
      own certificate, or 0.25 if it has none.
    claimed: Take the sizes that the method's authors claim and nobody proved:
      what audit_certificates then attacks.
    num_selection: Draws that pick a class.
    num_estimation: Draws that bound its probability.
    confidence: Confidence of each certificate.
    num_certified: Test examples that are certified, evenly spread; 0: none.
    seed: Seed of attacks and smoothing noise.
    resume: Keep results that are there.
  """

  run_dir: Optional[str] = None
  model: Optional[str] = None
  dataset: Optional[str] = None
  data_dir: Optional[str] = None
  attacks: tuple[str, ...] = ("fgsm:linf", "mim:linf", "pgd:linf", "pgd:l2")
  linf_eps: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2)
  l2_eps: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
  l1_eps: tuple[float, ...] = (2.0, 5.0, 10.0)
  steps: int = 40
  num_attacked: int = 500
  smoothing_stddev: Optional[float] = None
  claimed: bool = False
  num_selection: int = 100
  num_estimation: int = 10_000
  confidence: float = 0.999
  num_certified: int = 200
  seed: int = 0
  resume: bool = False


def parse_attacks(options: Options) -> list[tuple[str, str, float]]:
  """The flags as triples (name, norm, attack_eps)."""
  from tf_privrob import attacks
  from tf_privrob import validate

  sizes = {"linf": options.linf_eps, "l2": options.l2_eps, "l1": options.l1_eps}
  if not options.attacks:
    raise ValueError(
      "Expected --attacks=name:norm, received none. To certify without attacks"
      " use the command certify."
    )
  triples = []
  for attack in options.attacks:
    name, _, norm = attack.partition(":")
    norm = norm or "linf"
    validate.one_of(attacks.NAMES, attack=name)
    validate.one_of(sizes, norm=norm)
    if not sizes[norm]:
      raise ValueError(
        f"Expected sizes for {attack} in --{norm}_eps, received none."
      )
    triples += [(name, norm, size) for size in sizes[norm]]
  return triples


def run(options, call: command.Call, attacks, **settings) -> dict:
  """Evaluates by the flags that `evaluate` and `certify` share.

  Args:
    options: Flags of either command.
    call: How it was called.
    attacks: Triples (name, norm, attack_eps).
    **settings: What only one of them has, as in `runs.evaluate.run`.
  """
  command.folder(options.run_dir, trained=not options.model)
  return evaluation.run(
    options.run_dir,
    attacks,
    num_certified=options.num_certified,
    smoothing_stddev=options.smoothing_stddev,
    claimed=options.claimed,
    num_selection=options.num_selection,
    num_estimation=options.num_estimation,
    confidence=options.confidence,
    seed=options.seed,
    resume=options.resume,
    dataset=options.dataset,
    data_dir=options.data_dir,
    model=options.model,
    command_line=call.line,
    **settings,
  )


def main(options: Options, call: command.Call) -> None:
  """Evaluates as the flags say."""
  metrics = run(
    options,
    call,
    parse_attacks(options),
    num_attacked=options.num_attacked,
    steps=options.steps,
  )
  print(f"Clean accuracy {metrics['clean']['accuracy']:.4f}")
  for row in metrics["attacks"]:
    print(
      f"{row['name']:5s} {row['norm']:5s} size {row['attack_eps']:<5g} accuracy"
      f" {row['accuracy']:.4f}"
    )
  print(command.next_steps(options.run_dir, "report"))
