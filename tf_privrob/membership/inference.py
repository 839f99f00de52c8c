"""The verdict on a strategy: how well it tells members from non-members."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tf_privrob import binomial
from tf_privrob import validate
from tf_privrob.membership import intervals
from tf_privrob.membership import roc
from tf_privrob.membership import scores as scores_lib

FPRS = (0.001, 0.01)


@dataclasses.dataclass(frozen=True, eq=False)
class Inference:
  """What a strategy achieved on the points it was judged on.

  Attributes:
    strategy: Name of the strategy.
    score: The name of its score.
    label: Strategy and score in words.
    balanced_accuracy: (TPR + 1 - FPR) / 2, Eq. 15 of Song et al. 2019.
    interval: Interval of the balanced accuracy.
    interval_method: What that interval is.
    auc: Area under the ROC curve.
    auc_interval: Interval of the area, by `intervals.area`.
    tpr_at_fpr: Rows with "fpr" as asked, "tpr", its Clopper-Pearson "interval"
      at the threshold used, and "fpr_upper", the bound that this threshold's
      false-positive rate stays below with the same confidence.
    roc: "fpr" and "tpr", thinned.
    threshold: Members have at least this score; None where classes differ.
    tpr: Share of members that are called so.
    fpr: Share of non-members that are called members.
    num_members: Number of members that were judged.
    num_nonmembers: Number of non-members that were judged.
    confidence: Confidence of every interval.
    per_class: Rows by class, where thresholds or networks are by class.
    note: What could not be computed, and what it would need.
  """

  strategy: str
  score: str
  label: str
  balanced_accuracy: float
  interval: tuple[float, float]
  interval_method: str
  auc: float
  auc_interval: tuple[float, float]
  tpr_at_fpr: tuple[Mapping[str, Any], ...]
  roc: Mapping[str, list[float]]
  threshold: float | None
  tpr: float
  fpr: float
  num_members: int
  num_nonmembers: int
  confidence: float = 0.95
  per_class: tuple[Mapping[str, Any], ...] = ()
  note: str = ""

  @property
  def advantage(self) -> float:
    """2 (accuracy - 1/2) = TPR - FPR, Eq. 16."""
    return 2 * self.balanced_accuracy - 1

  @property
  def advantage_interval(self) -> tuple[float, float]:
    """The interval of the balanced accuracy, as advantages."""
    return 2 * self.interval[0] - 1, 2 * self.interval[1] - 1

  def to_json(self) -> dict[str, Any]:
    """A row of membership.json."""
    found = {
      **dataclasses.asdict(self),
      "interval": list(self.interval),
      "advantage": self.advantage,
      "advantage_interval": list(self.advantage_interval),
      "auc_interval": list(self.auc_interval),
      "auc_interval_method": intervals.AREA,
      "tpr_at_fpr": [dict(row) for row in self.tpr_at_fpr],
      "threshold": _finite(self.threshold),
      "per_class": [
        {**row, "threshold": _finite(row["threshold"])}
        for row in self.per_class
      ],
    }
    optional = ("per_class", "note")
    return {k: v for k, v in found.items() if v or k not in optional}

  def __str__(self) -> str:
    low, high = self.interval
    return (
      f"{self.label}: balanced accuracy {self.balanced_accuracy:.4f}"
      f" [{low:.4f}, {high:.4f}], AUC {self.auc:.4f}, {self.num_members}"
      f" members and {self.num_nonmembers} non-members"
    )


def judge(
  scores: scores_lib.Scores,
  threshold: float,
  *,
  strategy: str,
  label: str,
  confidence: float = 0.95,
  chosen_here: bool = False,
  **changes: Any,
) -> Inference:
  """Judges the rule "member iff score >= threshold" on these scores.

  Args:
    scores: Scores of the points to judge on.
    threshold: Infinity calls nobody a member.
    strategy: Name of the strategy.
    label: In words.
    confidence: Confidence of every interval.
    chosen_here: The threshold is the best one for these very points, and the
      interval must hold for the best of all thresholds.
    **changes: Other fields of the result, e.g. `per_class`.
  """
  validate.open_probability(confidence=confidence)
  found = roc.curve(scores.members, scores.nonmembers)
  n, m = found.num_members, found.num_nonmembers
  caught, alarms = roc.counts_at(scores.members, scores.nonmembers, threshold)
  accuracy = (caught / n + 1 - alarms / m) / 2
  if chosen_here:
    interval = intervals.best(accuracy, n, m, confidence)
  else:
    interval = intervals.balanced(caught, n, alarms, m, confidence)
  auc = roc.area(found)
  rows, notes = _low_fpr(found, confidence)
  fields = {
    "strategy": strategy,
    "score": scores.name,
    "label": label,
    "balanced_accuracy": accuracy,
    "interval": interval,
    "interval_method": intervals.UNIFORM if chosen_here else intervals.FIXED,
    "auc": auc,
    "auc_interval": intervals.area(auc, n, m, confidence),
    "tpr_at_fpr": rows,
    "roc": roc.thinned(found),
    "threshold": threshold,
    "tpr": caught / n,
    "fpr": alarms / m,
    "num_members": n,
    "num_nonmembers": m,
    "confidence": confidence,
    "note": " ".join(notes),
  }
  return Inference(**{**fields, **changes})


def tpr_at_fpr(
  scores: scores_lib.Scores, fpr: float, confidence: float = 0.95
) -> dict[str, Any]:
  """The share of members caught where at most `fpr` of non-members are.

  The threshold comes from the non-members alone (`roc.at_fpr`), so that the
  members' rate at it has a Clopper-Pearson interval. What the threshold's rate
  of false alarms is on new non-members is bounded by "fpr_upper".

  Raises:
    ValueError: Too few non-members, with the number that is needed.
  """
  validate.open_probability(confidence=confidence)
  found = roc.curve(scores.members, scores.nonmembers)
  return _row(found, fpr, confidence)


def _row(found: roc.Curve, fpr: float, confidence: float) -> dict[str, Any]:
  caught, alarms = roc.at_fpr(found, fpr)
  n, m = found.num_members, found.num_nonmembers
  allowed = math.floor(fpr * m * (1 + 1e-12))
  return {
    "fpr": fpr,
    "tpr": caught / n,
    "interval": list(binomial.interval(caught, n, confidence)),
    "measured_fpr": alarms / m,
    "fpr_upper": binomial.upper(allowed, m, 1 - confidence),
  }


def _low_fpr(found: roc.Curve, confidence: float):
  rows, notes = [], []
  for fpr in FPRS:
    needed = roc.needed_for(fpr)
    if found.num_nonmembers < needed:
      notes.append(
        f"TPR at FPR {fpr:g} needs at least {needed} non-members, there are"
        f" {found.num_nonmembers}."
      )
    else:
      rows.append(_row(found, fpr, confidence))
  return tuple(rows), notes


def _finite(value: float | None) -> float | None:
  return None if value is None or math.isinf(value) else float(value)
