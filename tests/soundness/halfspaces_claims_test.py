"""Robust and private halfspaces: what accounting one class alone is worth."""

import math

import numpy as np
import pytest

from experiments.audits import cells as audits_cells
from experiments.halfspaces import measure as halfspaces_measure
from tf_privrob import mechanisms
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob.runs.audit import steps as audit_steps

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


class _ExactCount(papers.Halfspaces):
  """Stops by the number of violations itself: only the sum has noise."""

  def _noisy(self, update, count):
    stddev = self.planned_stddev
    found = self.outlet.gaussian([update], stddev, 1.0)
    return found.map(lambda sums: [*sums, count])

  @property
  def planned_stddev(self):
    return self.run_record["noise_multiplier"] * self.sensitivity


def _audit_of_stopping(kind):
  """Of two halfspaces that stop early; proven is 3 for all planned steps."""
  runs = audits_cells.stopping_halfspaces(kind)
  assert runs.statement().proven.dp_epsilon == pytest.approx(3.0, rel=0.01)
  found = privacy.audit_two_world(
    None,
    500,
    pilots=200,
    statistics=audit_steps.STATISTICS,
    dp_delta=_DELTA,
    refute=3.0,
    seed=1,
    collect=runs.collect,
  )
  return runs, found.audited


def test_an_audit_of_runs_that_stop_stays_below_all_planned_steps():
  runs, audited = _audit_of_stopping(papers.Halfspaces)
  present, absent = (
    (np.abs(runs.updates(world, np.arange(100))).sum(axis=-1) > 0).mean(axis=0)
    for world in (True, False)
  )
  assert present[:2].min() > 0.9  # nearly all begin,
  assert absent[-2:].max() < 0.2  # and end before the plan does
  assert audited < 1.5


def test_an_audit_sees_a_run_that_stops_by_an_exact_count():
  assert _audit_of_stopping(_ExactCount)[1] > 3.1
