from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob import certify
from tf_privrob import layers

keras = tf.keras.layers
ORDER = {"l1": 1, "l2": 2, "linf": np.inf}
DUAL = {"l1": np.inf, "l2": 2, "linf": 1}


def chain(*parts, shape=(2,)):
  return tf.keras.Sequential([keras.Input(shape), *parts])


def linear(weights, bias, *before, shape=None):
  """logits = x @ weights + bias behind other layers."""
  weights = np.asarray(weights, np.float32)
  model = chain(
    *before, keras.Dense(weights.shape[1]), shape=shape or weights.shape[:1]
  )
  model.layers[-1].set_weights([weights, np.asarray(bias, np.float32)])
  return model


def problem(inputs=20, classes=5, count=40, seed=0):
  rng = np.random.default_rng(seed)
  model = linear(rng.normal(size=(inputs, classes)), rng.normal(size=classes))
  return model, rng.normal(size=(count, inputs)).astype(np.float32)


def exact(model, x, norm):
  """(radius, class, rival), from the formula, in float64."""
  weights, bias = (value.astype(float) for value in model.get_weights())
  results = []
  for row in x.astype(float):
    scores = row @ weights + bias
    top = scores.argmax()
    found = [
      (scores[top] - scores[j])
      / np.linalg.norm(weights[:, top] - weights[:, j], DUAL[norm])
      if j != top
      else np.inf
      for j in range(len(scores))
    ]
    results.append((min(found), top, int(np.argmin(found))))
  return results


def worst_direction(model, top, rival, norm):
  """The unit vector that lowers the margin fastest."""
  weights = model.get_weights()[0].astype(float)
  gap = weights[:, rival] - weights[:, top]
  if norm == "l2":
    return gap / np.linalg.norm(gap)
  if norm == "linf":
    return np.sign(gap)
  step = np.zeros_like(gap)
  place = np.abs(gap).argmax()
  step[place] = np.sign(gap[place])
  return step


# Exact.


@pytest.mark.parametrize(
  ("norm", "radius"), [("l2", 1.2 / 2**0.5), ("linf", 0.6), ("l1", 1.0)]
)
def test_three_classes_by_hand(norm, radius):
  """Margins 1.2 over (0, 1) and 2 over (-1, -1); in l1 the other binds."""
  model = linear([[1, 0, -1], [0, 1, -1]], [0, 0, -0.2])
  (row,) = certify.LinearMargin(norm).certify(
    model, np.array([[1, -0.2]], "f4"), np.array([0]), indices=[7]
  )
  assert row.radius == pytest.approx(radius, rel=1e-5)
  assert row.radius < radius
  assert (row.index, row.label, row.prediction) == (7, 0, 0)
  assert (row.kind, row.confidence, row.norm) == ("proven", 1.0, norm)
  assert row.method == "linear_margin"
  assert not row.abstained
  assert "Without randomness" in row.to_text()


@pytest.mark.parametrize("norm", certify.NORMS)
def test_agrees_with_brute_force(norm):
  """The nearest change of class over many directions of the plane."""
  model, x = problem(inputs=2, count=12, seed=1)
  weights, bias = model.get_weights()
  angles = np.linspace(0, 2 * np.pi, 20_001)
  step = np.stack([np.cos(angles), np.sin(angles)], -1)
  step /= np.linalg.norm(step, ORDER[norm], axis=1, keepdims=True)
  for row, point in zip(certify.LinearMargin(norm).certify(model, x), x):
    scores, speeds = point @ weights + bias, step @ weights
    lead = scores[row.prediction] - scores
    loss = speeds - speeds[:, [row.prediction]]
    with np.errstate(divide="ignore", invalid="ignore"):
      nearest = np.where(loss > 1e-9, lead / loss, np.inf).min()
    assert row.radius == pytest.approx(nearest, rel=2e-3)


