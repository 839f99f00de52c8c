"""What an audit of certificates found, and what it could have found."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tf_privrob import binomial
from tf_privrob import inflation

SIGNIFICANCE = 0.05  # of the verdict about all rows
TEST_SHARE = 0.01  # of 1 - confidence: what the tests of one row may err


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
    count: rows attacked.
    violations: rows that fell.
    kind: "proven" or "claimed", of the rows.
    method: of the rows.
    norm: of the radii.
    confidence: of each row.
    attacks: pairs of name and number of rows that fell to it.
    rows: one mapping a violating row: index, radius, size of the change,
      attack (the first that did it), from, to.
    closest: smallest distance of a boundary found on a line from an input,
      over the row's radius; inf if none was found, and for a randomised
      classifier, whose boundary a few draws do not show.
    inflated: pairs of a factor and the number of rows that fell inside their
      radius times it, factors ascending.
    draws: averaged a step for gradients (EOT); 0 without randomness.
    seed: of the audit.
    seconds: time spent on the rows, by all sessions.
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
    """Of the rate, at 95 % (Clopper and Pearson)."""
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
      "count": self.count,
      "kind": self.kind,
      "method": self.method,
      "norm": self.norm,
      "confidence": self.confidence,
      "violations": self.violations,
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
      "draws": self.draws,
      "seed": self.seed,
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
