"""Audits of one step: what TransDenoiser gives away beyond its claim.

The steps are those of `experiments.audits`, with fewer runs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.transdenoiser import audit as transdenoiser_audit
from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob.runs.audit import steps as audit_steps

RUNS = 100


def _audited(name):
  """What is stated of the step, and the lower bound of an audit of it."""
  method, records = transdenoiser_audit.CASES[name]()
  worlds = audit_steps.Worlds(records, np.zeros(len(records), np.int64))
  repeated = audit_steps.Runs(method, worlds, references=RUNS)
  found = privacy.audit_two_world(
    None,
    RUNS,
    statistics=audit_steps.STATISTICS,
    dp_delta=1e-5,
    seed=0,
    collect=repeated.collect,
  )
  return repeated.statement(), found.audited


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", ["group", pytest.param("branch", marks=pytest.mark.slow)]
)
def test_an_audit_of_the_paper_exceeds_its_claim(name):
  statement, audited = _audited(name)
  assert statement.proven is None
  assert audited > statement.claimed.dp_epsilon


def test_an_audit_of_the_sound_heir_stays_below_its_proof():
  statement, audited = _audited("sound")
  assert audited <= statement.proven.dp_epsilon


def test_the_branch_is_decided_by_one_record():
  """S_min lies on different sides of xi_low, by the count of one direction."""
  method, records = transdenoiser_audit.make_branch()
  counts = records.sum(axis=0)
  without = counts - records[-1]
  config = method.config
  xi_low = config.reading.xi_low
  ratio = (config.input_stddev / config.l2_clip_norm) ** 2
  assert 4 * without.min() * ratio < xi_low**2 < 4 * counts.min() * ratio


# The arithmetic.


def test_lower_bound_by_hand():
  """All of 100 caught, none without: 0.025^(1/100) against its complement."""
  rate = 0.025 ** (1 / 100)
  expected = math.log((rate - 1e-5) / (1 - rate))
  found = privacy.dp_epsilon_lower_bound(100, 0, 100, 1e-5)
  assert found == pytest.approx(expected)
  assert privacy.dp_epsilon_lower_bound(50, 50, 100) == 0
  assert privacy.dp_epsilon_lower_bound(0, 0, 100) == 0


@pytest.mark.parametrize("dp_epsilon", [0.5, 2.0])
def test_lower_bound_keeps_its_confidence(dp_epsilon):
  """On the Gaussian mechanism it is above the truth in at most 5 % of audits.

  A mechanism with a fifth of the noise is caught.
  """
  dp_delta, runs, audits = 1e-2, 200, 300
  rng = np.random.default_rng(0)
  honest = mechanisms.GaussianMechanism.analytic(1.0, dp_epsilon, dp_delta)

  def bounds(stddev, threshold):
    alarms = [
      (shift + stddev * rng.normal(size=(audits, runs)) > threshold).sum(axis=1)
      for shift in (1.0, 0.0)
    ]
    return np.array(
      [
        privacy.dp_epsilon_lower_bound(int(c), int(f), runs, dp_delta)
        for c, f in zip(*alarms)
      ]
    )

  for threshold in (0.5, honest.stddev):
    assert (bounds(honest.stddev, threshold) > dp_epsilon).mean() <= 0.05
  broken = bounds(honest.stddev / 5, 0.5 + honest.stddev / 10)
  assert (broken > dp_epsilon).mean() > 0.9


def test_bad_counts():
  with pytest.raises(ValueError, match="runs=0"):
    privacy.dp_epsilon_lower_bound(0, 0, 0)
  with pytest.raises(ValueError, match="confidence"):
    privacy.dp_epsilon_lower_bound(1, 0, 10, confidence=1.0)
