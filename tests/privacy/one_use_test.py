"""One use of a Gaussian, beside dp_accounting and beside integrals."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld import privacy_loss_mechanism
from scipy import integrate
from scipy import stats

from tf_privrob.privacy import one_use


@pytest.mark.parametrize(
  ("noise", "prob", "interval"),
  [
    (1.0, 0.25, 1e-3),
    (0.5, 0.01, 1e-3),
    (8.0, 1e-4, 1e-7),
    (30.0, 0.5, 1e-4),
    (2.0, 1.0, 1e-3),
    (0.3, 0.999, 1e-2),
  ],
)
def test_it_is_the_library_s(noise, prob, interval):
  ours = one_use.gaussian(noise, prob, interval)
  theirs = privacy_loss_distribution.from_gaussian_mechanism(
    noise, sampling_prob=prob, value_discretization_interval=interval
  )
  for x in (0.0, interval, 0.1 / noise, 1 / noise, 4 / noise):
    np.testing.assert_allclose(
      ours.get_delta_for_epsilon(x),
      theirs.get_delta_for_epsilon(x),
      rtol=1e-9,
      atol=1e-15,
    )
  for dp_delta in (1e-3, 1e-8):
    np.testing.assert_allclose(
      ours.get_epsilon_for_delta(dp_delta),
      theirs.get_epsilon_for_delta(dp_delta),
      rtol=1e-9,
    )


@pytest.mark.parametrize(("noise", "prob"), [(1.0, 0.25), (0.5, 0.01), (2, 1)])
def test_it_is_above_an_integral_and_close_to_it(noise, prob):
  """The mean of max(0, p - exp(x) q), of both directions the larger one."""
  y = np.linspace(-12 * noise, 1 + 12 * noise, 400_001)
  alone = stats.norm.pdf(y, 0, noise)
  mixed = (1 - prob) * alone + prob * stats.norm.pdf(y, 1, noise)
  found = one_use.gaussian(noise, prob, 1e-3)
  for x in (0.0, 0.0105, 0.2005, 1.0):
    exact = max(
      integrate.simpson(np.maximum(p - np.exp(x) * q, 0), x=y)
      for p, q in ((alone, mixed), (mixed, alone))
    )
    above = found.get_delta_for_epsilon(x)
    assert exact * (1 - 1e-6) <= above <= exact * (1 + 1e-3) + 1e-12


_LITTLE = 0.125  # noise


@pytest.mark.parametrize("rest", [2.0**-53, 1e-12, 1e-9, 1e-4])
def test_nothing_cancels_where_nearly_all_take_part(rest):
  """The library's formula is 0.04 off with 2^-53 left out."""
  prob = 1 - rest
  loss = one_use.Loss(
    _LITTLE,
    sampling_prob=prob,
    adjacency_type=privacy_loss_mechanism.AdjacencyType.ADD,
  )
  ends = loss.connect_dots_bounds()
  grid = np.linspace(ends.epsilon_lower, ends.epsilon_upper, 24)
  with mpmath.workdps(60):
    exact = [_added(x, mpmath.mpf(prob)) for x in grid]
    found = loss.get_delta_for_epsilon(grid)
    share = (256 + 4 * -math.log(rest)) * 2.0**-52  # see `loss_distribution`
    for value, (truth, lost) in zip(found, exact):
      assert abs(value - truth) <= share * lost


def _added(x, prob):
  """P(loss > x) - exp(x) Q(loss > x) of an added example, and P."""
  x = mpmath.mpf(float(x))
  weight = 1 - mpmath.exp(x) * (1 - prob)
  if weight <= 0:  # x is above all losses, by the library's rounding
    return 0, 0
  inner = x + mpmath.log(prob / weight)
  end = mpmath.mpf(1) / 2 - inner * _LITTLE**2
  below = mpmath.ncdf(end / _LITTLE)
  mixed = (1 - prob) * below + prob * mpmath.ncdf((end - 1) / _LITTLE)
  return below - mpmath.exp(x) * mixed, below
