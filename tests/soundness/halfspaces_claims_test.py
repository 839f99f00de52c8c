"""Robust and private halfspaces: what accounting one class alone is worth."""

import math

import numpy as np
import pytest

from experiments.halfspaces import measure as halfspaces_measure
from tf_privrob import mechanisms
from tf_privrob import papers
from tf_privrob import privacy

_CLASSES, _DELTA, _RUNS = 10, 1e-5, 4_000


def _statistics(stddev, present, seed):
  """One full-batch step of all classes, seen along the canary's direction.

  The other examples have nothing there; the canary has y_k in class k.
  """
  rng = np.random.default_rng(0)
  others = np.pad(rng.normal(size=(12, 3)), ((0, 0), (1, 0)))
  others /= np.linalg.norm(others, axis=1, keepdims=True)
  canary = np.array([[1.0, 0.0, 0.0, 0.0]])
  x = np.concatenate([others, canary]) if present else others
  y = np.arange(len(x)) % _CLASSES
  y[-1] = 3 if present else y[-1]
  trials = papers.Trials(
    _CLASSES,
    batch_size=len(x),
    margins=(0.1,),
    stddevs=(stddev,),
    trials=_RUNS,
    seed=seed,
  )
  weights = trials.train(x, y)[:, 0, 0, 0]  # [runs, K], along the canary
  signs = np.where(np.arange(_CLASSES) == 3, 1, -1)
  return weights @ signs


def _audited(stddev):
  """A lower bound on dp_epsilon, at 95 %, the threshold fixed beforehand."""
  present = _statistics(stddev, True, seed=1)
  absent = _statistics(stddev, False, seed=2)
  threshold = 2.0 * stddev * math.sqrt(_CLASSES)
  return privacy.dp_epsilon_lower_bound(
    int((present > threshold).sum()),
    int((absent > threshold).sum()),
    _RUNS,
    _DELTA,
  )


def _noise_for(dp_epsilon):
  """Of one Gaussian release of sensitivity 1."""
  low, high = 0.1, 100.0
  while high - low > 1e-6:
    middle = (low + high) / 2
    if mechanisms.gaussian_dp_epsilon(middle, _DELTA) > dp_epsilon:
      low = middle
    else:
      high = middle
  return high


@pytest.mark.slow
def test_an_audit_of_the_literal_reading_exceeds_its_claim():
  """Noise for one class, ten classes published: claimed 1."""
  assert _audited(_noise_for(1.0)) > 1.05


@pytest.mark.slow
def test_an_audit_of_the_joint_noise_stays_below_its_proof():
  assert _audited(math.sqrt(_CLASSES) * _noise_for(1.0)) < 1.0


def test_ten_halfspaces_cost_more_than_one():
  """By PLD, on Poisson batches of their own; on one shared batch far more."""
  literal = halfspaces_measure.noise("literal", (1.0, 1e-5), 60_000, 500, 10)
  prob = 500 / 60_000
  shared = privacy.poisson_sgd(literal["stddev"] / math.sqrt(10), prob, 120)
  assert literal["proven"] == pytest.approx(1.477, abs=3e-3)
  assert privacy.dp_epsilon([shared], 1e-5) > 15


def test_one_pass_over_disjoint_batches_is_not_a_poisson_epoch():
  """Without amplification one class needs noise 4 in place of 1.05."""
  poisson = halfspaces_measure.noise("literal", (1.0, 1e-5), 60_000, 500, 10)
  assert _noise_for(1.0) > 3.5 * poisson["stddev"]
  assert _noise_for(1.0) == pytest.approx(3.73, abs=0.02)
