"""LiRA on a run folder, with reference models trained as it was; no flags."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from tf_privrob import files
from tf_privrob import randomness
from tf_privrob import records
from tf_privrob import run_folder
from tf_privrob import validate
from tf_privrob.privacy import stated as stated_lib
from tf_privrob.runs import infer as inferring
from tf_privrob.runs import train as training

FOLDER = "nonprivate/references"
ASSUMPTION = (
  "the attacker trains models as this one was trained, and knows all training"
  " examples but those that are judged"
)
_SCORE = "benign_margin"


def coins(num_references: int, num_points: int, seed: int) -> np.ndarray:
  """Which points each reference model is trained on: [references, points].

  A model has half of the points, the next one the other half: every point is
  in half of the models.
  """
  if num_references < 4 or num_references % 2:
    raise ValueError(
      "Expected an even num_references >= 4, so that every point is in two"
      f" models and out of two, received {num_references}."
    )
  validate.non_negative_int(seed=seed)
  rng = np.random.default_rng([19, seed])
  found = np.zeros([num_references, num_points], bool)
  for first in range(0, num_references, 2):
    found[first, rng.permutation(num_points)[: num_points // 2]] = True
    found[first + 1] = ~found[first]
  return found


@run_folder.alone(inferring.LOCK, "the inferences of")
def lira(
  folder,
  source,
  num_references: int,
  *,
  seed: int = 0,
  command_line: str = "",
) -> list[dict[str, Any]]:
  """Trains reference models, judges, and adds to membership.json.

  Members and non-members are those that `runs.infer` judged, as many of either
  (`judged_points`). A reference model is trained with the run's method, network
  and settings on half of them and on all training examples that are not among
  them: as many examples as the run had. What is trained stays in the run
  folder, in the part that is not to be published, and a killed training goes
  on.

  Args:
    folder: the run's; with membership.json.
    source: what it was made of (`audit_source.load`).
    num_references: even, at least 4.
    seed: of coins, and of trainings without privacy; private ones have their
      randomness from the operating system.
    command_line: for membership.json.

  Returns:
    the rows that were added.

  Raises:
    ValueError: if another process infers from the run.
  """
  from tf_privrob import membership

  started = time.monotonic()
  payload = folder.read_json(inferring.OUTPUT)
  if payload is None:
    raise ValueError(
      f"Expected {folder.file(inferring.OUTPUT)}, which says who is judged. Run"
      f" first: python -m tf_privrob infer --run_dir={folder.path}"
    )
  record = records.Membership.from_json(payload)
  dataset = source.dataset
  outputs, members, nonmembers, others = judged_points(folder, record, dataset)
  own, count = membership.score(outputs, _SCORE), len(members[0])
  is_in = coins(num_references, 2 * count, seed)
  points = [np.concatenate(pair) for pair in zip(members, nonmembers)]
  stated_lib.caution(folder, stated_lib.REFERENCES)
  found = []
  for number, included in enumerate(is_in):
    place = f"{FOLDER}/{count}_points_seed_{seed}/{number}_of_{num_references}"
    rows = [
      np.concatenate([part, point[included]])
      for part, point in zip(others, points)
    ]
    model = _reference(folder.file(place), source, rows, [seed, number])
    request = membership.Request(
      model, members, nonmembers, value_range=dataset.value_range
    )
    outputs = membership.cached_outputs(folder.file(place), "benign", request)
    found.append(membership.score(outputs, _SCORE))
  added = [
    membership.lira(own, found, is_in, mode, seed=seed).to_json()
    for mode in ("online", "offline")
  ]
  kept = [item for item in record.strategies if item.strategy != "lira"]
  record = dataclasses.replace(
    record,
    strategies=(*kept, *map(records.Inference.from_json, added)),
    lira={
      "references": num_references,
      "assumption": ASSUMPTION,
      "seed": seed,
      "seconds": round(time.monotonic() - started, 2),
      "command": command_line,
    },
  )
  folder.write_json(inferring.OUTPUT, record.to_json())
  return added


def judged_points(folder, record: records.Membership, dataset):
  """Those of the points of membership.json that references are trained for.

  As many of either kind, so that half of all of them, and all other training
  examples, are as many as the run was trained on.

  Returns:
    The run's outputs on them, the members, the non-members and the training
    examples that are not among the members.

  Raises:
    ValueError: The stored outputs are about other points.
  """
  from tf_privrob import membership

  path = folder.file(f"nonprivate/membership/{record.outputs}.npz")
  outputs = membership.Outputs.load(path)
  most = max(record.num_members, record.num_nonmembers)
  rows, others, _ = inferring.chosen_rows(dataset, most)
  labels = dataset.y_train[rows], dataset.y_test[others]
  known = outputs.member_labels, outputs.nonmember_labels
  if not all(np.array_equal(*pair) for pair in zip(labels, known)):
    raise ValueError(
      f"Expected outputs on the points that are drawn of {dataset.name}, found"
      f" others in {path}, as of an earlier version. Infer again."
    )
  count = min(len(rows), len(others))
  picked = [inferring.drawn(len(part), count) for part in (rows, others)]
  rows, others = rows[picked[0]], others[picked[1]]
  rest = np.setdiff1d(np.arange(dataset.num_train), rows)
  return (
    outputs.take(*picked),
    (dataset.x_train[rows], dataset.y_train[rows]),
    (dataset.x_test[others], dataset.y_test[others]),
    (dataset.x_train[rest], dataset.y_train[rest]),
  )


def _reference(path, source, rows, seed: list[int]):
  """A model trained on these rows, or the one that was."""
  from tf_privrob import models

  place = run_folder.RunFolder(path)
  if place.has("model.keras"):
    return models.load_model(place.file("model.keras"))
  own = randomness.Key.of(23).child(*seed).integer()
  private = training.is_private(source.config)
  model = source.build(seed=None if private else own)
  model.fit(
    *rows,
    value_range=source.dataset.value_range,
    run_dir=place.path,
    resume=place.has("ledger.jsonl"),
  )
  files.write_model(place.file("model.keras"), model)
  return model
