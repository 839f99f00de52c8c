"""Gaussian noise inside a network: PixelDP's rule, the tight one, their law."""

import dataclasses
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize
from scipy import stats

from tests.certify import noisy_models
from tf_privrob import certify
from tf_privrob import mechanisms
from tf_privrob.certify.noise_layer import pixeldp
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.certify.noise_layer import single_layer
from tf_privrob.certify.norms import keras_norms
from tf_privrob.certify.smoothing import grid
from tf_privrob.certify.smoothing import votes

RNG = np.random.RandomState(0)
X = RNG.randn(6, 4).astype(np.float32)


def certifier(**changes):
  values = {
    "scale": 0.5,
    "norm": "l2",
    "distribution": "gaussian",
    "num_selection": 25,
    "num_estimation": 200,
  }
  return single_layer.SingleLayerCertificate(**{**values, **changes})


# The rules.


def brute_force(p1, p2):
  """Every delta of the grid, dp_epsilon by bisection: what PixelDP runs."""
  best = 0.0
  for delta in np.arange(0.001, 0.3, 0.001):

    def slack(dp_epsilon, delta=delta):
      u = math.exp(dp_epsilon)
      return p1 - u**2 * p2 - (1 + u) * delta

    if slack(0.0) <= 0:
      continue
    largest = 1.0 if slack(1.0) >= 0 else optimize.brentq(slack, 0, 1)
    best = max(best, largest / math.sqrt(2 * math.log(1.25 / delta)))
  return best


PROBABILITIES = [
  (0.999, 0.001),
  (0.9, 0.1),
  (0.9, 0.02),
  (0.6, 0.4),
  (0.35, 0.3),
  (0.503, 0.497),
]


@pytest.mark.parametrize(("p1", "p2"), PROBABILITIES)
def test_search_equals_brute_force(p1, p2):
  found, wanted = pixeldp.gaussian_search(p1, p2), brute_force(p1, p2)
  assert found == pytest.approx(wanted, rel=1e-9)
  assert wanted > 0


def test_search_never_overestimates():
  """The condition itself holds at the answer, for the delta that gave it."""
  rng = np.random.RandomState(3)
  p1, p2 = rng.uniform(0.3, 1, 500), rng.uniform(0, 0.5, 500)
  sizes = pixeldp.gaussian_search(p1, p2)
  scale = np.sqrt(2 * np.log(1.25 / pixeldp.DELTAS))
  u = np.exp(sizes[:, None] * scale)
  holds = p1[:, None] >= u**2 * p2[:, None] + (1 + u) * pixeldp.DELTAS
  within = sizes[:, None] * scale <= 1
  assert np.all((holds & within).any(axis=1) | (sizes == 0))
  assert np.all(sizes[p1 <= p2] == 0)
  assert (sizes > 0).mean() > 0.5


def test_search_is_capped_at_epsilon_one():
  """p1 = 1, p2 = 0: e^eps = (1 - delta) / delta, at most e."""
  found = pixeldp.gaussian_search(1.0, 0.0)
  # delta = 0.268 allows more than 1, delta = 0.269 just less.
  assert math.log(0.732 / 0.268) > 1 > math.log(0.731 / 0.269)
  by_hand = math.log(0.731 / 0.269) / math.sqrt(2 * math.log(1.25 / 0.269))
  assert found == pytest.approx(by_hand, rel=1e-9)
  uncapped = np.log((1 - pixeldp.DELTAS) / pixeldp.DELTAS)
  uncapped = uncapped / np.sqrt(2 * np.log(1.25 / pixeldp.DELTAS))
  assert uncapped.max() > 3 * found


def test_search_golden():
  """L = 0.1 and 2000 unanimous draws: PixelDP's largest l2 radius."""
  stddev = 0.1 * pixeldp.classic_multiplier(1.0, 0.05)
  assert stddev == pytest.approx(0.2537, abs=5e-5)
  top = score_bounds.top_two(
    score_bounds.Scores(
      2000, np.eye(10)[0], 0, 2000 * np.eye(10, dtype=int)[0]
    ),
    "clopper_pearson",
    0.005,
  )
  paper = stddev * pixeldp.gaussian_search(*top[1:])
  tight = stddev * pixeldp.gaussian_tight(*top[1:])
  assert paper == pytest.approx(stddev * brute_force(*top[1:]), rel=1e-9)
  assert paper == pytest.approx(0.1437, abs=5e-5)
  assert tight == pytest.approx(0.7076, abs=5e-4)


