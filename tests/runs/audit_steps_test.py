"""Audits of the real training step: the sound one passes, broken ones do not.

Claimed and proven are the same here: dp_epsilon 1 at dp_delta 1e-3, for what is
run: one full batch, or a few Poisson steps.
"""

import numpy as np
import pytest

from tests.runs import broken_dp_sgd
from tf_privrob import methods
from tf_privrob import privacy
from tf_privrob.runs.audit import steps as audit_steps

RUNS = 300


def runs_of(kind, steps=1, **changes):
  method = kind(broken_dp_sgd.network(), broken_dp_sgd.settings(**changes))
  worlds = audit_steps.Worlds(*broken_dp_sgd.records())
  return audit_steps.Runs(method, worlds, steps)


def audit(repeated, runs=RUNS, **changes):
  statement = repeated.statement()
  return privacy.audit_two_world(
    None,
    runs,
    statistics=audit_steps.STATISTICS,
    dp_delta=statement.proven.dp_delta,
    refute=statement.proven.dp_epsilon,
    collect=repeated.collect,
    **changes,
  )


def test_a_run_is_the_canary_and_noise_of_the_stated_size():
  """Exact: with shared randomness worlds differ by the clipped gradient."""
  repeated = runs_of(methods.DPSGD)
  clip = repeated.method.config.l2_clip_norm
  seeds = np.arange(400)
  with_it, without = (repeated.updates(p, seeds) for p in (True, False))
  gap = (with_it - without)[:, 0]
  np.testing.assert_allclose(np.linalg.norm(gap, axis=1), clip, rtol=1e-3)
  np.testing.assert_allclose(gap - gap[0], 0, atol=1e-5)
  method = repeated.method
  count = len(broken_dp_sgd.records()[0])
  stddev = method.plan(count).noise_multiplier * clip
  spread = without[:, 0].std(axis=0)
  np.testing.assert_allclose(spread, stddev, rtol=0.2)
  assert abs(spread.mean() / stddev - 1) < 0.05  # neither 2/3 nor 3/2
  projections = repeated.table(True, seeds)[:, 0]
  expected = ((with_it - without.mean(axis=0))[:, 0] @ gap[0]) / clip
  np.testing.assert_allclose(
    projections - projections.mean(), expected - expected.mean(), atol=1e-3
  )
  again = repeated.table(True, seeds[:5])
  np.testing.assert_allclose(again[:, 0], projections[:5], atol=1e-6)


def test_the_sound_step_passes():
  found = audit(runs_of(methods.DPSGD), runs=500)
  assert found.audited <= 1.0
  assert 0 < found.gaussian <= 1.0  # the test sees the canary


@pytest.mark.parametrize(
  "kind", broken_dp_sgd.CAUGHT_AT_ONCE, ids=lambda kind: kind.__name__
)
def test_a_broken_step_is_caught(kind):
  assert audit(runs_of(kind)).audited > 1.0


def test_half_the_noise_is_caught():
  """By the Gaussian law, which a full batch has: needs few runs."""
  assert audit(runs_of(broken_dp_sgd.HalfNoise), 600).gaussian > 1.0


@pytest.mark.slow
def test_half_the_noise_is_caught_without_any_law():
  found = audit(runs_of(broken_dp_sgd.HalfNoise), 10_000)
  assert found.audited > 1.0


@pytest.mark.parametrize("kind", [methods.DPSGD, broken_dp_sgd.OneDraw])
def test_one_draw_for_all_steps_is_caught_by_jumps(kind):
  """Three Poisson steps: the canary is in some, and differences are exact."""
  repeated = runs_of(kind, 3, sampler="poisson", epochs=1.5)
  assert repeated.statement().proven.dp_epsilon == pytest.approx(1, abs=0.01)
  found = audit(repeated)
  if kind is methods.DPSGD:
    assert found.audited <= 1.0
  else:
    assert found.statistic == "jumps"
    assert found.audited > 1.0


def test_fixed_batches_need_a_record_to_replace():
  method = methods.DPSGD(
    broken_dp_sgd.network(),
    broken_dp_sgd.settings(sampler="shuffle", batch_size=16, accountant="rdp"),
  )
  worlds = audit_steps.Worlds(*broken_dp_sgd.records())
  with pytest.raises(ValueError, match=r"Worlds\(instead="):
    audit_steps.Runs(method, worlds)
