"""Attacks inside certified radii: does any certificate fall?"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_privrob import binomial
from tf_privrob import models
from tf_privrob import progress as progress_lib
from tf_privrob import validate
from tf_privrob.certify import audit_search
from tf_privrob.certify import audit_targets
from tf_privrob.certify import certificate
from tf_privrob.certify import certifier as certifier_lib
from tf_privrob.certify import record
from tf_privrob.certify.audit_row import AuditRow
from tf_privrob.certify.audit_row import csv_fields

SIGNIFICANCE = 0.05  # of the verdict about all rows
TEST_SHARE = 0.01  # of 1 - confidence: what the tests of one row may err
_STREAM = 0x617564  # with the seed: draws that no certificate has made
_BATCH = 20


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
    allowed = self.allowed * (1 + TEST_SHARE)
    if not allowed:
      return "violated"
    p_value = binomial.tail(self.violations, self.count, min(allowed, 1.0))
    return "violated" if p_value <= SIGNIFICANCE else "within alpha"

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
      "closest": self.closest if math.isfinite(self.closest) else None,
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
      text += " Stronger attacks might find more; this proves nothing."
    return text

  __str__ = to_text


def audit_certificates(
  certifier: certifier_lib.Certifier,
  logits_fn: Any,
  x: np.ndarray,
  certificates: Sequence[certificate.Certificate],
  *,
  num: int | None = None,
  steps: int = 40,
  draws: int = 16,
  num_random: int = 32,
  verdict_draws: int | None = None,
  seed: int = 0,
  csv_path: str | os.PathLike[str] | None = None,
  resume: bool = True,
  progress: bool = True,
  model_id: str = "",
) -> CertificateAudit:
  """Attacks inside each row's own radius; see `CertificateAudit`.

  Points may leave the data's value range, where a radius holds too, unless the
  certifier was told the range (`VerifiedBound.value_range`).

  Args:
    certifier: what made the rows; it says what the classifier draws.
    logits_fn: what was certified, as for `certify.run`.
    x: inputs; a row is about x[row.index].
    certificates: rows; those that abstained or have radius 0 state nothing and
      are passed over.
    num: rows attacked, evenly spread; None: all.
    steps: of each gradient attack.
    draws: averaged a step, for a randomised classifier.
    num_random: points of the random search, a row.
    verdict_draws: of a verdict; None: as many as the certifier estimates with.
    seed: of the search and of the verdicts' draws.
    csv_path: where each row's outcome goes as soon as it is known, or None.
    resume: go on with that file, which is refused if anything differs.
    progress: whether to show a rate and an ETA.
    model_id: a name for a function; see `certify.run`.

  Raises:
    ValueError: if no row is certified, rows are of different statements, or
      certifier and rows do not belong together.
  """
  validate.positive_int(steps=steps, draws=draws, num_random=num_random)
  if verdict_draws is not None:
    validate.positive_int(verdict_draws=verdict_draws)
  x = certifier_lib.check_inputs(logits_fn, x)
  rows = _chosen(certifier, certificates, len(x), num)
  first = rows[0]
  target = audit_targets.target_of(certifier, logits_fn, x, verdict_draws)
  radii = _radii(rows, x)
  box = _box(target, x, radii)
  search = audit_search.Search(
    target.logits,
    target.randomised,
    _num_classes(target, x),
    first.norm,
    box,
    steps,
    draws,
    num_random,
  )
  book, done = None, {}
  if csv_path is not None:
    settings = {
      **certifier.settings(),
      "audited": [[row.index, row.prediction, row.radius] for row in rows],
      "steps": steps,
      "draws": draws,
      "num_random": num_random,
      "verdict_draws": verdict_draws,
      "audit_seed": seed,
    }
    book = record.Record(
      os.fspath(csv_path),
      settings,
      models.model_hash(logits_fn, model_id),
      csv_fields(),
      AuditRow.from_csv_row,
    )
    done = {row.index: row for row in book.open(resume)}
  worker = _Worker(target, search, certificates, x, rows, radii, box, seed)
  try:
    line = progress_lib.Progress(len(rows), "audit", done=len(done))
    for start in range(0, len(rows), _BATCH):
      part = range(start, min(start + _BATCH, len(rows)))
      if all(rows[place].index in done for place in part):
        continue
      for row in worker.attack(part):
        if row.index in done:
          continue
        done[row.index] = row
        if book is not None:
          book.append(row)
        if progress:
          fallen = sum(bool(row.fell) for row in done.values())
          line.update(note=f"violations {fallen}")
  finally:
    if book is not None:
      book.close()
  return _summary(
    first,
    [done[row.index] for row in rows],
    draws if target.randomised else 0,
    seed,
  )


class _Worker:
  """Attacks a batch of rows; all batches are of one size, traced once."""

  def __init__(self, target, search, certificates, x, rows, radii, box, seed):
    self._target, self._search = target, search
    self._x, self._rows, self._radii = x, rows, radii
    self._range = target.value_range and box
    self._seed = seed
    self._size = min(_BATCH, len(rows))
    stated = [row for row in certificates if not row.abstained]
    self._pool = x[[row.index for row in stated]]
    self._pool_classes = np.array([row.prediction for row in stated])

  def attack(self, places: range) -> list[AuditRow]:
    """The outcome of each row."""
    started = time.monotonic()
    filled = [*places] + [places[-1]] * (self._size - len(places))
    rows = [self._rows[place] for place in filled]
    x = self._x[[row.index for row in rows]]
    classes = np.array([row.prediction for row in rows])
    radii, norm = self._radii[filled], rows[0].norm
    near = audit_search.nearest_of_another_class(
      x, classes, self._pool, self._pool_classes, norm
    )
    if self._range is not None:
      near = np.clip(near, *self._range)
    seed = (self._seed & 0x7FFFFFFF, places[0])
    points, closest = self._search.points(x, classes, radii, near, seed)
    allowed = TEST_SHARE * (1 - rows[0].confidence) / len(points)
    outcomes = [{} for _ in places]
    for number, (name, found) in enumerate(points.items()):
      found = audit_search.inside(found, x, radii, norm, self._range)
      found = found[: len(places)]
      sizes = audit_search.lengths(
        audit_search.difference(found, x[: len(places)]), norm
      )
      others = self._target.judge(
        found,
        classes[: len(places)],
        [8 * row.index + number for row in rows[: len(places)]],
        allowed,
        (self._seed, _STREAM),
      )
      for outcome, size, other in zip(outcomes, sizes, others):
        outcome[name] = (float(size), other)
    each = (time.monotonic() - started) / len(places)
    return [
      AuditRow(
        row.index, row.prediction, row.radius, float(ratio), outcome, each
      )
      for row, ratio, outcome in zip(rows, closest, outcomes)
    ]


def _chosen(certifier, certificates, num_inputs, num) -> list:
  rows = [row for row in certificates if not row.abstained and row.radius > 0]
  if not rows:
    raise ValueError(
      f"Expected at least one certified row, received {len(certificates)} rows"
      " that all abstained or have radius 0: there is nothing to attack."
    )
  statements = {(r.norm, r.kind, r.method, r.confidence) for r in rows}
  if len(statements) > 1:
    raise ValueError(
      "Expected rows of one statement, received several (norm, kind, method,"
      f" confidence): {sorted(statements)}. Audit them one by one."
    )
  norm = getattr(certifier, "norm", None)
  if norm is not None and norm != rows[0].norm:
    raise ValueError(
      f"Expected rows in {norm}, the norm of the certifier, received rows in"
      f" {rows[0].norm}."
    )
  confidence = getattr(certifier, "confidence", 1.0)
  if confidence != rows[0].confidence:
    raise ValueError(
      f"Expected rows of confidence {confidence}, the certifier's, received"
      f" {rows[0].confidence}."
    )
  indices = [row.index for row in rows]
  if max(indices) >= num_inputs or len(set(indices)) < len(rows):
    raise ValueError(
      f"Expected one row an input, with an index below {num_inputs}, received"
      f" {len(rows)} rows with indices up to {max(indices)}."
    )
  if num is None:
    return rows
  validate.positive_int(num=num)
  places = np.linspace(0, len(rows) - 1, min(num, len(rows)))
  return [rows[place] for place in places.round().astype(int)]


def _radii(rows, x: np.ndarray) -> np.ndarray:
  """Radii to attack in: an infinite one is cut where all inputs are inside."""
  spread = float(x.max()) - float(x.min()) + 1.0
  most = 100 * spread * x[0].size
  return np.array([min(row.radius, most) for row in rows], np.float64)


def _box(target, x: np.ndarray, radii: np.ndarray) -> tuple[float, float]:
  """Where points may be: everywhere within reach, or the range."""
  if target.value_range is not None:
    return target.value_range
  reach = 2 * audit_search.OUTSIDE * float(radii.max())
  return float(x.min()) - reach, float(x.max()) + reach


def _num_classes(target, x: np.ndarray) -> int:
  if not target.randomised:
    return certifier_lib.num_classes_of(target.logits, x, None)
  return certifier_lib.num_classes_of(
    lambda batch: target.logits(batch, (0, 0)), x, None
  )


def _summary(first, found, draws, seed) -> CertificateAudit:
  fallen = [row for row in found if row.fell]
  return CertificateAudit(
    count=len(found),
    violations=len(fallen),
    kind=first.kind,
    method=first.method,
    norm=first.norm,
    confidence=first.confidence,
    attacks=tuple(
      (name, sum(row.outcomes[name][1] is not None for row in found))
      for name in audit_search.ATTACKS
    ),
    rows=tuple(row.violation() for row in fallen),
    closest=math.inf if draws else min(row.closest for row in found),
    draws=draws,
    seed=seed,
    seconds=sum(row.seconds for row in found),
  )
