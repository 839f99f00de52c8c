"""What membership inference found: membership.json, below nonprivate/.

Each strategy says "member" or "non-member" of examples that were or were not
trained on. TPR is the share of members it calls members, FPR the share of
non-members it calls members, and its advantage is TPR - FPR; its balanced
accuracy is (1 + TPR - FPR) / 2.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any
from typing import Optional

from tf_privrob import run_folder
from tf_privrob.records.schema import Advantage
from tf_privrob.records.schema import Count
from tf_privrob.records.schema import Interval
from tf_privrob.records.schema import OPTIONAL
from tf_privrob.records.schema import Record
from tf_privrob.records.schema import require_within
from tf_privrob.records.schema import Share

FILE = run_folder.NONPRIVATE + "membership.json"
ORACLE = "oracle"
_FAILURE_PROB = 0.05


@dataclasses.dataclass(frozen=True)
class OperatingPoint(Record):
  """TPR at one FPR; None, with a note, where non-members are too few."""

  fpr: Share
  tpr: Optional[Share] = None
  interval: Optional[Interval] = None
  measured_fpr: Optional[Share] = dataclasses.field(
    default=None, metadata=OPTIONAL
  )
  fpr_upper: Optional[Share] = dataclasses.field(
    default=None, metadata=OPTIONAL
  )
  note: str = dataclasses.field(default="", metadata=OPTIONAL)

  def __post_init__(self):
    require_within(self.interval, tpr=self.tpr)


@dataclasses.dataclass(frozen=True)
class Roc(Record):
  """A curve, by the rates at its thresholds."""

  fpr: tuple[Share, ...] = ()
  tpr: tuple[Share, ...] = ()

  def __post_init__(self):
    if len(self.fpr) != len(self.tpr):
      raise ValueError(
        "expected as many fpr as tpr in roc, received"
        f" {len(self.fpr)} and {len(self.tpr)}"
      )


@dataclasses.dataclass(frozen=True)
class Inference(Record):
  """How well one strategy told members from non-members."""

  balanced_accuracy: Share
  strategy: str = "strategy"
  score: str = ""
  label: str = ""
  interval: Optional[Interval] = None
  interval_method: Optional[str] = None
  advantage: Optional[Advantage] = None
  advantage_interval: Optional[Interval] = None
  auc: Optional[Share] = None
  auc_interval: Optional[Interval] = None
  auc_interval_method: Optional[str] = None
  points: tuple[OperatingPoint, ...] = dataclasses.field(
    default=(), metadata={"key": "tpr_at_fpr"}
  )
  roc: Roc = Roc()
  threshold: Optional[float] = None
  tpr: Optional[Share] = None
  fpr: Optional[Share] = None
  num_members: Optional[Count] = None
  num_nonmembers: Optional[Count] = None
  confidence: Optional[Share] = None
  per_class: Optional[tuple[Mapping[str, Any], ...]] = dataclasses.field(
    default=None, metadata=OPTIONAL
  )
  note: str = dataclasses.field(default="", metadata=OPTIONAL)

  def __post_init__(self):
    if self.advantage is None:
      self._settle("advantage", 2 * self.balanced_accuracy - 1)
    if abs(self.advantage - (2 * self.balanced_accuracy - 1)) > 1e-6:
      raise ValueError(
        "expected advantage 2 balanced_accuracy - 1, received"
        f" {self.advantage:g} and {self.balanced_accuracy:g}"
      )
    require_within(self.interval, balanced_accuracy=self.balanced_accuracy)
    require_within(self.advantage_interval, advantage=self.advantage)
    require_within(self.auc_interval, auc=self.auc)
    if not self.label:
      self._settle("label", f"{self.strategy}, {self.score or 'no score'}")

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

        advantage - sqrt(ln 40 / (2 n)) - sqrt(ln 40 / (2 m)).
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
class Membership(Record):
  """The whole of membership.json.

  `data` is a hash of the test part, and `unchecked` says where nobody knows
  that the members are the run's own training data. `predictions` is the name of
  the file that was judged where there was no run.
  """

  strategies: tuple[Inference, ...] = ()
  created: Optional[str] = None
  weights: Optional[str] = None
  dataset: Optional[str] = None
  data: Optional[str] = None
  unchecked: str = dataclasses.field(default="", metadata=OPTIONAL)
  num_members: Optional[Count] = None
  num_nonmembers: Optional[Count] = None
  test_examples_in_training_set: Optional[Count] = None
  attack_eps: Optional[float] = None
  attack: Optional[str] = None
  domain: Any = None
  num_fit: Optional[Count] = None
  outputs: Optional[str] = None
  seed: Optional[int] = None
  seconds: Optional[float] = None
  command: Optional[str] = None
  bound: Optional[Mapping[str, Any]] = None
  predictions: Optional[str] = dataclasses.field(
    default=None, metadata=OPTIONAL
  )
  lira: Optional[Mapping[str, Any]] = dataclasses.field(
    default=None, metadata=OPTIONAL
  )

  def __post_init__(self):
    if not self.strategies:
      raise ValueError("expected at least one of strategies, received none")

  @property
  def headline(self) -> Inference:
    """The strongest strategy; an oracle only where there is nothing else."""
    honest = [item for item in self.strategies if not item.oracle]
    return max(honest or self.strategies, key=lambda item: item.advantage)
