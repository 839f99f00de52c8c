"""The noise that a budget asks for, and the steps that it allows."""

from __future__ import annotations

import functools
import math
from typing import Callable

from tf_privrob import validate
from tf_privrob.privacy import accounting
from tf_privrob.privacy import composition
from tf_privrob.privacy import rounding

# Beyond, a budget has no use for noise, or none that a figure could tell.
_NOISE = (1e-4, 1e5)


@functools.lru_cache(maxsize=1024)
def calibrate_noise_multiplier(
  dp_epsilon: float,
  dp_delta: float,
  sampling_prob: float,
  steps: int,
  accountant: str = "pld",
  tolerance: float = 1e-3,
  extra_releases: tuple[accounting.Release, ...] = (),
) -> float:
  """The smallest noise multiplier that keeps `steps` within the budget.

  Args:
    dp_epsilon: The target, > 0.
    dp_delta: The target, in (0, 1).
    sampling_prob: Poisson sampling probability; 1 is full batch.
    steps: Number of noisy steps.
    accountant: "pld" or "rdp".
    tolerance: How far above the smallest one it may lie.
    extra_releases: What else the budget pays for.

  Returns:
    A value whose own figure, re-accounted, is at most `dp_epsilon`, while the
    figure of a value smaller by `tolerance` is above.
  """
  validate.positive(dp_epsilon=dp_epsilon, tolerance=tolerance)
  _check(dp_delta, sampling_prob, accountant)
  validate.positive_int(steps=steps)

  def figure(noise: float, accuracy: float = composition.FINE) -> float:
    release = accounting.poisson_sgd(noise, sampling_prob, steps)
    return accounting.dp_epsilon(
      [release, *extra_releases], dp_delta, accountant, accuracy=accuracy
    )

  _check_extra(extra_releases, dp_epsilon, dp_delta, accountant)
  found = _search(figure, dp_epsilon, 1.0, False, accountant, tolerance, _NOISE)
  if not _NOISE[0] <= found <= _NOISE[1]:
    raise ValueError(
      f"Found no noise multiplier in {list(_NOISE)} for dp_epsilon={dp_epsilon}"
      f" at dp_delta={dp_delta} over {steps} steps. Ask for a larger dp_epsilon"
      " or dp_delta, or for fewer steps."
    )
  return found


@functools.lru_cache(maxsize=1024)
def max_steps(
  dp_epsilon: float,
  dp_delta: float,
  noise_multiplier: float,
  sampling_prob: float,
  accountant: str = "pld",
  limit: int = 10_000_000,
  extra_releases: tuple[accounting.Release, ...] = (),
) -> int:
  """The largest number of steps that stays within the budget.

  Args:
    dp_epsilon: The target, > 0.
    dp_delta: The target, in (0, 1).
    noise_multiplier: Standard deviation over `l2_clip_norm`, > 0.
    sampling_prob: Poisson sampling probability; 1 is full batch.
    accountant: "pld" or "rdp".
    limit: Never answer more than this.
    extra_releases: What else the budget pays for.

  Returns:
    T with figure(T) <= dp_epsilon < figure(T + 1); 0 if one step is too much.
  """
  validate.positive(dp_epsilon=dp_epsilon, noise_multiplier=noise_multiplier)
  _check(dp_delta, sampling_prob, accountant)
  validate.positive_int(limit=limit)

  def figure(steps: float, accuracy: float = composition.FINE) -> float:
    if not 1 <= steps < limit + 1:
      return 0.0 if steps < 1 else math.inf
    whole = math.floor(steps)
    release = accounting.poisson_sgd(noise_multiplier, sampling_prob, whole)
    return accounting.dp_epsilon(
      [release, *extra_releases], dp_delta, accountant, accuracy=accuracy
    )

  _check_extra(extra_releases, dp_epsilon, dp_delta, accountant)
  return math.floor(_search(figure, dp_epsilon, 1000.0, True, accountant, 0.5))


def _check(dp_delta: float, sampling_prob: float, accountant: str) -> None:
  validate.open_probability(dp_delta=dp_delta)
  validate.probability(sampling_prob=sampling_prob)
  validate.one_of(accounting.ACCOUNTANTS, accountant=accountant)


def _check_extra(extra, dp_epsilon, dp_delta, accountant) -> None:
  """What is left of the budget must be more than nothing."""
  if not extra:
    return
  spent = accounting.dp_epsilon(list(extra), dp_delta, accountant)
  if spent >= dp_epsilon:
    raise ValueError(
      f"Expected a budget above what is released besides the gradients:"
      f" dp_epsilon={dp_epsilon} at dp_delta={dp_delta}, but"
      f" {', '.join(release.name for release in extra)} alone cost"
      f" {rounding.up(spent)}. Raise dp_epsilon, or add more noise there."
    )


def _search(
  figure: Callable[..., float],
  target: float,
  start: float,
  rises: bool,
  accountant: str,
  tolerance: float,
  ends: tuple[float, float] = (0.0, math.inf),
) -> float:
  """The last x at which a figure is within the target.

  A PLD is first searched on a coarse grid, which is an upper bound too; the
  fine one is then looked at a few times, near the end.
  """
  factor = 2.0
  if accountant == "pld":

    def rough(x):
      return figure(x, accuracy=composition.COARSE)

    start = _root(rough, target, start, factor, rises, tolerance, ends)
    factor = 1 + max(tolerance / start, 1e-3)
  return _root(figure, target, start, factor, rises, tolerance, ends)


def _root(
  figure: Callable[[float], float],
  target: float,
  start: float,
  factor: float,
  rises: bool,
  tolerance: float,
  ends: tuple[float, float],
) -> float:
  """The last x found within the target, by Brent's method.

  Brent's method ends with two neighbours, at most `tolerance` apart, of which
  one is within the target and the other is not. What is returned was looked at
  itself, so that it holds whatever the method assumes of the figure.
  """
  from scipy import optimize  # on first use

  within, above = [], []

  def excess(x: float) -> float:
    value = figure(x)
    (within if value <= target else above).append(x)
    return math.log(min(max(value / target, 1e-9), 1e9))

  x = start
  while not (within and above):
    if not ends[0] <= x <= ends[1]:
      return x
    upwards = (excess(x) <= 0) == rises
    x, factor = x * (factor if upwards else 1 / factor), factor**2
  optimize.brentq(excess, within[-1], above[-1], xtol=tolerance)
  return max(within) if rises else min(within)
