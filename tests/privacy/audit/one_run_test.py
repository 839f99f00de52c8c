"""One-run audits: the theorem's arithmetic, and on randomised response."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tf_privrob import privacy
from tf_privrob.privacy.audit import one_run


@pytest.mark.parametrize(
  ("canaries", "expected"), [(100, 3.49), (300, 4.60), (1000, 5.81)]
)
def test_all_correct_golden(canaries, expected):
  found = privacy.one_run_lower_bound(canaries, canaries, canaries)
  assert found == pytest.approx(expected, abs=0.005)
  assert privacy.one_run_reachable(canaries) == found
  prob = 0.05 ** (1 / canaries)
  assert found == pytest.approx(math.log(prob / (1 - prob)), abs=2e-4)


@pytest.mark.parametrize("dp_delta", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("counts", [(80, 100, 300), (9, 10, 20), (1, 1, 1)])
def test_p_value_by_a_naive_loop(counts, dp_delta):
  """Theorem 5.2 written out, term by term."""
  correct, guesses, canaries = counts
  for dp_epsilon in (0.0, 0.7, 3.0):
    prob = math.exp(dp_epsilon) / (1 + math.exp(dp_epsilon))
    mass = [
      math.comb(guesses, k) * prob**k * (1 - prob) ** (guesses - k)
      for k in range(guesses + 1)
    ]
    largest = max(
      sum(mass[correct - i : correct]) / i for i in range(1, correct + 1)
    )
    expected = sum(mass[correct:]) + 2 * canaries * dp_delta * largest
    found = one_run.p_value(correct, guesses, canaries, dp_epsilon, dp_delta)
    assert found == pytest.approx(min(1, expected), rel=1e-9)


def test_bound_is_where_the_p_value_crosses():
  bound = privacy.one_run_lower_bound(85, 100, 400, 1e-5)
  values = [
    one_run.p_value(85, 100, 400, e, 1e-5) for e in (bound, bound + 2e-4)
  ]
  assert values[0] <= 0.05 < values[1]
  assert privacy.one_run_lower_bound(55, 100, 400, 1e-5) == 0
  assert bound < privacy.one_run_lower_bound(85, 100, 400)


@pytest.mark.parametrize("dp_epsilon", [0.5, 1.5])
def test_randomised_response_is_not_overrated(dp_epsilon):
  """Each coin told right with e^x / (1 + e^x): the theorem's worst case.

  Above the truth in at most 5 % of audits; a coin told right more often is
  caught. All numbers of guesses of a grid are tried, on scores that rank at
  random, so that Bonferroni is needed.
  """
  rng = np.random.default_rng(1)
  canaries, audits = 200, 400

  def audits_above(prob, guesses):
    above = 0
    for _ in range(audits):
      included = rng.random(canaries) < 0.5
      told = included ^ (rng.random(canaries) >= prob)
      scores = np.where(told, 1, -1) * (1 + rng.random(canaries))
      found = privacy.audit_one_run(scores, included, guesses)
      above += found.audited > dp_epsilon
    return above / audits

  truth = 1 / (1 + math.exp(-dp_epsilon))
  assert 0 < audits_above(truth, 150) <= 0.05 + 0.02
  assert audits_above(truth, (20, 60, 100, 150, 180)) <= 0.05
  assert audits_above(1 / (1 + math.exp(-2.2 * dp_epsilon)), 180) > 0.7


def test_guesses_are_the_ends_of_the_ranking():
  included = np.array([0, 0, 1, 0, 1, 0, 1, 1], bool)
  scores = np.arange(8.0)
  found = privacy.audit_one_run(scores, included, 4)
  assert (found.correct, found.guesses, found.canaries) == (4, 4, 8)
  everything = privacy.audit_one_run(scores, included, 8)
  assert everything.correct == 6
  assert privacy.audit_one_run(-scores, included, 4).correct == 0


def test_trying_several_numbers_costs_confidence():
  rng = np.random.default_rng(0)
  included = rng.random(100) < 0.5
  scores = included + 0.1 * rng.random(100)
  single = privacy.audit_one_run(scores, included, 80)
  tried = privacy.audit_one_run(scores, included, (20, 80))
  assert single.correct == tried.correct == 80
  assert single.audited == privacy.one_run_lower_bound(80, 80, 100)
  assert tried.audited == privacy.one_run_lower_bound(
    80, 80, 100, confidence=0.975
  )
  assert tried.tried == (20, 80)


@pytest.mark.parametrize(
  ("dp_epsilon", "dp_delta"), itertools.product([0.5, 2.0, 4.0], [0.0, 1e-6])
)
def test_canaries_for_inverts_reachable(dp_epsilon, dp_delta):
  number = privacy.canaries_for(dp_epsilon, dp_delta)
  assert privacy.one_run_reachable(number, dp_delta) > dp_epsilon
  fewer = number - max(1, number // 100)
  assert privacy.one_run_reachable(fewer, dp_delta) <= dp_epsilon


def test_a_large_delta_cannot_be_audited_in_one_run():
  with pytest.raises(ValueError, match="Lower dp_delta"):
    privacy.canaries_for(6.0, 1e-2)


def test_failures():
  with pytest.raises(ValueError, match=r"guesses=9 <= canaries=8"):
    privacy.audit_one_run(np.zeros(8), np.zeros(8, bool), 9)
  with pytest.raises(ValueError, match="one score and one coin"):
    privacy.audit_one_run(np.zeros(8), np.zeros(7, bool), 4)
  with pytest.raises(ValueError, match="confidence"):
    privacy.one_run_lower_bound(5, 5, 5, confidence=1.0)


def test_binomial_tail_is_the_libraries():
  expected = stats.binom(40, 0.6).sf(29)
  dp_epsilon = math.log(0.6 / 0.4)
  assert one_run.p_value(30, 40, 40, dp_epsilon) == pytest.approx(expected)
