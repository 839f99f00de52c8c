"""The figures are the same with every version of dp_accounting, and true.

The golden ones were computed with 0.4.3, and are those of 0.4.4, 0.5 and 0.6:
`make test-matrix` runs this file with the version of each stack. What they have
to be above is computed here without that library.
"""

import functools
import math

import dp_accounting
import numpy as np
import pytest
from scipy import optimize
from scipy import signal
from scipy import stats

from tf_privrob import privacy

_DELTA = 1e-5
_LAPLACE = dp_accounting.LaplaceDpEvent(2.0)
_SAMPLED = dp_accounting.PoissonSampledDpEvent(0.1, _LAPLACE)
_WITHOUT = dp_accounting.SampledWithoutReplacementDpEvent(
  1000, 10, dp_accounting.GaussianDpEvent(2.0)
)
_MANY = privacy.poisson_sgd(1.1, 256 / 60000, 14062)
_SGD = privacy.poisson_sgd(1.3, 250 / 60000, 3600)
_FULL = privacy.poisson_sgd(5.0, 1.0, 40)
_NOISY = privacy.Release("input", _LAPLACE, count=5)


def _near(*figures):
  return pytest.approx(figures, rel=2e-6)


@pytest.mark.parametrize(
  ("releases", "rdp", "pld"),
  [
    (_MANY, 2.5965558690, 2.3816860753),
    (privacy.poisson_sgd(30.0, 1e-3, 10**5), 0.0337231777, 0.0289032100),
    (_FULL, 6.2083564483, 5.7594814730),
    (_NOISY, 2.5, 2.4996800788),
    (privacy.Release("x", _SAMPLED, count=50), 3.1427361737, 1.2904920963),
    ([_NOISY, _SGD], 3.2257794821, 3.1346278250),
    ([privacy.Release("c", dp_epsilon=0.5), _SGD], 1.4422002182, 1.3530300226),
    (privacy.shuffled_sgd(4.0, 9), 8.6675227109, 8.0640116947),
    (privacy.shuffled_sgd(4.0, 9, "replace_one"), 7.5878616288, 7.0514132342),
  ],
)
def test_add_or_remove_one(releases, rdp, pld):
  found = privacy.figures(releases, _DELTA)
  assert (found.rdp, found.pld) == _near(rdp, pld)


@pytest.mark.parametrize(
  ("releases", "rdp", "pld"),
  [
    (_FULL, 6.2083564483, 5.7594814730),
    (_NOISY, 2.5, 2.4996800788),
    (_MANY, math.inf, math.inf),
    (privacy.Release("x", _WITHOUT, count=100), 0.4347311833, math.inf),
  ],
)
def test_replace_one(releases, rdp, pld):
  """The noise is relative to the sensitivity under this very relation."""
  found = privacy.figures(releases, _DELTA, "replace_one")
  assert (found.rdp, found.pld) == _near(rdp, pld)


def test_groups():
  run = privacy.poisson_sgd(1.1, 256 / 60000, 1000)
  found = [privacy.group_dp_epsilon(run, _DELTA, 2, a) for a in ("rdp", "pld")]
  assert tuple(found) == _near(2.0190217874, 1.2989172640)


@pytest.mark.parametrize(
  ("run", "sampler", "neighbouring", "rdp", "pld"),
  [
    ((5.0, 1.0, 40), "full_batch", "add_or_remove_one", 6.2083564, 5.7594815),
    ((5.0, 1.0, 40), "full_batch", "replace_one", 14.3422262, 13.4063644),
    ((1.1, 0.01, 1000), "poisson", "add_or_remove_one", 1.7117701, 1.5153703),
    ((1.1, 0.01, 1000), "poisson", "replace_one", 3.9039977, 3.4205560),
  ],
)
def test_statements(run, sampler, neighbouring, rdp, pld):
  """Here the noise is relative to the clip norm, whatever the relation."""
  stated = privacy.PrivacyStatement.for_dp_sgd(
    *run, _DELTA, sampler=sampler, neighbouring=neighbouring
  )
  found = stated.accountant
  assert (found["rdp"], found["pld"]) == _near(rdp, pld)


def _exact_gaussian(mu):
  """The dp_epsilon of N(mu, 1) against N(0, 1) (Balle and Wang 2018)."""

  def excess(x):
    above = stats.norm.cdf(mu / 2 - x / mu)
    return above - math.exp(x) * stats.norm.cdf(-mu / 2 - x / mu) - _DELTA

  return optimize.brentq(excess, 0, 100, xtol=1e-12)


@pytest.mark.parametrize(
  ("neighbouring", "shift"), [("add_or_remove_one", 1), ("replace_one", 2)]
)
@pytest.mark.parametrize(("noise", "steps"), [(5.0, 40), (1.5, 1), (20.0, 300)])
def test_a_full_batch_is_the_exact_gaussian(neighbouring, shift, noise, steps):
  exact = _exact_gaussian(shift * math.sqrt(steps) / noise)
  found = privacy.PrivacyStatement.for_dp_sgd(
    noise, 1.0, steps, _DELTA, sampler="full_batch", neighbouring=neighbouring
  ).accountant
  assert exact <= found["pld"] <= exact * (1 + 1e-3)
  assert exact <= found["rdp"] <= exact * 1.2


