"""Exact counts at every threshold, with ties, by sorting.

A point is called a member iff its score is at least the threshold, and the
thresholds are the scores that occur.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tf_privrob import validate


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
  """True and false alarms at all thresholds, from the highest down.

  Attributes:
    thresholds: The distinct scores of members and non-members, falling.
    caught: Members with a score of at least each threshold.
    alarms: Non-members with such a score.
    num_members: n.
    num_nonmembers: m.
  """

  thresholds: np.ndarray
  caught: np.ndarray
  alarms: np.ndarray
  num_members: int
  num_nonmembers: int


def curve(members: np.ndarray, nonmembers: np.ndarray) -> Curve:
  """Counts at all thresholds in O((n + m) log(n + m))."""
  thresholds = np.unique(np.concatenate([members, nonmembers]))[::-1]

  def at_least(scores):
    below = np.searchsorted(np.sort(scores), thresholds, side="left")
    return len(scores) - below.astype(np.int64)

  return Curve(
    thresholds,
    at_least(members),
    at_least(nonmembers),
    len(members),
    len(nonmembers),
  )


def best_threshold(found: Curve) -> float:
  """The threshold of the highest balanced accuracy, compared as integers.

  Infinity, at which nobody is called a member, if none beats 1/2; the highest
  of several that are equally good.
  """
  n, m = found.num_members, found.num_nonmembers
  gains = found.caught * m - found.alarms * n  # n m (TPR - FPR)
  place = int(np.argmax(gains))
  return float(found.thresholds[place]) if gains[place] > 0 else math.inf


def counts_at(
  members: np.ndarray, nonmembers: np.ndarray, threshold: float
) -> tuple[int, int]:
  """Members and non-members with a score of at least the threshold."""
  return int((members >= threshold).sum()), int((nonmembers >= threshold).sum())


def area(found: Curve) -> float:
  """P(member's score > non-member's) + P(equal) / 2, exactly."""
  caught = np.diff(found.caught, prepend=0)  # at each score itself
  alarms = np.diff(found.alarms, prepend=0)
  below = found.num_nonmembers - found.alarms
  twice = int((caught * (2 * below + alarms)).sum())
  return twice / (2 * found.num_members * found.num_nonmembers)


def at_fpr(found: Curve, fpr: float) -> tuple[int, int]:
  """Counts at the lowest threshold with at most a share `fpr` of alarms.

  The rule is "score > the (a + 1)-th highest of the non-members" with a =
  floor(fpr m): it does not look at the members.

  Returns:
    Members and non-members above it.

  Raises:
    ValueError: m < 1 / fpr, so that not even one alarm is allowed.
  """
  validate.open_probability(fpr=fpr)
  allowed = math.floor(fpr * found.num_nonmembers * (1 + 1e-12))
  if allowed < 1:
    raise ValueError(
      f"Expected at least {needed_for(fpr)} non-members for a false-positive"
      f" rate of {fpr:g}, received {found.num_nonmembers}. Pass more, or ask"
      " for a higher rate."
    )
  places = int(np.searchsorted(found.alarms, allowed, side="right"))
  if not places:
    return 0, 0
  return int(found.caught[places - 1]), int(found.alarms[places - 1])


def needed_for(fpr: float) -> int:
  """Non-members for which `fpr` allows one alarm."""
  return math.ceil(1 / fpr * (1 - 1e-12))


def thinned(found: Curve, most: int = 300) -> dict[str, list[float]]:
  """The curve from (0, 0) to (1, 1) in at most `most` points.

  A third is evenly spread over the false-positive rate, the rest over its
  logarithm from 1 / m on, so that the low end stays.
  """
  fpr = np.concatenate([[0], found.alarms / found.num_nonmembers])
  tpr = np.concatenate([[0], found.caught / found.num_members])
  if len(fpr) > most:
    third = most // 3
    low = math.log10(1 / found.num_nonmembers)
    wanted = np.concatenate(
      [np.linspace(0, 1, third), np.logspace(low, 0, most - third - 2)]
    )
    places = np.searchsorted(fpr, np.append(wanted, 0), side="right") - 1
    places = np.unique(np.append(places, [0, len(fpr) - 1]))
    fpr, tpr = fpr[places], tpr[places]
  return {"fpr": fpr.tolist(), "tpr": tpr.tolist()}
