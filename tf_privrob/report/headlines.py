"""The figures that head the report.

The sizes at which they are quoted are chosen by rules that never look at a
result, so that no figure on the page is picked because it flatters.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_privrob.records.evaluation import AttackResult
from tf_privrob.records.evaluation import CurvePoint
from tf_privrob.records.evaluation import Radii


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


def headline_radius(radii: Radii) -> CurvePoint:
  """The curve's point nearest to one standard deviation of the noise.

  A radius of one smoothing_stddev is what a top class of probability
  Phi(1) = 84% earns, so it stands for the noise that was chosen.
  """
  positive = [point for point in radii.curve if point.radius > 0]
  if not positive:
    return radii.curve[0]
  if radii.smoothing_stddev is None:
    return positive[len(positive) // 2]
  stddev = radii.smoothing_stddev
  return min(positive, key=lambda p: (abs(p.radius - stddev), p.radius))


def spread(items: Sequence[Any], most: int) -> list[Any]:
  """At most so many of them, evenly spread, the first and the last included."""
  if len(items) <= most:
    return list(items)
  picks = np.linspace(0, len(items) - 1, most).round().astype(int)
  return [items[index] for index in picks]
