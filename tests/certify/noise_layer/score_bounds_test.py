"""Bounds on expected scores: by hand, against scipy, and their coverage."""

import math

import numpy as np
import pytest
from scipy import stats

from tf_privrob.certify.noise_layer import score_bounds

FAILURE_PROB = 0.1
REPETITIONS = 4000
LIMIT = FAILURE_PROB + 3.1 * math.sqrt(0.1 * 0.9 / REPETITIONS)


def scores(draws):
  """Sufficient statistics of draws [n, K]."""
  draws = np.asarray(draws, float)
  return score_bounds.Scores(
    len(draws),
    draws.mean(axis=0),
    draws.var(axis=0, ddof=1) if len(draws) > 1 else 0 * draws[0],
    np.bincount(draws.argmax(axis=1), minlength=draws.shape[1]),
  )


def unanimous(num_draws, num_classes=10):
  draws = np.zeros([num_draws, num_classes])
  draws[:, 3] = 1
  return scores(draws)


# By hand.


def test_hoeffding_by_hand():
  margin = score_bounds.hoeffding_margin(300, 0.05 / 10)
  assert margin == pytest.approx(math.sqrt(math.log(10 / 0.05) / 600))
  assert margin == pytest.approx(0.0940, abs=5e-5)


def test_empirical_bernstein_by_hand():
  log = math.log(2 * 10 / 0.05)
  margin = score_bounds.empirical_bernstein_margin([0.0, 0.04], 1000, 0.005)
  constant = 7 * log / (3 * 999)
  np.testing.assert_allclose(
    margin, [constant, math.sqrt(2 * 0.04 * log / 1000) + constant]
  )


def test_pixeldp_switches_at_560_draws():
  names = [score_bounds.pixeldp_bound(n, 0.05 / 10) for n in range(1, 700)]
  first = names.index("empirical_bernstein") + 1
  assert first == pytest.approx(560, abs=1)
  assert set(names[first - 1 :]) == {"empirical_bernstein"}


@pytest.mark.parametrize(
  ("num_draws", "same_as"), [(300, "hoeffding"), (2000, "empirical_bernstein")]
)
def test_pixeldp_is_one_of_the_two(num_draws, same_as):
  draws = np.random.RandomState(0).dirichlet([2, 1, 1], num_draws)
  found = score_bounds.interval(scores(draws), "pixeldp", 0.005)
  wanted = score_bounds.interval(scores(draws), same_as, 0.005)
  np.testing.assert_array_equal(found, wanted)


def test_interval_is_the_mean_and_margin_within_0_and_1():
  sample = scores([[0.9, 0.1], [0.7, 0.3], [0.8, 0.2]])
  lower, upper = score_bounds.interval(sample, "hoeffding", 0.5)
  margin = math.sqrt(math.log(2) / 6)
  np.testing.assert_allclose(lower, [0.8 - margin, 0])
  np.testing.assert_allclose(upper, [1, 0.2 + margin])


def test_clopper_pearson_equals_the_beta_quantiles():
  draws = np.random.RandomState(0).dirichlet([3, 2, 0.1], 200)
  sample = scores(draws)
  lower, upper = score_bounds.interval(sample, "clopper_pearson", 0.005)
  for k, count in enumerate(sample.votes):
    low = stats.beta.ppf(0.005, count, 201 - count) if count else 0
    high = stats.beta.ppf(0.995, count + 1, 200 - count)
    assert lower[k] == pytest.approx(low, abs=1e-9)
    assert upper[k] == pytest.approx(high, abs=1e-9)


@pytest.mark.parametrize(
  ("num_draws", "wanted"), [(2000, 2.966), (1000, 2.619), (300, 2.014)]
)
def test_largest_robust_epsilon_of_the_released_code(num_draws, wanted):
  """alpha = 0.05, K = 10, all votes for one class."""
  top = score_bounds.top_two(unanimous(num_draws), "clopper_pearson", 0.005)
  assert top.label == 3
  found = score_bounds.robust_epsilon(top.p1_lower, top.p2_upper)
  assert found == pytest.approx(wanted, abs=5e-4)


def test_top_two_takes_the_largest_of_the_other_upper_bounds():
  sample = scores([[0.6, 0.1, 0.3]] * 5000)
  top = score_bounds.top_two(sample, "hoeffding", 0.01)
  margin = score_bounds.hoeffding_margin(5000, 0.01)
  assert top == (0, pytest.approx(0.6 - margin), pytest.approx(0.3 + margin))
  other = score_bounds.top_two(sample, "hoeffding", 0.01, label=2)
  assert other == (2, pytest.approx(0.3 - margin), pytest.approx(0.6 + margin))


