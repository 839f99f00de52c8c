"""The proven certificate: its proof in numbers, its law, and bad input."""

import dataclasses
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests import marking
from tests.certify import noisy_models
from tf_privrob import certify
from tf_privrob import randomness
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.certify.noise_layer import single_layer
from tf_privrob.certify.norms import linear_norms
from tf_privrob.certify.smoothing import grid
from tf_privrob.certify.smoothing import votes

RNG = np.random.RandomState(0)
FIRST = RNG.randn(4, 5).astype(np.float32)
SECOND = RNG.randn(5, 3).astype(np.float32)
FIXED = RNG.randn(5).astype(np.float32)
X = RNG.randn(7, 4).astype(np.float32)
Y = np.arange(7) % 3
LAPLACE_GOLDEN = [-31, 1111, 814]
GAUSSIAN_GOLDEN = [-133, -188, 823]


class Model(noisy_models.Cut):
  """Logits clip(x A + fixed) B, with room for noise at x and at h."""

  input_noise_shape = (4,)
  hidden_noise_shape = (5,)

  def before(self, x):
    return tf.clip_by_value(x @ FIRST + FIXED, -4.0, 4.0)

  def after(self, h):
    return h @ SECOND


def certifier(**changes):
  values = {"scale": 0.2, "num_selection": 30, "num_estimation": 310}
  return single_layer.SingleLayerCertificate(**{**values, **changes})


def hidden(**changes):
  norm = changes.get("norm", "linf")
  stretch = linear_norms.dense_map(FIRST).norms().bound(norm, "l1")
  values = {"position": "hidden", "operator_norm": stretch, "scale": 1.5}
  return certifier(**{**values, **changes})


def content(rows):
  return [dataclasses.replace(row, seconds=0.0) for row in rows]


# The rule.


def test_tight_epsilon_by_hand():
  found = single_layer.tight_epsilon(
    [0.9, 0.9, 0.4, 0.3], [0.1, 0.05, 0.2, 0.3]
  )
  np.testing.assert_allclose(
    found,
    [
      -math.log(0.2),  # Teng, Lee and Yuan: p2 = 1 - p1
      (-math.log(0.2) - math.log(0.1)) / 2,
      math.log(2) / 2,  # pure DP below 1/2
      0,
    ],
    rtol=1e-12,
  )
  assert single_layer.tight_epsilon(1.0, 0.0) == math.inf


def test_tight_is_never_below_pure_dp_nor_above_twice():
  grid = np.linspace(0.001, 0.999, 200)
  p1, p2 = (part.ravel() for part in np.meshgrid(grid, grid))
  p1, p2 = p1[p1 + p2 <= 1], p2[p1 + p2 <= 1]
  tight = single_layer.tight_epsilon(p1, p2)
  pure = score_bounds.robust_epsilon(p1, p2)
  assert np.all(tight >= pure - 1e-12)
  assert np.all(tight <= 2 * pure + 1e-12)
  assert np.any(tight > 1.7 * pure)


def smoothed(f, step, scale):
  """E f(h + N) on a grid of two coordinates, by quadrature."""
  reach = np.arange(-14 * scale, 14 * scale + step / 2, step)
  edges = np.append(reach - step / 2, reach[-1] + step / 2)
  mass = np.diff(stats.laplace.cdf(edges, scale=scale))  # exact cell masses
  mass /= mass.sum()
  rows = np.apply_along_axis(np.convolve, 0, f, mass, mode="valid")
  return np.apply_along_axis(np.convolve, 1, rows, mass, mode="valid")


