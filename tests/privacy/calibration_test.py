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
  noise = privacy.calibrate_noise_multiplier(2.0, 1e-5, 0.02, 300)
  assert 300 <= privacy.max_steps(2.0, 1e-5, noise, 0.02) <= 302


def test_ends_of_the_range():
  assert privacy.max_steps(1.0, 1e-5, 0.5, 1.0) == 0
  assert privacy.max_steps(1.0, 1e-5, 50.0, 0.01, limit=2000) == 2000
  exact = mechanisms.gaussian_dp_epsilon(1.0, 1e-5)
  assert privacy.max_steps(exact * 1.001, 1e-5, 1.0, 1.0) == 1


def test_answers_are_remembered():
  args = (2.0, 1e-5, 0.02, 300)
  privacy.calibrate_noise_multiplier(*args)
  before = privacy.calibrate_noise_multiplier.cache_info().hits
  privacy.calibrate_noise_multiplier(*args)
  assert privacy.calibrate_noise_multiplier.cache_info().hits == before + 1


# What else the budget pays for.

_GAUSSIAN = privacy.Release(
  "moments", mechanisms.GaussianMechanism(1.0, 5.0).event(), count=2
)
_PURE = privacy.Release("a map", dp_epsilon=0.4)
_MUCH = privacy.Release("a lot", dp_epsilon=1.999)


def _joint(noise, prob, steps, accountant, extra):
  run = privacy.poisson_sgd(noise, prob, steps)
  return privacy.dp_epsilon([run, *extra], 1e-5, accountant)


@pytest.mark.parametrize(
  ("extra", "accountant"),
  [
    ((_GAUSSIAN,), "rdp"),
    ((_GAUSSIAN, _PURE), "rdp"),
    pytest.param((_GAUSSIAN, _PURE), "pld", marks=pytest.mark.slow),
    ((_MUCH,), "pld"),  # RDP has no figure below 0.001 at this dp_delta
  ],
)
def test_noise_leaves_room_for_other_releases(extra, accountant):
  """Composed, they are within the budget; with a little less noise not."""
  noise = privacy.calibrate_noise_multiplier(
    2.0, 1e-5, 0.02, 300, accountant, extra_releases=extra
  )
  assert _joint(noise, 0.02, 300, accountant, extra) <= 2.0
  assert _joint(noise - 1e-3, 0.02, 300, accountant, extra) > 2.0
  alone = privacy.calibrate_noise_multiplier(2.0, 1e-5, 0.02, 300, accountant)
  assert noise > alone + 1e-3


def test_a_pure_release_leaves_the_rest_of_the_budget():
  """Exact: what 0.4 of 0.9 leaves is a budget of 0.5 for the gradients."""
  noise = privacy.calibrate_noise_multiplier(
    0.9, 1e-6, 0.02, 300, extra_releases=(_PURE,)
  )
  rest = privacy.calibrate_noise_multiplier(0.5, 1e-6, 0.02, 300)
  assert noise == pytest.approx(rest, abs=1.1e-3)


def test_gaussian_releases_add_in_quadrature():
  """Exact for the full batch: 1/z^2 = 1/z_all^2 - count/z_extra^2."""
  noise = privacy.calibrate_noise_multiplier(
    2.0, 1e-5, 1.0, 4, extra_releases=(_GAUSSIAN,)
  )
  whole = mechanisms.GaussianMechanism.analytic(1.0, 2.0, 1e-5).stddev
  exact = (4 / (whole**-2 - 2 / 5.0**2)) ** 0.5
  assert exact - 1e-3 <= noise <= exact + 5e-3


def test_nothing_besides_is_the_plain_figure():
  args = (2.0, 1e-5, 0.02, 300)
  assert privacy.calibrate_noise_multiplier(
    *args, extra_releases=()
  ) == privacy.calibrate_noise_multiplier(*args)


@pytest.mark.parametrize(
  ("extra", "accountant"),
  [
    ((_GAUSSIAN,), "rdp"),
    ((_GAUSSIAN, _PURE), "rdp"),
    pytest.param((_GAUSSIAN, _PURE), "pld", marks=pytest.mark.slow),
  ],
)
def test_steps_leave_room_for_other_releases(extra, accountant):
  steps = privacy.max_steps(
    2.0, 1e-5, 1.0, 0.01, accountant, extra_releases=extra
  )
  assert steps >= 1
  assert _joint(1.0, 0.01, steps, accountant, extra) <= 2.0
  assert _joint(1.0, 0.01, steps + 1, accountant, extra) > 2.0
  assert steps < privacy.max_steps(2.0, 1e-5, 1.0, 0.01, accountant)


def test_no_step_fits_beside_a_large_release():
  assert privacy.max_steps(2.0, 1e-5, 0.6, 1.0, extra_releases=(_MUCH,)) == 0


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize(
  ("dp_epsilon", "extra"),
  [(0.3, (_PURE,)), (0.4, (_PURE,)), (0.5, (_GAUSSIAN,)), (1.1, (_PURE,) * 3)],
)
def test_other_releases_above_the_budget_are_refused(
  dp_epsilon, extra, accountant
):
  message = rf"besides the gradients.*{extra[0].name}.* alone cost"
  with pytest.raises(ValueError, match=message):
    privacy.calibrate_noise_multiplier(
      dp_epsilon, 1e-5, 0.02, 300, accountant, extra_releases=extra
    )
  with pytest.raises(ValueError, match=message):
    privacy.max_steps(
      dp_epsilon, 1e-5, 1.0, 0.02, accountant, extra_releases=extra
    )


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
