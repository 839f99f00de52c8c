"""What a run measured, typed, with the numbers that head the report.

Accuracies come with two-sided Clopper-Pearson intervals. The sizes at which
the headline figures are quoted are chosen by rules that never look at a
result, so that no figure on the page is picked because it flatters.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from tf_privrob import binomial

Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Accuracy:
  """A share of correct examples, of how many, and its 95% interval."""

  accuracy: float
  count: int | None = None
  interval: Interval | None = None


@dataclasses.dataclass(frozen=True)
class AttackResult(Accuracy):
  """Accuracy left by one attack at one size."""

  name: str = "attack"
  norm: str = "linf"
  attack_eps: float = 0.0
  steps: int | None = None
  restarts: int | None = None
  warnings: tuple[str, ...] = ()
  seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class CurvePoint:
  """Share of examples that are correct with a radius of at least `radius`."""

  radius: float
  accuracy: float
  interval: Interval | None = None


@dataclasses.dataclass(frozen=True)
class Smoothed:
  """Radii over a set of examples, of a smoothed classifier or the network.

  `kind` is "proven" where a theorem supports every radius and "claimed"
  where only a paper says so; the report words the two differently. Radii of
  confidence 1 are found without randomness and are of the network itself.
  """

  curve: tuple[CurvePoint, ...]
  kind: str = "proven"
  norm: str = "l2"
  smoothing_stddev: float | None = None
  num_selection: int | None = None
  num_estimation: int | None = None
  confidence: float | None = None
  count: int | None = None
  abstained: int | None = None
  mean_radius: float | None = None
  seconds: float | None = None

  @property
  def deterministic(self) -> bool:
    """Whether the radii hold for the network itself, with certainty."""
    return self.confidence == 1

  @property
  def subject(self) -> str:
    """What the radii are about."""
    return "the network itself" if self.deterministic else "smoothed classifier"


def as_number(value: Any) -> float | None:
  """A finite number as it is, anything else as None."""
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    return None
  return value if math.isfinite(value) else None


def whole(value: Any) -> int | None:
  """A finite number as an int, anything else as None."""
  value = as_number(value)
  return None if value is None else int(value)


def share(value: Any, name: str) -> float:
  """A number in [0, 1]; a ValueError with its name for anything else."""
  number = as_number(value)
  if number is None or not 0 <= number <= 1:
    raise ValueError(f"expected {name} in [0, 1], received {value!r}")
  return number


def bounds(pair: Any) -> Interval | None:
  """Two numbers as an interval, anything else as None."""
  if not isinstance(pair, (list, tuple)) or len(pair) != 2:
    return None
  low, high = (as_number(bound) for bound in pair)
  return None if low is None or high is None else (low, high)


def _interval(entry: Mapping[str, Any], accuracy: float, count: int | None):
  """The file's own interval, or the exact one where it gives only a count."""
  given = bounds(entry.get("interval"))
  if given is None and count:
    return binomial.interval(round(accuracy * count), count)
  return given


def parse_accuracy(entry: Mapping[str, Any]) -> Accuracy:
  """Reads the `clean` entry of metrics.json."""
  accuracy = share(entry.get("accuracy"), "accuracy")
  count = whole(entry.get("count"))
  return Accuracy(accuracy, count, _interval(entry, accuracy, count))


def parse_attack(entry: Mapping[str, Any]) -> AttackResult:
  """Reads one entry of `attacks` in metrics.json."""
  base = parse_accuracy(entry)
  attack_eps = as_number(entry.get("attack_eps"))
  if attack_eps is None or attack_eps < 0:
    raise ValueError(
      f"expected attack_eps >= 0, received {entry.get('attack_eps')!r}"
    )
  warnings = entry.get("warnings") or ()
  return AttackResult(
    accuracy=base.accuracy,
    count=base.count,
    interval=base.interval,
    name=str(entry.get("name", "attack")),
    norm=str(entry.get("norm", "linf")),
    attack_eps=attack_eps,
    steps=whole(entry.get("steps")),
    restarts=whole(entry.get("restarts")),
    warnings=(warnings,)
    if isinstance(warnings, str)
    else tuple(map(str, warnings)),
    seconds=as_number(entry.get("seconds")),
  )


def parse_smoothed(
  entry: Mapping[str, Any], kinds: Iterable[str] = ()
) -> Smoothed:
  """Reads `certified` in metrics.json.

  Args:
    entry: the JSON object.
    kinds: what certificates.csv says of its rows. One claimed radius makes
      the whole curve a claim.
  """
  count = whole(entry.get("count"))
  points = []
  for point in entry.get("curve") or ():
    accuracy = share(point.get("accuracy"), "accuracy")
    radius = as_number(point.get("radius"))
    if radius is None or radius < 0:
      raise ValueError(f"expected radius >= 0, got {point.get('radius')!r}")
    interval = _interval(point, accuracy, count)
    points.append(CurvePoint(radius, accuracy, interval))
  if not points:
    raise ValueError("expected at least one point in curve, received none")
  proven = {str(entry.get("kind", "proven")), *kinds} == {"proven"}
  return Smoothed(
    curve=tuple(sorted(points, key=lambda point: point.radius)),
    kind="proven" if proven else "claimed",
    norm=str(entry.get("norm", "l2")),
    smoothing_stddev=as_number(entry.get("smoothing_stddev")),
    num_selection=whole(entry.get("num_selection")),
    num_estimation=whole(entry.get("num_estimation")),
    confidence=as_number(entry.get("confidence")),
    count=count,
    abstained=whole(entry.get("abstained")),
    mean_radius=as_number(entry.get("mean_radius")),
    seconds=as_number(entry.get("seconds")),
  )


def worst_by_size(
  attacks: Iterable[AttackResult],
) -> dict[tuple[str, float], AttackResult]:
  """The strongest attack's result for every (norm, attack_eps) tried."""
  worst: dict[tuple[str, float], AttackResult] = {}
  for attack in attacks:
    key = (attack.norm, attack.attack_eps)
    if key not in worst or attack.accuracy < worst[key].accuracy:
      worst[key] = attack
  return dict(sorted(worst.items(), key=lambda item: item[0]))


def headline_attack(attacks: Iterable[AttackResult]) -> AttackResult | None:
  """The worst result at the size that stands for all.

  The norm with the most results (ties: linf, then l2), and in it the median
  of the positive sizes, the larger one of two.
  """
  attacks = [attack for attack in attacks if attack.attack_eps > 0]
  if not attacks:
    return None
  norms = [attack.norm for attack in attacks]
  order = ["l1", "l2", "linf"]
  norm = max(
    sorted(set(norms)),
    key=lambda n: (norms.count(n), order.index(n) if n in order else -1),
  )
  sizes = sorted({a.attack_eps for a in attacks if a.norm == norm})
  return worst_by_size(attacks)[norm, sizes[len(sizes) // 2]]


def headline_radius(smoothed: Smoothed) -> CurvePoint:
  """The curve's point nearest to one standard deviation of the noise.

  A radius of one smoothing_stddev is what a top class of probability
  Phi(1) = 84% earns, so it stands for the noise that was chosen.
  """
  positive = [point for point in smoothed.curve if point.radius > 0]
  if not positive:
    return smoothed.curve[0]
  if smoothed.smoothing_stddev is None:
    return positive[len(positive) // 2]
  stddev = smoothed.smoothing_stddev
  return min(positive, key=lambda p: (abs(p.radius - stddev), p.radius))
