"""Membership inference on a run folder or on stored predictions; no flags."""

from __future__ import annotations

import datetime
import pathlib
import time
from typing import Any

import numpy as np

from tf_privrob import files
from tf_privrob import records
from tf_privrob import run_folder
from tf_privrob import validate
from tf_privrob.runs import train as training

OUTPUT = records.membership.FILE
LOCK = run_folder.NONPRIVATE + ".membership.lock"  # of infer and of lira
_UNCHECKED = (
  "whether the members are the run's own training data was not checked:"
  " nonprivate/resume.json, which could tell, is not there"
)


def training_data(folder, dataset):
  """The data set cut to the examples that the run was trained on.

  Raises:
    ValueError: the run was trained on more than there is.
  """
  from tf_privrob import data

  flag_values = training.flags_of(folder.config or {})
  if flag_values.get("public_share") is not None:
    _, dataset = data.split_public(dataset, flag_values["public_share"])
  trained = records.Run.from_json(folder.run or {}).dataset.num_train
  if trained is None or trained == dataset.num_train:
    return dataset
  if trained > dataset.num_train:
    raise ValueError(
      f"Expected the {trained} training examples of the run, but"
      f" {dataset.name} has {dataset.num_train}. Pass the --dataset and"
      " --data_dir it was trained on."
    )
  return dataset.take(trained)


def unchecked(folder, dataset) -> str:
  """Why nobody knows whether these are the training data; "" if they are.

  Raises:
    ValueError: the run was trained on others.
  """
  from tf_privrob.methods import identity

  data = dataset.x_train, dataset.y_train
  own = identity.trained_on(folder.path, data)
  if own is False:
    raise ValueError(
      f"Expected the training data of the run in {folder.path}, received others"
      f" under the name of {dataset.name} (their hash differs). Restore the"
      " file, or pass the --data_dir that it was trained from."
    )
  return "" if own else _UNCHECKED


def chosen_rows(dataset, count: int | None):
  """Rows of members and of non-members, and how many of these were members.

  At most `count` of each, drawn with a fixed seed: every k-th one could leave
  out classes where these take turns. Where there are fewer non-members than
  members, as of faces, all members stay: rates are of either kind. A test
  example that is in the training set is not a non-member and is left out.
  """
  from tf_privrob import membership

  apart = membership.distinct(dataset.x_train, dataset.x_test)
  if not len(apart):
    raise ValueError("Expected test examples that are not training examples.")
  rows = drawn(dataset.num_train, count)
  others = apart[drawn(len(apart), count)]
  return rows, others, dataset.num_test - len(apart)


def drawn(total: int, count: int | None) -> np.ndarray:
  """Up to `count` of `total` rows, in their order, the same at every call."""
  if count is None or count >= total:
    return np.arange(total)
  return np.sort(np.random.default_rng(0).permutation(total)[:count])


def chosen_points(dataset, count: int | None):
  """The members and non-members of `chosen_rows`: inputs and labels."""
  rows, others, shared = chosen_rows(dataset, count)
  return (
    (dataset.x_train[rows], dataset.y_train[rows]),
    (dataset.x_test[others], dataset.y_test[others]),
    shared,
  )


