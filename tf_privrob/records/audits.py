"""What audits found: the entries of audit.json, and certificate_audit.json.

An audit's figure is a lower bound on dp_epsilon at its own dp_delta. It is
held against a stated (dp_epsilon, dp_delta) only where the stated dp_delta is
not larger: then the statement implies (dp_epsilon, the audit's dp_delta)-DP.

The verdicts are found again from the figures; where a file's own verdict is
worse, the worse one counts.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Optional

from tf_privrob import binomial
from tf_privrob import inflation
from tf_privrob.privacy.statement import Budget
from tf_privrob.records.evaluation import OfRadii
from tf_privrob.records.schema import Count
from tf_privrob.records.schema import Interval
from tf_privrob.records.schema import OPTIONAL
from tf_privrob.records.schema import Record
from tf_privrob.records.schema import Share
from tf_privrob.records.schema import Size

OWN_SCOPE = "this run's settings"
NO_VIOLATION = "no violation"
WITHIN = "within alpha"
VIOLATED = "violated"


@dataclasses.dataclass(frozen=True)
class Audit(Record):
  """One audit of privacy."""

  audited: Size
  dp_delta: Share
  name: str = "audit"
  label: str = ""
  claimed: Optional[Budget] = None
  proven: Optional[Budget] = None
  stated_verdict: str = dataclasses.field(
    default="", metadata={"key": "verdict"}
  )
  statistic: str = ""
  canary: str = ""
  scope: str = ""
  confidence: Optional[Share] = None
  runs: Optional[Count] = None
  reachable: Optional[float] = None
  created: Optional[str] = None
  seconds: Optional[float] = None
  command: Optional[str] = None
  neighbouring: Optional[str] = None
  id: Optional[str] = dataclasses.field(default=None, metadata=OPTIONAL)
  run_id: Optional[str] = dataclasses.field(default=None, metadata=OPTIONAL)
  caught: Optional[Count] = None
  false_alarms: Optional[Count] = None
  gaussian: Optional[float] = None
  sampling_prob: Optional[float] = None
  guesses: Optional[Count] = None
  correct: Optional[Count] = None
  tried: Optional[tuple[Count, ...]] = None
  any_mechanism: Optional[float] = dataclasses.field(
    default=None, metadata=OPTIONAL
  )
  noise_found: Optional[float] = dataclasses.field(
    default=None, metadata=OPTIONAL
  )
  second_training: Optional[str] = dataclasses.field(
    default=None, metadata=OPTIONAL
  )

  def __post_init__(self):
    self._settle("label", self.label or self.name)

  def refutes(self, budget: Budget | None) -> bool:
    """Whether the audit shows more leakage than `budget` allows."""
    return (
      budget is not None
      and self.dp_delta >= budget.dp_delta * (1 - 1e-9)
      and self.audited > budget.dp_epsilon
    )

  @property
  def refutes_proven(self) -> bool:
    """Whether the proof does not describe what the code did."""
    stated = self.stated_verdict == "refutes proven"
    return stated or self.refutes(self.proven)

  @property
  def refutes_claimed(self) -> bool:
    """Whether the claim is false."""
    stated = self.stated_verdict == "refutes claimed"
    return stated or self.refutes(self.claimed)

  @property
  def verdict(self) -> str:
    """What the figure means beside what is claimed and proven."""
    if self.refutes_proven:
      return "refutes proven"
    if self.refutes_claimed:
      return "refutes claimed"
    if self.proven is not None:
      if self.dp_delta < self.proven.dp_delta * (1 - 1e-9):
        return "at a smaller dp_delta than proven: not comparable"
      return "below proven"
    return "below claimed, none proven" if self.claimed else "no claim"


@dataclasses.dataclass(frozen=True)
class Fallen(Record):
  """How many rows fell to one attack."""

  name: str = "attack"
  violations: Count = 0


@dataclasses.dataclass(frozen=True)
class Inflated(Record):
  """How many rows fell inside radii `factor` times as large."""

  factor: Size
  violations: Count


@dataclasses.dataclass(frozen=True)
class Violation(Record):
  """One input whose answer an attack changed within its radius."""

  index: Optional[int] = None
  radius: Optional[float] = None
  size: Optional[float] = None
  attack: str = "attack"
  before: Optional[int] = dataclasses.field(
    default=None, metadata={"key": "from"}
  )
  after: Optional[int] = dataclasses.field(default=None, metadata={"key": "to"})


@dataclasses.dataclass(frozen=True)
class CertificateAudit(OfRadii):
  """Attacks on inputs that have a radius, within that radius.

  `allowed` follows from the confidence where a file does not say it.
  `stated_detectable` is the file's own factor: None is none, and 1, which says
  nothing, if it has none.
  """

  count: Count
  violations: Count
  created: Optional[str] = None
  weights: Optional[str] = None
  kind: str = "claimed"
  method: str = ""
  norm: str = ""
  confidence: Optional[Share] = None
  rate: Optional[Share] = None
  interval: Optional[Interval] = None
  allowed: Optional[Share] = None
  stated_verdict: str = dataclasses.field(
    default="", metadata={"key": "verdict"}
  )
  attacks: tuple[Fallen, ...] = ()
  rows: tuple[Violation, ...] = ()
  closest: Optional[Size] = None
  inflated: tuple[Inflated, ...] = ()
  stated_detectable: Optional[float] = dataclasses.field(
    default=1.0, metadata={"key": "detectable"}
  )
  draws: Optional[Count] = None
  seed: Optional[int] = None
  seconds: Optional[float] = None
  command: Optional[str] = None

  def __post_init__(self):
    if self.violations > self.count:
      raise ValueError(
        f"expected 0 <= violations <= count, received {self.violations!r} and"
        f" {self.count!r}"
      )
    self._settle_kind()
    if self.allowed is None:
      certain = self.confidence is None
      self._settle("allowed", 0.0 if certain else 1 - self.confidence)
    if self.interval is None:
      bounds = (0.0, 1.0)
      if self.count:
        bounds = binomial.interval(self.violations, self.count)
      self._settle("interval", bounds)
    factors = [1.0, *(row.factor for row in self.inflated)]
    fallen = [
      self.violations,
      *(row.violations for row in self.inflated),
      self.count,
    ]
    rises = all(a < b for a, b in zip(factors, factors[1:]))
    if not rises or fallen != sorted(fallen):
      raise ValueError(
        "expected factors above 1 that increase, with counts up to"
        f" {self.count} that never decrease, received {self.pairs!r}"
      )

  @property
  def pairs(self) -> tuple[tuple[float, int], ...]:
    """Pairs of a factor and the rows that fell inside radii times as large."""
    return tuple((row.factor, row.violations) for row in self.inflated)

  @property
  def verdict(self) -> str:
    """Whether as many violations may be by chance.

    Each radius may be wrong with probability `allowed`; more violations than
    that explains are found by the lower end of their rate's exact interval.
    Without randomness `allowed` is 0, and one violation is enough.
    """
    if self.violations == 0 and self.stated_verdict != VIOLATED:
      return NO_VIOLATION
    beyond = self.interval[0] > self.allowed or self.allowed <= 0
    if beyond or self.stated_verdict == VIOLATED:
      return VIOLATED
    return WITHIN

  @property
  def violated(self) -> bool:
    """Whether the radii are refuted."""
    return self.verdict == VIOLATED

  @property
  def detectable(self) -> float:
    """The smallest factor of the radii that would have been "violated".

    It is inf where none would have been, or none was tried.
    """
    if self.stated_detectable is None:
      return math.inf
    for factor, fallen in self.pairs:
      if not fallen or factor < self.stated_detectable:
        continue
      larger = dataclasses.replace(
        self,
        violations=fallen,
        inflated=(),
        interval=binomial.interval(fallen, self.count),
        stated_verdict="",
      )
      if larger.violated:
        return factor
    return math.inf

  @property
  def power(self) -> str:
    """How large an error of the radii would have been seen, in a sentence."""
    if self.violated:
      return ""
    return inflation.sentence(
      self.violations, self.count, self.pairs, self.detectable
    )

  @property
  def short_power(self) -> str:
    """The same in a few words; "" where violations were seen."""
    if self.violated:
      return ""
    return inflation.short(self.pairs, self.detectable)
