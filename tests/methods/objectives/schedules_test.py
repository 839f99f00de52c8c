"""Moments, ramps and drops at given steps."""

import numpy as np
import pytest
import tensorflow as tf

from tests.methods.objectives import robust_cases as cases
from tf_privrob import methods
from tf_privrob.methods.objectives import schedules


@pytest.mark.parametrize(
  ("moment", "steps"),
  [(500, 500), ("500", 500), ("20e", 200), ("1.5e", 15), ("50%", 500)],
)
def test_moments_of_a_run(moment, steps):
  assert schedules.in_steps(moment, steps=1000, epochs=100.0) == steps


@pytest.mark.parametrize("moment", ["ten", "5ee", "-3", "", 1.5, True, "1e4"])
def test_what_is_not_a_moment(moment):
  with pytest.raises(ValueError, match=r"warmup=.* as in '20e'"):
    schedules.check(warmup=moment)


def test_scaled_moments_keep_their_unit():
  assert schedules.scaled("1000", 0.1) == "100"
  assert schedules.scaled("80e", 0.05) == "4e"
  assert schedules.scaled("50%", 0.1) == "50%"
  assert schedules.scaled(None, 0.1) is None
  assert schedules.scaled_drops("10000:0.5,75e:0.1", 0.1) == "1000:0.5,7.5e:0.1"


def test_progress_is_a_line_between_start_and_end():
  steps = [0, 9, 10, 15, 20, 99]
  found = [float(schedules.progress(tf.constant(t), 10, 10)) for t in steps]
  np.testing.assert_allclose(found, [0, 0, 0, 0.5, 1, 1])
  jump = [float(schedules.progress(tf.constant(t), 10, 0)) for t in steps]
  assert jump == [0, 0, 1, 1, 1, 1]


def test_rate_drops_from_the_very_step_on():
  rate = schedules.learning_rate(1e-4, "10000:0.5,15000:0.1", 20001, 210.0)
  found = [float(rate(t)) for t in (0, 9999, 10000, 14999, 15000, 20000)]
  expected = [1e-4, 1e-4, 5e-5, 5e-5, 1e-5, 1e-5]
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  assert schedules.learning_rate(0.3, "", 10, 1.0) == 0.3


@pytest.mark.parametrize("drops", ["100", "100:0", "100:x", "a:0.1", "5:-1"])
def test_bad_drops(drops):
  with pytest.raises(ValueError, match=r"learning_rate_drops"):
    methods.TrainingConfig(learning_rate_drops=drops)


def test_drops_out_of_order():
  with pytest.raises(ValueError, match="order of time"):
    schedules.learning_rate(0.1, "50%:0.1,10:0.5", 100, 1.0)


def _radii(method, steps):
  found = []
  for step in steps:
    method.set_step([0, 0], step)
    found.append(float(method.objective.attack_radius(method.context)))
  return found


def test_radius_of_yale_pgd_at_given_steps():
  """Linear from 0 over the first 1000 steps, then constant."""
  config = methods.preset("sgd", "yale_b_pgd")
  method = methods.Trainer(cases.network(), config)
  assert method.plan(1900, cases.SHAPE).steps == 20001
  cases.prepare(method, 1900)
  found = _radii(method, [0, 500, 1000, 20000])
  np.testing.assert_allclose(found, [0, 0.0157, 0.0314, 0.0314], rtol=1e-5)


def test_radius_of_diffai_is_the_clipped_counter():
  """clip(t - 20 nb, nb, 30 nb) / (30 nb), nb batches an epoch."""
  config = methods.preset("diffai", "yale_b_diffai")
  method = cases.prepare(methods.Trainer(cases.network(), config), 1900)
  batches = 95
  steps = np.array([0, 19, 20, 21, 30.5, 50, 99]) * batches
  steps = steps.astype(int)
  expected = np.clip(steps - 20 * batches, batches, 30 * batches)
  expected = 0.0314 * expected / (30 * batches)
  # Half a step is rounded off where the ramp begins.
  np.testing.assert_allclose(_radii(method, steps), expected, rtol=2e-3)
  shares = []
  for step in (0, 19 * batches - 1, 19 * batches, 60 * batches):
    method.set_step([0, 0], step)
    shares.append(float(method.objective.alpha(method.context)))
  np.testing.assert_allclose(shares, [1, 1, 1 / 1.2, 1 / 1.2], rtol=1e-6)


@pytest.mark.parametrize(
  ("name", "examples", "evaluated"),
  [("yale_b", 1900, 50), ("fashion_mnist", 60000, 100)],
)
def test_released_diffai_counts_batches_of_evaluation(
  name, examples, evaluated
):
  config = methods.preset("diffai", f"{name}_diffai_released")
  method = cases.prepare(methods.Trainer(cases.network(), config), examples)
  batches, count, expected = examples // config.batch_size, 0, []
  for _ in range(50):  # epochs, by the code's own counter
    count += evaluated
    for _ in range(batches):
      count += 1
      clipped = min(max(batches, count - 20 * batches), 30 * batches)
      expected.append(config.objective.attack_eps * clipped / (30 * batches))
  steps = np.arange(19, 50, 0.25) * batches
  steps = steps.astype(int)
  most = config.objective.attack_eps * evaluated / (30 * batches)
  found = _radii(method, steps)
  np.testing.assert_allclose(found, np.array(expected)[steps], atol=1.1 * most)
  assert found[0] < 0.4 * config.objective.attack_eps
  assert found[-1] == pytest.approx(config.objective.attack_eps)


def test_radius_of_the_dual_begins_above_zero():
  config = methods.preset("dual", "fashion_mnist_dual")
  method = cases.prepare(methods.Trainer(cases.network(), config), 60000)
  found = _radii(method, [0, 20000, 40000, 100000])
  np.testing.assert_allclose(found, [0.003, 0.0515, 0.1, 0.1], rtol=1e-5)
  rate = method.learning_rate(method.planned_steps)
  rates = [float(rate(2000 * epoch)) for epoch in (0, 34.9, 35, 50)]
  np.testing.assert_allclose(rates, [1e-4, 1e-4, 1e-5, 1e-6], rtol=1e-5)


def test_kappa_and_radius_of_ibp_move_together():
  config = methods.preset("ibp", "yale_b_ibp")
  method = cases.prepare(methods.Trainer(cases.network(), config), 1900)
  kappas, steps = [], [0, 499, 500, 3750, 7000, 20000]
  for step in steps:
    method.set_step([0, 0], step)
    kappas.append(float(method.objective.alpha(method.context)))
  np.testing.assert_allclose(kappas, [1, 1, 1, 0.75, 0.5, 0.5], rtol=1e-6)
  expected = np.array([0, 0, 0, 0.5, 1, 1]) * 8 / 255
  np.testing.assert_allclose(_radii(method, steps), expected, rtol=1e-6)


def test_a_scaled_run_has_the_same_shape():
  whole = methods.preset("ibp", "yale_b_ibp")
  short = whole.scaled(0.01)
  ramp = short.objective.ramp
  assert (ramp.warmup, ramp.length) == ("5", "65")
  assert short.learning_rate_drops == "100:0.1,150:0.01"
  assert short.epochs == pytest.approx(whole.epochs / 100)
  with pytest.raises(ValueError, match="factor=0"):
    whole.scaled(0)
