"""The bound from gradient canaries: by hand, its coverage, its power."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tf_privrob import binomial
from tf_privrob import privacy
from tf_privrob.privacy.audit import planted

DELTA = 1e-5


def sound(noise, prob, steps, count, rng):
  """What is seen of canaries in a training that does what is accounted."""
  included = rng.random(count) < 0.5
  seen = noise * rng.standard_normal((steps, count))
  seen[:, included] += rng.random((steps, int(included.sum()))) < prob
  return seen, included


def stated(noise, prob, steps):
  return privacy.dp_epsilon([privacy.poisson_sgd(noise, prob, steps)], DELTA)


@pytest.mark.parametrize(("noise", "steps"), [(2.0, 1), (5.0, 30), (0.5, 2)])
def test_total_variation_of_full_batches_is_that_of_two_gaussians(noise, steps):
  mu = math.sqrt(steps) / noise
  found = planted.total_variation(noise, 1.0, steps)
  assert found == pytest.approx(2 * stats.norm.cdf(mu / 2) - 1, rel=1e-3)
  assert found >= 2 * stats.norm.cdf(mu / 2) - 1


def test_total_variation_of_one_sampled_step_is_that_of_one_times_the_rate():
  one = 2 * stats.norm.cdf(1 / 2 / 1.5) - 1
  assert planted.total_variation(1.5, 0.3, 1) == pytest.approx(
    0.3 * one, rel=1e-3
  )


def test_statistics_by_hand():
  seen = np.array([[0.0, 1.0, 3.0], [2.0, 0.5, -1.0]])
  pilots = np.array([True, True, False])
  found = planted.statistics(seen, pilots, 2.0, 0.25)
  ratios = np.log(0.75 + 0.25 * np.exp((seen - 0.5) / 4)).sum(axis=0)
  centred = seen - np.array([[0.5], [1.25]])
  expected = [ratios, centred.sum(axis=0), centred.std(axis=0), [2, 1, 3]]
  for one, other in zip(found.values(), expected):
    np.testing.assert_allclose(one, other)


def test_a_ratio_that_no_float_holds_still_orders_the_canaries():
  found = planted.statistics(
    np.array([[1.0, 10.0, 20.0]]), np.array([True] * 3), 0.1, 0.5
  )
  ratios = next(iter(found.values()))
  assert np.isfinite(ratios).all()
  assert (np.diff(ratios) > 0).all()


def test_the_bound_is_that_of_the_share_of_right_guesses():
  rng = np.random.default_rng(1)
  seen, included = sound(1.0, 0.5, 10, 3000, rng)
  found = privacy.audit_planted(seen, included, 1.0, 0.5, DELTA, 0.95)
  guessed = planted.statistics(seen, np.arange(3000) < 600, 1.0, 0.5)
  guessed = guessed["likelihood ratio"] > 0
  correct = int((guessed == included)[600:].sum())
  assert (found.correct, found.canaries) == (correct, 2400)
  least = binomial.lower(correct, 2400, 0.025)
  assert found.any_mechanism == pytest.approx(
    math.log((least - DELTA) / (1 - least))
  )
  # Just more noise explains fewer, just less explains them.
  for factor, explains in ((1.001, False), (0.998, True)):
    most = planted.total_variation(factor * found.noise_multiplier, 0.5, 10)
    assert (2 * least - 1 <= most) == explains
  assert found.audited == pytest.approx(
    stated(found.noise_multiplier, 0.5, 10), rel=1e-6
  )


def test_nothing_is_shown_by_canaries_that_tell_nothing():
  rng = np.random.default_rng(2)
  found = privacy.audit_planted(
    rng.standard_normal((5, 400)), rng.random(400) < 0.5, 1.0, 0.2, DELTA
  )
  assert found.audited == 0
  assert found.noise_multiplier == math.inf


def test_canaries_that_all_tell_show_what_is_reachable():
  included = np.arange(1000) % 2 == 0
  seen = np.where(included, 20.0, -20.0)[None] * np.ones((4, 1))
  found = privacy.audit_planted(seen, included, 1.0, 0.5, DELTA)
  assert found.correct == found.canaries == 800
  assert found.audited == found.reachable > stated(1.0, 0.5, 4)


def test_a_bug_in_one_group_is_found_there():
  rng = np.random.default_rng(3)
  seen, included = sound(4.0, 0.3, 20, 3000, rng)
  groups = np.arange(3000) % 10
  seen[:, groups == 7] *= np.where(included, 1.0, 1.0)[groups == 7]
  seen[:, (groups == 7) & included] += 9.0
  alone = privacy.audit_planted(seen, included, 4.0, 0.3, DELTA)
  found = privacy.audit_planted(seen, included, 4.0, 0.3, DELTA, groups=groups)
  assert found.group == 7
  assert found.audited > stated(4.0, 0.3, 20) > alone.audited


@pytest.mark.parametrize(
  ("audits", "confidence", "most"),
  [
    pytest.param(200, 0.999, 1, marks=pytest.mark.slow),
    pytest.param(200, 0.95, 19, marks=pytest.mark.slow),
  ],
)
def test_false_alarms_are_as_rare_as_is_said(audits, confidence, most):
  """Of 200 audits of a sound training 0.2 and 10 would be the average."""
  proven, alarms = stated(1.5, 0.2, 15), 0
  for seed in range(audits):
    rng = np.random.default_rng([9, seed])
    seen, included = sound(1.5, 0.2, 15, 400, rng)
    found = privacy.audit_planted(
      seen, included, 1.5, 0.2, DELTA, confidence, np.arange(400) % 4
    )
    alarms += found.audited > proven
  assert alarms <= most


@pytest.mark.slow
@pytest.mark.parametrize("dp_epsilon", [1.0, 3.0, 8.0])
def test_as_many_canaries_as_are_asked_for_show_two_thirds(dp_epsilon):
  """Steps and rate of the preset mnist_5k; of 26,010 weights."""
  prob, steps = 0.128, 312
  noise = privacy.calibrate_noise_multiplier(dp_epsilon, DELTA, prob, steps)
  count = privacy.canaries_in_one_training(noise, prob, steps, DELTA)
  enough = 0
  for seed in range(5):
    rng = np.random.default_rng(seed)
    seen, included = sound(noise, prob, steps, min(count, 26_010), rng)
    found = privacy.audit_planted(seen, included, noise, prob, DELTA)
    enough += dp_epsilon / 1.5 <= found.audited <= dp_epsilon
  assert enough >= 4


def test_other_shapes_are_refused():
  with pytest.raises(ValueError, match="a coin for each canary"):
    privacy.audit_planted(np.zeros((3, 4)), np.zeros(5), 1.0, 0.5, DELTA)
