"""The size that SecureSGD claims: its formula and its rows."""

import dataclasses
import math

import numpy as np
import pytest

from tests.certify import noisy_models
from tf_privrob import binomial
from tf_privrob import papers
from tf_privrob.papers.secure_sgd import sizes as secure_sgd


class Model(noisy_models.BySign):
  """Two classes by the sign of x, under a fixed shift and noise at h = x."""

  input_noise_shape = (1,)
  hidden_noise_shape = (1,)
  fresh_hidden_stddev = np.array([0.5])
  shift = 0.0

  def before(self, x):
    return x + self.shift


def test_robust_budget_solves_its_equation():
  p1, p2 = np.array([0.9, 0.99, 0.6]), np.array([0.05, 0.001, 0.3])
  for dp_delta in (0.001, 0.02):
    found = secure_sgd.robust_budget(p1, p2, dp_delta)
    right = np.exp(2 * found) * p2 + (1 + np.exp(found)) * dp_delta
    np.testing.assert_allclose(right, p1, rtol=1e-12)
  assert secure_sgd.robust_budget(0.9, 0.0, 0.1) == pytest.approx(math.log(8))
  assert secure_sgd.robust_budget(0.5, 0.45, 0.1) == 0.0
  assert secure_sgd.robust_budget(0.1, 0.0, 0.2) == 0.0


def as_coded(p1, p2, mu, bound, dp_eps, dp_delta):
  """A loop over delta and a bisection to .001, then dp_mult."""
  best = 0.0
  for number in range(1, 300):
    lost = number / 1000
    low, high = 0.0, dp_eps
    while high - low > 1e-3:
      middle = (low + high) / 2
      if p1 >= math.exp(2 * middle) * p2 + (1 + math.exp(middle)) * lost:
        low = middle
      else:
        high = middle
    size = mu * low / dp_eps
    size *= math.sqrt(2 * math.log(1.25 / dp_delta))
    best = max(best, size / math.sqrt(2 * math.log(1.25 / lost)))
  return best / (bound * math.sqrt(2 * math.log(1.25 / 0.05)) / dp_eps)


@pytest.mark.parametrize("dp_eps", [1.0, 4.0])
@pytest.mark.parametrize(("p1", "p2"), [(0.9, 0.05), (0.997, 0.0026)])
def test_size_is_the_one_that_is_coded(p1, p2, dp_eps):
  expected = as_coded(p1, p2, 0.1, 0.2, dp_eps, 1e-5)
  found = secure_sgd.claimed_size(
    p1, p2, attack_norm_bound=0.2, dp_epsilon=dp_eps, attack_eps=0.1
  )
  assert found == pytest.approx(expected, rel=5e-3)
  assert found >= expected


def test_size_multiplier_golden():
  assert secure_sgd.size_multiplier(0.2, 4.0) == pytest.approx(0.127, abs=5e-4)
  forms = [
    secure_sgd.claimed_size(0.9, 0.05, form)
    for form in ("released_code", "paper")
  ]
  assert forms[0] / forms[1] == pytest.approx(7.9, abs=0.05)


def test_size_is_zero_without_a_majority_and_grows_with_it():
  p1 = np.array([0.2, 0.5, 0.9, 0.99, 0.999])
  found = secure_sgd.claimed_size(p1, 1 - p1)
  assert found[:2].tolist() == [0, 0]
  assert (np.diff(found[1:]) > 0).all()
  # eps_r is capped at dp_epsilon.
  tiny = secure_sgd.claimed_size(1.0, 0.0, "paper", dp_epsilon=0.1)
  expected = 0.2 * secure_sgd.classic_factor(1e-5)
  expected /= secure_sgd.classic_factor(0.299)
  assert tiny == pytest.approx(expected)


def test_inference_noise_by_hand():
  found = secure_sgd.inference_stddev(0.2, 3.0, np.array([4.0, 0.0]))
  np.testing.assert_allclose(found, [0.25, 0.15])


def test_rows_are_claimed_and_read_off_the_votes():
  model = Model()
  inference = papers.ClaimedSizes(num_draws=400)
  x = np.array([[0.4], [-0.4], [9.0]], "float32")
  rows = inference.certify(model, x, np.array([1, 0, 0]), seed=3)
  assert [row.kind for row in rows] == ["claimed"] * 3
  assert [row.prediction for row in rows] == [1, 0, 1]
  assert [row.correct for row in rows] == [True, True, False]
  assert {row.norm for row in rows} == {"linf"}
  assert rows[2].radius == pytest.approx(inference.largest_radius(2))
  lower = binomial.lower(400, 400, 0.05 / 2)
  upper = binomial.upper(0, 400, 0.05 / 2)
  assert rows[2].radius == pytest.approx(inference.radius(lower, upper))
  assert 0 < rows[0].radius < rows[2].radius
  assert "certified" not in rows[0].to_text()
  paper = dataclasses.replace(inference, form="paper")
  row = paper.certify(model, x, seed=3)[0]
  assert row.norm == "l2"
  assert rows[0].radius / row.radius == pytest.approx(7.88, abs=0.02)


def test_votes_are_under_the_models_own_noise():
  """p1 = Phi(0.4 / 0.5) = 0.788, not that of another noise."""
  inference = papers.ClaimedSizes(num_draws=4000)
  x = np.array([[0.4]], "float32")

  def radius(**changes):
    model = Model()
    for name, value in changes.items():
      setattr(model, name, value)
    return inference.certify(model, x, seed=1)[0].radius

  def between(p1):
    return [inference.radius(p, 1 - p) for p in (p1 - 0.04, p1 + 0.01)]

  low, high = between(0.788)
  assert low < radius() < high
  assert not low < radius(fresh_hidden_stddev=np.array([0.75])) < high
  assert not low < radius(shift=0.2) < high


def test_bad_model():
  class Other(Model):
    fresh_hidden_stddev = property()

  with pytest.raises(ValueError, match="fresh_hidden_stddev"):
    papers.ClaimedSizes().certify(Other(), np.zeros([1, 1], "float32"))
  with pytest.raises(ValueError, match=r"attack_norm_bound=0\.0 > 0"):
    secure_sgd.inference_stddev(0.0, 1.0, np.ones(2))