def _normal(noise, mean):
  return functools.partial(stats.norm.pdf, loc=mean, scale=noise)


def _laplace(scale, mean):
  return functools.partial(stats.laplace.pdf, loc=mean, scale=scale)


def _below_truth(p, q, steps, reach):
  """A lower bound on the dp_epsilon of p against q, and its grid.

  Probabilities of small cells of outputs, a loss for each, rounded down to a
  grid, composed by plain convolution. Cells may only hide what is lost.
  """
  edges = np.linspace(-reach, reach, 400_001)
  middle = (edges[1:] + edges[:-1]) / 2
  width = edges[1] - edges[0]
  mass, other = p(middle) * width, q(middle) * width
  grid = 2e-4
  place = np.floor(np.log(mass / other) / grid).astype(int)
  first = place.min()
  one = np.bincount(place - first, mass)
  all_of_them = one
  for _ in range(steps - 1):
    all_of_them = np.maximum(signal.fftconvolve(all_of_them, one), 0)
  losses = grid * (steps * first + np.arange(len(all_of_them)))

  def excess(x):
    gained = np.maximum(-np.expm1(x - losses), 0)
    return float(np.sum(all_of_them * gained)) - _DELTA

  return optimize.brentq(excess, 0, losses[-1]), grid


@pytest.mark.parametrize(
  ("noise", "prob", "steps"), [(1.1, 0.05, 1), (1.1, 0.05, 6), (0.8, 0.3, 3)]
)
def test_sampled_gaussians_beside_a_convolution(noise, prob, steps):
  def mixed(y):
    return (1 - prob) * _normal(noise, 0)(y) + prob * _normal(noise, 1)(y)

  reach = 8 * noise + 1
  alone = _normal(noise, 0)
  both = [
    _below_truth(*pair, steps, reach)[0]
    for pair in ((mixed, alone), (alone, mixed))
  ]
  run = privacy.poisson_sgd(noise, prob, steps)
  found = privacy.figures(run, _DELTA)
  assert max(both) <= found.pld <= max(both) + 3e-4 * steps + 1e-3
  assert max(both) <= found.rdp


@pytest.mark.parametrize(
  ("noise", "prob", "steps"), [(1.1, 0.05, 1), (1.1, 0.05, 6), (0.8, 0.3, 3)]
)
def test_replace_one_under_sampling_is_above_a_convolution(noise, prob, steps):
  """x gives 1, x' gives -1: what the library's own bound from 0.5 on is for."""
  alone = _normal(noise, 0)
  up, down = (
    lambda y, mean=mean: (1 - prob) * alone(y) + prob * _normal(noise, mean)(y)
    for mean in (1, -1)
  )
  truth, _ = _below_truth(up, down, steps, 8 * noise + 1)
  stated = privacy.PrivacyStatement.for_dp_sgd(
    noise, prob, steps, _DELTA, neighbouring="replace_one"
  )
  assert truth < stated.accountant["pld"]
  assert truth < stated.accountant["rdp"]
  # What is known for adding or removing one is not enough.
  assert privacy.figures(
    privacy.poisson_sgd(noise, prob, steps), _DELTA
  ).pld < (truth)


@pytest.mark.parametrize("steps", [1, 5])
def test_laplace_beside_a_convolution(steps):
  truth, grid = _below_truth(_laplace(2.0, 1), _laplace(2.0, 0), steps, 30.0)
  release = privacy.Release("x", _LAPLACE, count=steps)
  found = privacy.figures(release, _DELTA)
  assert truth <= found.pld <= truth + 2 * steps * grid + 1e-3
  assert truth <= found.rdp <= 0.5 * steps + 1e-12


_UNKNOWN = [
  dp_accounting.PoissonSampledDpEvent(0.1, _SAMPLED),
  dp_accounting.UnsupportedDpEvent(),
]
if hasattr(dp_accounting, "TruncatedSubsampledGaussianDpEvent"):
  _UNKNOWN += [
    dp_accounting.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 20, 2.0),
    dp_accounting.RandomizedResponseDpEvent(0.5, 2),
    dp_accounting.ZCDpEvent(0.1),
  ]


@pytest.mark.parametrize("event", _UNKNOWN, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("neighbouring", ["add_or_remove_one", "replace_one"])
def test_events_that_are_new_have_no_distribution_here(event, neighbouring):
  """A noise multiplier alone does not make a Gaussian of them."""
  found = privacy.figures(event, _DELTA, neighbouring)
  assert found.pld == math.inf
  with pytest.raises(ValueError, match="'pld' has no bound for"):
    privacy.dp_epsilon(event, _DELTA, neighbouring=neighbouring)
