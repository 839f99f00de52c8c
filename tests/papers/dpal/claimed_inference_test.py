"""DPAL's verified inference: the procedure, and why it is claimed."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate
from scipy import stats

from tests.certify import noisy_models
from tf_privrob import certify
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.certify.smoothing import votes
from tf_privrob.papers.dpal import claimed_inference
from tf_privrob.papers.dpal import sizes

RNG = np.random.RandomState(0)
FIRST = RNG.randn(4, 5).astype(np.float32)
SECOND = RNG.randn(5, 3).astype(np.float32)
FIXED_X, FIXED_H = RNG.randn(4).astype("f"), RNG.randn(5).astype("f")
X = RNG.randn(6, 4).astype(np.float32)
Y = np.arange(6) % 3


class Model(noisy_models.Cut):
  """Linear, with the training noise at x and at h inside."""

  input_noise_shape = (4,)
  hidden_noise_shape = (5,)

  def before(self, x):
    return (x + FIXED_X) @ FIRST + FIXED_H

  def after(self, h):
    return h @ SECOND


def certifier(**changes):
  values = {
    "input_scale": 0.4,
    "num_positions": 4,
    "hidden_sensitivity": 3.0,
    "attack_eps": 0.2,
    "num_draws": 260,
  }
  return claimed_inference.ClaimedInference(**{**values, **changes})


def _estimate(subject, model=None, x=X, seed=0):
  """By the certifier's own bound."""
  model = Model() if model is None else model
  found = subject.estimates(model, x, seed, bounds=[subject.bound])
  return found[subject.bound]


def content(rows):
  return [dataclasses.replace(row, seconds=0.0) for row in rows]


# Why the sizes are claimed.


def test_serial_laplace_noise_does_not_add_up():
  """P(N1 + N2 > 8) / P(N1 + N2 > 10) = 6.16 > e^(2/2): kappa + phi is false.

  A shift of 2 under two unit noises in series: the sum of two sizes 1 would
  hold the ratio below e. The density of N1 + N2 is (1 + |t|) e^-|t| / 4.
  """

  def tail(t):
    return (2 + t) * math.exp(-t) / 4

  def quadrature(t):
    inner = lambda z: stats.laplace.pdf(z) * stats.laplace.sf(t - z)  # noqa: E731
    points = [(-60, 0), (0, t), (t, t + 60)]
    return sum(integrate.quad(inner, *ends, epsabs=0)[0] for ends in points)

  for t in (0.0, 2.5, 8.0, 10.0):
    assert quadrature(t) == pytest.approx(tail(t), rel=1e-7)
  ratio = quadrature(8) / quadrature(10)
  assert ratio == pytest.approx(10 / 12 * math.e**2, rel=1e-7)
  assert ratio == pytest.approx(6.16, abs=5e-3)
  assert math.exp(2 / 2) < ratio < math.exp(2)  # max(kappa, phi) holds


COUNT, ALPHA, SLOPE = 600, 0.1, 2.0
LIMIT = ALPHA + 3.1 * math.sqrt(ALPHA * (1 - ALPHA) / COUNT)


class Slope(noisy_models.BySign):
  """h = 2 x, logits (0, h): the class is [x > 0] by symmetry."""

  input_noise_shape = (1,)
  hidden_noise_shape = (1,)

  def before(self, x):
    return SLOPE * x


def failure_rate(true_radius, count=COUNT, **changes):
  """Rows that claim another class or more than the true radius |x|."""
  side = np.random.RandomState(1).choice([-1.0, 1.0], count)
  values = {
    "input_scale": 0.3,
    "num_positions": 1,
    "hidden_sensitivity": SLOPE,  # the true l1 norm of the layer
    "psi": 1.0,
    "num_draws": 200,
    "confidence": 1 - ALPHA,
    "bound": "clopper_pearson",
    "attack_eps": 1.0,
  }
  subject = claimed_inference.ClaimedInference(**{**values, **changes})
  x = (side * true_radius)[:, None].astype(np.float32)
  rows = subject.certify(Slope(), x, seed=8)
  failed = [
    row.radius > 0
    and (row.prediction != (sign > 0) or row.radius > true_radius)
    for row, sign in zip(rows, side)
  ]
  return float(np.mean(failed))


@pytest.mark.parametrize("true_radius", [0.02, 0.1, 0.3])
def test_harmonic_with_true_sensitivities_keeps_the_confidence(true_radius):
  assert failure_rate(true_radius, composition="harmonic") <= LIMIT