def test_tight_by_hand():
  found = pixeldp.gaussian_tight([0.9, 0.5, 0.3, 1.0], [0.1, 0.2, 0.3, 0.0])
  np.testing.assert_allclose(
    found, [stats.norm.ppf(0.9), stats.norm.ppf(0.8) / 2, 0, np.inf]
  )


def test_tight_is_never_below_the_search():
  grid = np.linspace(0.001, 0.999, 150)
  p1, p2 = np.meshgrid(grid, grid)
  tight = pixeldp.gaussian_tight(p1, p2)
  search = pixeldp.gaussian_search(p1, p2)
  assert np.all(tight >= search)
  assert np.any((search > 0) & (tight > 3 * search))


@pytest.mark.parametrize("dp_epsilon", [0.05, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("dp_delta", [0.001, 0.05, 0.299])
def test_the_classic_calibration_holds_up_to_one(dp_epsilon, dp_delta):
  """By the exact curve of the Gaussian mechanism, at the cap too."""
  multiplier = pixeldp.classic_multiplier(dp_epsilon, dp_delta)
  exact = mechanisms.gaussian_dp_delta(multiplier, dp_epsilon)
  assert exact < dp_delta


def test_beyond_one_the_classic_calibration_fails():
  """Why the cap stays: at dp_epsilon = 10 the stated delta is not kept."""
  multiplier = pixeldp.classic_multiplier(10.0, 0.001)
  assert mechanisms.gaussian_dp_delta(multiplier, 10.0) > 0.001


@pytest.mark.parametrize("seed", range(2))
def test_quantile_of_an_expectation_moves_at_most_with_l2(seed):
  """Salman et al.'s Lemma 2, on random scores of one feature."""
  step, stddev = 0.05, 0.5
  f = np.random.RandomState(seed).rand(600) < np.linspace(0.2, 0.8, 600)
  reach = np.arange(-6 * stddev, 6 * stddev + step / 2, step)
  edges = np.append(reach - step / 2, reach[-1] + step / 2)
  mass = np.diff(stats.norm.cdf(edges, scale=stddev))
  mass /= mass.sum()

  def largest_slope(f):
    smooth = np.convolve(f, mass, mode="valid")
    return np.abs(np.diff(stats.norm.ppf(smooth))).max()

  assert largest_slope(f.astype(float)) <= step / stddev
  half = np.convolve(np.arange(600) > 300, mass, mode="valid")[220:265]
  slopes = np.diff(stats.norm.ppf(half))
  np.testing.assert_allclose(slopes, step / stddev, rtol=1e-2)


@pytest.mark.parametrize(
  ("norm", "stretch"), [("l1", 1), ("l2", 1), ("linf", 3)]
)
@pytest.mark.parametrize("rule", single_layer.RULES["gaussian"])
def test_radius_at_the_input_by_hand(norm, stretch, rule):
  found = certifier(norm=norm, rule=rule, scale=0.3).radius(0.9, 0.1, 9)
  length = single_layer.RULES["gaussian"][rule](0.9, 0.1)
  assert found == pytest.approx(0.3 * length / stretch)
  behind = certifier(
    norm=norm, rule=rule, scale=0.3, position="hidden", operator_norm=7.0
  )
  assert behind.radius(0.9, 0.1) == pytest.approx(0.3 * length / 7)


# The law, where the true radius is known.

COUNT = 300  # at a rate of twice ALPHA two deviations beyond LIMIT
ALPHA = 0.1
LIMIT = ALPHA + 3.1 * math.sqrt(ALPHA * (1 - ALPHA) / COUNT)
ROW = np.array([[2.0], [-1.0]], np.float32)  # h = 2 x_1 - x_2
DUAL = {"l1": 2.0, "l2": math.sqrt(5), "linf": 3.0}


class Sign(noisy_models.BySign):
  """Class by the sign of h = row . x plus noise, so g(x) = [h > 0]."""

  hidden_noise_shape = (1,)
  input_noise_shape = (2,)

  def before(self, x):
    return x @ tf.constant(ROW)


def failure_rate(true_radius, norm="l2", count=COUNT, seed=4, **changes):
  """Rows with a wrong class or a radius beyond the true one, |h| / dual."""
  rng = np.random.RandomState(seed)
  side = rng.choice([-1.0, 1.0], count)
  x = rng.randn(count, 2)
  wanted = side * true_radius * DUAL[norm]
  x += np.outer(wanted - x @ ROW[:, 0], ROW / (ROW**2).sum())
  settings = {"norm": norm, "confidence": 1 - ALPHA, **changes}
  rows = certifier(**settings).certify(Sign(), x.astype(np.float32), seed=seed)
  return np.mean(
    [
      not row.abstained
      and (row.prediction != (sign > 0) or row.radius > true_radius)
      for row, sign in zip(rows, side)
    ]
  )


def behind(norm, factor=1.0):
  dense = tf.keras.layers.Dense(1, use_bias=False)
  dense.build((None, 2))
  dense.kernel.assign(ROW)
  found = keras_norms.prefix_norms([dense], (2,)).bound(norm, "l2")
  assert found == pytest.approx(DUAL[norm])
  return {"position": "hidden", "operator_norm": factor * found}


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_failure_rate_behind_a_layer(norm):
  """A half-space: the tight rule has nothing to spare."""
  rate = failure_rate(0.25 / DUAL[norm], norm, **behind(norm))
  assert ALPHA / 10 < rate <= LIMIT


@pytest.mark.parametrize("true_radius", [1e-3, 0.3])
def test_failure_rate_at_the_input(true_radius):
  assert ALPHA / 10 < failure_rate(true_radius) <= LIMIT


@pytest.mark.parametrize("bound", score_bounds.BOUNDS)
def test_failure_rate_of_the_papers_rule_for_every_bound(bound):
  assert failure_rate(0.02, rule="pixeldp", bound=bound) <= LIMIT


@pytest.mark.parametrize("fraction", [1 / 2, 2 / 3])
def test_too_small_an_operator_norm_is_caught(fraction):
  """The construction's assumed norm in place of the trained one."""
  rate = failure_rate(0.1, count=200, **behind("l2", fraction))
  assert rate > 2 * LIMIT


def test_another_stddev_than_the_drawn_one_is_caught(monkeypatch):
  monkeypatch.setitem(grid.LAWS, "gaussian", lambda key, n: key.normal(n) / 2)
  assert failure_rate(0.2, count=100) > 0.9


# Noise of another size in each coordinate.


class Diagonal(noisy_models.BySign):
  """h = x, noise on h; class by the sign of h_2: g(x) = [x_2 > 0]."""

  input_noise_shape = hidden_noise_shape = (2,)


def diagonal_failures(scales, operator_norm):
  x = np.tile(np.array([[0.0, 0.05]], np.float32), [200, 1])
  rows = certifier(
    scale=1.0,
    position="hidden",
    operator_norm=operator_norm,
    coordinate_scales=scales,
    confidence=1 - ALPHA,
  ).certify(Diagonal(), x, seed=1)
  return np.mean([row.radius > 0.05 or row.prediction == 0 for row in rows])


def test_coordinate_scales_with_the_whitened_norm():
  """The weakest noise decides; the true radius is 0.05."""
  dense = tf.keras.layers.Dense(2, use_bias=False)
  dense.build((None, 2))
  dense.kernel.assign(np.eye(2))
  scales = np.array([2.0, 0.1])
  norm = keras_norms.prefix_norms([dense], (2,), stddev=scales).bound(
    "l2", "l2"
  )
  assert norm == pytest.approx(10)
  assert ALPHA / 10 < diagonal_failures(scales, norm) <= 2 * LIMIT


def test_without_whitening_the_failure_is_caught():
  """Mean noise in place of the least one."""
  assert diagonal_failures([2.0, 0.1], 1 / 1.05) > 0.9


# The procedure.


def test_rows_equal_the_naive_procedure():
  first, second = (RNG.randn(4, 5).astype("f"), RNG.randn(5, 3).astype("f"))

  class Model(noisy_models.Cut):
    input_noise_shape, hidden_noise_shape = (4,), (5,)

    def before(self, x):
      return x @ first

    def after(self, h):
      return tf.nn.relu(h) @ second

  subject = certifier(position="hidden", operator_norm=2.0, confidence=0.9)
  rows = subject.certify(Model(), X, seed=7)
  for index, row in enumerate(rows):
    counts = []
    for stage, draws in ((votes.SELECTION, 25), (votes.ESTIMATION, 200)):
      names = ("hidden", index, stage)
      noisy = noisy_models.copies(
        X[index] @ first, 0.5, draws, 7, names, "normal"
      )
      logits = np.maximum(noisy, 0) @ second
      counts.append(np.bincount(logits.argmax(axis=1), minlength=3))
    label = int(counts[0].argmax())
    scores = score_bounds.Scores(200, 0, 0, counts[1])
    top = score_bounds.top_two(scores, "clopper_pearson", 0.05, label)
    assert row.abstained == (top.p1_lower <= top.p2_upper)
    gap = stats.norm.ppf(top.p1_lower) - stats.norm.ppf(top.p2_upper)
    assert row.radius == pytest.approx(max(0, 0.5 * gap / 2 / 2.0))
    assert (row.kind, row.method) == ("proven", "gaussian_hidden_tight")
  assert not all(row.abstained for row in rows)


def test_settings_are_json_and_name_the_scales():
  plain = certifier().settings()
  assert plain["distribution"] == "gaussian"
  many = certifier(
    position="hidden", operator_norm=1.0, coordinate_scales=[1.0, 2.0]
  )
  other = dataclasses.replace(many, coordinate_scales=(1.0, 2.5))
  settings = json.loads(json.dumps(many.settings()))
  assert len(settings["coordinate_scales"]) == 64
  assert settings != json.loads(json.dumps(other.settings()))


# Bad input.


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"rule": "pure_dp"}, "Unknown rule='pure_dp'.*pixeldp, tight"),
    ({"distribution": "laplace", "rule": "pixeldp"}, "pure_dp, tight"),
    ({"num_estimation": 10}, "num_estimation=11 or more"),
    (
      {"num_estimation": 10, "bound": "hoeffding"},
      "num_estimation=16 or more",
    ),
    (
      {"num_estimation": 20, "bound": "empirical_bernstein"},
      r"bound='empirical_bernstein'.*num_estimation=\d+ or more",
    ),
    ({"position": "hidden"}, "norm from l2 to l2"),
    ({"coordinate_scales": [1.0]}, "coordinate_scales=None at the input"),
  ],
)
def test_bad_settings(change, message):
  with pytest.raises(ValueError, match=message):
    certifier(**change)


