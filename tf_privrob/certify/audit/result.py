"""What an audit of certificates found: row by row, and in all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tf_privrob import binomial
from tf_privrob import inflation
from tf_privrob.certify.audit import search as audit_search

SIGNIFICANCE = 0.05  # of the verdict about all rows
TEST_SHARE = 0.01  # of 1 - confidence: what the tests of one row may err


@dataclasses.dataclass(frozen=True)
class AuditRow:
  """What each attack did to one row.

  Attributes:
    index: Index of the input.
    prediction: The class that the row states.
    radius: The row's.
    closest: Nearest boundary found on a line, over the radius, or inf.
    outcomes: By attack, the size of its change and the class there if it is
      another one, else None.
    fell_at: Smallest factor tried, from 1 on, with a change of class inside
      the radius times it; inf if none is known.
    seconds: Time spent on the row.
  """

  index: int
  prediction: int
  radius: float
  closest: float
  outcomes: Mapping[str, tuple[float, int | None]]
  fell_at: float = math.inf
  seconds: float = 0.0

  @property
  def fell(self) -> list[str]:
    """Attacks that changed the class."""
    return [name for name, (_, to) in self.outcomes.items() if to is not None]

  def violation(self) -> dict[str, Any]:
    """The smallest change that an attack succeeded with."""
    name = min(self.fell, key=lambda name: self.outcomes[name][0])
    size, other = self.outcomes[name]
    return {
      "index": self.index,
      "radius": self.radius,
      "size": size,
      "attack": name,
      "from": self.prediction,
      "to": other,
    }

  def to_csv_row(self) -> list[str]:
    """Values in the order of `csv_fields()`; floats survive a round trip."""
    cells = [str(self.index), str(self.prediction)]
    cells += [repr(self.radius), repr(self.closest)]
    for name in audit_search.ATTACKS:
      size, other = self.outcomes[name]
      cells += [repr(size), "" if other is None else str(other)]
    return [*cells, repr(self.fell_at), repr(self.seconds)]

  @classmethod
  def from_csv_row(cls, cells: Sequence[str]) -> AuditRow:
    """Inverse of `to_csv_row`."""
    if len(cells) != len(csv_fields()):
      raise ValueError(
        f"Expected {len(csv_fields())} cells, received {len(cells)}."
      )
    pairs = zip(cells[4:-2:2], cells[5:-2:2])
    return cls(
      int(cells[0]),
      int(cells[1]),
      float(cells[2]),
      float(cells[3]),
      {
        name: (float(size), int(other) if other else None)
        for name, (size, other) in zip(audit_search.ATTACKS, pairs)
      },
      float(cells[-2]),
      float(cells[-1]),
    )


def csv_fields() -> tuple[str, ...]:
  """Columns: the row, size and class of each attack's point, the factor."""
  names = ["index", "prediction", "radius", "closest"]
  for name in audit_search.ATTACKS:
    names += [f"{name}_size", f"{name}_to"]
  return (*names, "fell_at", "seconds")


