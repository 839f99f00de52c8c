from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_privrob import mechanisms
from tf_privrob import randomness
from tf_privrob.privacy import accounting

SENSITIVITY, DP_EPSILON = 2.0, 0.8
SCORES = np.array([3.0, 0.0, -1.5, 2.0, 2.0, -4.0])


def make(monotone=False, dp_epsilon=DP_EPSILON):
  return mechanisms.ExponentialMechanism(SENSITIVITY, dp_epsilon, monotone)


def law(scores, exponent):
  """By hand, without the mechanism."""
  weights = np.exp(exponent * (scores - np.max(scores)))
  return weights / weights.sum()


def neighbours(monotone, count=500, size=5, seed=0):
  """Score vectors and neighbours at the corners of what may change."""
  rng = np.random.default_rng(seed)
  scores = rng.normal(scale=4.0, size=(count, size))
  low = 0.0 if monotone else -SENSITIVITY
  change = rng.choice([low, SENSITIVITY], size=scores.shape)
  sign = rng.choice([-1, 1], size=(count, 1))
  return scores, scores + sign * change


def losses(mechanism, scores, others):
  p = mechanism.probabilities(scores).numpy()
  q = mechanism.probabilities(others).numpy()
  return np.log(p / q)


def hockey_stick(p, q, dp_epsilon):
  return np.maximum(p - math.exp(dp_epsilon) * q, 0).sum(axis=-1)


@pytest.mark.parametrize("monotone", [False, True])
def test_probabilities_by_hand(monotone):
  exponent = 0.4 if monotone else 0.2
  mechanism = make(monotone)
  assert mechanism.exponent == pytest.approx(exponent)
  found = mechanism.probabilities([SCORES, SCORES[::-1]])
  assert found.dtype == tf.float64
  np.testing.assert_allclose(found[0], law(SCORES, exponent), rtol=1e-14)
  np.testing.assert_allclose(found[1], law(SCORES[::-1], exponent), rtol=1e-14)


def test_huge_scores_do_not_overflow():
  found = make().probabilities([1e308, -1e308, 1e308]).numpy()
  np.testing.assert_array_equal(found, [0.5, 0.0, 0.5])
  assert int(make().select([1e308, -1e308], seed=1)) == 0


@pytest.mark.parametrize("monotone", [False, True])
def test_pure_guarantee_on_neighbours(monotone):
  found = np.abs(losses(make(monotone), *neighbours(monotone)))
  assert found.max() <= DP_EPSILON + 1e-12
  assert found.max() > 0.8 * DP_EPSILON  # not idle


@pytest.mark.parametrize("monotone", [False, True])
def test_worst_case_is_attained(monotone):
  """An unlikely index rises while the likely one falls, or stays."""
  before = np.array([0.0, -300.0])
  change = np.array([0.0 if monotone else -SENSITIVITY, SENSITIVITY])
  after = before + change
  loss = losses(make(monotone), after, before)
  assert loss.max() == pytest.approx(DP_EPSILON, rel=1e-9)


def test_monotone_exponent_with_other_scores_is_caught():
  found = np.abs(losses(make(monotone=True), *neighbours(monotone=False)))
  assert found.max() > 1.5 * DP_EPSILON


@pytest.mark.parametrize("monotone", [False, True])
def test_twice_the_exponent_is_caught(monotone):
  twice = make(monotone, 2 * DP_EPSILON)
  found = np.abs(losses(twice, *neighbours(monotone)))
  assert found.max() > 1.5 * DP_EPSILON


@pytest.mark.parametrize("monotone", [False, True])
def test_range_of_the_loss_is_bounded(monotone):
  """What `event` rests on: max - min <= dp_epsilon, not 2 dp_epsilon."""
  found = losses(make(monotone), *neighbours(monotone))
  assert np.ptp(found, axis=-1).max() <= DP_EPSILON + 1e-12


