"""What canaries of one training show about it (see `methods.planted`).

Of canary i the auditor has x_ti, step by step: whether it took part, which it
did with probability q in the steps of a training that it is in, plus noise z of
the accounted size. A statistic of x_i says how much it looks like one that is
in; from it the auditor guesses every coin.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping

import numpy as np

from tf_privrob import validate
from tf_privrob.privacy import accounting
from tf_privrob.privacy import calibration
from tf_privrob.privacy import composition
from tf_privrob.privacy.audit import audit

_WANTED, _FEWEST = 0.75, 500
_PILOTS = 0.2  # share of the canaries that settle the guess
_CLEARLY = 3.0  # standard errors that another statistic must be better by
_LEAST_NOISE, _MOST_NOISE = 1e-2, 1e5
_PRECISION = 1e-4  # of the logarithm of the noise
_LARGEST = 50.0  # of a log-likelihood ratio of one step, before it is summed


@dataclasses.dataclass(frozen=True)
class PlantedAudit(audit.LowerBound):
  """What the canaries of one training showed.

  Attributes:
    canaries: How many were judged; others settled the guess.
    correct: How many coins were guessed.
    statistic: What the guesses were made by.
    group: Whose canaries these were, e.g. those of one variable; None: all.
    noise_multiplier: The noise that explains so many, at most.
    any_mechanism: What they show of dp_epsilon at dp_delta of a training that
      nothing is assumed of.
    noise_found: Standard deviation of what was seen of the canaries that were
      not in, over the accounted one.
  """

  canaries: int
  correct: int
  statistic: str
  group: int | None
  noise_multiplier: float
  any_mechanism: float
  noise_found: float


def audit_planted(
  seen: np.ndarray,
  included: np.ndarray,
  noise_multiplier: float,
  sampling_prob: float,
  dp_delta: float,
  confidence: float = 0.999,
  groups: np.ndarray | None = None,
) -> PlantedAudit:
  """Guesses the coins, and bounds dp_epsilon by how many guesses are right.

  The figure is about a family: T steps of Poisson-sampled sums with Gaussian
  noise of an unknown multiplier z. In such a training what is seen of different
  canaries is independent, given the coins, and whoever guesses one is right
  with probability at most

      (1 + v(z)) / 2,  v the total variation of the composed pair of worlds,

  the dp_delta at dp_epsilon 0. So Clopper-Pearson's lower end of the share of
  right guesses has a largest z, and that z has a dp_epsilon at dp_delta.

  Guarantee: with probability at least `confidence`, a training of the family
  has at least that dp_epsilon. A training that leaks more than its z says, as
  when it reuses noise or does not clip, is found by more right guesses than z
  explains. What a figure means without the family is `any_mechanism`: guesses
  of an (eps, delta)-DP training are right with probability at most (e^eps +
  delta) / (1 + e^eps), if its canaries are independent.

  A fifth of the canaries settle the guess: the likelihood ratio of the
  accounted training, unless another statistic does clearly better there. The
  others are judged by it as it then is, threshold included. A bug may be in one
  place only, such as the norm of one variable: so the canaries of each group
  are judged by themselves too. All canaries have half of the failure
  probability, the groups share the other half.

  Args:
    seen: x, [T, m].
    included: the coins, [m].
    noise_multiplier: the accounted z.
    sampling_prob: q.
    dp_delta: at which dp_epsilon is bounded.
    confidence: of the bound.
    groups: a number for each canary, [m].
  """
  from tf_privrob import binomial  # SciPy, on first use

  seen, included = np.asarray(seen, np.float64), np.asarray(included, bool)
  if seen.ndim != 2 or included.shape != seen.shape[1:]:
    raise ValueError(
      "Expected what was seen, [steps, canaries], and a coin for each canary,"
      f" received shapes {seen.shape} and {included.shape}."
    )
  validate.positive(noise_multiplier=noise_multiplier)
  validate.probability(sampling_prob=sampling_prob)
  validate.open_probability(dp_delta=dp_delta, confidence=confidence)
  pilots = np.arange(len(included)) < _PILOTS * len(included)
  steps = len(seen)
  found = statistics(seen, pilots, noise_multiplier, sampling_prob)
  name, threshold = _settle(found, included, pilots)
  guessed = found[name] > threshold
  right = guessed == included
  chances = {None: (~pilots, (1 - confidence) / 2)}
  if groups is not None:
    names = np.unique(groups)
    for number in names:
      members = ~pilots & (groups == number)
      chances[int(number)] = members, (1 - confidence) / 2 / len(names)
  counts = {
    group: (int(right[members].sum()), int(members.sum()), chance)
    for group, (members, chance) in chances.items()
  }
  lowest = {
    group: binomial.lower(*found) for group, found in counts.items() if found[1]
  }
  group = max(lowest, key=lowest.get)
  least, (correct, count, _) = lowest[group], counts[group]
  noise, audited = _figure(least, sampling_prob, steps, dp_delta)
  _, everyone, chance = counts[None]
  most = binomial.lower(everyone, everyone, chance)
  return PlantedAudit(
    audited=audited,
    dp_delta=dp_delta,
    confidence=confidence,
    reachable=_figure(most, sampling_prob, steps, dp_delta)[1],
    canaries=count,
    correct=correct,
    statistic=name,
    group=group,
    noise_multiplier=noise,
    any_mechanism=_any_mechanism(least, dp_delta),
    noise_found=float(seen[:, ~included].std() / noise_multiplier),
  )


def statistics(
  seen: np.ndarray,
  pilots: np.ndarray,
  noise_multiplier: float,
  sampling_prob: float,
) -> Mapping[str, np.ndarray]:
  """Statistics of each canary; the first one is the accounted likelihood ratio.

  The others see what the accounted training does not have: noise that several
  coordinates share leaves with the mean over pilots; noise that is used again
  does not change from step to step.
  """
  half = (seen - 0.5) / noise_multiplier**2
  ratios = np.log1p(sampling_prob * np.expm1(np.minimum(half, _LARGEST)))
  ratios += np.maximum(half - _LARGEST, 0.0)
  centred = seen - seen[:, pilots].mean(axis=1, keepdims=True)
  return {
    "likelihood ratio": ratios.sum(axis=0),
    "sum without what all share": centred.sum(axis=0),
    "change from step to step": centred.std(axis=0),
    "largest step": seen.max(axis=0),
  }


def _settle(found, included, pilots) -> tuple[str, float]:
  """A statistic and its threshold, by the pilots alone."""
  names = list(found)
  coins = included[pilots]
  usual = names[0], 0.0
  accuracy = ((found[names[0]][pilots] > 0) == coins).mean()
  margin = _CLEARLY * 0.5 / math.sqrt(max(1, len(coins)))
  best, best_accuracy = usual, accuracy + margin
  for name in names:
    threshold, other = _best_threshold(found[name][pilots], coins)
    if other > best_accuracy:
      best, best_accuracy = (name, threshold), other
  return best


def _best_threshold(values: np.ndarray, coins: np.ndarray):
  """The threshold above which "in" is right most often, and how often."""
  order = np.argsort(values, kind="stable")
  values, coins = values[order], coins[order]
  # Right if all up to a place are called "out", the rest "in".
  right = np.cumsum(~coins) + coins.sum() - np.cumsum(coins)
  place = int(np.argmax(right))
  above = values[min(place + 1, len(values) - 1)]
  return float((values[place] + above) / 2), float(right[place] / len(coins))


def canaries_in_one_training(
  noise_multiplier: float,
  sampling_prob: float,
  steps: int,
  dp_delta: float,
  confidence: float = 0.999,
) -> int:
  """How many canaries show three quarters of dp_epsilon, as a rule.

  With p the share of right guesses that the accounted training allows and p'
  the one of 3/4 of its dp_epsilon, it is the number whose Clopper-Pearson bound
  is about p' where p were seen, and a standard error less.
  """
  from scipy import special

  release = accounting.poisson_sgd(noise_multiplier, sampling_prob, steps)
  most = accounting.dp_epsilon([release], dp_delta)
  noise = calibration.calibrate_noise_multiplier(
    _WANTED * most, dp_delta, sampling_prob, steps
  )
  share, wanted = (
    (1 + total_variation(z, sampling_prob, steps)) / 2
    for z in (noise_multiplier, noise)
  )
  errors = special.ndtri(confidence) + 1
  judged = share * (1 - share) * (errors / max(share - wanted, 1e-9)) ** 2
  return math.ceil(max(judged, _FEWEST) / (1 - _PILOTS))


def _any_mechanism(least: float, dp_delta: float) -> float:
  """The dp_epsilon at which guesses are right so often."""
  if least >= 1:
    return math.inf
  return max(0.0, math.log(max(least - dp_delta, 1e-300) / (1 - least)))


def _figure(
  least: float, prob: float, steps: int, dp_delta: float
) -> tuple[float, float]:
  """The largest noise that explains so many right guesses; its dp_epsilon."""
  from scipy import optimize

  advantage = 2 * least - 1

  def excess(log_noise: float) -> float:
    return total_variation(math.exp(log_noise), prob, steps) - advantage

  low, high = math.log(_LEAST_NOISE), math.log(_MOST_NOISE)
  if excess(high) >= 0:
    return math.inf, 0.0
  if excess(low) > 0:
    low = optimize.brentq(excess, low, high, xtol=_PRECISION) + _PRECISION
  noise = math.exp(low)
  release = accounting.poisson_sgd(noise, prob, steps)
  return noise, accounting.dp_epsilon([release], dp_delta)


@functools.lru_cache(maxsize=256)
def total_variation(noise: float, prob: float, steps: int) -> float:
  """Of the worlds with and without an example, at most: dp_delta at 0.

  It is 1 where the accountant knows no distribution.
  """
  release = accounting.poisson_sgd(noise, prob, steps)
  leaves, _ = accounting.split([release], "add_or_remove_one")
  found = composition.distribution(leaves, "add_or_remove_one")
  return 1.0 if found is None else min(1.0, float(found.dp_delta(0.0)))
