"""Two-world audits: trainings with and without one record, told apart.

A run gives numbers that an adversary may look at. Which number, which threshold
and which side of it raise the alarm is settled on pilot runs; the bound comes
from other runs. Nothing here knows what a run is: a training, one step, or a
draw of a mechanism.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any
from typing import Callable

import numpy as np

from tf_privrob import validate
from tf_privrob.privacy.audit import audit

PILOT, JUDGED = "pilot", "judged"
# run(present, seed) gives one number, or one for each statistic.
Run = Callable[[bool, int], Any]


@dataclasses.dataclass(frozen=True)
class Test:
  """Raises the alarm where side * (statistic - threshold) > 0.

  Attributes:
    statistic: The column of a run's numbers.
    threshold: Threshold of the alarm.
    side: 1: above it; -1: below.
  """

  statistic: int
  threshold: float
  side: int

  def alarms(self, values: np.ndarray) -> int:
    """In how many of the runs [n, statistics] the alarm is raised."""
    found = np.asarray(values)[:, self.statistic]
    return int((self.side * (found - self.threshold) > 0).sum())


@dataclasses.dataclass(frozen=True)
class TwoWorldAudit(audit.LowerBound):
  """What a two-world audit showed.

  Attributes:
    runs: Number of judged runs of each kind; as many again or so were pilots.
    caught: Alarms in runs with the record.
    false_alarms: Alarms in runs without it.
    statistic: The name of what was looked at.
    test: The test that was settled on the pilots.
  """

  runs: int
  caught: int
  false_alarms: int
  statistic: str
  test: Test

  @property
  def gaussian(self) -> float:
    """The bound if the mechanism is mu-GDP; see `gaussian_lower_bound`."""
    return audit.gaussian_lower_bound(
      self.caught,
      self.false_alarms,
      self.runs,
      self.dp_delta,
      self.confidence,
    )


def best_test(
  with_it: np.ndarray,
  without: np.ndarray,
  runs: int | None = None,
  dp_delta: float = 0.0,
  confidence: float = 0.95,
) -> Test:
  """The test that would show most if the judged runs were like the pilots.

  Every statistic, every threshold between two values and both sides are tried;
  among equals the middle threshold is taken. Of n pilots a rate p counts as
  p - e or p + e, whichever shows less, with its standard error e =
  sqrt((p (1 - p) + 1 / n) / n), or rare events would win by chance.

  Args:
    with_it: Pilot runs with the record, [n, statistics] or [n].
    without: As many pilot runs without it.
    runs: Judged runs of each kind, if they are not as many as the pilots.
    dp_delta: The dp_delta of the bound.
    confidence: Confidence of the bound.
  """
  with_it, without = _table(with_it), _table(without)
  count = len(with_it)
  runs = runs or count
  best, chosen = -1.0, []
  for column in range(with_it.shape[1]):
    ordered = [np.sort(values[:, column]) for values in (with_it, without)]
    places = np.unique(np.concatenate(ordered))
    middles = (places[1:] + places[:-1]) / 2
    for side in (1, -1):
      # The counts that as many runs as will be judged would have.
      expected = [
        _expected(_share_beyond(values, middles, side), count, runs, sign)
        for values, sign in zip(ordered, (-1, 1))
      ]
      bounds = np.array(
        [
          audit.dp_epsilon_lower_bound(*counts, runs, dp_delta, confidence)
          for counts in zip(*expected)
        ]
      )
      if not len(bounds):
        continue
      top = bounds.max()
      if top >= best:
        chosen = chosen if top == best else []
        best = top
        chosen += [
          Test(column, float(middle), side) for middle in middles[bounds == top]
        ]
  if not chosen:  # nothing varies: any test will do, and shows nothing
    return Test(0, float(with_it[0, 0]), 1)
  same = [
    test
    for test in chosen
    if (test.statistic, test.side) == (chosen[0].statistic, chosen[0].side)
  ]
  return same[len(same) // 2]


def two_world(
  run: Run,
  runs: int,
  *,
  pilots: int | None = None,
  statistics: Sequence[str] = ("statistic",),
  refute: float | None = None,
  dp_delta: float = 0.0,
  confidence: float = 0.95,
  seed: int = 0,
  collect: Callable[..., np.ndarray] | None = None,
) -> TwoWorldAudit:
  """Audits a mechanism by runs with and without one record.

  Guarantee: with probability at least `confidence` over the judged runs,
  dp_epsilon at dp_delta is at least `audited`, provided that runs with
  different seeds are independent.

  Args:
    run: run(present, seed) of one number, or of one for each statistic.
    runs: Judged runs of each kind.
    pilots: Runs of each kind that settle the test; default as many.
    statistics: Their names.
    refute: The figure that the audit is to refute; if so many runs cannot, it
      is refused before any work.
    dp_delta: The dp_delta at which dp_epsilon is bounded.
    confidence: Confidence of the bound.
    seed: No seed of a run is used twice.
    collect: collect(run, part, present, seeds) gives the table of many runs;
      default one after the other. It may run them at once, or keep them on
      disk.
  """
  pilots = runs if pilots is None else pilots
  validate.positive_int(runs=runs, pilots=pilots)
  most = audit.require_reachable(runs, refute, dp_delta, confidence)
  collect = collect or one_by_one
  seeds = iter(np.split(_seeds(seed, 2 * (pilots + runs)), _cuts(pilots, runs)))
  tables = {
    (part, present): _table(collect(run, part, present, next(seeds)))
    for part in (PILOT, JUDGED)
    for present in (True, False)
  }
  for table in tables.values():
    if table.shape[1] != len(statistics):
      raise ValueError(
        f"Expected {len(statistics)} numbers a run, for the statistics"
        f" {', '.join(statistics)}, received {table.shape[1]}."
      )
  test = best_test(
    tables[PILOT, True], tables[PILOT, False], runs, dp_delta, confidence
  )
  counts = [test.alarms(tables[JUDGED, present]) for present in (True, False)]
  return TwoWorldAudit(
    audit.dp_epsilon_lower_bound(*counts, runs, dp_delta, confidence),
    dp_delta,
    confidence,
    most,
    runs,
    *counts,
    statistics[test.statistic],
    test,
  )


def one_by_one(run: Run, part: str, present: bool, seeds) -> np.ndarray:
  """The table of runs, one after the other."""
  del part
  return np.stack([np.atleast_1d(run(present, int(s))) for s in seeds])


def _seeds(seed: int, count: int) -> np.ndarray:
  """Distinct whole numbers below 2^31, the same for the same seed."""
  first = int(np.random.SeedSequence([29, seed]).generate_state(1)[0])
  return (first + np.arange(count, dtype=np.int64)) % 2**31


def _cuts(pilots: int, runs: int) -> list[int]:
  return [pilots, 2 * pilots, 2 * pilots + runs]


def _table(values) -> np.ndarray:
  values = np.asarray(values, np.float64)
  table = values[:, np.newaxis] if values.ndim == 1 else values
  if not np.isfinite(table).all():
    raise ValueError(
      "Expected finite statistics, received NaN or infinity. The runs diverge:"
      " lower the learning rate or the number of steps."
    )
  return table


def _share_beyond(ordered, thresholds, side) -> np.ndarray:
  """The share of sorted values beyond each threshold."""
  below = np.searchsorted(ordered, thresholds, side="right")
  count = len(ordered) - below if side > 0 else below
  return count / len(ordered)


def _expected(rates, pilots: int, runs: int, sign: int) -> np.ndarray:
  """Counts in `runs` runs, a standard error of the pilots' rates away."""
  error = np.sqrt((rates * (1 - rates) + 1 / pilots) / pilots)
  counts = np.round((rates + sign * error) * runs)
  return np.clip(counts, 0, runs).astype(int)
