"""Attacks and certifies the model of a run folder.

python -m tf_privrob evaluate --run_dir=runs/first \
  --attacks=fgsm:linf,pgd:linf,pgd:l2 --linf_eps=0.05,0.1,0.2 --l2_eps=0.5,1

Results are written as they come; --resume keeps the ones that are there. Any
Keras classifier can be evaluated: --model=my.keras --dataset=mnist.
"""

from __future__ import annotations

import dataclasses

from tf_privrob.console import certify
from tf_privrob.console import command


@dataclasses.dataclass(frozen=True)
class Options(certify.Options):
  """Flags of the command: those of `certify`, and of attacks.

  Attributes:
    attacks: Attacks as name:norm.
    linf_eps: Sizes of l_inf attacks.
    l2_eps: Sizes of l_2 attacks.
    l1_eps: Sizes of l_1 attacks.
    steps: Steps of iterative attacks.
    eot_draws: Draws of the noise inside a model (dpal, secure_sgd, pixeldp) at
      every step of an attack, which climbs their mean.
    verdict_draws: Draws of that noise whose majority is the answer.
    num_attacked: Test examples that are attacked.
    num_certified: Test examples that are certified, evenly spread; 0: none.
    seed: Seed of attacks and smoothing noise. Default: 0 for attacks, and noise
      from the operating system for certificates, which hold only for models
      made without knowledge of a seed.
  """

  attacks: tuple[str, ...] = ("fgsm:linf", "mim:linf", "pgd:linf", "pgd:l2")
  linf_eps: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2)
  l2_eps: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
  l1_eps: tuple[float, ...] = (2.0, 5.0, 10.0)
  steps: int = 40
  eot_draws: int = 10
  verdict_draws: int = 100
  num_attacked: int = 500
  num_certified: int = 200


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


def main(options: Options, call: command.Call) -> None:
  """Evaluates as the flags say."""
  metrics = certify.run(
    options,
    call,
    parse_attacks(options),
    num_attacked=options.num_attacked,
    steps=options.steps,
    eot_draws=options.eot_draws,
    verdict_draws=options.verdict_draws,
  )
  print(f"Clean accuracy {metrics['clean']['accuracy']:.4f}")
  for row in metrics["attacks"]:
    print(
      f"{row['name']:5s} {row['norm']:5s} size {row['attack_eps']:<5g} accuracy"
      f" {row['accuracy']:.4f}"
    )
  print(command.next_steps(options.run_dir, "report"))
