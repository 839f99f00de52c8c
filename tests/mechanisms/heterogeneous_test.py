from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.mechanisms import laws
from tf_privrob import mechanisms
from tf_privrob.mechanisms import heterogeneous

_H = mechanisms.HeterogeneousGaussianMechanism
_R = (0.25, 0.75, 2.0)


class TestHeterogeneousGaussianLaws(laws.MechanismLaws):
  """With one number for all coordinates."""

  def make(self):
    return _H(weighted_sensitivity=2.0, stddev=3.0, redistribution=(1.0,))

  def law(self, factor=1.0):
    return stats.norm(scale=factor * 3.0)

  def shift(self):
    return 2.0


@pytest.mark.parametrize("coordinate", range(3))
def test_each_coordinate_has_its_own_law_and_no_other(coordinate):
  draws = _H(1.0, 3.0, _R).sample([20_000, 3], seed=5).numpy()[:, coordinate]
  scale = 3.0 * math.sqrt(_R[coordinate])
  assert stats.kstest(draws, stats.norm(scale=scale).cdf).pvalue > 1e-3
  for wrong in (2 / 3, 3 / 2):
    law = stats.norm(scale=wrong * scale)
    assert stats.kstest(draws, law.cdf).pvalue < 1e-6
  # The released code's std ~ r is another law.
  law = stats.norm(scale=3.0 * _R[coordinate])
  assert stats.kstest(draws, law.cdf).pvalue < 1e-6


def test_uniform_is_the_gaussian_mechanism():
  plain = mechanisms.GaussianMechanism(2.0, 3.0)
  uniform = _H.from_l2(2.0, 3.0, np.ones([2, 3]))
  np.testing.assert_allclose(
    uniform.sample([4, 2, 3], seed=1), plain.sample([4, 2, 3], seed=1)
  )
  assert uniform.event() == plain.event()


def test_sensitivity_by_hand():
  changes = [1.0, -3.0, 2.0]
  found = heterogeneous.weighted_sensitivity(changes, _R)
  assert found == pytest.approx(math.sqrt(1 / 0.25 + 9 / 0.75 + 4 / 2))
  # The same by brute force over neighbours within the bounds.
  rng = np.random.default_rng(0)
  moves = rng.uniform(-1, 1, (10_000, 3)) * changes
  assert np.linalg.norm(moves / np.sqrt(_R), axis=1).max() <= found
  assert _H.from_l2(2.0, 1.0, _R).weighted_sensitivity == 2.0 / 0.5


def test_a_coordinate_without_noise_must_not_move():
  none = [0.0, 1.0, 2.0]
  move = heterogeneous.weighted_sensitivity
  assert move([0.1, 1.0, 1.0], none) == math.inf
  assert move([0.0, 1.0, 1.0], none) == pytest.approx(math.sqrt(1.5))
  assert np.all(_H(1.0, 1.0, none).sample([9, 3], seed=0).numpy()[:, 0] == 0)
  with pytest.raises(ValueError, match="coordinate without noise"):
    _H.from_l2(1.0, 1.0, none)
  with pytest.raises(ValueError, match="weighted_sensitivity=inf > 0"):
    _H(move([0.1, 1.0, 1.0], none), 1.0, none)


def test_guarantee_of_a_vector_is_that_of_the_weighted_shift():
  """Exact hockey stick of two product laws, by their likelihood ratio."""
  changes, stddev, dp_epsilon = np.array([0.3, 0.5, 1.0]), 1.5, 0.7
  found = _H(heterogeneous.weighted_sensitivity(changes, _R), stddev, _R)
  noise = found.sample([400_000, 3], seed=3, dtype=tf.float64).numpy()
  law = stats.norm(scale=stddev * np.sqrt(_R))
  ratio = (law.logpdf(noise) - law.logpdf(noise + changes)).sum(axis=1)
  estimate = np.maximum(0, 1 - np.exp(dp_epsilon - ratio)).mean()
  exact = mechanisms.gaussian_dp_delta(found.noise_multiplier, dp_epsilon)
  assert estimate == pytest.approx(exact, rel=0.02)
  # A plain l2 sensitivity would promise another figure.
  plain = mechanisms.gaussian_dp_delta(
    stddev / np.linalg.norm(changes), dp_epsilon
  )
  assert abs(plain - exact) > 0.1 * exact


