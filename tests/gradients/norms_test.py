"""Norms and sums row by row: upper bounds, whatever the other rows are.

Each test says what happened before norms were bounds of each row.
"""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import gradients
from tf_privrob import papers
from tf_privrob.gradients import factors

_layers = tf.keras.layers
_CLIP = 0.5


def _normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype("float32")


def _exact(inputs, deltas):
  """Norms of the gradients in float64."""
  formed = np.einsum("btp,btq->bpq", inputs.astype("f8"), deltas.astype("f8"))
  return np.sqrt((formed**2).sum((1, 2)))


def _found(inputs, deltas, in_graph=None):
  shape = (inputs.shape[2], deltas.shape[2])

  def norms(inputs, deltas):
    factor = factors.OuterProduct(inputs, deltas, shape)
    return factors.norms([factor.squared_norms()])

  if in_graph is not None:
    norms = tf.function(norms, jit_compile=in_graph == "xla")
  return norms(tf.constant(inputs), tf.constant(deltas)).numpy()


# One position (dense), few positions (Gram route), many (gradients formed).
_SHAPES = [(1, 50, 7), (1, 3000, 10), (6, 40, 50), (9, 300, 200), (40, 6, 5)]


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("in_graph", [None, "plain", "xla"])
def test_norms_are_upper_bounds_and_tight(shape, in_graph):
  positions, p, q = shape
  inputs, deltas = _normal(8, positions, p), _normal(8, positions, q, seed=1)
  exact, found = _exact(inputs, deltas), _found(inputs, deltas, in_graph)
  assert (found >= exact).all()
  np.testing.assert_allclose(found, exact, rtol=5e-4)


def _cancelling(p, q, count=300):
  """Pairs of constant rows, whose roundings add up and do not average out."""
  rng = np.random.default_rng(0)
  a, d = rng.uniform(1, 2, (2, count, 1, 1)).astype("float32")
  drift = 1 + rng.uniform(1e-3, 3e-2, (count, 1, 1)).astype("float32")
  inputs = np.repeat(np.concatenate([a, a * drift], 1), p, axis=2)
  return inputs, np.repeat(np.concatenate([d, -d], 1), q, axis=2)


@pytest.mark.parametrize(
  ("p", "q", "in_graph"),
  [
    *((40, 40, how) for how in (None, "plain", "xla")),
    (3000, 20, "xla"),
    pytest.param(9000, 50, "plain", marks=pytest.mark.slow),
  ],
)
def test_cancelling_positions_are_not_underestimated(p, q, in_graph):
  """Before, down to a fifth: 8 roundings were allowed for, not p + q + 2 T."""
  inputs, deltas = _cancelling(p, q)
  assert (_found(inputs, deltas, in_graph) >= _exact(inputs, deltas)).all()


@pytest.mark.parametrize("positions", [1, 4])
@pytest.mark.parametrize("in_graph", [None, "plain", "xla"])
def test_squares_that_become_zero(positions, in_graph):
  """Before, pixels of 1e-19 had norm 0: nothing was clipped."""
  inputs = np.full([3, positions, 784], 1e-19, "float32")
  deltas = np.full([3, positions, 30], 1e17, "float32")
  exact, found = _exact(inputs, deltas), _found(inputs, deltas, in_graph)
  assert exact.min() > 1
  assert (found >= exact).all()


def test_gradients_whose_squares_become_zero():
  small = tf.fill([2, 3, 4], 1e-20)
  found = factors.norms([factors.Materialised(small).squared_norms()])
  assert (found.numpy() >= np.sqrt(12) * 1e-20).all()
  assert found.numpy().max() < 1e-15


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("shape", _SHAPES)
def test_one_row_does_not_change_the_norms_of_others(shape, bad):
  """Before, one overflow took everybody to float64: 18.5 C."""
  positions, p, q = shape
  inputs, deltas = _normal(4, positions, p), _normal(4, positions, q, seed=1)
  before = _found(inputs, deltas)
  inputs[2, 0, 0] = bad
  after = _found(inputs, deltas)
  np.testing.assert_array_equal(after[[0, 1, 3]], before[[0, 1, 3]])
  assert not np.isfinite(after[2])


