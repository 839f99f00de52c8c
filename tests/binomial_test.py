"""Clopper-Pearson bounds and the exact test, against scipy and by hand."""

import math

import numpy as np
import pytest
from scipy import special
from scipy import stats

from tf_privrob import binomial


@pytest.mark.parametrize("trials", [1, 7, 100, 1000, 100_000])
@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("failure_prob", [0.001, 0.05, 0.3])
def test_bounds_agree_with_scipy(trials, share, failure_prob):
  successes = round(trials * share)
  test = stats.binomtest(successes, trials, alternative="greater")
  wanted = test.proportion_ci(1 - failure_prob, method="exact").low
  assert binomial.lower(successes, trials, failure_prob) == pytest.approx(
    wanted, rel=1e-9, abs=1e-12
  )
  test = stats.binomtest(successes, trials, alternative="less")
  wanted = test.proportion_ci(1 - failure_prob, method="exact").high
  assert binomial.upper(successes, trials, failure_prob) == pytest.approx(
    wanted, rel=1e-9
  )


@pytest.mark.parametrize("trials", [1, 10, 1000, 1_000_000])
def test_unanimous_votes_have_a_closed_form(trials):
  wanted = 0.001 ** (1 / trials)
  assert binomial.lower(trials, trials, 0.001) == pytest.approx(
    wanted, rel=1e-12
  )
  assert binomial.unanimous(trials, 0.001) == wanted
  assert binomial.lower(0, trials, 0.001) == 0
  assert binomial.upper(0, trials, 0.001) == pytest.approx(1 - wanted, rel=1e-6)


@pytest.mark.parametrize(
  ("trials", "radius"), [(1_000, 0.616), (10_000, 0.800), (100_000, 0.953)]
)
def test_largest_radius_golden(trials, radius):
  bound = binomial.lower(trials, trials, 0.001)
  assert 0.25 * special.ndtri(bound) == pytest.approx(radius, abs=5e-4)


def test_lower_bound_inverts_the_tail():
  bound = binomial.lower(80, 100, 0.05)
  assert stats.binom.sf(79, 100, bound) == pytest.approx(0.05, rel=1e-9)


@pytest.mark.parametrize("prob", [0.2, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("trials", [5, 50, 200])
def test_coverage_is_exact_for_every_probability(prob, trials):
  counts = np.arange(trials + 1)
  weight = stats.binom.pmf(counts, trials, prob)
  lower = np.array([binomial.lower(k, trials, 0.1) for k in counts])
  upper = np.array([binomial.upper(k, trials, 0.1) for k in counts])
  assert weight[lower > prob].sum() <= 0.1
  assert weight[upper < prob].sum() <= 0.1
  low, high = zip(*(binomial.interval(int(k), trials, 0.9) for k in counts))
  missed = (np.array(low) > prob) | (np.array(high) < prob)
  assert weight[missed].sum() <= 0.1


@pytest.mark.parametrize(
  ("first", "second"), [(1, 0), (5, 5), (60, 40), (5200, 4800), (999, 1)]
)
def test_p_value_agrees_with_scipy(first, second):
  wanted = stats.binomtest(first, first + second, 0.5).pvalue
  assert binomial.two_sided_p_value(first, second) == pytest.approx(wanted)
  assert binomial.two_sided_p_value(second, first) == pytest.approx(wanted)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("trials", [1, 10, 500])
def test_quantile_agrees_with_scipy(trials, level):
  for prob in (0.001, 0.05, 0.4):
    wanted = stats.binom.ppf(level, trials, prob)
    assert binomial.quantile(trials, prob, level) == wanted


def test_trials_for_is_the_smallest_that_does():
  trials = binomial.trials_for(math.log(0.5), 0.001)
  assert trials == 10
  assert binomial.unanimous(trials, 0.001) > 0.5
  assert binomial.unanimous(trials - 1, 0.001) <= 0.5
  assert binomial.trials_for(0.0, 0.001) == math.inf


@pytest.mark.parametrize(
  ("successes", "count", "expected"),
  [
    (0, 10, (0.0, 1 - 0.025**0.1)),  # closed form at the ends
    (10, 10, (0.025**0.1, 1.0)),
    (5, 10, (0.187086, 0.812914)),  # the textbook table
    (1, 1, (0.025, 1.0)),
  ],
)
def test_interval_by_hand(successes, count, expected):
  got = binomial.interval(successes, count)
  assert got == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ((3, 2), r"0 <= successes=3 <= trials=2"),
    ((-1, 2), r"0 <= successes=-1"),
    ((1.5, 2), r"successes=1.5"),
    ((0, 0), r"trials=0 to be a whole number >= 1"),
    ((1, 2, 1.0), r"0 < confidence=1.0 < 1"),
  ],
)
def test_interval_refuses(arguments, message):
  with pytest.raises(ValueError, match=message):
    binomial.interval(*arguments)
