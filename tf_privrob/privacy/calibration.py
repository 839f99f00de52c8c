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
    dp_epsilon: the target, > 0.
    dp_delta: the target, in (0, 1).
    sampling_prob: Poisson sampling probability; 1 is full batch.
    steps: number of noisy steps.
    accountant: "pld" or "rdp".
    tolerance: how far above the smallest one it may lie.
    extra_releases: what else the budget pays for.

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
  found = _search(figure, dp_epsilon, 1.0, -1.0, accountant, tolerance)
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
    dp_epsilon: the target, > 0.
    dp_delta: the target, in (0, 1).
    noise_multiplier: standard deviation over `l2_clip_norm`, > 0.
    sampling_prob: Poisson sampling probability; 1 is full batch.
    accountant: "pld" or "rdp".
    limit: never answer more than this.
    extra_releases: what else the budget pays for.

  Returns:
    T with figure(T) <= dp_epsilon < figure(T + 1); 0 if one step is too much.
  """
  validate.positive(dp_epsilon=dp_epsilon, noise_multiplier=noise_multiplier)
  _check(dp_delta, sampling_prob, accountant)
  validate.positive_int(limit=limit)

  def figure(steps: float, accuracy: float = composition.FINE) -> float:
    if not 1 <= steps <= limit:
      return 0.0 if steps < 1 else math.inf
    release = accounting.poisson_sgd(noise_multiplier, sampling_prob, steps)
    return accounting.dp_epsilon(
      [release, *extra_releases], dp_delta, accountant, accuracy=accuracy
    )

  _check_extra(extra_releases, dp_epsilon, dp_delta, accountant)
  return _search(figure, dp_epsilon, 1000, 0.5, accountant, 1, whole=True)


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
  power: float,
  accountant: str,
  tolerance: float,
  whole: bool = False,
) -> float:
  """The last x on the good side of a monotone figure ~ x ** power.

  A PLD is first searched on a coarse grid, which is an upper bound too; the
  fine one is then looked at about three times, near the end.
  """
  if accountant == "pld":

    def rough(x):
      return figure(x, accuracy=composition.COARSE)

    good, bad = _bracket(rough, target, start, power, 1.2, whole)
    power = _slope(rough, good, bad) or power
    start = _narrow(rough, target, good, bad, tolerance, whole)
  beyond = 1.2
  if accountant == "pld" and start > 0:
    beyond = 1 + tolerance / 3 / start
  good, bad = _bracket(figure, target, start, power, beyond, whole)
  return _narrow(figure, target, good, bad, tolerance, whole)


def _bracket(
  figure: Callable[[float], float],
  target: float,
  x: float,
  power: float,
  beyond: float,
  whole: bool,
) -> tuple[float, float]:
  """Goes to the predicted root and a little beyond, until it is bracketed."""
  good = bad = None
  while good is None or bad is None:
    value = figure(x)
    if value <= target:
      good = x
    else:
      bad = x
    up = (value <= target) == (power > 0)
    ratio = min(max(target / value, 1 / 64), 64.0) if value else 64.0
    move = ratio ** (1 / power) * (beyond if up else 1 / beyond)
    # Where the prediction misses, move on in growing strides.
    move = max(move, beyond) if up else min(move, 1 / beyond)
    beyond = 1 + 2 * (beyond - 1)
    x = x * move
    if whole:
      x = math.ceil(x) if up else math.floor(x)
      x = max(x, 1) if up else x
    if not whole and not _NOISE[0] <= x <= _NOISE[1]:
      return (x, x)
  return good, bad


def _slope(figure: Callable[[float], float], x: float, y: float) -> float:
  """The slope of the figure between two points in log-log, 0 if unknown."""
  first, second = figure(x), figure(y)
  if x == y or not (0 < min(first, second) <= max(first, second) < math.inf):
    return 0.0
  return math.log(first / second) / math.log(x / y)


def _narrow(
  figure: Callable[[float], float],
  target: float,
  good: float,
  bad: float,
  tolerance: float,
  whole: bool,
) -> float:
  """Narrows a bracket to `tolerance` and returns its good end.

  A secant in log-log is aimed a third of the tolerance beyond the root, at its
  good and its bad side in turn, so that two good guesses end the search; after
  two that did not halve the bracket comes a bisection.
  """
  aim, slow = 1.0, 0
  while abs(good - bad) > tolerance:
    width = abs(good - bad)
    slope = 0.0 if slow == 2 else _slope(figure, good, bad)
    guess = (good + bad) / 2
    if slope:
      guess = good * (target / figure(good)) ** (1 / slope)
      guess += math.copysign(aim * tolerance / 3, good - bad)
    if whole:
      guess = math.floor(guess) if aim * (good - bad) < 0 else math.ceil(guess)
    margin = 1 if whole else min(tolerance / 2, width / 4)
    low, high = min(good, bad) + margin, max(good, bad) - margin
    guess = min(max(guess, low), high)
    if figure(guess) <= target:
      good, aim = guess, -1.0
    else:
      bad, aim = guess, 1.0
    slow = 0 if slow == 2 or abs(good - bad) <= width / 2 else slow + 1
  return good
