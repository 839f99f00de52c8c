from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import papers
from tf_privrob.gradients import factors

BATCH, CLIP = 6, 0.7


def _network():
  tf.keras.utils.set_random_seed(3)
  return tf.keras.Sequential(
    [
      tf.keras.layers.Input((5, 5, 1)),
      tf.keras.layers.Conv2D(2, 3, activation="tanh", name="first"),
      tf.keras.layers.Conv2D(3, 2, activation="tanh", name="second"),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(4, activation="tanh", name="third"),
      tf.keras.layers.Dense(5, name="last"),
    ]
  )


def _batch(seed=0, count=BATCH):
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(count, 5, 5, 1)).astype("float32")
  return tf.constant(x), tf.constant(rng.normal(size=(count, 5)), tf.float32)


def _loss(network):
  def loss(batch, seed):
    x, targets = batch
    losses = tf.reduce_sum((network(x) - targets) ** 2, axis=1)
    return losses, {"first": targets[:, 0] > 0}

  return loss


def _naive(network, slices, batch, joint):
  """Clipped gradients one by one, and their coefficients."""
  rows, coefficients = [], []
  for row in range(batch[0].shape[0]):
    example = [part[row : row + 1] for part in batch]
    with tf.GradientTape() as tape:
      value = _loss(network)(example, None)[0][0]
    parts = tape.gradient(value, slices)
    whole = float(tf.linalg.global_norm([g for part in parts for g in part]))
    norms = [whole if joint else float(tf.linalg.global_norm(p)) for p in parts]
    factors = [min(1.0, CLIP / norm) for norm in norms]
    rows.append([[f * g.numpy() for g in p] for f, p in zip(factors, parts)])
    coefficients.append(factors)
  return rows, np.array(coefficients)


@pytest.mark.parametrize("joint", [False, True])
def test_sums_by_group_are_those_of_the_loop(joint):
  network, batch = _network(), _batch()
  slices = papers.layer_slices(network)
  expected, coefficients = _naive(network, slices, batch, joint)
  assert (coefficients < 1).any()
  assert joint or (np.ptp(coefficients, axis=1) > 0).any()
  seen = []
  sliced = papers.SlicedGradients(
    _loss(network),
    network,
    CLIP,
    slices,
    joint=joint,
    group="first",
    statistics=lambda batch, a: seen.append(a) or [tf.reduce_sum(a, axis=0)],
  )
  mask = tf.constant([1.0, 1, 0, 1, 1, 1])
  found = sliced(batch, mask)
  in_first = (batch[1].numpy()[:, 0] > 0) * mask.numpy()
  in_second = (batch[1].numpy()[:, 0] <= 0) * mask.numpy()
  assert in_first.sum() > 0
  assert in_second.sum() > 0
  np.testing.assert_array_equal(
    found.members, [in_first.sum(), in_second.sum()]
  )
  order = [v.ref() for part in slices for v in part]
  for members, sums in zip((in_first, in_second), found.gradients):
    for variable, value in zip(network.trainable_variables, sums):
      place = order.index(variable.ref())
      flat = [[g for part in row for g in part][place] for row in expected]
      want = sum(m * g for m, g in zip(members, flat))
      np.testing.assert_allclose(
        value, (1 - factors.SMALLEST_MARGIN) * want, atol=1e-5
      )
  np.testing.assert_allclose(
    seen[0], in_first[:, None] * coefficients, rtol=1e-4
  )
  np.testing.assert_allclose(
    found.statistics[0], (in_first[:, None] * coefficients).sum(0), rtol=1e-4
  )


@pytest.mark.parametrize("joint", [False, True])
def test_one_example_moves_the_whole_by_the_sensitivity_at_most(joint):
  network = _network()
  slices = papers.layer_slices(network)
  sliced = papers.SlicedGradients(
    _loss(network), network, CLIP, slices, joint=joint
  )
  factor = 1 if joint else math.sqrt(3)
  assert sliced.sensitivity() == pytest.approx(CLIP * factor)
  assert sliced.sensitivity("replace_one") == pytest.approx(2 * CLIP * factor)
  moves = []
  for row in range(BATCH):
    mask = np.ones(BATCH, "float32")
    with_it = sliced(_batch(), tf.constant(mask)).gradients[0]
    mask[row] = 0
    without = sliced(_batch(), tf.constant(mask)).gradients[0]
    difference = [a - b for a, b in zip(with_it, without)]
    moves.append(float(tf.linalg.global_norm(difference)))
  assert max(moves) <= sliced.sensitivity() * (1 + 1e-6)
  # Slices clipped one by one really move further than C together.
  assert joint or max(moves) > 1.5 * CLIP


def test_chunks_add_up():
  network = _network()
  sliced = papers.SlicedGradients(
    _loss(network),
    network,
    CLIP,
    papers.layer_slices(network),
    group="first",
    statistics=lambda batch, a: [tf.reduce_sum(a) * tf.eye(2)],
  )
  x, targets = _batch()
  whole = sliced((x, targets))
  chunks = [tf.reshape(t, [3, 2, *t.shape[1:]]) for t in (x, targets)]
  parts = tf.function(sliced.over_chunks)(chunks, tf.ones([3, 2]))
  tf.nest.map_structure(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), whole, parts
  )


@pytest.mark.parametrize(
  ("count", "names"),
  [
    (1, [["first", "second", "third", "last"]]),
    (2, [["first"], ["second", "third", "last"]]),
    (3, [["first"], ["second", "third"], ["last"]]),
    (4, [["first"], ["second"], ["third"], ["last"]]),
  ],
)
def test_slices_follow_the_layers(count, names):
  found = papers.layer_slices(_network(), count)
  assert [
    list(dict.fromkeys(v.name.split("/")[0] for v in part)) for part in found
  ] == names


def test_bad_slices():
  network = _network()
  with pytest.raises(ValueError, match=r"at least 5 layers .* received 4"):
    papers.layer_slices(network, 5)
  with pytest.raises(ValueError, match="count=0"):
    papers.layer_slices(network, 0)
  variables = network.trainable_variables

  def make(slices):
    papers.SlicedGradients(_loss(network), network, CLIP, slices)

  other = tf.Variable(1.0, name="other")
  for slices, text in [
    ([variables[:3], variables[3:-1]], r"missing: \['last/bias"),
    ([variables, variables[:1]], r"more than once: \['first/kernel"),
    ([variables, []], r"empty slices: \[1\]"),
    ([[*variables, other]], r"Not trainable variables: \['other"),
  ]:
    with pytest.raises(ValueError, match=text):
      make(slices)
