from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tests.mechanisms import laws
from tf_privrob import mechanisms


class TestLaplaceLaws(laws.MechanismLaws):
  def make(self):
    return mechanisms.LaplaceMechanism(l1_sensitivity=2.0, dp_epsilon=0.8)

  def law(self, factor=1.0):
    return stats.laplace(scale=factor * 2.5)

  def shift(self):
    return 2.0


def test_by_hand():
  mechanism = mechanisms.LaplaceMechanism(3.0, 0.5)
  assert mechanism.scale == 6.0
  assert mechanism.stddev == pytest.approx(6.0 * 2**0.5)
  assert mechanism.noise_multiplier == 2.0
  assert mechanism.dp_epsilon_at(0.0) == 0.5
  assert mechanism.dp_epsilon_at(0.999) == 0.0


def test_pure_guarantee_bounds_every_density_ratio_of_a_vector():
  mechanism = mechanisms.LaplaceMechanism(2.0, 0.8)
  law = stats.laplace(scale=mechanism.scale)
  rng = np.random.default_rng(0)
  z = rng.normal(scale=5.0, size=(2000, 4))
  shift = rng.dirichlet(np.ones(4), size=2000) * 2.0
  shift *= rng.choice([-1, 1], size=shift.shape)
  loss = (law.logpdf(z) - law.logpdf(z - shift)).sum(axis=1)
  assert np.abs(loss).max() <= 0.8 + 1e-12
  assert np.abs(loss).max() > 0.7  # The bound is not idle.


@pytest.mark.parametrize("dp_epsilon", [0.1, 0.4, 0.7])
def test_a_vector_costs_no_more_than_the_scalar_event(dp_epsilon):
  """Hockey stick of a shift split over two coordinates, on a grid."""
  total, splits = 0.8, (0.1, 0.25, 0.5)
  z = np.linspace(-30, 30, 3001)
  law = stats.laplace()
  cell = (z[1] - z[0]) ** 2
  scalar = 1 - math.exp((dp_epsilon - total) / 2)
  for part in splits:
    first, second = part * total, (1 - part) * total
    p = law.pdf(z)[:, None] * law.pdf(z)
    q = law.pdf(z - first)[:, None] * law.pdf(z - second)
    vector = np.maximum(p - math.exp(dp_epsilon) * q, 0).sum() * cell
    assert vector < scalar


def test_tail_goes_beyond_float32_uniforms():
  mechanism = mechanisms.LaplaceMechanism(1.0, 1.0)
  largest = max(
    float(np.abs(mechanism.sample([2_000_000], seed=s)).max()) for s in range(4)
  )
  # 8e6 draws: P(max > 13) = 1 - 1e-8; float32 uniforms would lie on a grid.
  assert largest > 13
  draws = mechanism.sample([1_000_000], seed=1).numpy()
  assert np.unique(draws).size > 0.95 * draws.size


def test_same_seed_streams_do_not_repeat_inside_a_draw():
  draws = mechanisms.LaplaceMechanism(1.0, 1.0).sample([2, 500], seed=2).numpy()
  pairs = itertools.product((draws[0], -draws[0]), (draws[1], -draws[1]))
  assert not any(np.intersect1d(a, b).size for a, b in pairs)
