"""What one example more or less moves, by the step itself, up to the noise."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests import marking
from tests.methods import hostile_rows
from tf_privrob import models
from tf_privrob import papers
from tf_privrob.papers.halfspaces import config as halfspace_config
from tf_privrob.papers.halfspaces import perceptron as halfspace
from tf_privrob.papers.halfspaces import pure as halfspace_pure

_DIMENSION, _CLASSES, _COUNT = 784, 3, 30
COMPOSITIONS = halfspace_config.COMPOSITIONS


class _Seen(papers.Halfspaces):
  """Keeps the exact sums of its last step."""

  def _update(self, *args):
    self.sums = super()._update(*args)
    return self.sums


def _arrays(seed=0):
  """Many of the rows are alike."""
  rng = np.random.default_rng(seed)
  x = rng.random((_COUNT, _DIMENSION)).astype("float32")
  x[::3] = x[0]
  return x, rng.integers(0, _CLASSES, _COUNT)


def _weights(kind, seed=0):
  scale = {"zero": 0.0, "ordinary": 1.0, "huge": 1e30, "tiny": 1e-30}[kind]
  rng = np.random.default_rng(seed)
  return scale * rng.normal(size=(_DIMENSION, _CLASSES)).astype("float32")


def _ready(composition="shared_batch", **changes):
  """A method just before a step."""
  config = papers.HalfspacesConfig(
    noise_multiplier=0.0,
    batch_size=_COUNT,
    margin=0.05,
    composition=composition,
    stop_risk=0.01,
    count_weight=0.5,
    seed=0,
    **changes,
  )
  found = _Seen(models.linear((_DIMENSION,), _CLASSES), config)
  found.simulate(_COUNT)
  return found


def _sums(found, weights, x, y, rows):
  """Of one step on chunks of `rows` rows, the last of them padded."""
  found.network.layers[-1].kernel.assign(weights)
  empty = -len(x) % rows
  x = np.pad(x, ((0, empty), (0, 0))).reshape(-1, rows, _DIMENSION)
  mask = np.pad(np.ones(len(y), "float32"), (0, empty)).reshape(-1, rows)
  y = np.pad(y, (0, empty)).reshape(-1, rows)
  found.set_step(np.zeros(2, np.int64), 0)
  found.train_step((tf.constant(x), tf.constant(y), tf.constant(mask)))
  update, count = (np.asarray(part, "float64") for part in found.sums)
  return np.append(update.ravel(), found.config.count_weight * count)


@pytest.mark.parametrize(
  "kind",
  marking.slow_but(["ordinary", "huge"], ["zero", "ordinary", "huge", "tiny"]),
)
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_one_example_moves_a_release_by_at_most_its_sensitivity(
  composition, kind
):
  """Wherever it stands, whoever it is, and whatever the chunks are."""
  x, y = _arrays()
  found, weights = _ready(composition), _weights(kind)
  before = _sums(found, weights, x, y, 8)
  for name, row in hostile_rows.canaries(_DIMENSION, x[0]).items():
    for label, place, rows in ((0, 0, 8), (1, 17, 1), (2, _COUNT, 31)):
      both = np.insert(x, place, row, axis=0), np.insert(y, place, label)
      moved = np.linalg.norm(_sums(found, weights, *both, rows) - before)
      assert moved <= found.sensitivity, name
      if kind == "zero" and name in ("ordinary", "huge", "constant"):
        assert moved > (1 - 1e-4) * found.sensitivity  # all are violated


@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize("normalize", [True, False])
def test_long_rows_are_bounded_with_and_without_normalize(
  composition, normalize
):
  x, y = _arrays()
  found = _ready(composition, normalize=normalize)
  before = _sums(found, _weights("ordinary"), x, y, 8)
  for row in (np.full(_DIMENSION, 1e6), np.full(_DIMENSION, 3e38)):
    both = np.append(x, row[None].astype("float32"), axis=0), np.append(y, 0)
    moved = _sums(found, _weights("ordinary"), *both, 8) - before
    assert np.linalg.norm(moved) <= found.sensitivity


def _on_the_edge(copies=60):
  """Copies of a row and margins between the scores that float32 gives it.

  The same product is rounded one way in a batch of one and another way in a
  larger one, so that a margin between them asks for trouble.
  """
  x = _arrays()[0][:1]
  x /= np.linalg.norm(x)
  weights = _weights("ordinary", 3)
  scores = (x.astype("float64") @ weights.astype("float64"))[0]
  scores /= np.linalg.norm(weights.astype("float64"), axis=0)
  edges = abs(scores[0]) * (1 + np.linspace(-4e-6, 4e-6, 81))
  return np.repeat(x, copies, axis=0), weights, edges, np.sign(scores[0])


def test_a_row_is_violated_or_not_whatever_the_size_of_the_batch():
  """The two others' sum may not move when a third comes."""
  x, weights, edges, sign = _on_the_edge()
  features = np.asarray(_ready().features(x))
  weights = weights.astype(features.dtype)
  for margin in edges:
    found = set()
    for size in (1, 2, 3, 17, 60):
      signs = np.full((size, _CLASSES), sign, features.dtype)
      _, count = halfspace.one_versus_rest(
        features[:size], signs, weights, margin
      )
      found.add(float(count[0]) / size)
    assert len(found) == 1
    assert found <= {0.0, 1.0}


