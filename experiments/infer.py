"""Infers who was in the training set of a run folder's model.

python -m experiments.infer --run_dir=runs/first --attack_eps=0.1

Members are the training examples of the run, non-members its test examples, as
many of either. What the model says is kept in <run>/nonprivate/membership/, and
the verdicts are written to membership.json beside it. Stored predictions need
no model:

python -m experiments.infer --predictions=mine.npz
"""

from __future__ import annotations

import shlex
import sys

from absl import flags

from experiments import command
from tf_privrob.runs import infer as inferring

_RUN_DIR = flags.DEFINE_string("run_dir", None, "Run folder to attack.")
_PREDICTIONS = flags.DEFINE_string(
  "predictions",
  None,
  "npz file with member_predictions and nonmember_predictions"
  " (probabilities), member_labels and nonmember_labels, in place of a run.",
)
_DATASET = flags.DEFINE_string(
  "dataset", None, "Data set; default: the one of the run."
)
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Folder with <name>.npz; default $TF_PRIVROB_DATA."
)
_ATTACK_EPS = flags.DEFINE_float(
  "attack_eps",
  None,
  "l_inf radius of adversarial examples; default: that of the training, none"
  " if it had none.",
)
_NUM = flags.DEFINE_integer(
  "num", 5_000, "Members, and non-members, at most; evenly spread."
)
_TARGETED = flags.DEFINE_bool(
  "targeted", False, "Also attack towards every other class: classes - 1 times."
)
_VERIFIED = flags.DEFINE_bool(
  "verified", True, "Use worst-case bounds, if the trainer has them."
)
_NUM_FIT = flags.DEFINE_integer(
  "num_fit",
  None,
  "Points of each class that strategies by class learn on; default: half of"
  " the smallest class, at most 500.",
)
_SHADOW = flags.DEFINE_string(
  "shadow",
  None,
  "Outputs of another model (<run>/nonprivate/membership/<key>.npz) to learn"
  " thresholds on.",
)
_SEED = flags.DEFINE_integer("seed", 0, "Of splits and networks.")


def main() -> None:
  """Infers as the flags say and prints a table."""
  from tf_privrob import membership

  if bool(_RUN_DIR.value) == bool(_PREDICTIONS.value):
    raise ValueError(
      "Expected --run_dir, the folder of a run, or --predictions, a file of"
      " stored predictions."
    )
  shadow = _SHADOW.value and membership.Outputs.load(_SHADOW.value)
  if _PREDICTIONS.value:
    outputs = membership.from_predictions(_PREDICTIONS.value)
    num_fit = _NUM_FIT.value or inferring.default_num_fit(outputs)
    found = inferring.strategies(outputs, num_fit, _SEED.value, shadow)
    print(inferring.table([inference.to_json() for inference in found]))
    return
  _infer_run(shadow)


def _infer_run(shadow) -> None:
  payload = inferring.run(
    _RUN_DIR.value,
    attack_eps=_ATTACK_EPS.value,
    num=_NUM.value,
    targeted=_TARGETED.value,
    verified=_VERIFIED.value,
    num_fit=_NUM_FIT.value,
    seed=_SEED.value,
    shadow=shadow,
    dataset=_DATASET.value,
    data_dir=_DATA_DIR.value,
    command_line=f"python -m experiments.infer {shlex.join(sys.argv[1:])}",
  )
  if payload["test_examples_in_training_set"]:
    print(
      f"{payload['test_examples_in_training_set']} test examples are training"
      " examples too and were left out."
    )
  print(inferring.table(payload["strategies"]))
  print(inferring.bound_text(payload["bound"]))
  print(f"Next: python -m experiments.report --run_dir={_RUN_DIR.value}")


if __name__ == "__main__":
  command.run(main)
