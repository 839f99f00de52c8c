import numpy as np
import pytest
import tensorflow as tf

from tests.methods import hostile_rows
from tf_privrob import models
from tf_privrob import papers
from tf_privrob.papers.halfspaces import linear

_DIMENSION = 784


def _rows(count=5, seed=0, dimension=_DIMENSION):
  rng = np.random.default_rng(seed)
  return rng.random((count, dimension)).astype("float32")


def _method(front=(), normalize=True, dimension=_DIMENSION):
  """Halfspaces behind the given layers."""
  network = models.linear((dimension,), 3)
  if front:
    network = tf.keras.Sequential(
      [
        tf.keras.layers.Input((dimension,)),
        *front,
        tf.keras.layers.Dense(3, use_bias=False),
      ]
    )
  config = papers.HalfspacesConfig(normalize=normalize)
  return papers.Halfspaces(network, config)


# Norms.


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("name", hostile_rows.NAMES)
def test_no_row_is_longer_than_1_and_none_moves_the_others(name, normalize):
  features = _method(normalize=normalize).features
  rows = _rows()
  before = features(rows).numpy()
  hostile = rows.copy()
  hostile[2] = hostile_rows.canaries(_DIMENSION, rows[2])[name]
  found = features(hostile).numpy()
  others = [0, 1, 3, 4]
  np.testing.assert_array_equal(found[others], before[others])
  assert np.isfinite(found).all()
  norm = np.linalg.norm(found[2])
  assert norm <= 1 - 1e-6
  if name in hostile_rows.WITHOUT_DIRECTION:
    assert norm == 0
  elif normalize:
    assert norm > 1 - 1e-4


@pytest.mark.parametrize("name", hostile_rows.NAMES)
def test_features_of_a_method_are_bounded_after_the_cast_too(name):
  found = _method().features(
    hostile_rows.canaries(_DIMENSION, _rows(1)[0])[name][None]
  )
  cast = tf.cast(found, tf.float32).numpy().astype("float64")
  assert np.linalg.norm(cast) <= 1 - 1e-6


@pytest.mark.parametrize("dimension", [1, 2, 13, 784, 5000])
def test_rows_keep_their_direction(dimension):
  rows = _rows(20, 1, dimension) - 0.3
  wide = rows.astype("float64")
  expected = wide / np.linalg.norm(wide, axis=1, keepdims=True)
  found = linear.bounded_rows(rows, True)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  np.testing.assert_allclose(
    linear.bounded_rows(1e-30 * rows, True), expected, atol=1e-5
  )


def test_without_normalize_only_long_rows_are_scaled():
  rows = _rows(6, 2)
  norms = np.linalg.norm(rows.astype("float64"), axis=1)
  wanted = np.array([0.01, 0.3, 0.99, 1.0, 2.0, 1e30])
  rows *= (wanted / norms)[:, None].astype("float32")
  found = np.linalg.norm(linear.bounded_rows(rows, False), axis=1)
  np.testing.assert_allclose(found, np.minimum(wanted, 1), atol=1e-5)


def test_a_row_is_the_same_in_every_batch_to_the_last_bit():
  features = _method().features
  rows = _rows(40, 3)
  whole = features(rows).numpy()
  for size in (1, 2, 3, 17):
    part = features(rows[:size]).numpy()
    np.testing.assert_array_equal(part, whole[:size])


def test_scores_and_sums_on_the_grid_are_exact():
  """Against whole numbers of Python, in every order."""
  rows = linear.bounded_rows(_rows(9, 4, 50) - 0.5, True)
  weights = linear.on_grid(linear.bounded_rows(_rows(1, 5, 50) - 0.5, True))
  scores = tf.matmul(rows, weights, transpose_b=True).numpy()[:, 0]
  whole = (rows.numpy() * 2.0**26).astype(object)
  other = (weights.numpy()[0] * 2.0**26).astype(object)
  for row, score in zip(whole, scores):
    exact = sum(int(a) * int(b) for a, b in zip(row, other))
    assert score * 2.0**52 == exact


def test_the_grid_rounds_towards_zero():
  values = tf.constant([0.9, -0.9, 2.0**-27, -(2.0**-27), 1.0], tf.float64)
  found = linear.on_grid(values).numpy()
  assert (np.abs(found) <= np.abs(values)).all()
  np.testing.assert_array_equal(found[2:], [0, 0, 1])
  np.testing.assert_allclose(found, values, atol=2.0**-26)


# What comes before the linear layer.


def _mixing():
  """Layers that look at the whole batch, and how they are written."""
  lib = tf.keras.layers
  return {
    "mean": [lib.Lambda(lambda x: x - tf.reduce_mean(x, axis=0))],
    "hidden mean": [
      lib.Lambda(lambda x: x - tf.stop_gradient(tf.reduce_mean(x, axis=0)))
    ],
    "threshold": [
      lib.Lambda(lambda x: tf.cast(x > tf.reduce_mean(x, axis=0), tf.float32))
    ],
    "a relu of one's own": [
      lib.Dense(9, activation=_relu(), trainable=False),
    ],
  }


def _relu():
  def relu(x):
    return tf.nn.relu(x) / (1e-6 + tf.reduce_max(x))

  return relu


@pytest.mark.parametrize("name", list(_mixing()))
def test_features_of_a_row_do_not_depend_on_the_others(name):
  found = _method(_mixing()[name], normalize=False, dimension=6)
  rows = _rows(8, 6, 6)
  before = found.features(rows).numpy()
  rows[3] = 100.0
  after = found.features(rows).numpy()
  others = np.arange(8) != 3
  np.testing.assert_array_equal(after[others], before[others])


@pytest.mark.parametrize("name", list(_mixing()))
def test_a_front_that_mixes_rows_is_evaluated_one_by_one(name):
  found = _method(_mixing()[name], normalize=False, dimension=6)
  rows = _rows(4, 7, 6)
  together = tf.function(found.features)(rows).numpy()
  alone = [found.features(row[None]).numpy()[0] for row in rows]
  np.testing.assert_allclose(together, alone, atol=1e-7)


class Remembering(tf.keras.layers.Layer):
  """Stores a row in a weight, which the model file then holds."""

  def build(self, shape):
    self.last = self.add_weight("last", shape[1:], trainable=False)

  def call(self, inputs):
    self.last.assign(inputs[0])
    return inputs


@pytest.mark.parametrize("kind", [papers.Halfspaces, papers.PureHalfspaces])
def test_a_front_that_writes_is_refused_before_a_step(kind):
  network = tf.keras.Sequential(
    [
      tf.keras.layers.Input((6,)),
      Remembering(),
      tf.keras.layers.Dense(3, use_bias=False),
    ]
  )
  found = kind(network)
  rows = _rows(600, 8, 6)
  with pytest.raises(ValueError, match="only reads its variables"):
    found.fit(rows, np.arange(600) % 3, verbose=0)
  assert not found.run_record
  assert not np.any(network.layers[0].last)