# The extended calibration.


@pytest.mark.parametrize(("dp_epsilon", "stddev"), [(4.0, 1.285), (1.0, 4.85)])
def test_extended_golden(dp_epsilon, stddev):
  found = heterogeneous.extended_stddev(1.0, dp_epsilon, 1e-5)
  assert found == pytest.approx(stddev, abs=5e-3)
  seven = heterogeneous.extended_stddev(7.0, dp_epsilon, 1e-5)
  assert seven == pytest.approx(7 * found)


def test_extended_holds_on_a_grid_and_wastes_noise():
  for dp_epsilon in np.geomspace(1e-3, 200, 40):
    for dp_delta in [0.79, *np.geomspace(1e-12, 0.5, 30)]:
      stddev = heterogeneous.extended_stddev(3.0, dp_epsilon, dp_delta)
      spent = mechanisms.gaussian_dp_delta(stddev / 3.0, dp_epsilon)
      assert spent <= math.sqrt(math.pi / 8) * dp_delta * (1 + 1e-6)
  exact = mechanisms.GaussianMechanism.analytic(3.0, 1.0, 1e-5)
  wasted = heterogeneous.extended_stddev(3.0, 1.0, 1e-5) / exact.stddev
  assert 1.2 < wasted < 1.4
  # Falsification: the classic formula breaks its promise far beyond 1, and
  # 0.64 of the extended noise do everywhere.
  classic = math.sqrt(2 * math.log(1.25e5)) / 20
  assert mechanisms.gaussian_dp_delta(classic, 20.0) > 1e-5
  for dp_epsilon in (0.1, 1.0, 4.0, 20.0):
    less = 0.64 * heterogeneous.extended_stddev(1.0, dp_epsilon, 1e-5)
    assert mechanisms.gaussian_dp_delta(less, dp_epsilon) > 1e-5


def test_claimed_sensitivity_by_hand_and_too_small():
  kernel = np.array([[3.0, 0.0], [0.0, 1.0]])
  spread = np.array([[1.0, 1.0], [1.0, 1.0]])
  found = heterogeneous.claimed_sensitivity(kernel, spread)
  assert found == pytest.approx(3 / math.sqrt(2))
  # One input value moves one position by 3, and the noise there has r = 1.
  true = heterogeneous.weighted_sensitivity([3.0, 0, 0, 0], spread)
  assert true > 1.4 * found


@pytest.mark.parametrize(
  ("bad", "message"),
  [
    ([1.0, -1.0, 3.0], ">= 0"),
    ([1.0, math.nan], "finite numbers"),
    ([], "finite numbers"),
    ([1.0, 2.0], r"sum of 2 > 0, received a sum of 3"),
    ("abc", "finite numbers"),
  ],
)
def test_bad_redistribution(bad, message):
  with pytest.raises(ValueError, match=message):
    _H(1.0, 1.0, bad)


def test_other_totals():
  spread = np.full([4], 0.5)
  np.testing.assert_array_equal(
    heterogeneous.check_redistribution(spread, total=2.0), spread
  )
  with pytest.raises(ValueError, match="sum of 8 > 0, received a sum of 2"):
    heterogeneous.check_redistribution(spread, total=8.0)


def test_bad_shape_and_arguments():
  with pytest.raises(ValueError, match=r"3 coordinates.*received \(3, 2\)"):
    _H(1.0, 1.0, _R).sample([3, 2], seed=1)
  assert _H(1.0, 1.0, np.ones(6)).sample([5, 2, 3], seed=1).shape == [5, 2, 3]
  with pytest.raises(ValueError, match="one change a coordinate"):
    heterogeneous.weighted_sensitivity([1.0], _R)
  with pytest.raises(ValueError, match=r"dp_delta=0.9 <= sqrt"):
    heterogeneous.extended_stddev(1.0, 1.0, 0.9)
  with pytest.raises(ValueError, match=r"dp_epsilon=0\.0 > 0"):
    heterogeneous.extended_stddev(1.0, 0.0, 1e-5)
