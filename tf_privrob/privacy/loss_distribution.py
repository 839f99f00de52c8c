"""Composed privacy-loss distributions, as upper bounds in finite precision.

dp_accounting gives the distribution of one use: the profile, its dp_delta
at every dp_epsilon of a grid, "with dots connected" (Doroshenko et al. 2022).
It also composes them, by fast Fourier transforms in double precision, whose
rounding it does not count: T uses change dp_delta by up to 1e-13 T. So here the
transforms are in extended precision where the machine has it, 2000 times finer,
and all that rounding can have taken is added. With u = 2^-52 and e the spacing
of numbers at 1 in double precision and in the transforms, T the number of uses
and d(x) their exact dp_delta at dp_epsilon x:

* The profile of one use is within c u P(loss > x), with c = 256 + 4 l and l the
  largest finite loss. It is a difference of two probabilities of this event,
  with logarithms up to 50 + l and arguments up to 10 standard deviations,
  whose squares multiply their rounding. Replace use by use: what T of them can
  take at x is the mean of this over the other uses, T c u P(loss of all > x).
  And P(loss > x) b <= d(x - b) - d(x) + b d(x - b), about: so b = T c u is
  added to dp_epsilon, and as a fraction to dp_delta.
* The masses are second differences of the profile over the grid, each within
  4 u of the first ones that it is made of. Those add up to the profile: of n
  masses, n times 4 u of d in every use.
* A transform F of N numbers whose sum is 1 is within 8 e log2(2 N) in every
  place: on the way are at most log2(N) roots of unity, products and sums, each
  within a few e / 2, as is a product of two transforms. T such factors, none
  above 1, multiplied one by one or as squares of squares, change their product
  by at most T times this times the product without its smallest. By Parseval
  and Cauchy-Schwarz the inverse transform changes any sum of masses, with
  weights in [0, 1], by at most the 2-norm of that; its own rounding is one more
  factor. This is taken from dp_delta, whatever its size.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
  from dp_accounting.pld import pld_pmf
  from dp_accounting.pld import privacy_loss_distribution

_UNIT = 2.0**-52
_LARGEST_SIZE = 1e100  # of a number whose square is taken
_CUT = 1e-15  # Probability of losses beyond the transform: counted as infinite.


@dataclasses.dataclass(frozen=True, eq=False)
class _Direction:
  """What is lost when an example is added, or when one is removed.

  Attributes:
    losses: The grid, rising.
    above: P(loss >= x) for every x of the grid, without the infinite one.
    other: The mean of exp(x - loss) over the same losses.
    infinite: P(loss = inf).
    margin: What rounding can have taken from dp_delta.
    fraction: The same as a fraction of dp_delta.
    shift: The same of dp_epsilon.
  """

  losses: np.ndarray
  above: np.ndarray
  other: np.ndarray
  infinite: float
  margin: float
  fraction: float
  shift: float

  def dp_delta(self, dp_epsilon: np.ndarray) -> np.ndarray:
    x = np.asarray(dp_epsilon, np.float64) - self.shift
    # One more place, for what is above all losses.
    place = np.searchsorted(self.losses, x, side="right")
    losses = np.append(self.losses, math.inf)[place]
    above, other = (np.append(a, 0)[place] for a in (self.above, self.other))
    found = self.infinite + above - np.exp(x - losses) * other
    return np.float64(found * (1 + self.fraction) + self.margin)

  def dp_epsilon(self, dp_delta: float) -> float:
    target = (dp_delta - self.margin) / (1 + self.fraction)
    if target <= 0 or target < self.infinite:
      return math.inf
    finite = target - self.infinite
    more = np.flatnonzero(self.above - self.other > finite)
    place = more[-1] + 1 if len(more) else 0
    left = self.above[place] - finite
    found = 0.0
    if left > 0:
      found = float(self.losses[place] + np.log(left / self.other[place]))
    if found <= 0 and self.dp_delta(0.0) <= dp_delta:
      return 0.0
    return max(found, 0.0) * (1 + 4 * _UNIT) + self.shift


class LossDistribution:
  """An upper bound on the profile of everything together."""

  def __init__(self, directions: Sequence[_Direction]):
    self._directions = directions

  def dp_delta(self, dp_epsilon: float | np.ndarray) -> np.ndarray:
    """The larger dp_delta of both directions, at every dp_epsilon >= 0."""
    return np.maximum.reduce([d.dp_delta(dp_epsilon) for d in self._directions])

  def dp_epsilon(self, dp_delta: float) -> float:
    """The larger dp_epsilon of both, `inf` where rounding leaves nothing."""
    return max(d.dp_epsilon(dp_delta) for d in self._directions)


def compose(
  parts: Sequence[
    tuple[privacy_loss_distribution.PrivacyLossDistribution, int]
  ],
) -> LossDistribution:
  """Composes (distribution of one use, number of uses), all on one grid."""
  removed = [(one._pmf_remove.to_dense_pmf(), count) for one, count in parts]
  if all(one._symmetric for one, _ in parts):
    return LossDistribution([_compose(removed)])
  added = [(one._pmf_add.to_dense_pmf(), count) for one, count in parts]
  return LossDistribution([_compose(removed), _compose(added)])


def _compose(parts: list[tuple[pld_pmf.DensePLDPmf, int]]) -> _Direction:
  from scipy import signal

  interval = parts[0][0]._discretization
  if len(parts) == 1 and parts[0][1] == 1:
    first, margin, cut = parts[0][0]._lower_loss, 0.0, 0.0
    masses = parts[0][0]._probs.astype(np.longdouble)
  else:
    first, masses, margin = _transform(parts)
    cut = len(parts) * _CUT
  kept = sum(count * math.log1p(-one._infinity_mass) for one, count in parts)
  shift = fraction = 0.0
  for one, count in parts:
    ends = np.array([one._lower_loss, one._lower_loss + one.size]) * interval
    shift += count * (256 + 4 * np.max(np.abs(ends))) * _UNIT
    fraction += 4 * count * one.size * _UNIT
  masses = np.maximum(masses, 0.0)[::-1]
  decay = np.exp(np.longdouble(-interval))
  one = np.ones(1, np.longdouble)
  other = signal.lfilter(one, np.array([1.0, -decay]), masses)
  return _Direction(
    losses=(first + np.arange(len(masses))) * interval,
    above=np.cumsum(masses)[::-1],
    other=other[::-1],
    infinite=cut - math.expm1(kept),
    margin=margin,
    fraction=fraction + shift,
    shift=float(shift),
  )


def _power(factor: np.ndarray, count: int) -> np.ndarray:
  """factor**count by products alone, as the bound on rounding has it."""
  product = np.longdouble(1.0)
  while count:
    if count % 2:
      product = product * factor
    count //= 2
    if count:
      factor = factor * factor
  return product


def _transform(parts) -> tuple[int, np.ndarray, float]:
  """The first place and the masses of all uses together, and their margin."""
  from dp_accounting.pld import common
  from scipy import fft

  bounds = [
    common.compute_self_convolve_bounds(one._probs, count, _CUT)
    if count > 1
    else (0, one.size - 1)
    for one, count in parts
  ]
  length = 1 + sum(high - low for low, high in bounds)
  size = fft.next_fast_len(max(length, *(one.size for one, _ in parts)))
  product, smallest = np.longdouble(1.0), math.inf
  for one, count in parts:
    factor = fft.rfft(one._probs.astype(np.longdouble), size)
    product = product * _power(factor, count)
    smallest = np.minimum(smallest, np.abs(factor))
  without = np.abs(product) / np.maximum(smallest, np.finfo(np.float64).tiny)
  masses = fft.irfft(product, size)
  unit = float(np.finfo(masses.dtype).eps)
  uses = 1 + sum(count for _, count in parts)
  margin = 8 * uses * unit * math.log2(2 * size)
  # The other half of the places has the same sizes.
  if np.max(without) < _LARGEST_SIZE:
    margin *= math.sqrt(2 * math.fsum(np.float64(without) ** 2))
  else:
    margin = math.inf  # and no figure is known
  low = sum(low for low, _ in bounds)
  first = low + sum(one._lower_loss * count for one, count in parts)
  return first, np.roll(masses, -low)[:length], margin