def test_a_sum_of_many_rows_loses_nothing():
  """40,000 copies of a row, and one more: float32 would round it away."""
  found = _ready(normalize=False)
  row = np.full((1, _DIMENSION), 1 / 28.5, "float32")
  features = np.repeat(np.asarray(found.features(row)), 40_001, axis=0)
  signs = np.ones((len(features), 1), features.dtype)
  weights = np.zeros((_DIMENSION, 1), features.dtype)
  sums = [
    np.asarray(
      halfspace.one_versus_rest(features[:n], signs[:n], weights, 1)[0]
    )
    for n in (40_000, 40_001)
  ]
  moved = np.linalg.norm(sums[1].astype("float64") - sums[0])
  assert moved == pytest.approx(np.linalg.norm(features[0]), rel=1e-12)


def test_kesler_cannot_be_given_a_rival_of_its_own():
  """Whatever the weights are, z has one +x and one -x."""
  features = np.eye(4)[:3]
  labels = np.eye(3)
  for scale in (1e308, -1e308, math.nan, math.inf, 0.0):
    weights = np.full((4, 3), scale)
    weights[:, 0] = 1.0
    update, count = halfspace.kesler(features, labels, weights, 2.0)
    for row in range(3):
      alone, _ = halfspace.kesler(
        features[row : row + 1], labels[row : row + 1], weights, 2.0
      )
      assert np.linalg.norm(alone) in (0.0, pytest.approx(math.sqrt(2)))
    assert np.isfinite(update).all()
    assert 0 <= float(count[0]) <= 3


# The exponential mechanism's scores.


class _Scores(papers.PureHalfspaces):
  """Counts errors as a step does."""

  def counts(self, x, y, rows, margin=None):
    total, margin = 0.0, margin or self.config.margin
    for start in range(0, len(x), rows):
      part = slice(start, start + rows)
      one_hot = np.eye(_CLASSES)[y[part]]
      joined = np.append(one_hot, np.ones((len(one_hot), 1)), axis=1)
      features = self.features(x[part])
      total += np.asarray(
        halfspace_pure.errors(
          features,
          tf.constant(joined, features.dtype),
          self.net,
          margin,
        )
      )
    return total


def _pure(margin=0.02, **changes):
  config = papers.PureHalfspacesConfig(
    net_size=64, margin=margin, seed=0, **changes
  )
  found = _Scores(models.linear((_DIMENSION,), _CLASSES), config)
  found.compile()
  found.prepare(None, None, None, None)
  return found


@pytest.mark.parametrize("projected", marking.slow_but([None], [None, 6]))
@pytest.mark.parametrize("name", hostile_rows.NAMES)
def test_one_example_raises_every_count_by_0_or_1(name, projected):
  """One way only, for every vector and class, in every chunk."""
  found = _pure(projected_dimensions=projected)
  x, y = _arrays()
  row = hostile_rows.canaries(_DIMENSION, x[0])[name]
  for label, place, sizes in (
    (0, 0, (7, 1)),
    (1, 30, (30, 31)),
    (2, 9, (4, 5)),
  ):
    both = np.insert(x, place, row, axis=0), np.insert(y, place, label)
    moved = found.counts(*both, sizes[0]) - found.counts(x, y, sizes[1])
    assert set(moved.ravel()) <= {0.0, 1.0}
    if name in hostile_rows.WITHOUT_DIRECTION:
      assert (moved == 1).all()  # the same for all vectors


@pytest.mark.parametrize("projected", marking.slow_but([None], [None, 6]))
def test_a_count_does_not_depend_on_the_chunks(projected):
  """Margins at the scores themselves, where one rounding decides."""
  x, y = _arrays()
  found = _pure(projected_dimensions=projected)
  net = np.asarray(found.net, "float64")
  scores = np.abs(np.asarray(found.features(x[:1]), "float64") @ net.T)[0]
  for margin in np.concatenate(
    [scores[:6] * (1 + step) for step in (-2e-7, -1e-7, 0, 1e-7, 2e-7)]
  ):
    counts = [found.counts(x, y, rows, float(margin)) for rows in (1, 2, 30)]
    np.testing.assert_array_equal(counts[0], counts[1])
    np.testing.assert_array_equal(counts[0], counts[2])


def test_a_step_counts_the_same_errors():
  """The choice with a large budget is the vector with the fewest."""
  x, y = _arrays()
  network = models.linear((_DIMENSION,), _CLASSES)
  config = papers.PureHalfspacesConfig(
    dp_epsilon=3e6, net_size=64, margin=0.02, physical_batch_size=4, seed=0
  )
  found = papers.PureHalfspaces(network, config)
  found.fit(x, y, verbose=0)
  pure = _pure()
  best = pure.counts(x, y, 7)
  net = np.asarray(pure.net)
  chosen = (net @ found.network.layers[-1].kernel.numpy()).argmax(axis=0)
  for k, index in enumerate(chosen):
    assert best[k, index] == best[k].min()