# Whole sums.


def _network():
  tf.keras.utils.set_random_seed(3)
  return tf.keras.Sequential(
    [
      _layers.Input((8, 8, 1)),
      _layers.Conv2D(3, 3, activation="relu"),
      _layers.Flatten(),
      _layers.Dense(9, activation="tanh"),
      _layers.Dense(4),
    ]
  )


def _loss(network):
  def loss(batch, seed):
    del seed
    x, y, scale = batch
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, network(x))
    return losses * scale, {"scale": scale}

  return loss


def _batch(count=5):
  rng = np.random.default_rng(1)
  x = rng.uniform(0, 1, (count, 8, 8, 1)).astype("float32")
  return x, rng.integers(0, 4, count), np.ones(count, "float32")


def _hostile(kind, row=2):
  x, y, scale = _batch()
  if kind in ("nan", "inf"):
    x[row, 3, 3, 0] = float(kind)
  elif kind == "all_nan":
    x[row] = np.nan
  elif kind == "loss":
    scale[row] = np.nan
  else:
    scale[row] = 1e30
  return x, y, scale


@pytest.mark.parametrize(
  ("engine", "jit_compile"),
  [("ghost", False), ("ghost", True), ("vectorized", False), ("loop", False)],
)
def test_a_row_that_is_not_finite_adds_nothing(engine, jit_compile):
  """Before, D' raised where D trained, or with XLA the weights became NaN."""
  network = _network()
  clipped = gradients.ClippedGradients(
    _loss(network), network, _CLIP, engine, jit_compile
  )
  step = tf.function(clipped)
  mask = tf.constant([1.0, 1, 0, 1, 1])
  without = step(tuple(map(tf.constant, _batch())), mask)
  assert float(without.dropped) == 0
  for kind in ("nan", "inf", "all_nan", "loss", "overflow"):
    found = step(tuple(map(tf.constant, _hostile(kind))), tf.ones([5]))
    for a, b in zip(found.gradients, without.gradients):
      np.testing.assert_array_equal(a, b, kind)  # bit by bit
    np.testing.assert_array_equal(found.loss, without.loss, kind)
    np.testing.assert_array_equal(found.metrics["scale"], 4, kind)
    assert float(found.dropped) == 1, kind
    assert float(found.count) == 5, kind


def test_masked_rows_may_hold_anything():
  """Before, zero times NaN was NaN."""
  network = _network()
  clipped = gradients.ClippedGradients(_loss(network), network, _CLIP)
  mask = tf.constant([1.0, 1, 0, 1, 1])
  found = clipped(tuple(map(tf.constant, _hostile("nan"))), mask)
  expected = clipped(tuple(map(tf.constant, _batch())), mask)
  tf.nest.map_structure(np.testing.assert_array_equal, found, expected)
  assert float(found.dropped) == 0


def test_only_bad_rows_are_a_sum_of_zero():
  network = _network()
  clipped = gradients.ClippedGradients(_loss(network), network, _CLIP)
  x, y, scale = _batch()
  found = clipped(tuple(map(tf.constant, (x * np.nan, y, scale))))
  assert all(not gradient.numpy().any() for gradient in found.gradients)
  assert float(found.dropped) == 5
  assert float(found.loss) == 0


def test_chunks_count_what_was_dropped():
  network = _network()
  clipped = gradients.ClippedGradients(_loss(network), network, _CLIP)
  hostile = [np.stack([a, b]) for a, b in zip(_hostile("nan"), _batch())]
  found = tf.function(clipped.over_chunks)(
    tuple(map(tf.constant, hostile)), tf.ones([2, 5])
  )
  assert float(found.dropped) == 1
  assert float(found.count) == 10
  assert all(np.isfinite(gradient).all() for gradient in found.gradients)


