"""Many steps at a small dp_delta, where rounding adds up."""

from __future__ import annotations

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import fft

from tests import foreign
from tf_privrob import privacy
from tf_privrob.privacy import composition
from tf_privrob.privacy import loss_distribution
from tf_privrob.privacy import renyi


def _tilted(pmf, count, dp_epsilon):
  """dp_delta of so many uses, to ten digits however small it is.

  Masses are multiplied by exp(s loss) before the transform, so that the loss of
  all is about dp_epsilon; and divided by it afterwards.
  """
  interval, first, masses = pmf
  loss = (first + np.arange(masses.size)) * interval

  def tilt(s):
    mass = masses * np.exp(s * (loss - loss[-1]))
    return mass / mass.sum(), math.log(mass.sum()) + s * loss[-1]

  low, high = 0.0, 100.0
  while high - low > 1e-6:
    s = (low + high) / 2
    less = count * (tilt(s)[0] @ loss) < dp_epsilon
    low, high = (s, high) if less else (low, s)
  mass, log_scale = tilt(s)
  mean = mass @ loss
  spread = math.sqrt(count * (mass @ (loss - mean) ** 2)) / interval
  size = fft.next_fast_len(int(max(2 * masses.size, 40 * spread)))
  centre = round(mean / interval)
  padded = np.zeros(size)
  padded[(first - centre + np.arange(masses.size)) % size] = mass
  mass = fft.irfft(fft.rfft(padded) ** count, size)
  x = (fft.fftfreq(size, 1 / size) + count * centre) * interval
  used = (mass > 1e-9 * mass.max()) & (x > dp_epsilon)
  x, mass = x[used], mass[used]
  mass = np.exp(np.log(mass) + count * log_scale - s * x)
  return mass @ -np.expm1(dp_epsilon - x)


@pytest.mark.parametrize(
  ("noise", "prob", "count"),
  [(3.0, 0.01, 10**5), (500.0, 0.5, 10**6), (1.1, 0.01, 1000), (5.0, 0.1, 2)],
)
def test_composed_profiles_are_upper_bounds(noise, prob, count):
  interval = 0.1 * prob * math.sqrt(math.expm1(1 / noise**2))
  one = privacy_loss_distribution.from_gaussian_mechanism(
    noise, value_discretization_interval=interval, sampling_prob=prob
  )
  both = list(map(foreign.dense, foreign.directions(one)))
  found = loss_distribution.compose([(one, count)])
  margin = found.dp_delta(1e4)  # all that is left, however large dp_epsilon
  for dp_delta in (1e-6, 1e-9, 1e-12):
    x = found.dp_epsilon(dp_delta)
    if dp_delta <= margin:
      assert x == math.inf
      continue
    exact = max(_tilted(pmf, count, x) for pmf in both)
    assert exact <= dp_delta
    assert dp_delta <= exact * (1 + 1e-4) + 3 * margin + 2e-15
    assert found.dp_delta(x) >= exact


@pytest.mark.parametrize(
  ("run", "dp_delta", "exact"),
  [
    ((3.0, 0.01, 10**5), 1e-11, 7.5636),
    ((3.0, 0.01, 10**5), 1e-12, 7.9308),
    ((500.0, 0.5, 10**6), 1e-10, 6.5481),
    ((1000.0, 1 - 1e-9, 10**6), 1e-11, 6.9018),
    ((1000.0, 1 - 1e-9, 10**6), 1e-14, 7.8687),
  ],
)
def test_the_stated_figure_is_not_below_the_truth(run, dp_delta, exact):
  """The last two are a Gaussian's, the others of a tilted transform."""
  found = privacy.figures(privacy.poisson_sgd(*run), dp_delta)
  assert min(found.pld, found.rdp) > exact
  group = privacy.group_dp_epsilon(privacy.poisson_sgd(*run), dp_delta, 1)
  assert group == pytest.approx(found.pld, rel=1e-9)


def test_mu_rests_on_the_same_margin():
  run = privacy.poisson_sgd(1000.0, 1 - 1e-9, 10**6)
  assert 1.0 < privacy.gaussian_mu(run) < 1.03
  leaves = ((run.event, 10**6),)
  margin = composition.distribution(leaves, "add_or_remove_one").dp_delta(50.0)
  assert 1e-11 < margin < 1e-10


@pytest.mark.parametrize("dp_delta", [1e-5, 1e-9, 1e-12])
def test_different_gaussians_together(dp_delta):
  events = [dp_accounting.GaussianDpEvent(z) for z in (5.0, 0.7, 2.0)]
  one = dp_accounting.GaussianDpEvent((1 / 25 + 1 / 0.49 + 1 / 4) ** -0.5)
  exact = privacy.dp_epsilon(one, dp_delta)
  assert exact <= privacy.dp_epsilon(events, dp_delta) <= exact * (1 + 1e-4)


@pytest.mark.parametrize("dp_epsilon", [2.0, 1e-2, 1e-5, 1e-8, 1e-10, 1e-150])
def test_divergences_of_laplace_noise_are_upper_bounds(dp_epsilon):
  orders = np.array([1.1, 1.5, 2.0, 4.0, 16.0, 64.0, 1024.0])
  found = renyi.laplace(dp_epsilon, orders)
  with mpmath.workdps(400):
    for a, bound in zip(map(mpmath.mpf, orders), map(mpmath.mpf, found)):
      up = a / (2 * a - 1) * mpmath.exp((a - 1) * mpmath.mpf(dp_epsilon))
      down = (a - 1) / (2 * a - 1) * mpmath.exp(-a * mpmath.mpf(dp_epsilon))
      exact = mpmath.log(up + down) / (a - 1)
      assert exact <= bound <= exact * (1 + mpmath.mpf(1e-4)), a