@pytest.mark.parametrize("seed", range(3))
def test_quantile_of_an_expectation_moves_at_most_with_l1(seed):
  """The Lipschitz constant of the proof, on random scores of two features."""
  scale, step = 0.5, 0.1
  f = np.random.RandomState(seed).rand(321, 321) < 0.5
  f[:, :160] |= np.random.RandomState(seed + 9).rand(321, 160) < 0.8
  quantile = stats.laplace.ppf(smoothed(f.astype(float), step, scale))
  slopes = [np.abs(np.diff(quantile, axis=axis)).max() for axis in (0, 1)]
  assert max(slopes) <= step / scale * (1 + 1e-9)
  assert max(slopes) > 0.3 * step / scale
  f = np.zeros([321, 321])
  f[160:] = 1  # a half plane attains it
  quantile = stats.laplace.ppf(smoothed(f, step, scale))
  slopes = np.diff(quantile[60:121], axis=0)  # far from the grid's ends
  np.testing.assert_allclose(slopes, step / scale, rtol=1e-3)


def test_best_case_at_mnist_golden():
  """b = 1.71, n = 2000, bounds at 0.005 a side: what proof allows in linf."""
  top = score_bounds.top_two(
    score_bounds.Scores(
      2000, np.eye(10)[0], 0, 2000 * np.eye(10, dtype=int)[0]
    ),
    "clopper_pearson",
    0.005,
  )
  for psi, wanted in ((1, 0.0064), (2, 0.0032)):
    subject = certifier(scale=1.71 / psi, rule="pure_dp")
    assert subject.radius(*top[1:], 784) == pytest.approx(wanted, abs=1e-4)
  tight = certifier(scale=1.71).radius(*top[1:], 784)
  assert tight == pytest.approx(-math.log(2 * 0.002646) * 1.71 / 784, rel=1e-3)


@pytest.mark.parametrize(
  ("norm", "stretch"), [("l1", 1), ("l2", 2), ("linf", 4)]
)
def test_radius_at_the_input_by_hand(norm, stretch):
  found = certifier(norm=norm, rule="pure_dp", scale=0.3).radius(0.8, 0.2, 4)
  assert found == pytest.approx(math.log(4) / 2 * 0.3 / stretch)


def test_radius_at_the_hidden_layer_by_hand():
  found = hidden(operator_norm=7.0, scale=0.3, norm="l2").radius(0.9, 0.1)
  assert found == pytest.approx(-math.log(0.2) * 0.3 / 7)


# The procedure.


def naive_scores(image, index, stage, draws, seed, position, scale):
  """Scores of one input by numpy, from the same noise."""
  value = image if position == "input" else Model().before(image[None])[0]
  hidden = noisy_models.copies(
    np.asarray(value), scale, draws, seed, (position, index, stage)
  )
  if position == "input":
    hidden = np.clip(hidden @ FIRST + FIXED, -4, 4)
  logits = hidden @ SECOND
  odds = np.exp(logits - logits.max(axis=1, keepdims=True))
  rounding = 16 * 2.0**-23 * np.abs(logits).max(axis=1).mean()
  return odds / odds.sum(axis=1, keepdims=True), rounding


@pytest.mark.parametrize("bound", score_bounds.BOUNDS)
@pytest.mark.parametrize("subject", [certifier, hidden])
def test_certify_equals_the_naive_procedure(subject, bound):
  subject = subject(bound=bound, confidence=0.9, norm="l2")
  rows = subject.certify(Model(), X, Y, seed=5)
  for index, row in enumerate(rows):
    (first, _), (second, rounding) = (
      naive_scores(
        X[index], index, stage, draws, 5, subject.position, subject.scale
      )
      for stage, draws in ((votes.SELECTION, 30), (votes.ESTIMATION, 310))
    )
    if bound == "clopper_pearson":
      first, second = (
        np.eye(3)[part.argmax(axis=1)] for part in (first, second)
      )
    k = int(first.sum(axis=0).argmax())
    lower, upper = score_bounds.interval(
      score_bounds.Scores(
        310,
        second.mean(axis=0),
        second.var(axis=0, ddof=1),
        second.sum(axis=0),
      ),
      bound,
      0.05,
    )
    if bound != "clopper_pearson":
      lower, upper = lower - rounding, upper + rounding
    p2 = np.delete(upper, k).max()
    assert row.abstained == (lower[k] <= p2)
    if not row.abstained:
      radius = subject.radius(lower[k], p2, 4)
      assert (row.prediction, row.radius) == (
        k,
        pytest.approx(radius, rel=1e-4),
      )
    assert (row.label, row.num_draws, row.kind) == (Y[index], 340, "proven")
    assert (row.norm, row.confidence) == ("l2", 0.9)
    assert row.method == f"laplace_{subject.position}_tight"
  assert not all(row.abstained for row in rows)