@pytest.mark.parametrize(
  ("bound", "enough"), [("clopper_pearson", 11), ("hoeffding", 16)]
)
def test_the_draws_that_would_do_do(bound, enough):
  certifier(bound=bound, num_estimation=enough)
  with pytest.raises(ValueError, match="more draws"):
    certifier(bound=bound, num_estimation=enough - 1)


def test_the_papers_rule_needs_more_draws():
  """p1 - p2 must exceed 2 delta >= 0.002 there."""
  with pytest.raises(ValueError, match=r"num_estimation=\d+ or more"):
    certifier(rule="pixeldp", num_estimation=10)


class Counting(Sign):
  """Noise of its own: a draw a call, or a draw a row."""

  calls = 0

  def __init__(self, rows):
    self._rows = rows

  def logits_with_noise(self, x, input_noise, hidden_noise):
    self.calls += 1
    logits = super().logits_with_noise(x, input_noise, hidden_noise)
    shape = [x.shape[0] if self._rows else 1, 1]
    seed = [0, 0 if self._rows else self.calls]
    return logits + tf.random.stateless_normal(shape, seed)


@pytest.mark.parametrize("rows", [True, False])
def test_a_model_with_randomness_of_its_own_is_refused(rows):
  with pytest.raises(ValueError, match="deterministic once the noise is fixed"):
    certifier().certify(Counting(rows), X[:, :2], seed=0)


def test_radii_are_checked():
  assert certifier().for_radii([0.1]) == certifier()
  with pytest.raises(ValueError, match=r"radii\[0\]=.* >= 0"):
    certify.run(certifier(), Sign(), X[:, :2], radii=[-1.0], progress=False)


def test_scales_of_another_shape_are_refused():
  subject = certifier(
    position="hidden", operator_norm=1.0, coordinate_scales=[1.0, 2.0]
  )
  with pytest.raises(ValueError, match="Expected 1 coordinate_scales"):
    subject.certify(Sign(), X[:, :2], seed=0)