@pytest.mark.parametrize(
  "broken",
  [
    {"composition": "paper"},
    {"composition": "released_v0"},
    {"composition": "released_v1", "dp_eps": 0.005},
    {"composition": "harmonic", "psi": 10.0},
    {"composition": "harmonic", "hidden_sensitivity": 0.05, "psi": 2.0},
  ],
)
def test_the_other_sizes_do_not(broken):
  assert failure_rate(0.1, 100, **broken) > 0.5 > LIMIT


# The procedure.


def naive_draws(index, draws, seed, scale, hidden_scale):
  """Eq. 14 by numpy, one draw at a time, from the same noise."""

  def noisy(position, value, scale):
    names = (position, index, votes.ESTIMATION)
    return noisy_models.copies(value, scale, draws, seed, names)

  def softmax(logits):
    odds = np.exp(logits - logits.max())
    return odds / odds.sum()

  products = []
  hidden = np.asarray(Model().before(X[index : index + 1]))[0]
  for x, h in zip(
    noisy("input", X[index], scale), noisy("hidden", hidden, hidden_scale)
  ):
    first = softmax(h @ SECOND)
    second = softmax(((x + FIXED_X) @ FIRST + FIXED_H) @ SECOND)
    products.append(first * second)
  return np.array(products)


@pytest.mark.parametrize("bound", score_bounds.BOUNDS)
def test_certify_equals_the_naive_procedure(bound):
  subject = certifier(bound=bound, psi=4.0)
  rows = subject.certify(Model(), X, Y, seed=5)
  for index, row in enumerate(rows):
    draws = naive_draws(index, 260, 5, 0.4 / 4, 0.8 / 4)
    counts = np.bincount(draws.argmax(axis=1), minlength=3)
    sample = score_bounds.Scores(
      260, draws.mean(axis=0), draws.var(axis=0, ddof=1), counts
    )
    ranked = counts if bound == "clopper_pearson" else sample.means
    k = int(np.argmax(ranked))
    lower, upper = score_bounds.interval(sample, bound, 0.05 / 3)
    p1, p2 = lower[k], np.delete(upper, k).max()
    eps_r = math.log(p1 / p2) / 2 if p1 > p2 else 0.0
    wanted = eps_r * (0.4 / 0.8 + 0.8 / 3.0)
    assert (row.prediction, row.radius) == (k, pytest.approx(wanted, rel=1e-4))
    assert (row.kind, row.norm, row.abstained) == ("claimed", "linf", False)
    assert (row.label, row.num_draws) == (Y[index], 520)
    assert (row.confidence, row.method) == (0.95, "dpal_paper_sum")
  assert any(row.radius > 0 for row in rows)


def test_one_estimate_serves_all_formulas():
  estimates = certifier().estimates(Model(), X, seed=5)
  assert list(estimates) == ["hoeffding", "clopper_pearson"]
  cases = itertools.product(estimates.items(), sizes.COMPOSITIONS)
  for (bound, estimate), composition in cases:
    subject = certifier(bound=bound, composition=composition, attack_eps=0.05)
    rows = subject.certify(Model(), X, seed=5)
    found = sizes.claimed_radius(
      estimate.p1_lower,
      estimate.p2_upper,
      composition,
      input_scale=0.4,
      num_positions=4,
      hidden_sensitivity=3.0,
      attack_eps=0.05,
    )
    assert found.tolist() == [row.radius for row in rows]
    assert estimate.labels.tolist() == [row.prediction for row in rows]
    assert {row.method for row in rows} == {subject.method}


@pytest.mark.parametrize("batch_size", [1, 60, 1000])
def test_batch_size_changes_nothing(batch_size):
  wanted = _estimate(certifier(), seed=3)
  found = _estimate(certifier(batch_size=batch_size), seed=3)
  np.testing.assert_array_equal(found.labels, wanted.labels)
  np.testing.assert_allclose(found.p1_lower, wanted.p1_lower, rtol=1e-5)
  np.testing.assert_allclose(found.p2_upper, wanted.p2_upper, rtol=1e-5)


def test_grouping_and_order_change_nothing():
  wanted = content(certifier().certify(Model(), X, Y, seed=[3, 4]))
  order = [4, 1, 5]
  found = certifier().certify(
    Model(), X[order], Y[order], seed=tf.constant([3, 4]), indices=order
  )
  assert content(found) == [wanted[index] for index in order]


