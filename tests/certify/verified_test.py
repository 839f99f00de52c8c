"""Certificates from bounds: attacks inside the radius, bisection, bad input."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob import bounds
from tf_privrob import certify
from tf_privrob.bounds import interval

LIMIT = 0.3
RANGE = (0.0, 1.0)
RNG = np.random.RandomState(0)
X = RNG.rand(20, 6).astype(np.float32)
Y = np.arange(20) % 3
DOMAINS = [
  bounds.Interval(),
  bounds.HybridZonotope("box"),
  bounds.HybridZonotope("smooth"),
  bounds.Dual(),
]


def network(scale=1.0):
  """A margin of some size around most inputs."""
  made = tf.keras.Sequential(
    [
      tf.keras.Input((6,)),
      tf.keras.layers.Dense(8, "relu"),
      tf.keras.layers.Dense(3),
    ]
  )
  rng = np.random.RandomState(5)
  made.set_weights([scale * rng.randn(*w.shape) for w in made.get_weights()])
  return made


def content(rows):
  return [dataclasses.replace(row, seconds=0.0) for row in rows]


def attack_succeeds(model, rows, x, value_range):
  """By input, whether PGD leaves the class within the radius."""
  y = tf.constant([row.prediction for row in rows])
  radii = tf.constant([[row.radius] for row in rows], tf.float32)

  def at(u):  # u in [-1, 1] moves every input within its own radius
    moved = x + radii * u
    return moved if value_range is None else tf.clip_by_value(moved, *RANGE)

  attack = attacks.PGD(
    1.0, value_range=(-1.0, 1.0), loss="margin", steps=20, restarts=2
  )
  found = tf.function(attack)(lambda u: model(at(u)), tf.zeros_like(x), y, 0)
  return np.argmax(model(at(found)), 1) != y.numpy()


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
@pytest.mark.parametrize("value_range", [None, RANGE])
def test_no_attack_succeeds_within_the_radius(domain, value_range):
  model, x, y = network(), X[:8], Y[:8]
  verifier = certify.VerifiedBound(
    LIMIT, domain, value_range, largest=True, tolerance=0.005
  )
  rows = verifier.certify(model, x, y)
  assert [row.prediction for row in rows] == list(np.argmax(model(x), 1))
  assert [row.label for row in rows] == list(y)
  for row in rows:
    assert (row.kind, row.confidence, row.norm) == ("proven", 1.0, "linf")
    assert not row.abstained
    assert row.method.endswith("_in_range") == (value_range is not None)
  assert sum(row.radius > 0.01 for row in rows) >= 4  # else it shows nothing
  assert not attack_succeeds(model, rows, x, value_range).any()


def test_radii_that_are_too_large_are_caught(monkeypatch):
  honest = interval.Interval.rounded

  def unsound(self, step, inputs):
    found = honest(self, step, inputs)
    return found._replace(radius=(0.2 if step.is_affine else 1) * found.radius)

  monkeypatch.setattr(interval.Interval, "rounded", unsound)
  verifier = certify.VerifiedBound(LIMIT, largest=True, tolerance=0.005)
  model = network()
  rows = verifier.certify(model, X[:8])
  assert attack_succeeds(model, rows, X[:8], None).any()


def test_the_radius_asked_for():
  model = network()
  largest = certify.VerifiedBound(LIMIT, largest=True, tolerance=1e-4)
  radii = np.array([row.radius for row in largest.certify(model, X)])
  asked = float(np.median(radii[radii > 0]))
  rows = certify.VerifiedBound(asked).certify(model, X)
  for row, radius in zip(rows, radii):
    assert row.radius in (0.0, asked)
    if abs(radius - asked) > 2e-4:
      assert (row.radius > 0) == (radius > asked)
  assert {row.radius for row in rows} == {0.0, asked}


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_bisection_against_a_fine_scan(domain):
  model, tolerance = network(), 2e-3
  verifier = certify.VerifiedBound(
    LIMIT, domain, RANGE, largest=True, tolerance=tolerance
  )
  rows = verifier.certify(model, X[:6])
  sound = dataclasses.replace(domain, arithmetic="outward")
  for row in rows:
    x = X[row.index : row.index + 1]
    grid = np.arange(0.0, LIMIT, tolerance / 2)
    many, y = np.repeat(x, len(grid), 0), np.full(len(grid), row.prediction)
    worst = sound.worst_case_logits(model, many, y, grid, RANGE).numpy()
    worst[:, row.prediction] = -np.inf
    verified = grid[worst.max(1) < 0]
    assert abs(row.radius - max(verified)) <= 1.5 * tolerance
    # And it was verified itself.
    worst = sound.worst_case_logits(
      model, x, [row.prediction], row.radius, RANGE
    ).numpy()
    worst[:, row.prediction] = -np.inf
    assert row.radius == 0 or worst.max() < 0


def test_a_linear_network_has_its_true_radius():
  # z_1 - z_0 = w.x + b: the class holds for |w.x + b| / ||w||_1.
  model = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(2)])
  w = np.array([1.5, -2.0, 0.5, 1.0, -1.0, 0.25], np.float32)
  model.set_weights([np.stack([0 * w, w], 1), np.array([0.0, 0.2])])
  true = np.abs(X @ w + np.float32(0.2)) / np.abs(w).sum()
  verifier = certify.VerifiedBound(1.0, largest=True, tolerance=1e-5)
  radii = np.array([row.radius for row in verifier.certify(model, X)])
  assert np.all(radii <= true)
  np.testing.assert_allclose(radii, true, atol=2e-5)
  # From 0.1 beyond the largest radius nothing is verified.
  rows = certify.VerifiedBound(float(true.max()) + 0.1).certify(model, X)
  assert {row.radius for row in rows} == {0.0}
  # An upper limit below all radii is reached.
  limit = float(true.min()) / 2
  rows = certify.VerifiedBound(limit, largest=True).certify(model, X)
  assert {row.radius for row in rows} == {limit}


def test_rows_do_not_depend_on_the_batch():
  model = network()
  first = certify.VerifiedBound(LIMIT, largest=True, batch_size=7)
  second = dataclasses.replace(first, batch_size=None)
  rows = first.certify(model, X, Y)
  assert content(rows) == content(second.certify(model, X, Y))
  some = second.certify(model, X[[11, 3]], Y[[11, 3]], indices=[11, 3])
  assert content(some) == content([rows[11], rows[3]])
  assert first.settings() == second.settings()


def test_a_run_into_a_file(tmp_path):
  path, model = tmp_path / "rows.csv", network()
  verifier = certify.VerifiedBound(0.02, bounds.Dual(), RANGE)
  json.dumps(verifier.settings())

  def run(certifier):
    return certify.run(certifier, model, X, Y, path, progress=False)

  rows = run(verifier)
  assert run(verifier) == rows
  (curve,) = certify.certified_accuracy(rows, [0.02], failure_prob=0.01)
  assert len(path.read_text().splitlines()) == 1 + len(X)
  right = np.mean([row.correct and row.radius > 0 for row in rows])
  assert 0 < right < 1
  # Without randomness no row can be false.
  assert curve["accuracy"] == curve["lower_bound"] == right
  assert "Without randomness" in rows[0].to_text()
  with pytest.raises(ValueError, match="other settings"):
    run(dataclasses.replace(verifier, domain=bounds.Interval()))


def test_float32_rounding_is_paid_for():
  # z_1 - z_0 = 1e-4 on paper, the difference of sums of about 1e4.
  model = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(2)])
  kernel = np.full((6, 2), 1e4)
  model.set_weights([kernel, np.array([0.0, 1e-4])])
  x = np.full((1, 6), 0.3, np.float32)
  plain = bounds.Interval().worst_case_logits(model, x, [1], 0.0).numpy()
  assert plain[0, 0] < 0
  (row,) = certify.VerifiedBound(1e-9).certify(model, x)
  assert row.radius == 0


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (
      {"domain": bounds.Dual(norm="l1_median")},
      r"is a bound, received Dual\(norm='l1_median'.* estimate",
    ),
  ],
)
def test_bad_settings(changes, message):
  with pytest.raises(ValueError, match=message):
    certify.VerifiedBound(**{"attack_eps": 0.1, **changes})


def test_bad_input():
  verifier = certify.VerifiedBound(0.1, value_range=RANGE)
  with pytest.raises(ValueError, match="Expected a Keras network"):
    verifier.certify(lambda x: x, X)
  with pytest.raises(ValueError, match=r"Expected x in \[0.0, 1.0\]"):
    verifier.certify(network(), X + 1)
  with pytest.raises(ValueError, match="received max 3 in y"):
    verifier.certify(network(), X, Y + 1)
  with pytest.raises(ValueError, match="NaN or infinite values"):
    verifier.certify(network(np.nan), X)
  with pytest.warns(UserWarning, match="half of the value range"):
    certify.VerifiedBound(0.6, value_range=RANGE)
