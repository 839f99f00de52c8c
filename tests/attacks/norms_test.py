import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from tf_privrob.attacks import norms
from tf_privrob.attacks import randomness

_SETTINGS = hypothesis.settings(
  deadline=None, max_examples=40, derandomize=True
)
_ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}
_SHAPE = (3, 2, 4)


def _norm(name, delta):
  flat = np.asarray(delta, np.float64).reshape(len(delta), -1)
  return np.linalg.norm(flat, _ORDERS[name], axis=1)


def _ball(name, center, radius, value_range=(-0.5, 1.0)):
  center = tf.constant(center, tf.float32)
  return norms.ball(name, center, tf.constant(radius, tf.float32), value_range)


def _floats(low, high):
  elements = st.floats(low, high, width=32, allow_subnormal=False)
  return hnp.arrays(np.float32, _SHAPE, elements=elements)


@pytest.mark.parametrize("name", norms.NORMS)
@_SETTINGS
@hypothesis.given(
  center=_floats(-0.5, 1.0),
  point=_floats(-8.0, 8.0),
  radius=st.floats(0.0, 5.0, width=32),
)
def test_projection_is_inside_and_idempotent(name, center, point, radius):
  ball = _ball(name, center, radius)
  once = ball.project(tf.constant(point)).numpy()
  assert once.min() >= -0.5
  assert once.max() <= 1.0
  assert (_norm(name, once - center) <= radius * (1 + 1e-5) + 1e-6).all()
  twice = ball.project(tf.constant(once)).numpy()
  np.testing.assert_allclose(twice, once, atol=1e-5)


@pytest.mark.parametrize("name", norms.NORMS)
@_SETTINGS
@hypothesis.given(
  center=_floats(-0.5, 1.0), point=_floats(-0.5, 1.0), share=st.floats(1, 2)
)
def test_points_of_the_set_stay(name, center, point, share):
  radius = float(_norm(name, point - center).max() * share)
  ball = _ball(name, center, radius)
  kept = ball.project(tf.constant(point)).numpy()
  np.testing.assert_allclose(kept, point, atol=2e-6)


@_SETTINGS
@hypothesis.given(
  delta=_floats(-3.0, 3.0), radius=st.floats(0.015625, 8.0, width=32)
)
def test_l1_projection_matches_bisection(delta, radius):
  got = _ball("l1", np.zeros(_SHAPE), radius).shrink(tf.constant(delta))
  for row, projected in zip(delta.astype(np.float64), got.numpy()):
    low, high = 0.0, np.abs(row).max()
    if np.abs(row).sum() <= radius:
      high = 0.0
    for _ in range(60):
      theta = (low + high) / 2
      over = np.maximum(np.abs(row) - theta, 0).sum() > radius
      low, high = (theta, high) if over else (low, theta)
    expected = np.sign(row) * np.maximum(np.abs(row) - high, 0)
    np.testing.assert_allclose(projected, expected, atol=1e-5)


def test_l1_projection_by_hand():
  ball = _ball("l1", np.zeros((2, 3)), 2.0)
  delta = tf.constant([[3.0, -1.0, 0.0], [0.5, 0.5, -0.5]])
  expected = [[2.0, 0.0, 0.0], [0.5, 0.5, -0.5]]
  np.testing.assert_allclose(ball.shrink(delta), expected, atol=1e-6)


_WIDE = (-100.0, 100.0)


def _grad():
  return np.random.default_rng(0).normal(size=_SHAPE).astype(np.float32)


@pytest.mark.parametrize(
  ("name", "dual"), [("linf", 1), ("l2", 2), ("l1", np.inf)]
)
def test_steps_reach_the_dual_norm(name, dual):
  grad, size = _grad(), 0.5
  ball = _ball(name, np.zeros(_SHAPE), 1.0, _WIDE)
  step = ball.move(tf.constant(grad), ball.center, size).numpy()
  np.testing.assert_allclose(_norm(name, step), size, rtol=1e-6)
  flat = grad.reshape(3, -1)
  np.testing.assert_allclose(
    (step.reshape(3, -1) * flat).sum(axis=1),
    size * np.linalg.norm(flat, dual, axis=1),
    rtol=1e-5,
  )


@pytest.mark.parametrize("name", norms.NORMS)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_steps_do_not_depend_on_the_scale(name, scale):
  grad = _grad()
  ball = _ball(name, np.zeros(_SHAPE), 1.0)
  plain = ball.move(tf.constant(grad), ball.center, 0.5)
  scaled = ball.move(tf.constant(grad * np.float32(scale)), ball.center, 0.5)
  np.testing.assert_allclose(scaled, plain, atol=1e-5)