@pytest.mark.parametrize("batch_size", [1, 60, 1000])
def test_batch_size_changes_nothing(batch_size):
  wanted = hidden().certify(Model(), X, seed=3)
  found = hidden(batch_size=batch_size).certify(Model(), X, seed=3)
  assert content(found) == content(wanted)


def test_grouping_and_order_change_nothing():
  wanted = content(certifier(bound="hoeffding").certify(Model(), X, Y, seed=3))
  order = [4, 6, 0]
  found = certifier(bound="hoeffding").certify(
    Model(), X[order], Y[order], seed=3, indices=order
  )
  assert content(found) == [wanted[index] for index in order]


def test_equal_inputs_get_independent_noise_and_seeds_matter():
  same = np.repeat(X[:1], 8, axis=0)
  first, second = (
    [row.radius for row in hidden().certify(Model(), same, seed=seed)]
    for seed in (0, 1)
  )
  assert len(set(first)) > 1
  assert first != second


@pytest.mark.parametrize(
  ("factor", "accepted"), [(1, True), (2 / 3, False), (1.5, False)]
)
def test_noise_is_laplace_of_the_declared_scale(factor, accepted):
  law = grid.GridNoise("laplace", 0.7 * factor, (8,))
  noise = law.draw(np.zeros(8), randomness.Key.of(1), 250)
  p_value = stats.kstest(np.ravel(noise), stats.laplace(scale=0.7).cdf).pvalue
  assert (p_value > 1e-3) == accepted


@pytest.mark.parametrize(
  ("factor", "accepted"), [(1, True), (2 / 3, False), (1.5, False)]
)
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_noise_has_the_declared_scale_in_every_coordinate(
  law, factor, accepted
):
  scales = np.array([[0.1, 2.0], [0.7, 5.0]])
  noise = grid.GridNoise(law, scales * factor, (2, 2))
  noise = noise.draw(np.zeros([2, 2]), randomness.Key.of(1), 1000)
  law = stats.laplace if law == "laplace" else stats.norm
  for place in np.ndindex(2, 2):
    p_value = stats.kstest(
      noise[:, place[0], place[1]], law(scale=scales[place]).cdf
    ).pvalue
    assert (p_value > 1e-3) == accepted


def test_draws_are_golden():
  """A seed means the same noise for good."""
  key = votes.seed_key([1, 2]).child(3, votes.ESTIMATION, 4)
  for law, wanted in (
    ("laplace", LAPLACE_GOLDEN),
    ("gaussian", GAUSSIAN_GOLDEN),
  ):
    block = grid.GridNoise(law, 0.5, (3,)).draw(np.zeros(3), key, votes.BLOCK)
    np.testing.assert_array_equal(block[0] * 1024, wanted)


def test_graph_is_traced_once():
  traces = []

  class Counted(Model):
    def logits_with_noise(self, x, input_noise, hidden_noise):
      if isinstance(x, tf.Tensor) and not hasattr(x, "numpy"):
        traces.append(x.shape[0])
      return super().logits_with_noise(x, input_noise, hidden_noise)

  certifier().certify(Counted(), np.repeat(X, 5, axis=0), seed=0)
  # The gate's graph for its passes, and that of one row, which all draws take.
  assert traces == [175, 1]