@pytest.mark.parametrize("norm", certify.NORMS)
def test_nothing_flips_inside_and_the_worst_change_flips_outside(norm):
  model, x = problem()
  rng = np.random.default_rng(2)
  rows = certify.LinearMargin(norm).certify(model, x)
  for row, point, (radius, top, rival) in zip(rows, x, exact(model, x, norm)):
    assert row.prediction == top
    assert row.radius == pytest.approx(radius, rel=1e-3, abs=2e-5)
    assert row.radius < radius
    worst = worst_direction(model, top, rival, norm)
    steps = rng.normal(size=(50, len(point)))
    steps /= np.linalg.norm(steps, ORDER[norm], axis=1, keepdims=True)
    steps = 0.999 * row.radius * np.concatenate([steps, worst[None]])
    inside = model((point + steps).astype("f4")).numpy().argmax(axis=1)
    assert (inside == top).all()
    outside = (point + 1.01 * row.radius * worst).astype("f4")
    assert model(outside[None]).numpy().argmax() == rival


def flips(model, x, rows, factor, norm, steps):
  """How many inputs PGD turns at `factor` times their radius."""
  attack = attacks.PGD(
    1.0, norm, value_range=(-50.0, 50.0), steps=steps, loss="margin"
  ).compile(model)
  count = 0
  for point, row in zip(x, rows):
    size = np.float32(factor * row.radius)
    found = attack(point[None], np.array([row.prediction]), 1, size)
    count += int(model(found).numpy().argmax() != row.prediction)
  return count


def test_pgd_finds_what_lies_outside_and_nothing_inside():
  model, x = problem(count=20)
  rows = certify.LinearMargin("l2").certify(model, x)
  assert flips(model, x, rows, 1.05, "l2", steps=60) == 20
  assert flips(model, x, rows, 0.999, "l2", steps=60) == 0


def test_ties_and_constant_models():
  tie = linear([[1, 1], [0, 0]], [0, 0])
  (row,) = certify.LinearMargin().certify(tie, np.ones([1, 2], "f4"))
  assert (row.radius, row.prediction, row.abstained) == (0.0, 0, False)
  constant = linear([[0, 0], [0, 0]], [0, 1])
  (row,) = certify.LinearMargin().certify(constant, np.ones([1, 2], "f4"))
  assert (row.radius, row.prediction) == (np.inf, 1)


# Rounding.


def test_where_float32_returns_another_class_nothing_is_certified():
  """Large values that cancel: the real-number radius would be false."""
  rng = np.random.default_rng(4)
  model = linear(rng.normal(size=(500, 2)), [0, 0])
  weights = model.get_weights()[0].astype(float)
  gap = weights[:, 0] - weights[:, 1]
  x = 1e3 * rng.normal(size=(400, 500))
  x -= np.outer(x @ gap, gap) / (gap @ gap)  # onto the boundary, but for
  x = x.astype("f4")  # this rounding
  deployed = model(x).numpy().argmax(axis=1)
  true = (x.astype(float) @ weights).argmax(axis=1)
  assert (deployed != true).sum() > 5
  rows = certify.LinearMargin().certify(model, x)
  assert [row.prediction for row in rows] == deployed.tolist()
  assert max(row.radius for row in rows) == 0.0
  # Away from the boundary the same inputs are certified, a little less.
  x = (x + np.outer(np.full(400, 3.0), gap / np.linalg.norm(gap))).astype("f4")
  radii = np.array([r.radius for r in certify.LinearMargin().certify(model, x)])
  distance = x.astype(float) @ gap / np.linalg.norm(gap)
  assert (radii < distance).all()
  assert (radii > 0.5 * distance).all()


# Features.


def features(kind, classes=4):
  if kind == "random":
    front = [keras.Flatten(), layers.RandomFourierFeatures(40, 3.0, seed=1)]
  else:
    front = [layers.Scattering(5, 3, ((1.0, 3.0),)), keras.Flatten()]
  init = tf.keras.initializers.RandomNormal(seed=2)
  return chain(
    keras.Rescaling(2.0, -1.0),
    *front,
    keras.Dense(classes, kernel_initializer=init),
    shape=(8, 8, 1),
  )


