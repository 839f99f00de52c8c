from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from scipy import stats

from tests.mechanisms import laws
from tf_privrob import mechanisms

_G = mechanisms.GaussianMechanism


class TestGaussianLaws(laws.MechanismLaws):
  def make(self):
    return _G(l2_sensitivity=2.0, stddev=3.0)

  def law(self, factor=1.0):
    return stats.norm(scale=factor * 3.0)

  def shift(self):
    return 2.0


def test_by_hand():
  assert _G(2.0, 3.0).noise_multiplier == 1.5
  assert _G(2.0, 3.0).scale == 3.0
  # Two unit normals at distance 1 overlap by 2 Phi(-1/2).
  expected = 1 - 2 * stats.norm.cdf(-0.5)
  assert mechanisms.gaussian_dp_delta(1.0, 0.0) == pytest.approx(expected)
  assert mechanisms.gaussian_dp_epsilon(1.0, 0.5) == 0.0


@pytest.mark.parametrize(
  ("dp_epsilon", "dp_delta", "stddev"),
  [(1.0, 1e-5, 3.730632), (0.1, 1e-5, 30.749566), (10.0, 1e-5, 0.499889)],
)
def test_analytic_golden(dp_epsilon, dp_delta, stddev):
  found = _G.analytic(1.0, dp_epsilon, dp_delta)
  assert found.stddev == pytest.approx(stddev, rel=1e-6)
  assert _G.analytic(7.0, dp_epsilon, dp_delta).stddev == pytest.approx(
    7 * stddev, rel=1e-6
  )


def test_textbook_formula_where_it_does_not_overflow():
  for noise in (0.4, 1.0, 5.0):
    for dp_epsilon in (0.0, 0.3, 2.0, 8.0):
      expected = stats.norm.cdf(0.5 / noise - dp_epsilon * noise) - math.exp(
        dp_epsilon
      ) * stats.norm.cdf(-0.5 / noise - dp_epsilon * noise)
      found = mechanisms.gaussian_dp_delta(noise, dp_epsilon)
      assert found == pytest.approx(expected, rel=1e-6, abs=1e-16)


def test_extreme_arguments_stay_finite():
  assert mechanisms.gaussian_dp_delta(0.01, 1000.0) == pytest.approx(1.0)
  assert 0 < mechanisms.gaussian_dp_delta(1000.0, 1e-3) < 1e-3
  assert mechanisms.gaussian_dp_delta(1.0, 60.0) == pytest.approx(0, abs=1e-300)
  assert mechanisms.gaussian_dp_epsilon(0.01, 1e-5) == pytest.approx(
    5000 + 426, rel=1e-2
  )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
  dp_epsilon=st.floats(0.01, 30.0),
  log_delta=st.floats(math.log(1e-12), math.log(0.1)),
)
def test_calibration_inverts_and_is_safe(dp_epsilon, log_delta):
  dp_delta = math.exp(log_delta)
  found = _G.analytic(3.0, dp_epsilon, dp_delta)
  noise = found.noise_multiplier
  assert mechanisms.gaussian_dp_delta(noise, dp_epsilon) <= dp_delta * (
    1 + 1e-9
  )
  assert mechanisms.gaussian_dp_delta(0.999 * noise, dp_epsilon) > dp_delta
  assert found.dp_epsilon_at(dp_delta) == pytest.approx(dp_epsilon, rel=1e-6)


@pytest.mark.parametrize("dp_epsilon", [0.05, 0.5, 0.99])
def test_classic_holds_below_one_and_wastes_noise(dp_epsilon):
  classic = _G.classic(2.0, dp_epsilon, 1e-5)
  expected = 2.0 * math.sqrt(2 * math.log(1.25e5)) / dp_epsilon
  assert classic.stddev == pytest.approx(expected)
  assert classic.dp_epsilon_at(1e-5) < dp_epsilon
  assert classic.stddev > _G.analytic(2.0, dp_epsilon, 1e-5).stddev


def test_classic_is_refused_where_it_is_not_private():
  # Falsification: the formula, applied at 20 anyway, breaks its promise.
  stddev = math.sqrt(2 * math.log(1.25e5)) / 20
  assert _G(1.0, stddev).dp_epsilon_at(1e-5) > 20
  for dp_epsilon in (1.0, 20.0):
    with pytest.raises(ValueError, match=r"< 1.*GaussianMechanism.analytic"):
      _G.classic(1.0, dp_epsilon, 1e-5)


@pytest.mark.parametrize("make", [_G.classic, _G.analytic])
@pytest.mark.parametrize(
  ("args", "message"),
  [
    ((0.0, 0.5, 1e-5), "l2_sensitivity=0.0 > 0"),
    ((1.0, -1.0, 1e-5), "dp_epsilon=-1.0 > 0"),
    ((1.0, 0.5, 0.0), "0 < dp_delta=0.0 < 1"),
    ((1.0, 0.5, 1.0), "0 < dp_delta=1.0 < 1"),
  ],
)
def test_bad_calibration(make, args, message):
  with pytest.raises(ValueError, match=message):
    make(*args)


def test_tail_is_not_cut_at_the_clamp_of_stateless_normal():
  """TF's own normal never exceeds 5.68; 3e8 draws are too many for a test.

  The radius is sqrt(-2 log(1 - u)): a pair whose radius is beyond 5.68 has
  probability 1e-7, so 6e7 pairs hold one with probability 0.9975. Looking at
  both members of a pair makes it visible with far fewer single draws.
  """
  largest = 0.0
  for seed in range(8):
    z = _G(1.0, 1.0).sample([2, 4_000_000], seed=seed).numpy()
    largest = max(largest, float((z**2).sum(axis=0).max()))
    if largest > 5.68**2:
      break
  assert largest > 5.68**2


def test_odd_sizes_keep_both_halves():
  mechanism = _G(1.0, 1.0)
  z = mechanism.sample([7], seed=3).numpy()
  assert np.unique(z).size == 7