def test_votes_and_means_may_disagree_on_the_top_class():
  sample = scores([[0.5, 0.4, 0.1], [0.5, 0.4, 0.1], [0.0, 1.0, 0.0]])
  assert sample.top("clopper_pearson") == 0
  assert sample.top("hoeffding") == 1


# The closed form of the maximum.


@pytest.mark.parametrize("seed", range(5))
def test_robust_epsilon_equals_a_grid_search(seed):
  p1, p2 = np.random.RandomState(seed).uniform(0.01, 1, 2)
  grid = np.arange(0, 3, 1e-4)
  allowed = grid[p1 > np.exp(2 * grid) * p2]
  wanted = allowed.max() if allowed.size else 0.0
  found = score_bounds.robust_epsilon(p1, p2)
  assert found == pytest.approx(wanted, abs=1.01e-4)


def test_robust_epsilon_of_arrays_and_corners():
  found = score_bounds.robust_epsilon([0.5, 0.2, 0.0, 0.3], [0.5, 0.3, 0, 0])
  assert found.tolist() == [0, 0, 0, math.inf]
  assert isinstance(score_bounds.robust_epsilon(0.5, 0.1), float)


# Coverage.


def failure_rates(margin, draws):
  """How often mean - margin > E, and mean + margin < E."""
  means = draws.mean(axis=1)
  truth = np.mean([0.0, 1.0])
  return np.mean(means - margin > truth), np.mean(means + margin < truth)


def coin_flips(num_draws):
  return np.random.RandomState(3).randint(0, 2, [REPETITIONS, num_draws])


@pytest.mark.parametrize("num_draws", [20, 300])
def test_margins_on_means_cover(num_draws):
  draws = coin_flips(num_draws)
  hoeffding = score_bounds.hoeffding_margin(num_draws, FAILURE_PROB)
  bernstein = score_bounds.empirical_bernstein_margin(
    draws.var(axis=1, ddof=1), num_draws, FAILURE_PROB
  )
  assert max(failure_rates(hoeffding, draws)) <= LIMIT
  assert max(failure_rates(bernstein, draws)) <= LIMIT
  assert min(failure_rates(hoeffding / 2, draws)) > LIMIT  # caught
  assert min(failure_rates(bernstein / 5, draws)) > LIMIT


@pytest.mark.parametrize("bound", score_bounds.BOUNDS)
@pytest.mark.parametrize("probs", [[0.4, 0.35, 0.25], [0.1] * 10])
def test_both_bounds_hold_together_for_a_fixed_class(bound, probs):
  """Two failure probabilities, not K, are spent."""
  rng = np.random.RandomState(5)
  failed = 0
  for votes in rng.multinomial(40, probs, 1000):
    means = votes / 40
    sample = score_bounds.Scores(
      40, means, means * (1 - means) * 40 / 39, votes
    )
    top = score_bounds.top_two(sample, bound, FAILURE_PROB / 2, label=0)
    failed += top.p1_lower > probs[0] or top.p2_upper < probs[1]
  assert failed / 1000 <= FAILURE_PROB + 3.1 * math.sqrt(0.09 / 1000)
  if bound == "clopper_pearson":
    assert failed / 1000 > FAILURE_PROB / 10  # and not by being useless


# Bad input.


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda: score_bounds.hoeffding_margin(0, 0.1), "num_draws=0"),
    (lambda: score_bounds.hoeffding_margin(5, 0.0), "0 < failure_prob=0.0 < 1"),
    (lambda: score_bounds.pixeldp_bound(5, 1.0), "0 < failure_prob=1.0 < 1"),
    (
      lambda: score_bounds.empirical_bernstein_margin([0], 1, 0.1),
      "num_draws=1 >= 2",
    ),
    (
      lambda: score_bounds.interval(unanimous(5), "hoefding", 0.1),
      "Did you mean 'hoeffding'",
    ),
    (
      lambda: score_bounds.interval(unanimous(5), "clopper_pearson", 1.5),
      "failure_prob=1.5",
    ),
  ],
)
def test_bad_input(call, message):
  with pytest.raises(ValueError, match=message):
    call()
