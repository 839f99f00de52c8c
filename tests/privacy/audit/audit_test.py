"""Bounds from counts, by hand and by simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob.privacy.audit import two_world


def test_both_errors_by_hand():
  """All 100 silent without it, 40 of 100 caught: alarms tell more; and back."""
  least = stats.beta.ppf(0.025, 40, 61)
  most = 1 - 0.025 ** (1 / 100)
  alarms = math.log((least - 1e-5) / most)
  assert privacy.dp_epsilon_lower_bound(40, 0, 100, 1e-5) == pytest.approx(
    alarms
  )
  # All caught, 60 false alarms: silence tells: TNR over FNR.
  least = 1 - stats.beta.ppf(0.975, 61, 40)
  silence = math.log((least - 1e-5) / (1 - 0.025 ** (1 / 100)))
  found = privacy.dp_epsilon_lower_bound(100, 60, 100, 1e-5)
  assert found == pytest.approx(silence)
  alarms = (0.025 ** (1 / 100) - 1e-5) / stats.beta.ppf(0.975, 61, 40)
  assert math.log(alarms) < found / 3


def test_both_errors_keep_the_confidence_of_one():
  """Randomised response, the truth known: at most 5 % of audits above it."""
  dp_epsilon, runs, audits = 1.0, 150, 2_000
  rng = np.random.default_rng(0)
  prob = 1 / (1 + math.exp(-dp_epsilon))
  above = 0
  for caught, false in zip(
    rng.binomial(runs, prob, audits), rng.binomial(runs, 1 - prob, audits)
  ):
    bound = privacy.dp_epsilon_lower_bound(int(caught), int(false), runs)
    above += bound > dp_epsilon
  assert 0 < above <= 0.05 * audits  # the maximum is not over-confident


def test_gaussian_bound_is_tighter_and_below_the_truth():
  """Expected counts of a shift 1 at the threshold 1, no chance involved."""
  runs = 10_000
  counts = [round(runs * stats.norm.sf(t)) for t in (0.0, 1.0)]
  truth = mechanisms.gaussian_dp_epsilon(1.0, 1e-5)
  found = privacy.gaussian_lower_bound(*counts, runs, 1e-5)
  assert privacy.dp_epsilon_lower_bound(*counts, runs, 1e-5) < found / 2
  assert 0.85 * truth < found < truth
  assert privacy.gaussian_lower_bound(10, 10, 100, 1e-5) == 0


@pytest.mark.parametrize("dp_delta", [0.0, 1e-3])
@pytest.mark.parametrize("dp_epsilon", [0.0, 0.3, 1.0, 4.0, 8.0])
def test_runs_for_inverts_reachable(dp_epsilon, dp_delta):
  runs = privacy.runs_for(dp_epsilon, dp_delta)
  assert privacy.reachable(runs, dp_delta) > dp_epsilon
  assert runs == 1 or privacy.reachable(runs - 1, dp_delta) <= dp_epsilon


def test_reachable_golden():
  assert privacy.reachable(200) == pytest.approx(3.98, abs=0.01)
  assert privacy.reachable(1000, 1e-5) == pytest.approx(5.60, abs=0.01)


def test_an_audit_that_cannot_reach_is_refused_before_any_work():
  def run(present, seed):
    raise AssertionError("worked")

  message = r"dp_epsilon=8 .*runs=100, which can show 3.28.* Set runs=1099\d"
  with pytest.raises(ValueError, match=message):
    privacy.audit_two_world(run, 100, refute=8.0, dp_delta=1e-5)
  with pytest.raises(ValueError, match=r"can show 3\.28"):
    privacy.refute(run, 100, dp_epsilon=8.0, dp_delta=1e-5)


@pytest.mark.parametrize("counts", [(11, 0), (-1, 0), (0, 11), (0.5, 0)])
def test_bad_counts(counts):
  with pytest.raises(ValueError, match="<= runs=10"):
    privacy.dp_epsilon_lower_bound(*counts, 10)


# Two worlds.


def shifted(mechanism, columns=1, useful=0):
  def run(present, seed):
    noise = np.random.default_rng(seed).normal(size=columns)
    noise *= mechanism.stddev
    noise[useful] += present * mechanism.l2_sensitivity
    return noise

  return run


def test_two_world_by_a_naive_loop():
  """Pilots, threshold and counts done again by hand."""
  mechanism = mechanisms.GaussianMechanism(1.0, 0.7)
  run = shifted(mechanism)
  drawn = {}

  def collect(run, part, present, seeds):
    drawn[part, present] = two_world.one_by_one(run, part, present, seeds)
    return drawn[part, present]

  found = privacy.audit_two_world(run, 60, seed=4, collect=collect)
  pilots = [drawn["pilot", present][:, 0] for present in (True, False)]

  def careful(side, threshold):
    """The bound at rates one standard error to the worse."""
    counts = []
    for values, sign in zip(pilots, (-1, 1)):
      rate = (side * (values - threshold) > 1e-12).mean()
      rate += sign * math.sqrt((rate * (1 - rate) + 1 / 60) / 60)
      counts.append(min(60, max(0, round(60 * rate))))
    return privacy.dp_epsilon_lower_bound(*counts, 60)

  places = np.sort(np.concatenate(pilots))
  best = max(
    careful(side, (low + high) / 2)
    for low, high in zip(places, places[1:])
    for side in (1, -1)
  )
  assert best > 0.3
  chosen = careful(found.test.side, found.test.threshold)
  assert chosen == pytest.approx(best)
  caught = (drawn["judged", True][:, 0] > found.test.threshold).sum()
  assert (found.test.side, found.caught) == (1, caught)
  assert found.audited == privacy.dp_epsilon_lower_bound(
    found.caught, found.false_alarms, 60
  )
  again = privacy.audit_two_world(run, 60, seed=4)
  assert again == found
  assert privacy.audit_two_world(run, 60, seed=5) != found


def test_no_seed_is_used_twice():
  seen = []

  def run(present, seed):
    seen.append(seed)
    return float(present)

  privacy.audit_two_world(run, 20, pilots=7, seed=1)
  assert len(seen) == len(set(seen)) == 54


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_two_world_passes_the_noise_and_catches_half_of_it(factor):
  """2,000 runs at dp_epsilon 1: it never exceeds, and half is refuted."""
  honest = mechanisms.GaussianMechanism.analytic(1.0, 1.0, 1e-2)
  used = mechanisms.GaussianMechanism(1.0, honest.stddev * factor)
  found = [
    privacy.audit_two_world(
      shifted(used), 2_000, dp_delta=1e-2, seed=seed
    ).audited
    for seed in range(3)
  ]
  assert (np.array(found) > 1.0).all() == (factor < 1)


def test_the_statistic_that_tells_is_found_on_the_pilots():
  mechanism = mechanisms.GaussianMechanism(1.0, 0.1)
  names = ("noise", "signal", "more noise")
  found = privacy.audit_two_world(
    shifted(mechanism, 3, 1), 100, statistics=names
  )
  assert found.statistic == "signal"
  assert found.caught == 100
  assert found.false_alarms == 0
  assert found.audited == found.reachable


def test_pilots_do_not_count():
  """A test that is perfect on pilots by chance shows nothing on others."""

  def run(present, seed):
    return np.random.default_rng(seed).normal(size=200)

  names = [str(i) for i in range(200)]
  found = privacy.audit_two_world(run, 200, pilots=8, statistics=names)
  assert found.audited < 0.5


def test_two_world_failures():
  with pytest.raises(ValueError, match="2 numbers a run"):
    privacy.audit_two_world(
      lambda present, seed: 1.0, 10, statistics=("a", "b")
    )
  with pytest.raises(ValueError, match="lower the learning rate"):
    privacy.audit_two_world(lambda present, seed: math.nan, 10)
  constant = privacy.audit_two_world(lambda present, seed: 1.0, 10)
  assert constant.audited == 0