def worst_of_two(exponent, dp_epsilon):
  """Hockey stick maximised over score gaps of two candidates, by hand."""
  gaps = np.linspace(-30, 30, 60_001)
  p = 1 / (1 + np.exp(-gaps))
  q = 1 / (1 + np.exp(-(gaps + exponent * 2 * SENSITIVITY)))
  pairs = (np.stack([q, 1 - q], -1), np.stack([p, 1 - p], -1))
  return max(
    hockey_stick(*pairs, dp_epsilon).max(),
    hockey_stick(*pairs[::-1], dp_epsilon).max(),
  )


@pytest.mark.parametrize("dp_delta", [0.1, 1e-2, 1e-4])
def test_dp_epsilon_at_is_exact_for_two_candidates(dp_delta):
  dp_epsilon = make().dp_epsilon_at(dp_delta)
  assert 0 < dp_epsilon < DP_EPSILON
  found = worst_of_two(0.2, dp_epsilon)
  assert found == pytest.approx(dp_delta, rel=1e-4)
  assert worst_of_two(0.3, dp_epsilon) > 1.2 * dp_delta


@pytest.mark.parametrize("monotone", [False, True])
def test_dp_epsilon_at_covers_many_candidates(monotone):
  mechanism = make(monotone)
  scores, others = neighbours(monotone)
  p, q = mechanism.probabilities(scores), mechanism.probabilities(others)
  for dp_delta in (0.1, 1e-2, 1e-4):
    found = hockey_stick(p, q, mechanism.dp_epsilon_at(dp_delta))
    assert found.max() <= dp_delta * (1 + 1e-9)


def test_dp_epsilon_at_the_ends():
  assert make().dp_epsilon_at(0.0) == DP_EPSILON
  assert make().dp_epsilon_at(math.tanh(DP_EPSILON / 4) + 1e-9) == 0.0
  for bad in (-0.1, 1.0, math.nan):
    with pytest.raises(ValueError, match="dp_delta"):
      make().dp_epsilon_at(bad)


def composed_hockey_stick(count, shift, dp_epsilon):
  """`count` selections between two candidates, log odds `shift` apart."""
  worst = 0.0
  for start in np.linspace(-6, 6, 121):
    first, second = (1 / (1 + np.exp(-start - s)) for s in (0, shift))
    wins = np.arange(count + 1)
    p = stats.binom.pmf(wins, count, first)
    q = stats.binom.pmf(wins, count, second)
    worst = max(
      worst, hockey_stick(p, q, dp_epsilon), hockey_stick(q, p, dp_epsilon)
    )
  return worst


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("accountant", accounting.ACCOUNTANTS)
def test_event_covers_compositions(count, accountant):
  dp_delta = 1e-3
  release = accounting.Release("choice", make().event(), count=count)
  found = accounting.dp_epsilon(release, dp_delta, accountant)
  assert found <= count * DP_EPSILON
  assert composed_hockey_stick(count, DP_EPSILON, found) <= dp_delta
  # and a mechanism of 1.6 times the exponent would not be covered
  assert composed_hockey_stick(count, 1.6 * DP_EPSILON, found) > dp_delta


def test_event_is_pure():
  figures = accounting.figures([make().event(), make().event()], 0.0)
  assert figures.pld == figures.rdp == pytest.approx(2 * DP_EPSILON)


@pytest.mark.parametrize("dp_epsilon", [0.1, 0.8, 3.0])
def test_laplace_dominates_at_every_point(dp_epsilon):
  """...this mechanism, though not randomised response."""
  laplace = mechanisms.LaplaceMechanism(1.0, dp_epsilon)
  mechanism = make(dp_epsilon=dp_epsilon)
  assert mechanism.event() == laplace.event()
  pld = dp_accounting.pld.PLDAccountant().compose(mechanism.event())
  for dp_delta in (1e-6, 1e-3, 0.02):
    exact = mechanism.dp_epsilon_at(dp_delta)
    assert exact <= laplace.dp_epsilon_at(dp_delta)
    assert exact <= pld.get_epsilon(dp_delta) + 1e-9
  even_odds = np.array([math.exp(dp_epsilon), 1]) / (1 + math.exp(dp_epsilon))
  response = hockey_stick(even_odds, even_odds[::-1], 0.0)
  assert response > 1 - math.exp(-dp_epsilon / 2)


