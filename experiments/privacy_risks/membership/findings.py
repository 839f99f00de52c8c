"""The paper's findings, checked against the results of this run.

Each finding says that one figure is above another. It holds if the difference
is more than twice its standard error, does not hold if it is as far below, and
is within error otherwise. I_A and I_B, or I_V and I_A, of one model are
compared point by point; other figures count as independent, which overstates
the error where both are of one model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from experiments.grid import page as grid_page
from experiments.privacy_risks.membership import measure as membership_measure
from experiments.privacy_risks.training import cells as robust_training_cells

Results = Mapping[str, Mapping[str, Any]]
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "within error"
# Adversarial (or verified) accuracy on training examples from which on a model
# is said to fit them.
FITS = 0.9


class Finding(NamedTuple):
  """A statement and the two figures that decide it.

  Attributes:
    claim: that `larger` is above `smaller`, in words.
    where: data set and model.
    larger: what should be above.
    smaller: what should be below.
    error: twice the standard error of the difference.
    note: why it was not tested; empty if it was.
  """

  claim: str
  where: str
  larger: float
  smaller: float
  error: float
  note: str = ""

  @property
  def verdict(self) -> str:
    """In words."""
    if self.note:
      return f"not tested: {self.note}"
    difference = self.larger - self.smaller
    if difference > self.error:
      return HOLDS
    return FAILS if difference < -self.error else UNDECIDED


def inferred(infer, name: str, strategy="oracle", kind="confidence"):
  """What a strategy of a cell "infer" found; None if it was not run."""
  source = membership_measure.CONFIDENCES[name].split("_")[0]
  for found in infer["strategies"] if infer else ():
    if (found["strategy"], found["score"]) == (strategy, f"{source}_{kind}"):
      return found
  return None


def in_study(results: Results, study: str) -> list[Mapping[str, Any]]:
  """Trainings of a study that were attacked, by data set and parameter."""
  found = [
    result
    for result in results.values()
    if result["part"] == "train" and study in result["studies"]
  ]
  return sorted(found, key=lambda r: (r["dataset"], r["studies"][study]))


def infer_of(results: Results, trained) -> Mapping[str, Any] | None:
  """The cell "infer" of a model."""
  return results.get(f"{trained['model']}/infer")


def compare(
  claim: str, where: str, larger, smaller, note="", paired=None
) -> Finding:
  """A finding about two inference accuracies.

  Args:
    claim: in words.
    where: data set and model.
    larger: what should be above.
    smaller: what should be below.
    note: why it is not tested.
    paired: standard error of their difference; None: they are independent.
  """
  if paired is None:
    paired = math.hypot(
      membership_measure.standard_error(larger),
      membership_measure.standard_error(smaller),
    )
  error = 2 * paired
  accuracies = (found["balanced_accuracy"] for found in (larger, smaller))
  return Finding(claim, where, *accuracies, error, note)


def findings(results: Results) -> list[Finding]:
  """All that the results can decide."""
  parts = (
    _main,
    _trends,
    _temperatures,
    _radii,
    _verified,
    _left_out,
    _noise_layer,
    _targeted,
    _insecure,
    _private,
  )
  return [found for part in parts for found in part(results)]


def _main(results: Results) -> Iterator[Finding]:
  """Natural models against robust ones; benign inputs against attacked."""
  naturals = {}
  for trained in in_study(results, "main"):
    if trained["trainer"] == "natural":
      naturals[trained["dataset"]] = infer_of(results, trained)
  for trained in in_study(results, "main"):
    infer = infer_of(results, trained)
    benign, attacked = (inferred(infer, name) for name in ("I_B", "I_A"))
    if not (benign and attacked):
      continue
    where = f"{trained['dataset']}, {trained['label']}"
    paired = infer["paired"].get("I_A")
    if trained["trainer"] == "natural":
      claim = "I_B above I_A for natural models"
      yield compare(claim, where, benign, attacked, paired=paired)
      continue
    note = _unfit(infer, "adv-train")
    claim = "I_A above I_B for robust models"
    yield compare(claim, where, attacked, benign, paired=paired)
    natural = inferred(naturals.get(trained["dataset"]), "I_B")
    if natural:
      claim = "I_A of a robust model above I_B of the natural one, if it fits"
      yield compare(claim, where, attacked, natural, note)


def _unfit(infer, column: str) -> str:
  """Why nothing is to be expected of a model that does not fit."""
  found = infer["accuracies"].get(column)
  if found is None or found["accuracy"] >= FITS:
    return ""
  return f"{column} accuracy is {100 * found['accuracy']:.1f} %"


def _trends(results: Results) -> Iterator[Finding]:
  """The largest parameter of a study against the smallest."""
  studies = {
    "share": ("I_A", "leakage rises with the share of adversarial examples", 1),
    "radius": ("I_A", "leakage rises with the radius of training", 1),
    "capacity": ("I_B", "leakage rises with the capacity", 1),
    "adaptation": ("I_A", "domain adaptation lowers leakage", -1),
  }
  for study, (name, claim, sign) in studies.items():
    for group, found in _groups(results, study).items():
      ends = [inferred(infer_of(results, found[i]), name) for i in (0, -1)]
      if len(found) > 1 and all(ends):
        first, last = ends[::sign]
        labels = [found[0]["label"], found[-1]["label"]][::sign]
        where = f"{group}: {labels[1]} above {labels[0]}, {name}"
        yield compare(claim, where, last, first)


def _groups(results: Results, study: str) -> dict[str, list]:
  """Models of a study that differ in its parameter only.

  A study by share or radius starts with the natural model, which has no radius;
  one by capacity is a study for each radius.
  """
  groups = {}
  for trained in in_study(results, study):
    group = trained["dataset"]
    if study == "radius" and trained["trainer"] == "natural":
      continue
    if study == "capacity":
      if trained["trainer"] == "natural":
        continue
      group += f" at {trained['attack_eps']:.4g}"
    groups.setdefault(group, []).append(trained)
  return groups


def _temperatures(results: Results) -> Iterator[Finding]:
  for result in grid_page.of_part(results, "temperatures"):
    rows = result["temperatures"]
    for name in ("I_B", "I_A"):
      where = (
        f"{result['dataset']}, {result['label']}: {name} at"
        f" {rows[0]['temperature']:g} above {rows[-1]['temperature']:g}"
      )
      claim = "leakage falls with the temperature"
      yield compare(claim, where, rows[0][name], rows[-1][name])


def _radii(results: Results) -> Iterator[Finding]:
  """Figures 5, 8 and 9: the radius of training against a much larger one."""
  for result in grid_page.of_part(results, "radii"):
    rows, radius = result["radii"], result["attack_eps"]
    own = min(rows, key=lambda row: abs(row["radius"] - radius))
    if rows[-1]["radius"] > own["radius"]:
      claim = "inference at the radius of training above that far beyond it"
      where = (
        f"{result['dataset']}, {result['label']}: I_A at {own['radius']:.4g}"
        f" above {rows[-1]['radius']:.4g}"
      )
      yield compare(claim, where, own, rows[-1])


def _verified(results: Results) -> Iterator[Finding]:
  for trained in in_study(results, "main"):
    infer = infer_of(results, trained)
    attacked, verified = (inferred(infer, name) for name in ("I_A", "I_V"))
    if verified and attacked:
      where = f"{trained['dataset']}, {trained['label']}"
      yield compare(
        "I_V above I_A for verified models, if they fit",
        where,
        verified,
        attacked,
        _unfit(infer, "ver-train"),
        infer["paired"].get("I_V"),
      )


def sensitivities(results: Results) -> dict[tuple[str, str], dict[str, list]]:
  """All of them by data set and trainer: left_out and kept."""
  found = {}
  for result in grid_page.of_part(results, "left_out"):
    key = (result["dataset"], result["trainer"])
    groups = found.setdefault(key, {"left_out": [], "kept": []})
    for group, values in groups.items():
      values += result[group]["sensitivity"]
  return found


def _left_out(results: Results) -> Iterator[Finding]:
  found = sensitivities(results)
  for dataset in dict.fromkeys(key[0] for key in found):
    pair = [found.get((dataset, name)) for name in ("pgd", "natural")]
    if all(pair):
      means, errors = zip(*(mean_and_error(p["left_out"]) for p in pair))
      claim = "robust models are more sensitive to a training example"
      where = f"{dataset}: mean loss of confidence, PGD above natural"
      yield Finding(claim, where, *means, 2 * math.hypot(*errors))


def mean_and_error(values) -> tuple[float, float]:
  """Mean and its standard error."""
  count, mean = len(values), sum(values) / len(values)
  spread = sum((value - mean) ** 2 for value in values) / max(1, count - 1)
  return mean, math.sqrt(spread / count)


def _noise_layer(results: Results) -> Iterator[Finding]:
  for dataset, pair in _groups(results, "noise_layer").items():
    found = [inferred(infer_of(results, trained), "I_B") for trained in pair]
    if len(pair) == 2 and all(found):
      claim = "a noise layer raises leakage"
      where = f"{dataset}: {pair[1]['label']} above {pair[0]['label']}, I_B"
      yield compare(claim, where, found[1], found[0])


def _targeted(results: Results) -> Iterator[Finding]:
  for result in grid_page.of_part(results, "classes"):
    found = dict(result["strategies"])
    targeted = found.pop("model, targeted")
    best = max(found, key=lambda name: found[name]["balanced_accuracy"])
    where = f"{result['dataset']}, {result['label']}: above {best}"
    claim = "targeted attacks infer best, class by class"
    yield compare(claim, where, targeted, found[best])


def _insecure(results: Results) -> Iterator[Finding]:
  for result in grid_page.of_part(results, "losses"):
    groups = result["losses"]["benign"]
    means = [
      groups[f"{kind} non-members"]["mean"] for kind in ("insecure", "secure")
    ]
    if result["trainer"] == "pgd" and None not in means:
      errors = [
        groups[f"{kind} non-members"]["standard_error"]
        for kind in ("insecure", "secure")
      ]
      claim = "insecure test examples have larger losses"
      where = f"{result['dataset']}, {result['label']}: mean benign loss"
      yield Finding(claim, where, *means, 2 * math.hypot(*errors))


def _private(results: Results) -> Iterator[Finding]:
  """Private models against their public counterparts, on I_A."""
  trainings = in_study(results, "private")
  public = {
    (t["dataset"], t["trainer"]): t
    for t in trainings
    if t["studies"]["private"] == 0
  }
  for trained in trainings:
    other = public.get((trained["dataset"], trained["trainer"]))
    if trained["studies"]["private"] == 0 or other is None:
      continue
    name = "I_B" if trained["trainer"] == "natural" else "I_A"
    pair = [inferred(infer_of(results, t), name) for t in (other, trained)]
    if all(pair):
      claim = "private training lowers leakage (our addition)"
      label = robust_training_cells.LABELS[trained["trainer"]]
      budget = trained["studies"]["private"]
      where = (
        f"{trained['dataset']}: {label} above the same within dp_epsilon"
        f" {budget:g}, {name}"
      )
      yield compare(claim, where, *pair)