def test_run_writes_and_resumes(tmp_path):
  path = tmp_path / "c.csv"
  named = {"seed": 2, "progress": False, "model_id": "Model"}
  rows = certify.run(certifier(), Model(), X, Y, path, **named)
  whole = path.read_bytes()
  path.write_bytes(whole[:-30])
  again = certify.run(certifier(), Model(), X, Y, path, **named)
  assert content(again) == content(rows)
  assert certify.certified_accuracy(rows, [0.0])[0]["accuracy"] > 0
  with pytest.raises(ValueError, match=r"scale = 0.2 in the file, 0.4 now"):
    certify.run(certifier(scale=0.4), Model(), X, Y, path, **named)


def test_settings_are_json():
  settings = json.loads(json.dumps(hidden().settings()))
  assert settings["certifier"] == "SingleLayerCertificate"
  assert settings["operator_norm"] == pytest.approx(
    linear_norms.dense_map(FIRST).norms().bound("linf", "l1")
  )
  assert "batch_size" not in settings


# The law: where the true radius is known.

COUNT = 300  # at a rate of twice ALPHA two deviations beyond LIMIT
ALPHA = 0.1
LIMIT = ALPHA + 3.1 * math.sqrt(ALPHA * (1 - ALPHA) / COUNT)
ROW = np.array([[2.0], [-1.0]], np.float32)  # h = 2 x_1 - x_2


class Sign(noisy_models.BySign):
  """Class by the sign of h = row . x, so g(x) = [h > 0] by symmetry."""

  hidden_noise_shape = (1,)

  def __init__(self, row):
    self._row = tf.constant(row)
    self.input_noise_shape = (row.shape[0],)

  def before(self, x):
    return x @ self._row


def failure_rate(row, true_radius, dual, count=COUNT, seed=4, **changes):
  """Rows with a wrong class or a radius beyond the true one |h| / dual."""
  rng = np.random.RandomState(seed)
  side = rng.choice([-1.0, 1.0], count)
  x = rng.randn(count, row.shape[0])
  x += np.outer(side * true_radius * dual - x @ row[:, 0], row / (row**2).sum())
  values = {"scale": 0.5, "num_selection": 25, "num_estimation": 200}
  rows = single_layer.SingleLayerCertificate(
    **{**values, "confidence": 1 - ALPHA, **changes}
  ).certify(Sign(row), x.astype(np.float32), seed=seed)
  return np.mean(
    [
      not found.abstained
      and (found.prediction != (sign > 0) or found.radius > true_radius)
      for found, sign in zip(rows, side)
    ]
  )


@pytest.mark.parametrize(
  ("norm", "true_radius"),
  marking.slow_but(
    [("l1", 0.3), ("l2", 0.3), ("linf", 0.3)],
    [("l1", 0.3), ("l2", 0.3), ("linf", 1e-3), ("linf", 0.3), ("linf", 0.8)],
  ),
)
def test_failure_rate_behind_a_layer(norm, true_radius):
  """One row, one noise: the bound is attained, so nothing is to spare."""
  dual = linear_norms.dense_map(ROW).norms().bound(norm, "l1")
  rate = failure_rate(
    ROW,
    true_radius / dual,
    dual,
    position="hidden",
    norm=norm,
    operator_norm=dual,
  )
  assert ALPHA / 10 < rate <= LIMIT


@pytest.mark.parametrize("rule", single_layer.RULES["laplace"])
@pytest.mark.parametrize("true_radius", marking.slow_but([0.5], [1e-3, 0.5]))
def test_failure_rate_at_the_input(rule, true_radius):
  rate = failure_rate(np.ones([1, 1], np.float32), true_radius, 1, rule=rule)
  assert rate <= LIMIT
  if rule == "tight":
    assert rate > ALPHA / 10


@pytest.mark.parametrize("bound", score_bounds.BOUNDS)
def test_failure_rate_holds_for_every_bound(bound):
  """Two features, in l2; the true radius is |h| / sqrt(5)."""
  rate = failure_rate(ROW, 0.02, math.sqrt(5), norm="l2", bound=bound)
  assert rate <= LIMIT


