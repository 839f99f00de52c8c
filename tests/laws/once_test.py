"""What is released once, before the first step, keeps the law too."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.laws import cases
from tests.laws import examples
from tests.laws import recording
from tf_privrob import mechanisms
from tf_privrob import papers
from tf_privrob.methods import relevance

_IN_RANGE = (
  "ordinary",
  "another label",
  "duplicate",
  "duplicate with a wrong label",
  "low",
  "high",
  "subnormal",
  "tiny",
)
_HOSTILE = ("ordinary", "high", "subnormal", "huge", "not a number", "infinite")
_COUNT = 11


def _exact(method, name, x, y):
  """The sum without noise; a map is the mean over n, which is public."""
  method.begin(x, y, examples.VALUE_RANGE)
  found = method.outlet.once_noted[name]
  return found * len(x) if name == "relevance" else found


def _shifts(method, name, names, norm):
  """By canary, in the norm of the mechanism."""
  recording.simulate(method, examples.ROWS, examples.VALUE_RANGE)
  x, y = examples.arrays(method.network.input_shape[1:], _COUNT)
  without = _exact(method, name, x, y)
  found = {}
  for canary, (row, label) in examples.canaries(x, y).items():
    if canary in names:
      more = np.concatenate([x, row[None]]), np.append(y, label)
      exact = _exact(method, name, *more)
      assert np.isfinite(exact).all(), canary
      found[canary] = norm(exact - without)
  return found


def _require_law(shifts, noise, release):
  """Noise over shift is what is composed, and some row gets there."""
  laplace = isinstance(noise, mechanisms.LaplaceMechanism)
  scale = noise.scale if laplace else noise.stddev
  parameters = release.record()["parameters"]
  accounted = parameters.get("noise_multiplier")
  accounted = accounted or 1 / parameters["pure_dp_epsilon"]
  worst = max(shifts.values()) * accounted / scale
  assert 0.9 < worst <= 1 + 1e-9, shifts  # sums are in float64


def _l1(difference):
  return np.abs(difference).sum()


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_moments_of_patches(mechanism):
  method = cases.BY_GRADIENTS["SoundDPAL"].method(
    "poisson", moments=papers.Moments(mechanism, clip=0.5)
  )
  query = method.moment_query(examples.VALUE_RANGE)
  upper = np.triu_indices(10)  # each entry is released once
  norm = np.linalg.norm if mechanism == "gaussian" else lambda d: _l1(d[upper])
  shifts = _shifts(method, "moments", _IN_RANGE, norm)
  _require_law(shifts, query.noise, method.extra_releases()[0])


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_moments_of_any_image_are_bounded_and_its_own(mechanism):
  """Values beyond the range are refused before; the sum would hold."""
  method = cases.BY_GRADIENTS["SoundDPAL"].method(
    "poisson", moments=papers.Moments(mechanism, clip=0.5)
  )
  query = method.moment_query(examples.VALUE_RANGE)
  x, y = examples.arrays(examples.IMAGE)
  before = query.parts(tf.constant(x)).numpy()
  order = 2 if mechanism == "gaussian" else 1
  for name, (row, _) in examples.canaries(x, y).items():
    found = query.parts(tf.constant(np.concatenate([x, row[None]]))).numpy()
    np.testing.assert_array_equal(found[:-1], before, err_msg=name)
    assert np.linalg.norm(found[-1], order) <= 0.5, name


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_relevance_maps(mechanism):
  method = cases.BY_GRADIENTS["SoundAdLM"].method(
    "poisson", relevance=papers.Relevance(mechanism)
  )
  norm = np.linalg.norm if mechanism == "gaussian" else _l1
  shifts = _shifts(method, "relevance", _HOSTILE, norm)
  assert shifts["not a number"] < 1e-15
  _require_law(shifts, method.mechanism, method.extra_releases()[0])


def test_redistributions():
  method = cases.BY_GRADIENTS["SoundSecureSGD"].method("poisson")
  shifts = _shifts(method, "redistribution", _HOSTILE, np.linalg.norm)
  assert shifts["not a number"] < 1e-15
  _require_law(shifts, method.mechanism, method.extra_releases()[0])


def test_a_sum_that_is_not_clipped_is_caught(monkeypatch):
  monkeypatch.setattr(relevance, "clip", lambda values, norm, order: values)
  method = cases.BY_GRADIENTS["SoundSecureSGD"].method("poisson")
  shifts = _shifts(method, "redistribution", ["high"], np.linalg.norm)
  with pytest.raises(AssertionError, match="high"):
    _require_law(shifts, method.mechanism, method.extra_releases()[0])


@pytest.mark.parametrize(
  "mechanism",
  [
    mechanisms.GaussianMechanism(1.0, 2.0),
    mechanisms.LaplaceMechanism(1.0, 2.0),
  ],
)
def test_the_key_without_noise_has_none(mechanism):
  found = mechanism.add_noise(tf.ones([5], tf.float64), recording.ZeroKey())
  np.testing.assert_array_equal(found, np.ones(5))
