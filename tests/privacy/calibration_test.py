from __future__ import annotations

import pytest

from tf_privrob import mechanisms
from tf_privrob import privacy


def _cost(noise, prob, steps, dp_delta, accountant):
  run = privacy.poisson_sgd(noise, prob, steps)
  return privacy.dp_epsilon(run, dp_delta, accountant)


@pytest.mark.parametrize(
  ("args", "accountant", "expected"),
  [
    ((3.0, 1e-5, 256 / 60000, 14062), "rdp", 1.0140),
    ((3.0, 1e-5, 256 / 60000, 14062), "pld", 0.9684),
    ((0.5, 1e-6, 0.02, 300), "pld", None),
    ((0.5, 1e-6, 0.02, 300), "rdp", None),
  ],
)
def test_noise_holds_and_is_nearly_smallest(args, accountant, expected):
  dp_epsilon, dp_delta, prob, steps = args
  noise = privacy.calibrate_noise_multiplier(*args, accountant=accountant)
  assert _cost(noise, prob, steps, dp_delta, accountant) <= dp_epsilon
  assert _cost(noise - 1e-3, prob, steps, dp_delta, accountant) > dp_epsilon
  if expected:
    assert noise == pytest.approx(expected, abs=1.1e-3)


def test_full_batch_is_the_analytic_gaussian():
  noise = privacy.calibrate_noise_multiplier(1.0, 1e-5, 1.0, 4)
  exact = 2 * mechanisms.GaussianMechanism.analytic(1.0, 1.0, 1e-5).stddev
  assert exact <= noise <= exact + 2e-3


@pytest.mark.parametrize(
  ("args", "accountant"),
  [
    ((1.0, 1e-5, 1.0, 0.01), "pld"),
    ((1.0, 1e-5, 1.0, 0.01), "rdp"),
    ((2.0, 1e-6, 2.5, 0.2), "pld"),
    ((2.0, 1e-5, 4.0, 1.0), "pld"),
    ((3.0, 1e-5, 1.1, 256 / 60000), "rdp"),
  ],
)
def test_one_step_more_is_too_much(args, accountant):
  dp_epsilon, dp_delta, noise, prob = args
  steps = privacy.max_steps(*args, accountant=accountant)
  assert steps >= 1
  assert _cost(noise, prob, steps, dp_delta, accountant) <= dp_epsilon
  assert _cost(noise, prob, steps + 1, dp_delta, accountant) > dp_epsilon


def test_calibration_and_steps_invert_each_other():
  noise = privacy.calibrate_noise_multiplier(2.0, 1e-5, 0.02, 500)
  assert 500 <= privacy.max_steps(2.0, 1e-5, noise, 0.02) <= 502


def test_ends_of_the_range():
  assert privacy.max_steps(1.0, 1e-5, 0.5, 1.0) == 0
  assert privacy.max_steps(1.0, 1e-5, 50.0, 0.01, limit=2000) == 2000
  exact = mechanisms.gaussian_dp_epsilon(1.0, 1e-5)
  assert privacy.max_steps(exact * 1.001, 1e-5, 1.0, 1.0) == 1


def test_answers_are_remembered():
  args = (2.0, 1e-5, 0.02, 500)
  privacy.calibrate_noise_multiplier(*args)
  before = privacy.calibrate_noise_multiplier.cache_info().hits
  privacy.calibrate_noise_multiplier(*args)
  assert privacy.calibrate_noise_multiplier.cache_info().hits == before + 1


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda f, g: f(0.0, 1e-5, 0.1, 5), "dp_epsilon=0.0 > 0"),
    (lambda f, g: f(1.0, 0.0, 0.1, 5), "0 < dp_delta=0.0 < 1"),
    (lambda f, g: f(1.0, 1e-5, 2.0, 5), "0 < sampling_prob=2.0 <= 1"),
    (lambda f, g: f(1.0, 1e-5, 0.1, 0), "steps=0"),
    (lambda f, g: f(1.0, 1e-5, 0.1, 5, "rpd"), "Did you mean 'rdp'"),
    (lambda f, g: f(1e-9, 1e-12, 0.1, 5, "rdp"), "Found no noise"),
    (lambda f, g: g(1.0, 1e-5, 0.0, 0.1), "noise_multiplier=0.0 > 0"),
    (lambda f, g: g(1.0, 1e-5, 1.0, 0.1, limit=0), "limit=0"),
  ],
)
def test_bad_input(call, message):
  with pytest.raises(ValueError, match=message):
    call(privacy.calibrate_noise_multiplier, privacy.max_steps)
