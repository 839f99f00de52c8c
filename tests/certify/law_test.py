"""The confidence statement itself, where the true radius is known.

For f(x) = argmax of (0, w.x + b) the smoothed classifier has the same decision
boundary, so the true radius of x is |w.x + b| / ||w||. A row fails if it names
another class than sign(w.x + b) or a radius beyond the true one. Over many
inputs at most a fraction alpha may fail; alpha is large here so that the test
has power, and procedures known to be wrong fail it.
"""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import binomial
from tf_privrob.certify.linear import margin
from tf_privrob.certify.smoothing import grid
from tf_privrob.certify.smoothing import smoothing
from tf_privrob.certify.smoothing import votes

COUNT = 1000  # at a rate of twice ALPHA five deviations beyond LIMIT
ALPHA = 0.1
STDDEV = 0.5
WEIGHTS = np.array([1.5, -2.0, 0.5], np.float32)
NORM = float(np.linalg.norm(WEIGHTS))
LIMIT = ALPHA + 3.1 * np.sqrt(ALPHA * (1 - ALPHA) / COUNT)


def _linear():
  """Known to act row by row, so that votes are counted in batches."""
  layer = tf.keras.layers.Dense(2, use_bias=False)
  model = tf.keras.Sequential([tf.keras.layers.Input((3,)), layer])
  layer.set_weights([np.stack([np.zeros(3), WEIGHTS], axis=1)])
  return model


linear = _linear()


def failure_rate(true_radius, seed=11, **changes):
  """Failures among inputs at signed distance +-true_radius."""
  rng = np.random.RandomState(seed)
  side = rng.choice([-1.0, 1.0], COUNT)
  along = rng.randn(COUNT, 3)
  along -= np.outer(along @ WEIGHTS, WEIGHTS) / NORM**2
  x = along + np.outer(side * true_radius, WEIGHTS) / NORM
  settings = {"num_selection": 25, "num_estimation": 200, "batch_size": 1600}
  rows = smoothing.RandomizedSmoothing(
    STDDEV, confidence=1 - ALPHA, **{**settings, **changes}
  ).certify(linear, x.astype(np.float32), seed=seed)
  failed = [
    not row.abstained
    and (row.prediction != (sign > 0) or row.radius > true_radius)
    for row, sign in zip(rows, side)
  ]
  return float(np.mean(failed))


@pytest.mark.parametrize("true_radius", [1e-3, 0.1, 0.4, 0.8])
def test_failure_rate_is_at_most_alpha(true_radius):
  rate = failure_rate(true_radius)
  assert ALPHA / 4 < rate <= LIMIT  # and not by abstaining always


@pytest.mark.parametrize("true_radius", [0.1, 0.395, 0.8])
def test_failure_rate_holds_under_early_stop(true_radius):
  rate = failure_rate(true_radius, num_estimation=400, radii=(0.1, 0.4, 0.8))
  assert rate <= LIMIT


def test_point_estimate_is_caught(monkeypatch):
  monkeypatch.setattr(
    binomial, "lower", lambda successes, trials, _: successes / trials
  )
  assert failure_rate(0.4) > LIMIT


def test_selecting_and_estimating_on_the_same_draws_is_caught(monkeypatch):
  monkeypatch.setattr(votes, "ESTIMATION", votes.SELECTION)
  assert failure_rate(1e-3, num_selection=200) > LIMIT


def test_half_the_noise_is_caught(monkeypatch):
  monkeypatch.setitem(grid.LAWS, "gaussian", lambda key, n: key.normal(n) / 2)
  assert failure_rate(0.4) > LIMIT


def test_predict_is_wrong_with_probability_at_most_alpha():
  side = np.where(np.arange(COUNT) % 2, 1.0, -1.0)
  x = np.outer(side * 0.02, WEIGHTS / NORM).astype(np.float32)
  classes = smoothing.RandomizedSmoothing(
    STDDEV, num_estimation=100, confidence=1 - ALPHA, batch_size=1600
  ).predict(linear, x, seed=2)
  assert np.mean((classes != -1) & (classes != (side > 0))) <= ALPHA
  assert np.mean(classes == (side > 0)) > 0.05


def margin_failures(true_radius, seed=12):
  """Rows of LinearMargin, confidence 1, at signed distance +-true_radius."""
  rng = np.random.RandomState(seed)
  side = rng.choice([-1.0, 1.0], COUNT)
  along = rng.randn(COUNT, 3)
  along -= np.outer(along @ WEIGHTS, WEIGHTS) / NORM**2
  x = (along + np.outer(side * true_radius, WEIGHTS) / NORM).astype(np.float32)
  layers = [tf.keras.Input((3,)), tf.keras.layers.Dense(2, use_bias=False)]
  model = tf.keras.Sequential(layers)
  model.set_weights([np.stack([0 * WEIGHTS, WEIGHTS], axis=1)])
  rows = margin.LinearMargin("l2").certify(model, x)
  distance = np.abs(x.astype(np.float64) @ WEIGHTS.astype(np.float64)) / NORM
  radii = np.array([row.radius for row in rows])
  wrong = np.array([row.prediction for row in rows]) != (side > 0)
  return float(np.mean(wrong | (radii > distance))), radii / distance


@pytest.mark.parametrize("true_radius", [1e-3, 0.1, 0.8])
def test_a_deterministic_row_never_fails(true_radius):
  rate, share = margin_failures(true_radius)
  assert rate == 0
  assert share.min() > 1 - 2e-5 / true_radius  # all but exact


def test_the_wrong_dual_norm_is_caught(monkeypatch):
  monkeypatch.setitem(margin.DUAL_ORDERS, "l2", np.inf)
  rate, _ = margin_failures(0.1)
  assert rate == 1