@pytest.mark.parametrize("name", norms.NORMS)
def test_no_step_without_a_gradient(name):
  ball = _ball(name, np.zeros(_SHAPE), 1.0)
  step = ball.move(tf.zeros(_SHAPE), ball.center, 0.5)
  np.testing.assert_array_equal(step, np.zeros(_SHAPE))


def test_l1_step_by_hand():
  ball = _ball("l1", [[0.0, 1.0, 0.75, -0.5]], 9.0)
  grad = tf.constant([[1.0, 9.0, 2.0, -7.0]])
  # Coordinate 1 stands at the top of the range, 3 at its bottom, and 2 can
  # rise by 0.25; the rest of the length goes to coordinate 0.
  step = ball.move(grad, ball.center, 0.875)
  np.testing.assert_allclose(step, [[0.625, 0.0, 0.25, 0.0]])
  everything = ball.move(grad, ball.center, 9.0)
  np.testing.assert_allclose(everything, [[1.0, 0.0, 0.25, 0.0]])


@_SETTINGS
@hypothesis.given(
  x=_floats(-0.5, 1.0), grad=_floats(-2.0, 2.0), size=st.floats(0.125, 4)
)
def test_l1_step_solves_the_linear_program(x, grad, size):
  from scipy import optimize

  ball = _ball("l1", x, 1.0)
  step = ball.move(tf.constant(grad), ball.center, np.float32(size)).numpy()
  dim = grad[0].size
  for row in range(len(x)):
    cost = grad[row].ravel().astype(np.float64)
    up, down = 1.0 - x[row].ravel(), x[row].ravel() + 0.5
    best = optimize.linprog(
      np.concatenate([-cost, cost]),
      A_ub=np.ones((1, 2 * dim)),
      b_ub=[size],
      bounds=[(0, max(room, 0)) for room in np.concatenate([up, down])],
    )
    got = float((cost * step[row].ravel()).sum())
    np.testing.assert_allclose(got, -best.fun, atol=1e-4)
  assert (_norm("l1", step) <= size * (1 + 1e-5)).all()


@pytest.mark.parametrize("name", norms.NORMS)
def test_random_points_are_uniform_in_the_ball(name):
  count, dim, radius = 4000, 3, 2.0
  ball = _ball(name, np.zeros((count, dim)), radius)
  drawn = ball.uniform(randomness.as_seed(7)).numpy()
  length = _norm(name, drawn)
  assert length.max() <= radius * (1 + 1e-5)
  # P(norm <= r) = (r / radius)^d for the uniform law, and for no other power.
  volume = (length / radius) ** dim
  assert stats.kstest(volume, "uniform").pvalue > 1e-3
  for wrong in (2 / 3, 3 / 2):
    assert stats.kstest(volume**wrong, "uniform").pvalue < 1e-6
  # Centred in every coordinate, and with independent signs.
  spread = drawn.std() / np.sqrt(count)
  assert np.abs(drawn.mean(axis=0)).max() < 5 * spread
  signs = np.sign(drawn)
  assert np.abs(np.mean(signs[:, 0] * signs[:, 1])) < 5 / np.sqrt(count)


def test_l1_start_matches_rejection_sampling():
  count, dim = 4000, 3
  ball = _ball("l1", np.zeros((count, dim)), 1.0)
  drawn = ball.uniform(randomness.as_seed(3)).numpy()
  cube = np.random.default_rng(0).uniform(-1, 1, (60_000, dim))
  accepted = cube[np.abs(cube).sum(axis=1) <= 1]
  for axis in range(dim):
    assert stats.ks_2samp(drawn[:, axis], accepted[:, axis]).pvalue > 1e-3


def test_seeds_decide_the_random_point():
  ball = _ball("l1", np.zeros((2, 5)), 1.0)
  first, again, other = (
    ball.uniform(randomness.as_seed(seed)).numpy() for seed in (1, 1, 2)
  )
  np.testing.assert_array_equal(first, again)
  assert np.abs(first - other).max() > 1e-3


@pytest.mark.parametrize("name", norms.NORMS)
def test_whole_range_covers_the_box(name):
  radius = norms.whole_range(name, (2, 4), (-0.5, 1.0))
  far = np.full((1, 2, 4), 1.5)
  np.testing.assert_allclose(_norm(name, far), radius)


def test_unknown_norm_offers_the_nearest():
  with pytest.raises(ValueError, match="Did you mean 'linf'"):
    norms.ball("inf", tf.zeros((1, 2)), tf.constant(1.0), (0.0, 1.0))
