"""The rules that choose the figures that head the report."""

from __future__ import annotations

import numpy as np

from tests.report import conftest
from tf_privrob import records
from tf_privrob.report import headlines


def _attacks(*rows):
  return [records.AttackResult.from_json(conftest.attack(*row)) for row in rows]


def test_headline_attack_is_the_worst_at_the_median_size():
  attacks = _attacks(
    ("fgsm", "linf", 0.05, 180),
    ("fgsm", "linf", 0.1, 120),
    ("pgd", "linf", 0.1, 90),
    ("pgd", "linf", 0.3, 3),
    ("pgd", "l2", 1.0, 1),
  )
  worst = headlines.headline_attack(attacks)
  assert (worst.name, worst.norm, worst.attack_eps) == ("pgd", "linf", 0.1)
  assert worst.accuracy == 90 / 200


def test_headline_size_does_not_look_at_the_results():
  sizes = [("pgd", "linf", size) for size in (0.0, 0.1, 0.2)]
  rng = np.random.default_rng(0)
  for _ in range(20):
    attacks = _attacks(*((*s, int(rng.integers(200))) for s in sizes))
    # Size 0 is no attack; of the two that remain the larger one.
    assert headlines.headline_attack(attacks).attack_eps == 0.2


def test_headline_of_no_attack_is_none():
  assert headlines.headline_attack([]) is None
  assert headlines.headline_attack(_attacks(("pgd", "l2", 0.0, 3))) is None


def test_headline_radius_is_nearest_to_the_noise(files):
  entry = files["metrics.json"]["certified"]
  point = headlines.headline_radius(records.Radii.from_json(entry))
  assert (point.radius, point.accuracy) == (0.25, 0.71)
  entry["smoothing_stddev"] = 1.0
  assert headlines.headline_radius(records.Radii.from_json(entry)).radius == 0.5