@dataclasses.dataclass(frozen=True)
class CertificateAudit:
  """What attacks inside the radii of certified rows found.

  A violation is a row with a point strictly inside its radius where the
  classifier that the row is about returns another class. A deterministic
  classifier shows it by one forward pass. A smoothed one is judged by fresh
  draws (`audit_targets.Randomised`), all tests of a row together at failure
  probability t = TEST_SHARE (1 - confidence). Hence a row of a sound certifier
  is a violation with probability at most a = (1 - confidence)(1 + TEST_SHARE),
  independently of the other rows.

  Verdict. "violated": confidence is 1 and there is a violation, or
  P(Binomial(count, a) >= violations) <= 0.05: sound certificates give it with
  probability at most 5 %. "within alpha": violations that so many rows must be
  expected to have. "no violation": none. The last two do not prove anything:
  a better attack may find more.

  Power. What these attacks would have found is measured (`inflated`): they
  search the same rows inside radii times some factors, and a row that fell
  inside a ball has fallen for all larger ones. The worst point that they find
  is judged as above, all tests of a row in inflated balls together at t again.
  So a certifier that states `detectable` times these radii would have been
  found out here; what one that overstates by less would have been is not known.

  Attributes:
    count: Rows attacked.
    violations: Rows that fell.
    kind: "proven" or "claimed", of the rows.
    method: The method that the rows name.
    norm: Norm of the radii.
    confidence: Confidence of each row.
    attacks: Pairs of name and number of rows that fell to it.
    rows: One mapping a violating row: index, radius, size of the change,
      attack (the first that did it), from, to.
    closest: Smallest distance of a boundary found on a line from an input,
      over the row's radius; inf if none was found, and for a randomised
      classifier, whose boundary a few draws do not show.
    inflated: Pairs of a factor and the number of rows that fell inside their
      radius times it, factors ascending.
    draws: Averaged a step for gradients (EOT); 0 without randomness.
    seed: Seed of the audit.
    seconds: Time spent on the rows, by all sessions.
  """

  count: int
  violations: int
  kind: str
  method: str
  norm: str
  confidence: float
  attacks: tuple[tuple[str, int], ...]
  rows: tuple[dict[str, Any], ...]
  closest: float = math.inf
  inflated: tuple[tuple[float, int], ...] = ()
  draws: int = 0
  seed: int = 0
  seconds: float = 0.0

  @property
  def rate(self) -> float:
    """Share of the rows that fell."""
    return self.violations / self.count

  @property
  def interval(self) -> tuple[float, float]:
    """The interval of the rate, at 95 % (Clopper and Pearson)."""
    return binomial.interval(self.violations, self.count)

  @property
  def allowed(self) -> float:
    """1 - confidence, the share of false rows that is paid for."""
    return 0.0 if self.confidence == 1 else 1 - self.confidence

  @property
  def verdict(self) -> str:
    """One of "no violation", "within alpha", "violated"; see the class."""
    if not self.violations:
      return "no violation"
    return "violated" if self._violated(self.violations) else "within alpha"

  @property
  def detectable(self) -> float:
    """The smallest factor at which it would have been "violated", or inf."""
    tried = ((1.0, self.violations), *self.inflated)
    return min((f for f, n in tried if self._violated(n)), default=math.inf)

  def _violated(self, fallen: int) -> bool:
    """Whether so many rows of sound certificates fall in 5 % at most."""
    allowed = min(self.allowed * (1 + TEST_SHARE), 1.0)
    if not allowed:
      return fallen > 0
    return binomial.tail(fallen, self.count, allowed) <= SIGNIFICANCE

  def to_json(self) -> dict[str, Any]:
    """The contents of certificate_audit.json, but for date and command."""
    return {
      **dataclasses.asdict(self),
      "rate": self.rate,
      "interval": list(self.interval),
      "allowed": self.allowed,
      "verdict": self.verdict,
      "attacks": [
        {"name": name, "violations": count} for name, count in self.attacks
      ],
      "rows": [dict(row) for row in self.rows],
      "closest": _finite(self.closest),
      "inflated": [
        {"factor": factor, "violations": count}
        for factor, count in self.inflated
      ],
      "detectable": _finite(self.detectable),
      "seconds": round(self.seconds, 2),
    }

  def to_text(self) -> str:
    """One paragraph for a reader who has not seen the code."""
    word = "certified" if self.kind == "proven" else "claimed (not certified)"
    low, high = self.interval
    names = ", ".join(f"{name} {count}" for name, count in self.attacks)
    allowed = (
      "none is allowed, since nothing is random"
      if not self.allowed
      else f"{self.allowed:g} of them may be false by the certificates' own"
      f" confidence, {self.allowed * self.count:.3g} rows"
    )
    text = (
      f"Attacked {self.count} {word} {self.norm} radii of {self.method} from"
      f" inside: {self.violations} fell ({self.rate:.2%}, 95 % interval"
      f" {low:.2%} to {high:.2%}); {allowed}. By attack: {names}. Verdict:"
      f" {self.verdict}."
    )
    if math.isfinite(self.closest):
      text += (
        f" The nearest boundary on a line from an input was seen at"
        f" {self.closest:.3g} radii."
      )
    if self.verdict == "violated" and self.kind == "proven":
      text += " A proven radius that falls is a fault of the library."
    elif self.verdict != "violated":
      said = inflation.sentence(
        self.violations, self.count, self.inflated, self.detectable
      )
      text += f" {said} Stronger attacks might find more; this proves nothing."
    return text

  __str__ = to_text


def _finite(number: float) -> float | None:
  return number if math.isfinite(number) else None
