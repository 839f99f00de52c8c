"""The refuter on mechanisms that keep their promise, and that do not."""

import math

import numpy as np
import pytest
from scipy import stats

from tf_privrob import mechanisms
from tf_privrob import privacy

RUNS = 10_000


def sampler(mechanism, first=0.0, second=1.0, size=()):
  """Outputs of a mechanism on two inputs a sensitivity apart."""

  def sample(neighbour, count, seed):
    noise = mechanism.sample([count, *size], seed).numpy()
    return noise + (second if neighbour else first)

  return sample


@pytest.mark.parametrize("dp_epsilon", [0.5, 1.0, 2.0])
def test_laplace_keeps_its_promise_and_its_bound_is_tight(dp_epsilon):
  mechanism = mechanisms.LaplaceMechanism(1.0, dp_epsilon)
  found = privacy.refute(sampler(mechanism), RUNS, dp_epsilon=dp_epsilon)
  assert 0.6 * dp_epsilon < found.audited <= dp_epsilon
  assert not found.refutes(dp_epsilon)


@pytest.mark.parametrize("factor", [1.0, 2 / 3])
def test_gaussian_noise_and_two_thirds_of_it(factor):
  """At dp_delta 1e-5 the right one passes; at a small dp_epsilon 2/3 falls."""
  honest = mechanisms.GaussianMechanism.analytic(1.0, 1.0, 1e-2)
  used = mechanisms.GaussianMechanism(1.0, factor * honest.stddev)
  found = privacy.refute(sampler(used), 20_000, dp_delta=1e-2)
  assert found.refutes(1.0) == (factor < 1)


def test_it_sees_a_point_mass_that_a_threshold_would_miss():
  """Rounding to whole numbers tells 0.5 apart, both ways."""

  def sample(neighbour, count, seed):
    rng = np.random.default_rng(seed)
    whole = np.round(3 * rng.normal(size=count))
    return whole + 0.5 * neighbour * (rng.random(count) < 0.5)

  found = privacy.refute(sample, 2_000, num_bins=200, dp_epsilon=3.0)
  assert found.refutes(3.0)
  swapped = privacy.refute(
    lambda neighbour, count, seed: sample(not neighbour, count, seed),
    2_000,
    num_bins=200,
  )
  assert swapped.refutes(3.0)
  assert found.false_alarms == 0  # halves are alarms
  assert swapped.caught == 2_000  # their absence is one


def test_vectors_are_seen_along_the_difference_and_by_their_spread():
  gaussian = mechanisms.GaussianMechanism(1.0, 0.5)
  shift = np.zeros(5)
  shift[2] = 1.0
  found = privacy.refute(sampler(gaussian, 0.0, shift, (5,)), 3_000)
  assert found.audited > 1.5

  def wider(neighbour, count, seed):
    noise = np.random.default_rng(seed).normal(size=(count, 50))
    return noise * (1.3 if neighbour else 1.0)

  assert privacy.refute(wider, 1_000).audited > 3.0


def test_bounds_hold_with_their_confidence():
  """200 audits of randomised response: at most 5 % above, and some chance."""
  dp_epsilon, above = 0.8, 0
  prob = 1 / (1 + math.exp(-dp_epsilon))
  for seed in range(200):

    def sample(neighbour, count, seed):
      truth = np.random.default_rng(seed).random(count) < prob
      return np.where(truth, neighbour, not neighbour).astype(float)

    above += privacy.refute(sample, 200, seed=seed).refutes(dp_epsilon)
  assert above <= stats.binom(200, 0.05).ppf(0.999)


def test_same_seed_same_result_and_fresh_samples():
  seeds = []

  def sample(neighbour, count, seed):
    seeds.append(seed)
    return np.random.default_rng(seed).normal(size=count)

  first = privacy.refute(sample, 100, seed=3)
  assert len(set(seeds)) == 4
  assert privacy.refute(sample, 100, seed=3) == first
  assert first.audited < 0.5


def test_failures():
  with pytest.raises(ValueError, match="NaN"):
    privacy.refute(lambda *_: np.full(10, np.nan), 10)
  with pytest.raises(ValueError, match="runs=0"):
    privacy.refute(lambda *_: np.zeros(10), 0)
