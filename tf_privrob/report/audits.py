"""What audits of privacy and of radii found, typed, with their verdicts.

An audit's figure is a lower bound on dp_epsilon at its own dp_delta. It is
held against a stated (dp_epsilon, dp_delta) only where the stated dp_delta is
not larger: then the statement implies (dp_epsilon, the audit's dp_delta)-DP.

The verdicts are found again from the figures; where a file's own verdict is
worse, the worse one counts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tf_privrob import binomial
from tf_privrob import inflation
from tf_privrob.privacy import statement as statement_lib
from tf_privrob.report import metrics as metrics_lib

OWN_SCOPE = "this run's settings"
NO_VIOLATION = "no violation"
WITHIN = "within alpha"
VIOLATED = "violated"


@dataclasses.dataclass(frozen=True)
class Audit:
  """One audit of privacy."""

  name: str
  label: str
  audited: float
  dp_delta: float
  claimed: statement_lib.Budget | None = None
  proven: statement_lib.Budget | None = None
  stated_verdict: str = ""
  statistic: str = ""
  canary: str = ""
  scope: str = ""
  confidence: float | None = None
  runs: int | None = None
  caught: int | None = None
  false_alarms: int | None = None
  guesses: int | None = None
  correct: int | None = None
  reachable: float | None = None
  seconds: float | None = None
  command: str | None = None

  def refutes(self, budget: statement_lib.Budget | None) -> bool:
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
class Violation:
  """One input whose answer an attack changed within its radius."""

  index: int | None
  radius: float | None
  size: float | None
  attack: str
  before: Any = None
  after: Any = None


@dataclasses.dataclass(frozen=True)
class CertificateAudit:
  """Attacks on inputs that have a radius, within that radius."""

  count: int
  violations: int
  allowed: float
  kind: str = "claimed"
  norm: str = ""
  method: str = ""
  confidence: float | None = None
  interval: metrics_lib.Interval | None = None
  stated_verdict: str = ""
  attacks: tuple[tuple[str, int], ...] = ()
  rows: tuple[Violation, ...] = ()
  inflated: tuple[tuple[float, int], ...] = ()
  stated_detectable: float = 1.0
  draws: int | None = None
  seconds: float | None = None
  command: str | None = None

  @property
  def proven(self) -> bool:
    """Whether a theorem supports the radii."""
    return self.kind == "proven"

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
  def detectable(self) -> float:
    """The smallest factor of the radii that would have been "violated".

    It is inf where none would have been, or none was tried.
    """
    for factor, fallen in self.inflated:
      if not fallen or factor < self.stated_detectable:
        continue
      larger = dataclasses.replace(
        self,
        violations=fallen,
        interval=binomial.interval(fallen, self.count),
        stated_verdict="",
      )
      if larger.verdict == VIOLATED:
        return factor
    return math.inf

  @property
  def power(self) -> str:
    """How large an error of the radii would have been seen, in a sentence."""
    if self.verdict == VIOLATED:
      return ""
    return inflation.sentence(
      self.violations, self.count, self.inflated, self.detectable
    )

  @property
  def short_power(self) -> str:
    """The same in a few words; "" where violations were seen."""
    if self.verdict == VIOLATED:
      return ""
    return inflation.short(self.inflated, self.detectable)


def parse_audits(payload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
  """The entries of audit.json."""
  entries = payload.get("audits")
  if not isinstance(entries, list):
    raise ValueError(f"expected a list under audits, received {entries!r}")
  return entries


def parse_audit(entry: Mapping[str, Any]) -> Audit:
  """Reads one entry of audit.json."""
  number, whole = metrics_lib.as_number, metrics_lib.whole
  audited, dp_delta = number(entry.get("audited")), number(entry["dp_delta"])
  if audited is None or audited < 0 or dp_delta is None:
    raise ValueError(
      f"expected audited >= 0 at a dp_delta, received {entry.get('audited')!r}"
      f" at {entry.get('dp_delta')!r}"
    )
  name, command = str(entry.get("name", "audit")), entry.get("command")
  return Audit(
    name=name,
    label=str(entry.get("label") or name),
    audited=audited,
    dp_delta=dp_delta,
    claimed=_budget(entry.get("claimed")),
    proven=_budget(entry.get("proven")),
    stated_verdict=str(entry.get("verdict") or ""),
    statistic=str(entry.get("statistic") or ""),
    canary=str(entry.get("canary") or ""),
    scope=str(entry.get("scope") or ""),
    confidence=number(entry.get("confidence")),
    reachable=number(entry.get("reachable")),
    seconds=number(entry.get("seconds")),
    command=None if command is None else str(command),
    **{
      key: whole(entry.get(key))
      for key in ("runs", "caught", "false_alarms", "guesses", "correct")
    },
  )


def _budget(entry: Mapping[str, Any] | None) -> statement_lib.Budget | None:
  if entry is None:
    return None
  return statement_lib.Budget(entry["dp_epsilon"], entry["dp_delta"])


def parse_certificates(entry: Mapping[str, Any]) -> CertificateAudit:
  """Reads certificate_audit.json.

  Radii whose kind is not stated as proven are claims.
  """
  whole, number = metrics_lib.whole, metrics_lib.as_number
  count, violations = whole(entry.get("count")), whole(entry.get("violations"))
  if count is None or violations is None or not 0 <= violations <= count:
    raise ValueError(
      f"expected 0 <= violations <= count, received {violations!r} and"
      f" {count!r}"
    )
  confidence = number(entry.get("confidence"))
  allowed = number(entry.get("allowed"))
  if allowed is None:
    allowed = 0.0 if confidence is None else 1 - confidence
  bounds = metrics_lib.bounds(entry.get("interval"))
  if bounds is None:
    bounds = binomial.interval(violations, count) if count else (0.0, 1.0)
  command = entry.get("command")
  return CertificateAudit(
    count=count,
    violations=violations,
    allowed=metrics_lib.share(allowed, "allowed"),
    kind="proven" if entry.get("kind") == "proven" else "claimed",
    norm=str(entry.get("norm") or ""),
    method=str(entry.get("method") or ""),
    confidence=confidence,
    interval=bounds,
    stated_verdict=str(entry.get("verdict") or ""),
    attacks=tuple(
      (str(item.get("name", "attack")), whole(item.get("violations")) or 0)
      for item in entry.get("attacks") or ()
    ),
    rows=tuple(map(_violation, entry.get("rows") or ())),
    inflated=_inflated(entry.get("inflated") or (), violations, count),
    stated_detectable=_stated_detectable(entry),
    draws=whole(entry.get("draws")),
    seconds=number(entry.get("seconds")),
    command=None if command is None else str(command),
  )


def _inflated(entries, violations: int, count: int):
  """Pairs of a factor and the rows that fell inside radii times as large."""
  pairs = tuple(
    (
      metrics_lib.as_number(entry.get("factor")),
      metrics_lib.whole(entry.get("violations")),
    )
    for entry in entries
  )
  known = all(None not in pair for pair in pairs)
  factors, fallen = [1.0], [violations]
  if known:
    factors += [factor for factor, _ in pairs]
    fallen += [number for _, number in pairs]
  if (
    not known
    or any(a >= b for a, b in zip(factors, factors[1:]))
    or [*fallen, count] != sorted([*fallen, count])
  ):
    raise ValueError(
      "expected factors above 1 that increase, with counts up to"
      f" {count} that never decrease, received {pairs!r}"
    )
  return pairs


def _stated_detectable(entry: Mapping[str, Any]) -> float:
  """The file's own factor; null is none, and a missing one says nothing."""
  stated = metrics_lib.as_number(entry.get("detectable", 1.0))
  return math.inf if stated is None else stated


def _violation(entry: Mapping[str, Any]) -> Violation:
  return Violation(
    index=metrics_lib.whole(entry.get("index")),
    radius=metrics_lib.as_number(entry.get("radius")),
    size=metrics_lib.as_number(entry.get("size")),
    attack=str(entry.get("attack") or "attack"),
    before=metrics_lib.whole(entry.get("from")),
    after=metrics_lib.whole(entry.get("to")),
  )