@pytest.mark.parametrize("monotone", [False, True])
def test_draws_have_the_right_law_and_no_other(monotone):
  draws = make(monotone).select(SCORES, seed=5, num_draws=20_000).numpy()
  counts = np.bincount(draws, minlength=len(SCORES))
  exponent = 0.4 if monotone else 0.2

  def pvalue(factor):
    expected = law(SCORES, factor * exponent) * len(draws)
    return stats.chisquare(counts, expected).pvalue

  assert pvalue(1) > 1e-3
  assert pvalue(2 / 3) < 1e-6
  assert pvalue(3 / 2) < 1e-6


def from_key(mechanism, scores, num_draws, seed=0):
  size = mechanism.uniforms_needed(np.size(scores) * num_draws)
  uniform = randomness.Key.of(seed).uniform(size)
  return mechanism.select_from_uniform(scores, uniform, num_draws).numpy()


@pytest.mark.parametrize("monotone", [False, True])
def test_given_uniforms_have_the_same_law(monotone):
  draws = from_key(make(monotone), SCORES, 20_000)
  counts = np.bincount(draws, minlength=len(SCORES))
  for factor, fits in ((1, True), (2 / 3, False), (3 / 2, False)):
    expected = law(SCORES, factor * make(monotone).exponent) * len(draws)
    assert (stats.chisquare(counts, expected).pvalue > 1e-3) == fits


def test_select_is_made_of_stateless_uniforms():
  scores = np.tile(SCORES, [50, 1])
  seed = tf.constant([3, 4], tf.int64)
  size = make().uniforms_needed(7 * scores.size)
  uniform = tf.random.stateless_uniform([size], seed, dtype=tf.float64)
  np.testing.assert_array_equal(
    make().select_from_uniform(scores, uniform, 7),
    make().select(scores, seed, 7),
  )


def gap(first, second):
  """The largest exponent (best - score) at which index 1 of 2 is drawn.

  Index 0 has the least Gumbel number, index 1 that of the given uniforms.
  """
  mechanism = mechanisms.ExponentialMechanism(1.0, 1.0, monotone=True)
  top = 1 - 2.0**-53
  uniform = np.array([top, first, top, second])
  low, high = 0.0, 200.0
  while high - low > 1e-9:
    middle = (low + high) / 2
    drawn = int(mechanism.select_from_uniform([0.0, -middle], uniform))
    low, high = (middle, high) if drawn else (low, middle)
  return low


def test_tails_are_those_of_106_bits():
  """The docstring's figures: 78.5 at best, and what one bit less leaves."""
  reach = math.log(73.5) + 106 * math.log(2)
  assert gap(0.0, 2.0**-53) == pytest.approx(reach, abs=0.01)
  assert gap(0.0, 0.0) == pytest.approx(reach + math.log(2), abs=0.01)
  assert gap(0.0, 0.0) == pytest.approx(78.5, abs=0.05)
  assert math.exp(-gap(0.0, 0.0)) < 1e-34
  assert gap(2.0**-53, 0.0) == pytest.approx(
    math.log(73.5) + 53 * math.log(2), abs=0.01
  )