@pytest.mark.parametrize("norm", certify.NORMS)
@pytest.mark.parametrize("kind", ["random", "scattering"])
def test_features_are_certified_and_no_attack_succeeds_inside(kind, norm):
  model = features(kind)
  x = np.random.default_rng(6).random((12, 8, 8, 1), "f4")
  rows = certify.LinearMargin(norm).certify(model, x)
  assert {row.method for row in rows} == {"lipschitz_margin"}
  assert {row.kind for row in rows} == {"proven"}
  assert np.median([row.radius for row in rows]) > 0
  assert flips(model, x, rows, 0.9999, norm, steps=10) == 0
  assert flips(model, x, rows, 100.0, norm, steps=10) > 3


def test_the_callers_constant_is_used_and_rounding_taken_off():
  model = features("random")
  x = np.random.default_rng(7).random((4, 8, 8, 1), "f4")
  bound = certify.feature_bound(model.layers[2])
  known = certify.LinearMargin("linf").certify(model, x)
  constant = 2 * bound.lipschitz("linf")  # Rescaling doubles
  same = certify.LinearMargin("linf", lipschitz=constant).certify(model, x)
  np.testing.assert_allclose(
    [row.radius for row in known], [row.radius for row in same], rtol=1e-3
  )
  error = 0.01
  less = certify.LinearMargin("linf", constant, error).certify(model, x)
  for one, other in zip(same, less):
    expected = max(0.0, one.radius - 2 * error / constant)
    assert other.radius == pytest.approx(expected, abs=1e-9)
  assert less[0].method == "lipschitz_margin"


def test_any_front_end_with_the_callers_constant():
  branch = keras.Input((2,))
  joined = keras.Add()([branch, keras.ReLU()(branch)])
  front = tf.keras.Model(branch, joined, name="joined")
  model = chain(front, keras.Dense(2, use_bias=False))
  model.layers[-1].set_weights([np.eye(2, dtype="f4")])
  x = np.array([[3.0, 1.0]], "f4")
  with pytest.raises(ValueError, match="Functional 'joined', whose Lipschitz"):
    certify.LinearMargin().certify(model, x)
  (row,) = certify.LinearMargin(lipschitz=2.0).certify(model, x)
  assert row.radius == pytest.approx(4 / 2**0.5 / 2, rel=1e-5)


# As any certifier.


def test_rows_survive_on_file_and_count(tmp_path):
  model, x = problem()
  y = model(x).numpy().argmax(axis=1)
  y[0] = (y[0] + 1) % 5
  path = tmp_path / "rows.csv"
  certifier = certify.LinearMargin()
  rows = certify.run(certifier, model, x, y, path, progress=False)
  again = certify.run(certifier, model, x, y, path, progress=False)
  assert again == rows
  radii = [row.radius for row in rows[1:]]
  middle = float(np.median(radii))
  curve = certify.certified_accuracy(rows, [0.0, middle], failure_prob=0.01)
  assert curve[0]["accuracy"] == 39 / 40
  assert curve[0]["lower_bound"] == 39 / 40  # none can be false
  assert curve[1]["accuracy"] == 20 / 40
  assert certifier.settings() == {
    "certifier": "LinearMargin",
    "norm": "l2",
    "lipschitz": None,
    "feature_error": 0.0,
  }


def test_row_does_not_depend_on_the_batch():
  model, x = problem(count=300)
  rows = certify.LinearMargin().certify(model, x)
  assert len(rows) == 300
  (alone,) = certify.LinearMargin().certify(model, x[299:])
  assert alone.radius == pytest.approx(rows[299].radius, rel=1e-9)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"feature_error": 0.1}, "feature_error=0 without lipschitz"),
  ],
)
def test_bad_settings(settings, message):
  with pytest.raises(ValueError, match=message):
    certify.LinearMargin(**settings)


def test_a_constant_for_a_linear_model_is_refused():
  model, x = problem()
  with pytest.raises(
    ValueError, match="lipschitz=None for a model that is lin"
  ):
    certify.LinearMargin(lipschitz=1.0).certify(model, x)
