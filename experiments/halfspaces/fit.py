"""How a smallest sample grows: fits, their intervals, verdicts in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.halfspaces import search as halfspaces_search

_PERCENTILES = (2.5, 97.5)
_FEWEST = 3  # points of a fit


@dataclasses.dataclass(frozen=True)
class Fit:
  """A least-squares estimate with its bootstrap interval of 95 %."""

  value: float
  low: float
  high: float

  def contains(self, value: float) -> bool:
    """Whether the interval does."""
    return self.low <= value <= self.high

  def times(self, factor: float) -> Fit:
    """The estimate of a positive multiple."""
    return Fit(factor * self.value, factor * self.low, factor * self.high)


Points = Sequence[Mapping[str, Any]]  # "x", "brackets" and "cap" of each


def fit(
  over: Points,
  under: Points | None = None,
  degree: int = 1,
  logs: bool = True,
  scales: Sequence[float] | None = None,
  replicates: int = 1000,
  seed: int = 0,
) -> Fit | None:
  """The leading coefficient of n, or of the ratio of two, against x.

  The interval is a percentile bootstrap over the seeds of every point. The
  true size is only known to lie between two sizes of the grid: each replicate
  also draws it from there, uniformly in log n, and once for the point as all
  seeds may lie at the same place. Points that are censored are left out, and
  a censored seed counts as the cap.

  Args:
    over: points with "x", "brackets" and "cap".
    under: points of the same x, for the ratio; None fits n itself.
    degree: of the polynomial.
    logs: fits log n against log x: the coefficient is an exponent.
    scales: factors of n, one for each point (such as dp_epsilon).
    replicates: of the bootstrap.
    seed: of the bootstrap.

  Returns:
    None where fewer than three values of x (or degree + 1) are left.
  """
  scales = np.ones(len(over)) if scales is None else np.asarray(scales)
  pairs = [[a] for a in over]
  if under is not None:
    pairs = [[a, b] for a, b in zip(over, under)]
  kept = [
    i
    for i, pair in enumerate(pairs)
    if all(
      halfspaces_search.quantile(point["brackets"])[1] is not None
      for point in pair
    )
  ]
  x = np.asarray([over[i]["x"] for i in kept], float)
  if len(set(x)) < max(_FEWEST, degree + 1):
    return None
  x = np.log(x) if logs else x
  # The sum of logs, with -1 for what is divided by, is the log of the ratio.
  signs = (1, -1)

  def estimate(size) -> float:
    y = [
      math.log(scales[i])
      + sum(sign * size(p) for sign, p in zip(signs, pairs[i]))
      for i in kept
    ]
    y = np.asarray(y) if logs else np.exp(y)
    return float(np.polyfit(x, y, degree)[0])  # the highest power first

  rng = np.random.default_rng(seed)
  value = estimate(
    lambda p: math.log(halfspaces_search.quantile(p["brackets"])[1])
  )
  drawn = [estimate(lambda p: _resampled(p, rng)) for _ in range(replicates)]
  low, high = np.percentile(drawn, _PERCENTILES)
  return Fit(value, float(low), float(high))


def size_interval(
  over: Mapping[str, Any],
  under: Mapping[str, Any] | None = None,
  replicates: int = 1000,
  seed: int = 0,
) -> Fit | None:
  """N of one point, or the ratio of two, with the interval of `fit`."""
  pair = [over] if under is None else [over, under]
  if any(point["n"] is None for point in pair):
    return None
  rng, signs = np.random.default_rng(seed), (1, -1)
  drawn = [
    sum(sign * _resampled(p, rng) for sign, p in zip(signs, pair))
    for _ in range(replicates)
  ]
  value = over["n"] / (1 if under is None else under["n"])
  low, high = np.exp(np.percentile(drawn, _PERCENTILES))
  return Fit(float(value), float(low), float(high))


def _resampled(point: Mapping[str, Any], rng: np.random.Generator) -> float:
  """Log n of a bootstrap sample of the seeds, anywhere in its bracket."""
  brackets = point["brackets"]
  chosen = rng.integers(len(brackets), size=len(brackets))
  low, high = halfspaces_search.quantile([brackets[i] for i in chosen])
  if high is None:
    low, high = point["cap"], point["cap"]
  low = math.log(low or high)
  return low + (math.log(high) - low) * rng.random()


def growth_verdict(slope: Fit | None, exponent: float = 0.5) -> str:
  """What an interval of a log-log slope says of growth like d^exponent."""
  name = "sqrt(d)" if exponent == 0.5 else f"d^{exponent:g}"
  if slope is None:
    return "no verdict: too few points"
  if slope.high < 0:
    return "shrinks as d grows"
  if slope.low <= 0:
    rest = f"; {name} is not excluded" if slope.contains(exponent) else ""
    return f"no growth shown{rest}"
  if slope.contains(exponent):
    return f"consistent with {name}"
  if slope.high < exponent:
    return f"grows with d, more slowly than {name}"
  return f"grows with d, faster than {name}"


def ratio_verdict(log_ratio: Fit | None) -> str:
  """What the interval of a mean log ratio says of the ratio being 1."""
  if log_ratio is None:
    return "no verdict: too few points"
  if log_ratio.contains(0):
    return "consistent with 1: the curves collapse"
  return f"not 1: off by {math.expm1(log_ratio.value):+.0%}"


def line_verdict(slope: Fit | None, bend: Fit | None) -> str:
  """What the intervals of slope and quadratic term say of a straight line."""
  if slope is None or bend is None:
    return "no verdict: too few points"
  if slope.high < 0:
    return "shrinks as d grows"
  if slope.low <= 0:
    return "no growth shown"
  if bend.contains(0):
    return "grows with d, consistent with a straight line"
  return f"grows with d, bent {'up' if bend.value > 0 else 'down'}"
