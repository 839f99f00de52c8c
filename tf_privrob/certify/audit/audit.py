"""Attacks inside certified radii: does any certificate fall?"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from tf_privrob import models
from tf_privrob import progress as progress_lib
from tf_privrob import validate
from tf_privrob.certify import certificate
from tf_privrob.certify import certifier as certifier_lib
from tf_privrob.certify import record
from tf_privrob.certify import running
from tf_privrob.certify.audit import search as audit_search
from tf_privrob.certify.audit.result import AuditRow
from tf_privrob.certify.audit.result import CertificateAudit
from tf_privrob.certify.audit.result import csv_fields
from tf_privrob.certify.audit.result import TEST_SHARE

FACTORS = (1.1, 1.5, 3.0, 10.0)  # of the radii: what would have been seen
_STREAM = 0x617564  # with the seed: draws that no certificate has made
_BATCH = 20
_TESTS = 16  # at least the tests of a row, each with draws of its own


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

  Rows that stand are then attacked inside their radius times each of FACTORS,
  until they fall, to learn what would have been seen. Points may leave the
  data's value range, where a radius holds too, unless the certifier was told
  the range (`VerifiedBound.value_range`).

  Args:
    certifier: What made the rows; it says what the classifier draws.
    logits_fn: What was certified, as for `certify.run`.
    x: Inputs; a row is about x[row.index].
    certificates: Rows; those that abstained or have radius 0 state nothing and
      are passed over.
    num: Rows attacked, evenly spread; None: all.
    steps: Number of steps of each gradient attack.
    draws: Averaged a step, for a randomised classifier.
    num_random: Points of the random search for each row.
    verdict_draws: Number of draws of a verdict; None: as many as the certifier
      estimates with.
    seed: Seed of the search and of the verdicts' draws.
    csv_path: Where each row's outcome goes as soon as it is known, or None.
    resume: Go on with that file, which is refused if anything differs.
    progress: Whether to show a rate and an ETA.
    model_id: A name for a function; see `certify.run`.

  Raises:
    ValueError: If no row is certified, rows are of different statements, or
      certifier and rows do not belong together.
  """
  validate.positive_int(steps=steps, draws=draws, num_random=num_random)
  if verdict_draws is not None:
    validate.positive_int(verdict_draws=verdict_draws)
  x = certifier_lib.check_inputs(logits_fn, x)
  rows = _chosen(certifier, certificates, len(x), num)
  first = rows[0]
  model = models.model_hash(logits_fn, model_id)
  if model and any(row.model for row in rows):
    record.check_stamps(rows, model, "the certificates")
  target = certifier.target(logits_fn, x, verdict_draws)
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
      "inputs_sha256": running.digest(x, None),
      "steps": steps,
      "draws": draws,
      "num_random": num_random,
      "factors": list(FACTORS),
      "verdict_draws": verdict_draws,
      "audit_seed": seed,
    }
    book = record.Record(
      os.fspath(csv_path),
      settings,
      model,
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
    batch = self._batch([self._rows[place] for place in filled], filled)
    count = len(places)
    outcomes, closest = self._stated(batch, count, places[0])
    fell_at = self._inflated(batch, outcomes, places[0])
    each = (time.monotonic() - started) / count
    return [
      AuditRow(
        row.index, row.prediction, row.radius, float(ratio), outcome, at, each
      )
      for row, ratio, outcome, at in zip(batch.rows, closest, outcomes, fell_at)
    ]

  def _batch(self, rows, places) -> _Batch:
    x = self._x[[row.index for row in rows]]
    classes = np.array([row.prediction for row in rows])
    near = audit_search.nearest_of_another_class(
      x, classes, self._pool, self._pool_classes, rows[0].norm
    )
    if self._range is not None:
      near = np.clip(near, *self._range)
    return _Batch(rows, x, classes, self._radii[places], near)

  def _stated(self, batch, count, first):
    """What each attack does inside the radii that the rows state."""
    points, closest = self._search.points(*batch[1:], self._key(first, 0))
    outcomes = [{} for _ in range(count)]
    for number, (name, found) in enumerate(points.items()):
      sizes, others = self._judged(
        found[:count], batch.take(range(count)), number
      )
      for outcome, size, other in zip(outcomes, sizes, others):
        outcome[name] = (float(size), other)
    return outcomes, closest

  def _inflated(self, batch, outcomes, first) -> list[float]:
    """The smallest factor at which each row fell, 1 or of FACTORS, or inf.

    Only rows that stand are attacked in a larger ball. They fill the whole
    batch, so that the fewer there are, the more starts each of them has.
    """
    fell_at = [
      1.0 if any(to is not None for _, to in outcome.values()) else math.inf
      for outcome in outcomes
    ]
    for level, factor in enumerate(FACTORS, 1):
      standing = [row for row, at in enumerate(fell_at) if math.isinf(at)]
      if not standing:
        break
      slots = np.resize(standing, self._size)
      larger = batch.take(slots, factor)
      points, margins = self._search.worst(*larger[1:], self._key(first, level))
      worst = [
        max(np.flatnonzero(slots == row), key=lambda slot: margins[slot])
        for row in standing
      ]
      _, others = self._judged(
        points[worst], larger.take(worst), len(audit_search.ATTACKS) + level
      )
      for row, other in zip(standing, others):
        if other is not None:
          fell_at[row] = factor
    return fell_at

  def _key(self, first: int, level: int) -> tuple[int, int]:
    return self._seed & 0x7FFFFFFF, first * (1 + len(FACTORS)) + level

  def _judged(self, points, batch, number):
    """Sizes of the changes, cut to the inside, and other classes there."""
    norm = batch.rows[0].norm
    points = audit_search.inside(
      points, batch.x, batch.radii, norm, self._range
    )
    sizes = audit_search.lengths(audit_search.difference(points, batch.x), norm)
    others = self._target.judge(
      points,
      batch.classes,
      [_TESTS * row.index + number for row in batch.rows],
      TEST_SHARE * (1 - batch.rows[0].confidence) / len(audit_search.ATTACKS),
      (self._seed, _STREAM),
    )
    return sizes, others


class _Batch(NamedTuple):
  """Rows with what a search of their balls takes."""

  rows: Sequence[certificate.Certificate]
  x: np.ndarray
  classes: np.ndarray
  radii: np.ndarray
  near: np.ndarray

  def take(self, places, factor: float = 1.0) -> _Batch:
    """Some of the rows, with radii times a factor."""
    places = np.asarray(places)
    x, classes, radii, near = (part[places] for part in self[1:])
    rows = [self.rows[place] for place in places]
    return _Batch(rows, x, classes, factor * radii, near)


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
  certifier_lib.check_statement(certifier, rows, "the certificates")
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
  reach = 2 * audit_search.OUTSIDE * FACTORS[-1] * float(radii.max())
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
    inflated=tuple(
      (factor, sum(row.fell_at <= factor for row in found))
      for factor in FACTORS
    ),
    draws=draws,
    seed=seed,
    seconds=sum(row.seconds for row in found),
  )
