"""One number for a whole privacy profile: mu of Gaussian DP."""

from __future__ import annotations

import functools
import math

import numpy as np

from tf_privrob.privacy import accounting
from tf_privrob.privacy import composition

SMALLEST_DELTA = 1e-10  # Below, a profile says nothing about mu.

_CELLS = 2**15  # Of dp_epsilon: costs less than 4e-4 of mu.
_FEW = 64  # One cell of so many settles a first mu.
_LARGEST_PURE = 50.0  # Of pure terms; more is no privacy, and a long grid.


def gaussian_mu(
  releases: accounting.Releases,
  neighbouring: str = "add_or_remove_one",
  accuracy: float = composition.FINE,
) -> float | None:
  """The mu whose Gaussian reveals as much as all the releases together.

  With delta(x) the composed privacy profile, the dp_delta at dp_epsilon x, and
  g(x) that of N(mu, 1) against N(0, 1) (Balle and Wang 2018; Dong, Roth and Su
  2022, Corollary 2.13), it is the smallest mu found with

      delta(x) <= max(g(x), 1e-10) for every x >= 0.

  So whoever reads mu can take any dp_delta >= 1e-10 that they like, and has the
  dp_epsilon of that Gaussian at it; "Gaussian DP for Reporting" (Gomez et al.,
  SaTML 2026) proposes this number beside (dp_epsilon, dp_delta). Both
  directions of add-or-remove-one are below g, which settles negative x too: a
  profile at -x is 1 - e^-x + e^-x times the opposite one at x.

  It is an upper bound: the profile is that of pessimistic privacy-loss
  distributions, with all that rounding can have taken from it; and since
  profiles fall, in every cell of a grid its value at the lower end is compared
  with the Gaussian's at the upper end. For Gaussians alone this is
  sqrt(count) / noise_multiplier, to 1e-3.

  Args:
    releases: a `Release`, a `DpEvent`, or a sequence of either.
    neighbouring: The relation of the sensitivities behind the events.
    accuracy: The grid of a PLD, as in `dp_epsilon`.

  Returns:
    mu; None where no finite one is known: no noise, an event that no
    privacy-loss distribution is known for (or whose loss is too small for one,
    see `accounting`), so many steps that rounding alone is above 1e-10 (10^7),
    or a chance above 1e-10 of anything.
  """
  leaves, pure = accounting.split(releases, neighbouring)
  total = sum(count * dp_epsilon for dp_epsilon, count in pure)
  if total > _LARGEST_PURE or not composition.hashable(leaves):
    return None
  return _mu(leaves, tuple(pure), neighbouring, accuracy)


@functools.lru_cache(maxsize=1024)
def _mu(leaves, pure, neighbouring, accuracy) -> float | None:
  if any(composition.noiseless(event) for event, _ in leaves):
    return None
  pld = composition.distribution(leaves, neighbouring, accuracy, pure)
  largest = math.inf if pld is None else pld.dp_epsilon(SMALLEST_DELTA)
  if not math.isfinite(largest):
    return None
  grid = np.linspace(0.0, largest, _CELLS + 1)
  deltas = pld.dp_delta(grid[:-1])
  needed = deltas > SMALLEST_DELTA
  return _smallest(grid[1:][needed], deltas[needed])


def _smallest(dp_epsilon: np.ndarray, dp_delta: np.ndarray) -> float | None:
  """The smallest mu whose profile is at least dp_delta at each dp_epsilon.

  A few cells give a first mu, and those that it is too small for the next one.
  """
  from tf_privrob.mechanisms import gaussian  # TensorFlow, on first use

  mu, cells = 0.0, slice(None, None, _FEW)
  while len(dp_epsilon[cells]):
    mu = _bisect(dp_epsilon[cells], dp_delta[cells])
    if mu is None:
      return None
    cells = np.flatnonzero(gaussian.gaussian_profile(mu, dp_epsilon) < dp_delta)
  return mu


def _bisect(dp_epsilon: np.ndarray, dp_delta: np.ndarray) -> float | None:
  from tf_privrob.mechanisms import gaussian

  def enough(mu: float) -> bool:
    return bool(np.all(gaussian.gaussian_profile(mu, dp_epsilon) >= dp_delta))

  high = 1.0
  while not enough(high):
    high *= 2
    if high > 1e6:
      return None
  low = high / 2
  while enough(low) and low > 1e-12:
    low, high = low / 2, low
  while high - low > 1e-7 * high:
    middle = (low + high) / 2
    low, high = (low, middle) if enough(middle) else (middle, high)
  return high
