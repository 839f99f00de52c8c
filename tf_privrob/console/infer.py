"""Infers who was in the training set of a run folder's model.

python -m tf_privrob infer --run_dir=runs/first --attack_eps=0.1

Members are the training examples of the run, non-members its test examples.
What the model says is kept in <run>/nonprivate/membership/, and
the verdicts are written to membership.json beside it. Stored predictions need
no model:

python -m tf_privrob infer --predictions=mine.npz
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from tf_privrob.console import command
from tf_privrob.runs import infer as inferring


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of the command.

  Attributes:
    run_dir: Run folder to attack.
    predictions: npz file with member_predictions and nonmember_predictions
      (probabilities), member_labels and nonmember_labels, in place of a run.
    dataset: Data set of the run, where its folder does not name it.
    data_dir: Folder with <name>.npz; default $TF_PRIVROB_DATA.
    attack_eps: l_inf radius of adversarial examples; default: that of the
      training, none if it had none.
    num: Members, and non-members, at most; drawn with a fixed seed.
    targeted: Also attack towards every other class: classes - 1 times.
    verified: Use worst-case bounds, if the trainer has them.
    num_fit: Points of each class that strategies by class learn on; default:
      half of the smallest class, at most 500.
    shadow: Outputs of another model (<run>/nonprivate/membership/<key>.npz) to
      learn thresholds on.
    seed: Seed of splits and networks.
  """

  run_dir: Optional[str] = None
  predictions: Optional[str] = None
  dataset: Optional[str] = None
  data_dir: Optional[str] = None
  attack_eps: Optional[float] = None
  num: int = 5000
  targeted: bool = False
  verified: bool = True
  num_fit: Optional[int] = None
  shadow: Optional[str] = None
  seed: int = 0


def main(options: Options, call: command.Call) -> None:
  """Infers as the flags say and prints a table."""
  from tf_privrob import membership

  if bool(options.run_dir) == bool(options.predictions):
    raise ValueError(
      "Expected --run_dir, the folder of a run, or --predictions, a file of"
      " stored predictions."
    )
  shadow = options.shadow and membership.Outputs.load(options.shadow)
  if options.predictions:
    outputs = membership.from_predictions(options.predictions)
    num_fit = options.num_fit or inferring.default_num_fit(outputs)
    found = inferring.strategies(outputs, num_fit, options.seed, shadow)
    print(inferring.table([inference.to_json() for inference in found]))
    return
  _infer_run(options, call, shadow)


def _infer_run(options: Options, call: command.Call, shadow) -> None:
  command.folder(options.run_dir)
  settings = {**vars(options), "shadow": shadow}
  del settings["predictions"]
  payload = inferring.run(**settings, command_line=call.line)
  if payload["test_examples_in_training_set"]:
    print(
      f"{payload['test_examples_in_training_set']} test examples are training"
      " examples too and were left out."
    )
  if payload.get("unchecked"):
    print(f"Note that {payload['unchecked']}.")
  print(inferring.table(payload["strategies"]))
  print(inferring.bound_text(payload["bound"]))
  print(command.next_steps(options.run_dir, "report"))
