"""What a Laplace count and a Gaussian sum of one sample cost together."""

import math

import dp_accounting
import numpy as np
import pytest

from tf_privrob import privacy
from tf_privrob.papers.halfspaces import stopping


def _listed(stddev, scale, prob, steps, dp_delta):
  """What an accountant makes of both releases, each on its own sample."""
  event = dp_accounting.LaplaceDpEvent(scale)
  if prob < 1:
    event = dp_accounting.PoissonSampledDpEvent(prob, event)
  listed = [privacy.Release("counts", event, count=steps)]
  if stddev < 1e6:
    listed.append(privacy.poisson_sgd(stddev, prob, steps))
  return privacy.dp_epsilon(listed, dp_delta)


def _densities(stddev, scale, prob):
  """Masses of (count, sum) without the example and with it, on a fine grid."""
  z = np.linspace(-18, 19, 4001)[:, None]
  g = np.linspace(-9, 10, 2001)[None] * stddev
  without, other = (
    np.exp(-np.abs(z - m) / scale - (g - m) ** 2 / (2 * stddev**2))
    for m in (0.0, 1.0)
  )
  cell = (37 / 4000) * (19 * stddev / 2000)
  cell /= 2 * scale * stddev * math.sqrt(2 * math.pi)
  with_it = (1 - prob) * without + prob * other
  return without * cell, with_it * cell


@pytest.mark.parametrize("prob", [0.2, 1.0])
def test_the_divergence_is_that_of_the_densities(prob):
  """Summed up on a plane of 8 million points, both ways round."""
  stddev, scale = 0.8, 1.5
  without, with_it = _densities(stddev, scale, prob)
  assert without.sum() == pytest.approx(1, abs=1e-4)
  for x in (-0.15, 0.0, 0.3, 1.0):
    for removed, (first, second) in (
      (True, (with_it, without)),
      (False, (without, with_it)),
    ):
      exact = np.maximum(first - math.exp(x) * second, 0).sum()
      found = stopping.sampled(x, stddev, scale, prob, removed)
      assert found >= exact - 2e-5
      assert found == pytest.approx(exact, abs=5e-4 * prob + 2e-5)


def test_by_hand_without_the_sum():
  """Lap(1) against Lap(1) + 1 at x = 0: 1 - exp(-1 / 2) in total variation."""
  found = stopping.unsampled(np.zeros(1), 1e9, 1.0)[0]
  assert found == pytest.approx(1 - math.exp(-0.5), rel=2e-3)
  assert found >= 1 - math.exp(-0.5)


@pytest.mark.parametrize(
  ("stddev", "scale", "prob", "steps"),
  [
    (1.05, 1e9, 1 / 120, 120),  # no count
    (1e7, 1.0, 0.01, 100),  # no sum
    (2.0, 3.0, 1.0, 1),  # nothing is sampled
    (2.0, 3.0, 1.0, 10),
  ],
)
def test_it_is_the_accountant_s_figure_where_that_is_right(
  stddev, scale, prob, steps
):
  found = stopping.dp_epsilon(stddev, scale, prob, steps, 1e-5)
  listed = _listed(stddev, scale, prob, steps, 1e-5)
  assert listed * (1 - 1e-4) <= found <= 1.003 * listed


def test_on_one_sample_it_is_more_than_a_list_of_releases_says():
  """The list takes a sample for each: 5.94 where both together cost 8.12."""
  settings = (1.0, 1.0, 0.1, 50, 1e-5)
  found, listed = stopping.dp_epsilon(*settings), _listed(*settings)
  assert listed == pytest.approx(5.94, abs=0.02)
  assert found == pytest.approx(8.12, abs=0.02)


def test_more_steps_and_less_noise_cost_more_and_no_noise_everything():
  base = stopping.dp_epsilon(1.0, 5.0, 0.05, 20, 1e-5)
  assert stopping.dp_epsilon(1.0, 5.0, 0.05, 21, 1e-5) > base
  assert stopping.dp_epsilon(0.9, 5.0, 0.05, 20, 1e-5) > base
  assert stopping.dp_epsilon(1.0, 4.0, 0.05, 20, 1e-5) > base
  assert stopping.dp_epsilon(0.01, 5.0, 0.05, 20, 1e-5) == math.inf


def test_all_examples_in_every_step_with_hardly_any_noise():
  """From a loss of 37.4 on exp(-loss) - 1 is -1, whose logarithm raised."""
  assert stopping.dp_epsilon(1.0, 0.02, 1.0, 1, 1e-5) > 49