@pytest.mark.parametrize("joint", [False, True])
def test_slices_drop_bad_rows_too(joint):
  network = _network()

  def statistics(batch, coefficients):
    weights = tf.reduce_sum(coefficients, axis=1)
    return [tf.reduce_sum(weights[:, None, None, None] * batch[0])]

  sliced = papers.SlicedGradients(
    _loss(network),
    network,
    _CLIP,
    papers.layer_slices(network),
    joint=joint,
    statistics=statistics,
  )
  found = sliced(tuple(map(tf.constant, _hostile("nan"))))
  mask = tf.constant([1.0, 1, 0, 1, 1])
  expected = sliced(tuple(map(tf.constant, _batch())), mask)
  assert float(found.dropped) == 1
  found = found._replace(dropped=expected.dropped, count=expected.count)
  tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("engine", gradients.ENGINES)
@pytest.mark.parametrize("size", [1e-19, 1e-30, 0.0, 1.0, 1e10])
def test_no_row_moves_the_sum_by_more_than_the_bound(engine, size):
  """Law. Before, pixels of 1e-19 under "ghost" moved the sum by 39.6 C."""
  network = tf.keras.Sequential(
    [_layers.Input((784,)), _layers.Dense(2, use_bias=False)]
  )

  def loss(batch, seed):
    del seed
    return tf.reduce_sum(1e19 * network(batch[0]), axis=1)

  clipped = gradients.ClippedGradients(loss, network, 1.0, engine)
  rows = np.zeros([3, 784], "float32")
  rows[1] = size
  total = clipped((tf.constant(rows),)).gradients[0].numpy().astype("f8")
  assert np.linalg.norm(total) <= 1
  if size == 1e-19:
    assert np.linalg.norm(total) > 0.9  # and it is no row to be dropped


@pytest.mark.parametrize("jit_compile", [False, True])
def test_an_overflow_does_not_change_the_norms_of_others(jit_compile):
  """Before, one overflow took everybody's norms to float64."""
  network = _network()
  clipped = gradients.ClippedGradients(_loss(network), network, _CLIP)
  norms = tf.function(clipped.norms, jit_compile=jit_compile)
  before = norms(tuple(map(tf.constant, _batch()))).numpy()
  after = norms(tuple(map(tf.constant, _hostile("overflow")))).numpy()
  others = [0, 1, 3, 4]
  np.testing.assert_array_equal(before[others], after[others])
  assert np.isinf(after[2])


@pytest.mark.parametrize("engine", ["ghost", "vectorized"])
@pytest.mark.parametrize("chunk", [64, 2048])
def test_rounding_of_a_long_sum_is_within_the_margin(engine, chunk):
  """Law: 2,048 equal rows less one; before, up to 1.6e-4 C beyond C."""
  for seed in range(4):
    network = tf.keras.Sequential(
      [_layers.Input((2,)), _layers.Dense(1, use_bias=False)]
    )

    def loss(batch, seed, network=network):
      del seed
      return 7 * network(batch[0])[:, 0]

    clipped = gradients.ClippedGradients(loss, network, 1e-3, engine)
    row = np.random.default_rng(seed).uniform(0.1, 1, 2).astype("float32")
    rows = tf.reshape(tf.tile(row[None], [2048, 1]), [-1, chunk, 2])
    step = tf.function(
      lambda mask, rows=rows, clipped=clipped: clipped.over_chunks(
        (rows,), mask
      ).gradients[0]
    )
    whole = step(tf.ones([2048 // chunk, chunk])).numpy().astype("f8")
    for missing in (0, 700, 2047):
      mask = np.ones(2048, "float32")
      mask[missing] = 0
      other = step(tf.constant(mask.reshape(-1, chunk))).numpy()
      assert np.linalg.norm(whole - other) <= 1e-3
