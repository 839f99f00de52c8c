"""Early looks spend no more than the failure probability, and stop soundly."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from tf_privrob import binomial
from tf_privrob.certify.smoothing import sequential

PLAN = sequential.Plan(
  stddev=1.0, num_draws=3200, failure_prob=0.1, radii=(0.5, 1.0)
)


def _simulate(plan, prob, count, seed):
  """Verdicts on `count` independent candidates of probability `prob`."""
  rng = np.random.default_rng(seed)
  verdicts = []
  for _ in range(count):
    votes = drawn = 0
    for look in plan.looks:
      votes += rng.binomial(look.draws - drawn, prob)
      drawn = look.draws
      verdict = plan.verdict(votes, look)
      if verdict is not None:
        verdicts.append((verdict, drawn))
        break
  assert len(verdicts) == count
  return verdicts


def test_looks_by_hand():
  looks = PLAN.looks
  assert [look.draws for look in looks] == [50, 200, 800, 3200]
  assert sum(look.failure_prob for look in looks) == pytest.approx(0.1)
  assert looks[-1].failure_prob == pytest.approx(0.075)


def test_looks_are_whole_blocks_and_distinct():
  plan = dataclasses.replace(PLAN, num_draws=110, block=25)
  assert [look.draws for look in plan.looks] == [25, 50, 110]
  assert sum(look.failure_prob for look in plan.looks) == pytest.approx(0.1)


@pytest.mark.parametrize("num_draws", [1, 25, 99, 10_000])
def test_without_radii_there_is_one_look_at_full_strength(num_draws):
  plan = sequential.Plan(0.25, num_draws, 0.001)
  assert plan.looks == [(num_draws, 0.001)]
  assert not plan.hopeless(0, 100)
  verdict = plan.verdict(num_draws, plan.looks[0])
  bound = binomial.lower(num_draws, num_draws, 0.001)
  assert verdict.radius == pytest.approx(0.25 * special.ndtri(bound))
  assert verdict.stopped == ""


def test_hopeless_only_when_no_radius_is_in_reach():
  plan = dataclasses.replace(PLAN, radii=(1.0,))  # needs p >= 0.841
  assert plan.hopeless(60, 100)
  assert not plan.hopeless(84, 100)
  # 80 of 100 is too low, but chance might have it from p >= 0.841.
  assert not plan.hopeless(80, 100)
  zero = dataclasses.replace(PLAN, radii=(0.0,))  # needs p > 1/2
  assert zero.hopeless(40, 100)
  assert not zero.hopeless(49, 100)


def test_stops_are_named_and_save_draws():
  sure = _simulate(PLAN, 0.999, 50, seed=1)
  assert {verdict.stopped for verdict, _ in sure} == {"decided"}
  assert np.mean([drawn for _, drawn in sure]) < 3200 / 10
  lost = _simulate(PLAN, 0.55, 50, seed=2)
  assert {verdict.stopped for verdict, _ in lost} == {"abandoned"}
  near = _simulate(PLAN, special.ndtr(1.0), 50, seed=3)
  assert any(drawn == 3200 for _, drawn in near)


def test_a_stop_seldom_costs_a_radius_of_interest():
  full = dataclasses.replace(PLAN, radii=())
  for prob in (0.75, 0.9):
    early = [v.radius for v, _ in _simulate(PLAN, prob, 400, seed=4)]
    late = [v.radius for v, _ in _simulate(full, prob, 400, seed=5)]
    for radius in PLAN.radii:
      loss = np.mean(np.array(late) >= radius) - np.mean(
        np.array(early) >= radius
      )
      assert loss <= 0.1


def _failure_rate(plan, seed):
  """How often the radius exceeds the truth, where stopping tempts most."""
  worst = 0.0
  for slack in (1e-3, 0.02, 0.05):
    prob = float(special.ndtr(1.0 - slack))  # just below a radius of interest
    radii = np.array([v.radius for v, _ in _simulate(plan, prob, 4000, seed)])
    worst = max(worst, np.mean(radii > (1.0 - slack) * plan.stddev))
  return worst


_BOUND = 0.1 + 3.1 * np.sqrt(0.1 * 0.9 / 4000)


def test_confidence_survives_optional_stopping():
  rate = _failure_rate(PLAN, seed=6)
  assert 0.02 < rate <= _BOUND


def test_full_failure_probability_at_every_look_is_caught(monkeypatch):
  looks = [sequential.Look(look.draws, 0.1) for look in PLAN.looks]
  monkeypatch.setattr(sequential.Plan, "looks", property(lambda self: looks))
  assert _failure_rate(PLAN, seed=6) > _BOUND


def test_largest_radius_is_reached_by_a_unanimous_vote():
  verdict = PLAN.verdict(3200, PLAN.looks[-1])
  assert verdict.radius == pytest.approx(PLAN.largest_radius)
