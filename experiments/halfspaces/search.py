"""The smallest sample that suffices: a search on a geometric grid."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np

LIMIT = 0.1  # largest risk that counts as success
SHARE = 2 / 3  # of the seeds must succeed


def sizes(first: int, last: int, factor: float) -> list[int]:
  """Whole numbers first .. last, each at most `factor` times the one before.

  Except where the numbers are so small that the next one is more than that.
  """
  if not 1 <= first <= last or factor <= 1:
    raise ValueError(
      f"Expected 1 <= first <= last and factor > 1, received first={first},"
      f" last={last}, factor={factor}."
    )
  found = [first]
  while found[-1] < last:
    found.append(min(last, max(found[-1] + 1, int(found[-1] * factor))))
  return found


@dataclasses.dataclass(frozen=True)
class Found:
  """The answer of a search.

  Attributes:
    n: smallest size that suffices for the share of seeds; None if the largest
      size does not: "censored".
    cap: largest size of the grid.
    brackets: of each seed, (largest size that fails, smallest that suffices);
      the first is 0 and the second None where there is none.
    evaluations: trainings that the search took.
  """

  n: int | None
  cap: int
  brackets: list[tuple[int, int | None]]
  evaluations: int

  @property
  def censored(self) -> bool:
    """Whether the cap was hit."""
    return self.n is None


def smallest_n(
  risk: Callable[[int, int], float],
  seeds: Sequence[int],
  grid: Sequence[int],
  limit: float = LIMIT,
  share: float = SHARE,
  start: int | None = None,
) -> Found:
  """The smallest n of the grid with risk <= limit for `share` of the seeds.

  Each seed has its own smallest size. It is found by strides that double,
  from where the seed before ended, and then by bisection: this assumes that,
  for one seed, what suffices at n suffices at every larger size. The examples
  of a seed are nested, and its noise is the same for all n, so that this is
  nearly so; where it is not, the answer is one of several crossings. The n of
  all seeds is then the order statistic ceil(share * seeds) of theirs.

  Args:
    risk: function of n and a seed.
    seeds: numbers of independent runs.
    grid: sizes, growing.
    limit: risk of a success.
    share: of seeds that must succeed.
    start: a size to look at first.
  """
  count = 0

  def succeeds(index: int, seed: int) -> bool:
    nonlocal count
    count += 1
    return risk(grid[index], seed) <= limit

  place = 0 if start is None else int(np.searchsorted(grid, start))
  firsts = []
  for seed in seeds:
    place = _first(lambda i, seed=seed: succeeds(i, seed), grid, place)
    firsts.append(place)
  brackets = [
    (grid[i - 1] if i else 0, grid[i] if i < len(grid) else None)
    for i in firsts
  ]
  return Found(quantile(brackets, share)[1], grid[-1], brackets, count)


def _first(
  succeeds: Callable[[int], bool], grid: Sequence[int], start: int
) -> int:
  """The first index that succeeds; the grid's length if none does."""
  start, stride = min(start, len(grid) - 1), 1
  if succeeds(start):
    high = start
    while True:
      low = max(high - stride, -1)
      if low < 0 or not succeeds(low):
        break
      high, stride = low, 2 * stride
  else:
    low = start
    while True:
      double = int(np.searchsorted(grid, 2 * grid[low]))  # never beyond
      high = min(low + stride, max(low + 1, double), len(grid))
      if high == len(grid) or succeeds(high):
        break
      low, stride = high, 2 * stride
  while high - low > 1:
    middle = (low + high) // 2
    if succeeds(middle):
      high = middle
    else:
      low = middle
  return high


def quantile(brackets, share: float = SHARE) -> tuple[int, int | None]:
  """The bracket of the seed at ceil(share * seeds), from the smallest on."""
  ordered = sorted(brackets, key=lambda b: math.inf if b[1] is None else b[1])
  return tuple(ordered[math.ceil(share * len(ordered) - 1e-9) - 1])