@pytest.mark.parametrize("loss", [5.0, 37.0, 60.0])
def test_cells_of_the_uniform_have_the_exact_probability(loss):
  """P(index 1 | index 0 has E = log 2) is 1 - exp(-log 2 exp(-loss)).

  By bisection over the 106 bits: the first uniform that no longer wins.
  """
  mechanism = mechanisms.ExponentialMechanism(1.0, 1.0, monotone=True)
  low, high = 0, 2**106
  while high - low > 1:
    middle = (low + high) // 2
    first, second = divmod(middle, 2**53)
    uniform = np.array([0.5, first * 2.0**-53, 0.0, second * 2.0**-53])
    drawn = int(mechanism.select_from_uniform([0.0, -loss], uniform))
    low, high = (middle, high) if drawn else (low, middle)
  exact = -math.expm1(-math.log(2) * math.exp(-loss))
  assert high * 2.0**-106 == pytest.approx(exact, rel=2.0**-44, abs=2.0**-106)


def test_coarse_uniforms_are_refused():
  uniform = np.full(2 * len(SCORES), 0.25)
  with pytest.raises(ValueError, match="dtype float64 in one axis"):
    make().select_from_uniform(SCORES, uniform.astype(np.float32))
  with pytest.raises(tf.errors.InvalidArgumentError):
    make().select_from_uniform(SCORES, uniform[:-2])


def test_vectors_of_a_batch_are_drawn_independently():
  draws = make().select(np.zeros([2, 4]), seed=6, num_draws=8000).numpy()
  assert draws.shape == (8000, 2)
  table = np.zeros([4, 4])
  np.add.at(table, (draws[:, 0], draws[:, 1]), 1)
  assert stats.chi2_contingency(table).pvalue > 1e-3
  assert stats.chisquare(table.ravel()).pvalue > 1e-3


def test_seed_decides():
  def draw(seed):
    return make().select(np.zeros(1000), seed, num_draws=32).numpy()

  np.testing.assert_array_equal(draw(3), draw(3))
  for other in (4, -3, tf.constant([1, 3])):
    assert np.mean(draw(3) == draw(other)) < 0.2
  with pytest.raises(ValueError, match="64-bit whole number"):
    draw(1.5)


def test_shapes_and_integer_scores():
  mechanism = make()
  assert mechanism.select([1, 2, 3], seed=1).shape == []
  assert mechanism.select(np.ones([4, 2, 3], int), seed=1).shape == [4, 2]
  found = mechanism.select(np.ones([4, 3]), seed=1, num_draws=7)
  assert found.shape == [7, 4]
  assert found.dtype == tf.int64
  assert int(mechanism.select([5.0], seed=1)) == 0


def test_graph_equals_eager_and_checks_values():
  mechanism = make()
  select = tf.function(
    lambda scores: mechanism.select(scores, seed=9),
    input_signature=[tf.TensorSpec([None, 6], tf.float64)],
  )
  scores = np.tile(SCORES, [50, 1])
  np.testing.assert_array_equal(select(scores), mechanism.select(scores, 9))
  with pytest.raises(tf.errors.InvalidArgumentError, match="finite scores"):
    select(scores + math.inf)


@pytest.mark.parametrize(
  ("scores", "message"),
  [
    ([1.0, math.nan, math.inf], r"received nan first at index 1\."),
    ([[1.0, 2.0], [1.0, -math.inf]], r"received -inf first at index \(1, 1\)"),
    (3.0, r"\[\.\.\., K\]"),
    ([], r"\[\.\.\., K\]"),
    (["a"], "dtype string"),
    ([True], "dtype bool"),
  ],
)
def test_bad_scores(scores, message):
  with pytest.raises(ValueError, match=message):
    make().probabilities(scores)
  with pytest.raises(ValueError, match=message):
    make().select(scores, seed=1)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, "1"])
def test_bad_number_of_draws(bad):
  with pytest.raises(ValueError, match="num_draws"):
    make().select(SCORES, seed=1, num_draws=bad)


def test_is_frozen_and_hashable():
  assert make() == make()
  assert hash(make()) == hash(make())
  with pytest.raises(AttributeError):
    make().dp_epsilon = 9.0