@pytest.mark.parametrize("batch_size", [None, 1])
@pytest.mark.parametrize("num_draws", [20, 60])
def test_inputs_together_make_the_same_draws(num_draws, batch_size):
  many = RNG.randn(30, 4).astype(np.float32)
  settings = {"num_draws": num_draws, "bound": "empirical_bernstein"}
  wanted = _estimate(certifier(**settings), x=many, seed=3)
  together = certifier(inputs_together=True, batch_size=batch_size, **settings)
  found = _estimate(together, x=many, seed=3)
  np.testing.assert_array_equal(found.labels, wanted.labels)
  np.testing.assert_allclose(found.p1_lower, wanted.p1_lower, atol=1e-5)
  np.testing.assert_allclose(found.p2_upper, wanted.p2_upper, atol=1e-5)


class BatchStatistics(Model):
  """Subtracts the mean logits of the batch."""

  def after(self, h):
    logits = super().after(h)
    return logits - tf.reduce_mean(logits, axis=0)


def test_batch_statistics_are_those_of_one_draw_of_all_inputs():
  model, draws = BatchStatistics(), 30
  subject = certifier(num_draws=draws, inputs_together=True, psi=1.0)
  found = _estimate(subject, model, seed=5)
  hidden = np.asarray(model.before(X))
  inputs, hiddens = (  # [draw, input, ...]
    np.stack(
      [
        noisy_models.copies(
          row, scale, draws, 5, (position, index, votes.ESTIMATION)
        ).astype(np.float32)
        for index, row in enumerate(values)
      ],
      axis=1,
    )
    for position, values, scale in (("input", X, 0.4), ("hidden", hidden, 0.8))
  )
  mean = np.mean(
    [
      tf.nn.softmax(model(x)) * tf.nn.softmax(model.after(h))
      for x, h in zip(inputs, hiddens)
    ],
    axis=0,
  )
  margin = score_bounds.hoeffding_margin(draws, 0.05 / 3)
  np.testing.assert_array_equal(found.labels, mean.argmax(axis=1))
  np.testing.assert_allclose(
    found.p1_lower, np.maximum(mean.max(axis=1) - margin, 0), atol=1e-5
  )


def test_batch_statistics_are_refused_otherwise():
  with pytest.raises(ValueError, match="Pass inputs_together=True"):
    _estimate(certifier(), BatchStatistics())


def test_inputs_do_not_share_draws():
  rows = _estimate(certifier(), x=np.repeat(X[:1], 6, axis=0))
  assert len(set(rows.p1_lower)) == 6


def test_confidence_is_honoured():
  """The released code takes 0.95 whatever it is asked for."""
  unsure, sure = (
    certifier(confidence=confidence, bound="clopper_pearson").largest_radius(10)
    for confidence in (0.95, 0.999)
  )
  assert 0.7 * unsure < sure < 0.9 * unsure


def test_run_writes_claimed_rows(tmp_path):
  path = tmp_path / "c.csv"
  named = {"progress": False, "model_id": "Model"}
  rows = certify.run(certifier(), Model(), X, Y, path, **named)
  again = certify.run(certifier(), Model(), X, Y, path, **named)
  assert again == rows
  assert len(path.read_text().splitlines()) == 7
  with pytest.raises(ValueError, match="proven certificates only"):
    certify.certified_accuracy(rows, [0.1])
  assert 0 <= certify.claimed_accuracy(rows, [0.0])[0]["accuracy"] <= 1
  assert "certified" not in rows[0].to_text()
  with pytest.raises(ValueError, match="'paper' in the file, 'harmonic' now"):
    certify.run(certifier(composition="harmonic"), Model(), X, Y, path, **named)


def test_settings_are_json():
  settings = json.loads(json.dumps(certifier().settings()))
  assert settings["certifier"] == "ClaimedInference"
  assert (settings["psi"], settings["hidden_scale"]) == (2.0, 0.8)
  assert "batch_size" not in settings
  settings = certifier(inputs_together=True, batch_size=50).settings()
  assert (settings["inputs_together"], settings["batch_size"]) == (True, 50)


# Bad input.


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"bound": "empirical_bernstein", "num_draws": 1}, "num_draws=1 >= 2"),
    ({"composition": "released_v0", "attack_eps": None}, "Expected attack_eps"),
  ],
)
def test_bad_settings(change, message):
  with pytest.raises(ValueError, match=message):
    certifier(**change)


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (
      lambda: _estimate(certifier(), tf.keras.Sequential()),
      "Sequential without input_noise_shape, hidden_noise_shape, logits",
    ),
    (lambda: certifier().certify(Model(), X, Y + 1, seed=0), "received max 3"),
  ],
)
def test_bad_input(call, message):
  with pytest.raises(ValueError, match=message):
    call()
