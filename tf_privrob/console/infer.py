"""Infers who was in the training set of a run folder's model.

python -m tf_privrob infer --run_dir=runs/first --attack_eps=0.1

Members are the training examples of the run, non-members its test examples.
What the model says is kept in <run>/nonprivate/membership/, and the verdicts
are written to membership.json beside it. Stored predictions need no model; the
verdicts and a page with curves go to a folder of their own:

python -m tf_privrob infer --predictions=mine.npz --out_dir=runs/mine

The file holds member_labels and nonmember_labels, and probabilities [examples,
classes] as member_predictions and nonmember_predictions. Optional are
adversarial_member_predictions and adversarial_nonmember_predictions on
adversarial examples; verified_member_predictions and
verified_nonmember_predictions, the softmax of verified worst-case logits; and
targeted_member_predictions and targeted_nonmember_predictions [examples,
classes - 1, classes] on examples for every other class. Files that the authors
of CCS 2019 released are read as they are: output_train_benign,
output_test_benign, output_train_adversarial, output_test_adversarial,
train_label, test_label.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Optional

from tf_privrob.console import command
from tf_privrob.runs import infer as inferring


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of the command.

  Attributes:
    run_dir: Run folder to attack.
    predictions: npz file of probabilities, in place of a run; see above.
    out_dir: Folder for the verdicts on --predictions; default: the name of the
      file without its ending.
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
  out_dir: Optional[str] = None
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
    _infer_predictions(options, call, shadow)
    return
  _infer_run(options, call, shadow)


def _infer_predictions(options: Options, call: command.Call, shadow) -> None:
  from tf_privrob import report

  folder = options.out_dir or pathlib.Path(options.predictions).with_suffix("")
  payload = inferring.predictions(
    options.predictions,
    folder,
    num_fit=options.num_fit,
    seed=options.seed,
    shadow=shadow,
    command_line=call.line,
  )
  print(inferring.table(payload["strategies"]))
  print(f"Report: {report.write(folder).html.resolve()}")


def _infer_run(options: Options, call: command.Call, shadow) -> None:
  command.folder(options.run_dir)
  settings = {**vars(options), "shadow": shadow}
  del settings["predictions"], settings["out_dir"]
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