def test_b_instead_of_b_over_psi_is_caught(monkeypatch):
  """The size takes b = 0.5, the draws b/psi = 0.25."""
  monkeypatch.setitem(grid.LAWS, "laplace", lambda key, n: key.laplace(n) / 2)
  assert failure_rate(np.ones([1, 1], np.float32), 0.3, 1, 100) > 0.9


@pytest.mark.parametrize("fraction", [1 / 2, 2 / 3])
def test_too_small_an_operator_norm_is_caught(fraction):
  settings = {"position": "hidden", "operator_norm": 3 * fraction}
  assert failure_rate(ROW, 0.1, 3, 200, **settings) > 2 * LIMIT


def test_point_estimate_is_caught(monkeypatch):
  def point(scores, bound, failure_prob):
    del bound, failure_prob
    return scores.votes / scores.num_draws, scores.votes / scores.num_draws

  monkeypatch.setattr(score_bounds, "interval", point)
  assert failure_rate(np.ones([1, 1], np.float32), 0.3, 1, 200) > 2 * LIMIT


# Bad input.


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"operator_norm": 2.0}, "operator_norm=None at the input"),
    ({"position": "hidden"}, r"\(layer\).norms\(\).bound\('linf', 'l1'\)"),
    (
      {"bound": "empirical_bernstein", "num_estimation": 1},
      "num_estimation=1 >= 2",
    ),
  ],
)
def test_bad_settings(change, message):
  with pytest.raises(ValueError, match=message):
    certifier(**change)


def test_features_are_needed_for_l2_at_the_input():
  with pytest.raises(ValueError, match="num_features=None"):
    certifier(norm="l2").radius(0.9, 0.1)


class Copied(Model):
  input_noise_shape = (1,)


class BatchStatistics(Model):
  def logits_with_noise(self, x, input_noise, hidden_noise):
    logits = super().logits_with_noise(x, input_noise, hidden_noise)
    return logits - tf.reduce_mean(logits, axis=0)


class Broken(Model):
  def logits_with_noise(self, x, input_noise, hidden_noise):
    logits = super().logits_with_noise(x, input_noise, hidden_noise)
    known = tf.reduce_max(x, axis=1, keepdims=True) < X.max() + 0.3
    return tf.where(known, logits, np.nan)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ({"x": X[0]}, "batch axis"),
    ({"x": np.where(X > 0, np.nan, X)}, "first in example"),
    ({"y": Y + 1}, r"labels in \[0, 3\), received max 3"),
    ({"indices": [0] * 7}, "7 distinct indices"),
    ({"seed": 0.5}, "an int or two ints"),
    ({"logits_fn": lambda x: x}, "function without input_noise_shape"),
    ({"logits_fn": Copied()}, "changes that cancel in their sum"),
    ({"logits_fn": BatchStatistics()}, "depend on their own input alone"),
    ({"logits_fn": Broken()}, r"NaN or infinity for \d+ of 30 noisy copies"),
  ],
)
def test_bad_input(arguments, message):
  values = {"logits_fn": Model(), "x": X, "y": Y, "seed": 0, **arguments}
  with pytest.raises(ValueError, match=message):
    certifier().certify(**values)


def test_coupling_is_seen_with_a_single_input_too():
  with pytest.raises(ValueError, match="depend on their own input alone"):
    certifier().certify(BatchStatistics(), X[:1], seed=0)


def test_copied_noise_would_certify_a_false_radius():
  """Why it is refused: x_1 - x_2 is not masked by noise common to both."""

  x = np.array([0.501, 0.5])  # 0.0005 from the boundary in linf
  common = randomness.Key.of(0).laplace(500)[:, np.newaxis]
  ballots = np.bincount(np.argmin(x + common, axis=1), minlength=2)
  scores = score_bounds.Scores(500, ballots / 500, 0 * ballots, ballots)
  top = score_bounds.top_two(scores, "clopper_pearson", 0.01)
  assert certifier(scale=1.0).radius(*top[1:], 2) > 1.0
