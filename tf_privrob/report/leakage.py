"""What membership inference found (`FILE`), typed, and its limits.

Each strategy says "member" or "non-member" of examples that were or were not
trained on. TPR is the share of members it calls members, FPR the share of
non-members it calls members, and its advantage is TPR - FPR; its balanced
accuracy is (1 + TPR - FPR) / 2.

A model that is (dp_epsilon, dp_delta)-DP lets no test have (Kairouz et al.
2015, Theorem 2.1)

    TPR <= e^dp_epsilon FPR + dp_delta,                                    (1)
    TPR <= 1 - e^-dp_epsilon (1 - FPR - dp_delta),                         (2)

and where both hold with equality the advantage is the largest one allowed,

    TPR - FPR <= (e^dp_epsilon - 1 + 2 dp_delta) / (e^dp_epsilon + 1).     (3)

The two worlds must differ as the guarantee's neighbours do. Members are a
training set of fixed size and non-members are other examples, so that one
example replaces another. For a guarantee about adding or removing one these
are two steps, and (1) to (3) hold with (`replaced`)

    2 dp_epsilon and (1 + e^dp_epsilon) dp_delta.                          (5)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_privrob import run_folder
from tf_privrob.privacy import statement as statement_lib
from tf_privrob.report import metrics as metrics_lib

FILE = run_folder.NONPRIVATE + "membership.json"
ORACLE = "oracle"
_FAILURE_PROB = 0.05


@dataclasses.dataclass(frozen=True)
class OperatingPoint:
  """TPR at one FPR; None, with a note, where non-members are too few."""

  fpr: float
  tpr: float | None
  interval: metrics_lib.Interval | None = None
  note: str = ""


@dataclasses.dataclass(frozen=True)
class Inference:
  """How well one strategy told members from non-members."""

  strategy: str
  score: str
  label: str
  balanced_accuracy: float
  advantage: float
  interval: metrics_lib.Interval | None = None
  advantage_interval: metrics_lib.Interval | None = None
  auc: float | None = None
  auc_interval: metrics_lib.Interval | None = None
  points: tuple[OperatingPoint, ...] = ()
  fpr: tuple[float, ...] = ()
  tpr: tuple[float, ...] = ()
  num_members: int | None = None
  num_nonmembers: int | None = None
  confidence: float | None = None

  @property
  def oracle(self) -> bool:
    """Whether the threshold was chosen on the very examples it is judged on."""
    return self.strategy == ORACLE

  @property
  def least_advantage(self) -> float | None:
    """A lower confidence bound on the advantage; None if none is known.

    Of an oracle threshold the interval of its rates says too much, since the
    threshold was picked for them. The bound that holds at all thresholds at
    once takes the deviation of both empirical distributions off (Massart 1990,
    one-sided, failure probability 0.025 each):

        advantage - sqrt(ln 40 / (2 n)) - sqrt(ln 40 / (2 m)).             (4)
    """
    if not self.oracle:
      return self.advantage_interval[0] if self.advantage_interval else None
    if not self.num_members or not self.num_nonmembers:
      return None
    log = math.log(2 / _FAILURE_PROB)
    off = (math.sqrt(log / (2 * self.num_members))) + math.sqrt(
      log / (2 * self.num_nonmembers)
    )
    return self.advantage - off


@dataclasses.dataclass(frozen=True)
class Membership:
  """All strategies of one run."""

  strategies: tuple[Inference, ...]
  num_members: int | None = None
  num_nonmembers: int | None = None
  attack: str | None = None
  attack_eps: float | None = None
  seconds: float | None = None
  command: str | None = None

  @property
  def headline(self) -> Inference:
    """The strongest strategy; an oracle only where there is nothing else."""
    honest = [item for item in self.strategies if not item.oracle]
    return max(honest or self.strategies, key=lambda item: item.advantage)


def parse(entry: Mapping[str, Any]) -> Membership:
  """Reads membership.json.

  Raises:
    ValueError: for a share that is none, or without any strategy.
  """
  strategies = tuple(map(_inference, entry.get("strategies") or ()))
  if not strategies:
    raise ValueError("expected at least one of strategies, received none")
  attack = entry.get("attack")
  command = entry.get("command")
  return Membership(
    strategies=strategies,
    num_members=metrics_lib.whole(entry.get("num_members")),
    num_nonmembers=metrics_lib.whole(entry.get("num_nonmembers")),
    attack=None if attack is None else str(attack),
    attack_eps=metrics_lib.as_number(entry.get("attack_eps")),
    seconds=metrics_lib.as_number(entry.get("seconds")),
    command=None if command is None else str(command),
  )


def _inference(entry: Mapping[str, Any]) -> Inference:
  accuracy = metrics_lib.share(
    entry.get("balanced_accuracy"), "balanced_accuracy"
  )
  advantage = metrics_lib.as_number(entry.get("advantage"))
  if advantage is None:
    advantage = 2 * accuracy - 1
  if not -1 <= advantage <= 1:
    raise ValueError(f"expected advantage in [-1, 1], received {advantage!r}")
  roc = entry.get("roc") or {}
  fpr = tuple(metrics_lib.share(item, "roc fpr") for item in roc.get("fpr", ()))
  tpr = tuple(metrics_lib.share(item, "roc tpr") for item in roc.get("tpr", ()))
  if len(fpr) != len(tpr):
    raise ValueError(
      f"expected as many fpr as tpr in roc, received {len(fpr)} and {len(tpr)}"
    )
  auc = entry.get("auc")
  return Inference(
    strategy=str(entry.get("strategy", "strategy")),
    score=str(entry.get("score") or ""),
    label=str(
      entry.get("label")
      or f"{entry.get('strategy')}, {entry.get('score') or 'no score'}"
    ),
    balanced_accuracy=accuracy,
    advantage=advantage,
    interval=metrics_lib.bounds(entry.get("interval")),
    advantage_interval=metrics_lib.bounds(entry.get("advantage_interval")),
    auc=None if auc is None else metrics_lib.share(auc, "auc"),
    auc_interval=metrics_lib.bounds(entry.get("auc_interval")),
    points=tuple(map(_point, entry.get("tpr_at_fpr") or ())),
    fpr=fpr,
    tpr=tpr,
    num_members=metrics_lib.whole(entry.get("num_members")),
    num_nonmembers=metrics_lib.whole(entry.get("num_nonmembers")),
    confidence=metrics_lib.as_number(entry.get("confidence")),
  )


def _point(entry: Mapping[str, Any]) -> OperatingPoint:
  tpr = entry.get("tpr")
  return OperatingPoint(
    fpr=metrics_lib.share(entry.get("fpr"), "fpr"),
    tpr=None if tpr is None else metrics_lib.share(tpr, "tpr"),
    interval=metrics_lib.bounds(entry.get("interval")),
    note=str(entry.get("note") or ""),
  )


def replaced(
  statement: statement_lib.PrivacyStatement | None,
) -> statement_lib.Budget | None:
  """What is proven for one example in another's place: (5); None: nothing."""
  if statement is None or statement.proven is None:
    return None
  proven = statement.proven
  if statement.neighbouring == "replace_one":
    return proven
  dp_delta = (1 + math.exp(min(proven.dp_epsilon, 700.0))) * proven.dp_delta
  return statement_lib.Budget(
    2 * proven.dp_epsilon, min(dp_delta, math.nextafter(1.0, 0.0))
  )


def most_tpr(budget: statement_lib.Budget, fpr: Iterable[float]) -> np.ndarray:
  """The largest TPR at each FPR that `budget` allows: (1) and (2)."""
  fpr = np.asarray(tuple(fpr), np.float64)
  grows = math.exp(min(budget.dp_epsilon, 700.0))
  first = grows * fpr + budget.dp_delta
  second = 1 - (1 - fpr - budget.dp_delta) / grows
  return np.clip(np.minimum(first, second), 0.0, 1.0)


def most_advantage(budget: statement_lib.Budget) -> float:
  """The largest advantage that `budget` allows: (3), and never above 1."""
  shrinks = math.exp(-budget.dp_epsilon)
  top = 1 - shrinks + 2 * budget.dp_delta * shrinks
  return min(1.0, top / (1 + shrinks))
