"""Attacks and certifies the model of a run folder.

python -m experiments.evaluate --run_dir=runs/first \
  --attacks=fgsm:linf,pgd:linf,pgd:l2 --linf_eps=0.05,0.1,0.2 --l2_eps=0.5,1

Results are written as they come; --resume keeps the ones that are there. Any
Keras classifier can be evaluated: --model=my.keras --dataset=mnist.
"""

from __future__ import annotations

import shlex
import sys

from absl import flags

from experiments import command
from tf_privrob.runs import evaluate as evaluation

_RUN_DIR = flags.DEFINE_string("run_dir", None, "Run folder to evaluate.")
_MODEL = flags.DEFINE_string(
  "model", None, "A Keras file; default: model.keras of the run folder."
)
_DATASET = flags.DEFINE_string(
  "dataset", None, "Data set; default: the one of the run."
)
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Folder with <name>.npz; default $TF_PRIVROB_DATA."
)
_ATTACKS = flags.DEFINE_list(
  "attacks",
  ["fgsm:linf", "mim:linf", "pgd:linf", "pgd:l2"],
  "Attacks as name:norm.",
)
_LINF = flags.DEFINE_list(
  "linf_eps", ["0.02", "0.05", "0.1", "0.2"], "Sizes of l_inf attacks."
)
_L2 = flags.DEFINE_list("l2_eps", ["0.25", "0.5", "1", "2"], "Of l_2 attacks.")
_L1 = flags.DEFINE_list("l1_eps", ["2", "5", "10"], "Sizes of l_1 attacks.")
_STEPS = flags.DEFINE_integer("steps", 40, "Steps of iterative attacks.")
_ATTACKED = flags.DEFINE_integer("num_attacked", 500, "Test examples attacked.")
_STDDEV = flags.DEFINE_float(
  "smoothing_stddev",
  None,
  "Noise of the smoothed classifier. Default: the method's own certificate, or"
  f" {evaluation.DEFAULT_STDDEV} if it has none.",
)
_CLAIMED = flags.DEFINE_bool(
  "claimed",
  False,
  "Take the sizes that the method's authors claim and nobody proved: what"
  " experiments.audit_certificates then attacks.",
)
_SELECTION = flags.DEFINE_integer(
  "num_selection", 100, "Draws to pick a class."
)
_ESTIMATION = flags.DEFINE_integer(
  "num_estimation", 10_000, "Draws to bound its probability."
)
_CONFIDENCE = flags.DEFINE_float("confidence", 0.999, "Of each certificate.")
_CERTIFIED = flags.DEFINE_integer(
  "num_certified", 200, "Test examples certified, evenly spread; 0: none."
)
_SEED = flags.DEFINE_integer("seed", 0, "Of attacks and smoothing noise.")
_RESUME = flags.DEFINE_bool("resume", False, "Keep results that are there.")


def parse_attacks() -> list[tuple[str, str, float]]:
  """The flags as triples (name, norm, attack_eps)."""
  from tf_privrob import attacks
  from tf_privrob import validate

  sizes = {"linf": _LINF.value, "l2": _L2.value, "l1": _L1.value}
  triples = []
  for attack in _ATTACKS.value:
    name, _, norm = attack.partition(":")
    norm = norm or "linf"
    validate.one_of(attacks.NAMES, attack=name)
    validate.one_of(sizes, norm=norm)
    triples += [(name, norm, float(size)) for size in sizes[norm]]
  return triples


def main() -> None:
  """Evaluates as the flags say."""
  if not _RUN_DIR.value:
    raise ValueError("Expected --run_dir, the folder of the run.")
  metrics = evaluation.run(
    _RUN_DIR.value,
    parse_attacks(),
    num_attacked=_ATTACKED.value,
    num_certified=_CERTIFIED.value,
    smoothing_stddev=_STDDEV.value,
    claimed=_CLAIMED.value,
    num_selection=_SELECTION.value,
    num_estimation=_ESTIMATION.value,
    confidence=_CONFIDENCE.value,
    steps=_STEPS.value,
    seed=_SEED.value,
    resume=_RESUME.value,
    dataset=_DATASET.value,
    data_dir=_DATA_DIR.value,
    model=_MODEL.value,
    command_line=f"python -m experiments.evaluate {shlex.join(sys.argv[1:])}",
  )
  print(f"Clean accuracy {metrics['clean']['accuracy']:.4f}")
  for row in metrics["attacks"]:
    print(
      f"{row['name']:5s} {row['norm']:5s} size {row['attack_eps']:<5g} accuracy"
      f" {row['accuracy']:.4f}"
    )
  print(f"Next: python -m experiments.report --run_dir={_RUN_DIR.value}")


if __name__ == "__main__":
  command.run(main)