def default_num_fit(outputs) -> int | None:
  """Half of the smallest class, at most 500; None if that is less than 2."""
  smallest = min(
    int((labels == label).sum())
    for labels in (outputs.member_labels, outputs.nonmember_labels)
    for label in np.unique(
      np.concatenate([outputs.member_labels, outputs.nonmember_labels])
    )
  )
  return min(smallest // 2, 500) if smallest >= 4 else None


def strategies(outputs, num_fit: int | None, seed: int, shadow=None) -> list:
  """Everything that these outputs allow, judged.

  Args:
    outputs: of the model.
    num_fit: points of each class and part that strategies by class learn on;
      None: these strategies are left out.
    seed: of splits and networks.
    shadow: outputs of another model, to learn thresholds on.
  """
  from tf_privrob import membership

  validate.non_negative_int(seed=seed)
  found = []
  for name in membership.available(outputs):
    scores = membership.score(outputs, name)
    source, kind = name.rsplit("_", 1)
    if kind == "correct":
      words = {"strategy": "gap", "label": f"gap of accuracies ({source})"}
      found.append(membership.fixed(scores, 1.0, **words))
      continue
    if kind == "loss":
      continue  # orders points as the margin does
    found.append(membership.oracle(scores))
    if min(len(scores.members), len(scores.nonmembers)) >= 2:
      found.append(membership.held_out(scores, seed=seed))
    if shadow is not None and name in membership.available(shadow):
      theirs = membership.score(shadow, name)
      found.append(membership.from_shadow(scores, theirs))
    if num_fit and kind == "confidence":
      found.append(membership.class_dependent(scores, num_fit, seed))
  for features in ("benign", "adversarial", "targeted"):
    if num_fit and getattr(outputs, features) is not None:
      found.append(membership.model_inference(outputs, features, num_fit, seed))
  return found


def bound_of(folder) -> dict[str, Any] | None:
  """What the run's proven guarantee allows, and on which condition it rests.

  None if nothing is proven. Members are a training set of fixed size, hence one
  example is replaced.
  """
  from tf_privrob import membership
  from tf_privrob.report import counted

  stated = counted.read(folder)
  if stated is None or stated.proven is None:
    return None
  bound = membership.advantage_bound(
    stated.proven.dp_epsilon,
    stated.proven.dp_delta,
    stated.neighbouring,
    fixed_size=True,
  )
  return {**bound.to_json(), "condition": stated.condition}


def bound_text(bound: dict[str, Any] | None) -> str:
  """The bound of membership.json as a sentence; nothing is rounded down."""
  from tf_privrob import privacy

  if bound is None:
    return "No differential privacy is proven for this run: nothing bounds it."
  names = ("dp_epsilon", "dp_delta", "balanced_accuracy")
  dp_epsilon, dp_delta, most = (privacy.rounded_up(bound[n]) for n in names)
  condition = f" ({bound['condition']})" if bound["condition"] else ""
  return (
    f"Proven (dp_epsilon={dp_epsilon}, dp_delta={dp_delta}){condition} allows a"
    f" balanced accuracy of {most} at most, {bound['assumption']}."
  )


@run_folder.alone(LOCK, "the inferences of")
def infer(
  folder,
  model,
  dataset,
  *,
  attack_eps: float | None,
  num: int | None,
  targeted: bool = False,
  verified: bool = True,
  num_fit: int | None = None,
  seed: int = 0,
  shadow=None,
  command_line: str = "",
) -> dict[str, Any]:
  """Asks the model, judges all strategies and writes membership.json.

  Raises:
    ValueError: If the run was trained on other data, or another process infers
      from it.
  """
  from tf_privrob import membership
  from tf_privrob import models

  validate.non_negative_int(seed=seed)
  started = time.monotonic()
  why = unchecked(folder, dataset)
  members, nonmembers, shared = chosen_points(dataset, num)
  request = membership.Request(
    model,
    members,
    nonmembers,
    **(membership.worst_cases(model) if verified and attack_eps else {}),
    attack_eps=attack_eps,
    value_range=dataset.value_range,
    targeted=targeted and attack_eps is not None,
    seed=seed,
  )
  size = "benign" if attack_eps is None else f"eps_{attack_eps:g}"
  key = f"{size}_{len(members[0])}_{len(nonmembers[0])}"
  outputs = membership.cached_outputs(folder, key, request)
  return _written(
    folder,
    outputs,
    num_fit,
    seed,
    shadow,
    started,
    weights=models.fingerprint(model),
    dataset=dataset.name,
    data=training.test_hash(dataset),
    unchecked=why,
    test_examples_in_training_set=shared,
    attack_eps=attack_eps,
    outputs=key,
    command=command_line,
    bound=bound_of(folder),
  )


def _written(
  folder, judged, num_fit, seed, shadow, started: float, **known: Any
) -> dict[str, Any]:
  """Judges outputs and writes membership.json with what else is known."""
  num_fit = num_fit or default_num_fit(judged)
  found = strategies(judged, num_fit, seed, shadow)
  now = datetime.datetime.now(datetime.timezone.utc)
  record = records.Membership(
    created=now.isoformat(timespec="seconds"),
    num_members=judged.num_members,
    num_nonmembers=judged.num_nonmembers,
    attack=judged.about.get("attack"),
    domain=judged.about.get("domain"),
    num_fit=num_fit,
    seed=seed,
    seconds=round(time.monotonic() - started, 2),
    strategies=tuple(
      records.Inference.from_json(item.to_json()) for item in found
    ),
    **known,
  )
  folder.write_json(OUTPUT, record.to_json())
  return record.to_json()


def predictions(
  path: files.PathLike,
  out_dir: files.PathLike | None = None,
  *,
  num_fit: int | None = None,
  seed: int = 0,
  shadow=None,
  command_line: str = "",
) -> dict[str, Any]:
  """Judges stored predictions; returns membership.json.

  Args:
    path: A file that `membership.from_predictions` reads.
    out_dir: Where membership.json goes, below nonprivate/, and a report can be
      written; None: the path without its ending.
    num_fit: Points of each class that strategies by class learn on.
    seed: Of splits and networks.
    shadow: Outputs of another model to learn thresholds on.
    command_line: For membership.json.

  Raises:
    ValueError: The file is not what it should be, or the folder has a run.
  """
  from tf_privrob import membership

  started = time.monotonic()
  outputs = membership.from_predictions(path)
  path = pathlib.Path(path)
  folder = run_folder.RunFolder(out_dir or path.with_suffix(""))
  if folder.has("config.json") or folder.has("run.json"):
    raise ValueError(
      f"Expected --out_dir without a run, found one in {folder.path}: these"
      " predictions may be of another model. Choose another folder."
    )
  with files.locked(folder.file(LOCK), f"the inferences of {folder.path}"):
    return _written(
      folder,
      outputs,
      num_fit,
      seed,
      shadow,
      started,
      predictions=path.name,
      command=command_line,
    )


def run(
  run_dir,
  *,
  attack_eps: float | None = None,
  num: int | None = 5_000,
  targeted: bool = False,
  verified: bool = True,
  num_fit: int | None = None,
  seed: int = 0,
  shadow=None,
  dataset: str | None = None,
  data_dir: str | None = None,
  command_line: str = "",
) -> dict[str, Any]:
  """Infers who was in the training set of a run; returns membership.json.

  Args:
    run_dir: The run folder.
    attack_eps: The radius of adversarial examples; None: that of the training.
    num: Members, and non-members, at most; drawn with a fixed seed.
    targeted: Also attack towards every other class.
    verified: Use worst-case bounds, if the trainer has them.
    num_fit: Points of each class that strategies by class learn on.
    seed: Of splits and networks.
    shadow: Outputs of another model to learn thresholds on.
    dataset: The run's data set, where its folder does not name one.
    data_dir: The folder with <name>.npz, or None.
    command_line: For membership.json.

  Raises:
    ValueError: If another data set is named than the run's.
  """
  if num is not None:
    validate.positive_int(num=num)
  own = (run_folder.RunFolder(run_dir).config or {}).get("dataset")
  if dataset is not None and own not in (None, dataset):
    raise ValueError(
      f"Expected the data set that the run was trained on, {own}, received"
      f" {dataset}: nobody in it is a member. Leave --dataset out."
    )
  folder, data, model = training.open_run(run_dir, dataset, data_dir)
  if attack_eps is None:
    attack_eps = _trained_eps(model)
  return infer(
    folder,
    model,
    training_data(folder, data),
    attack_eps=attack_eps,
    num=num,
    targeted=targeted,
    verified=verified,
    num_fit=num_fit,
    seed=seed,
    shadow=shadow,
    command_line=command_line,
  )


def _trained_eps(model) -> float | None:
  """The size of the changes that a model was trained against, if any."""
  settings = [getattr(model, name, None) for name in ("objective", "config")]
  found = [getattr(part, "attack_eps", None) for part in settings]
  return next((size for size in found if size is not None), None)


def table(rows: list[dict[str, Any]]) -> str:
  """Strategies in text, one a line; `rows` as in membership.json."""
  width = max(len(row["label"]) for row in rows)
  lines = [
    f"{'strategy':{width}s}  accuracy  95 % interval       AUC   TPR at 1 % FPR"
  ]
  for row in rows:
    low, high = row["interval"]
    at_low = [r for r in row["tpr_at_fpr"] if r["fpr"] == 0.01]
    tpr = f"{at_low[0]['tpr']:.4f}" if at_low else "too few points"
    lines.append(
      f"{row['label']:{width}s}  {row['balanced_accuracy']:.4f}   "
      f" [{low:.4f}, {high:.4f}]  {row['auc']:.4f}  {tpr}"
    )
  return "\n".join(lines)
