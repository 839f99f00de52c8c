"""Passes that may not be vectorised, and what places could not show."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import gradients
from tf_privrob.gradients import places
from tf_privrob.gradients import vectorizing

_layers = tf.keras.layers
BATCH = (
  np.random.default_rng(0).random((3, 6), np.float32),
  np.array([0, 1, 1]),
)


class _Row(_layers.Layer):
  """A layer of the caller's own, of one example at a time."""

  def __init__(self, function):
    super().__init__()
    self._of_row = function

  def call(self, x):
    if x.shape[0] == 1:
      return self._of_row(x[0])[tf.newaxis]
    return tf.map_fn(self._of_row, x)


def _histogram(row):
  # Alone, TensorFlow refuses bin 4; vectorised, it is bin 0 of the next row.
  return tf.math.unsorted_segment_sum(row, tf.cast(4 * row, tf.int32), 4)


def _branch(row):
  return tf.cond(row[0] > 0.5, lambda: tf.math.rsqrt(row + 1), lambda: row)


def _loop(row):
  return tf.while_loop(
    lambda x: tf.reduce_sum(x) < 5, lambda x: (x * 2 + 0.1,), (row,)
  )[0]


def _cut(row):
  # Examples of different lengths: vectorised, one of them ends the pass.
  rest = tf.slice(row, [tf.cast(row[0] > 0.999, tf.int32)], [-1])
  return tf.stack([tf.reduce_max(rest), row[1]])


def _cut_of_whole_numbers(row):
  levels = tf.cast(10 * row, tf.int32)
  rest = tf.slice(levels, [tf.cast(row[0] > 0.999, tf.int32)], [-1])
  return tf.stack([tf.cast(tf.reduce_max(rest), tf.float32), row[1]])


def _engine(function, rows=16):
  inputs = tf.keras.Input((6,))
  outputs = _layers.Dense(2)(_Row(function)(inputs))
  network = tf.keras.Model(inputs, outputs)

  def losses(batch, seed):
    del seed
    x, y = batch
    return tf.nn.sparse_softmax_cross_entropy_with_logits(y, network(x)), {}

  clipped = gradients.ClippedGradients(losses, network, 1.0)
  assert clipped.engine == "vectorized"
  with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    warnings.simplefilter("ignore", DeprecationWarning)  # of AutoGraph, in 3.13
    clipped.check(tuple(map(tf.constant, BATCH)), rows=rows)
  return clipped.engine, " ".join(str(warning.message) for warning in told)


@pytest.mark.parametrize(
  ("function", "named"),
  [
    (_histogram, "UnsortedSegmentSum"),
    (_branch, "If"),
    (_loop, "While"),
    (_cut, "of open shape"),
    (_cut_of_whole_numbers, "of open shape"),
  ],
)
def test_a_pass_that_might_mix_rows_is_run_one_by_one(function, named):
  engine, told = _engine(function)
  assert engine == "loop"
  assert named in told


def test_a_pass_of_known_operations_is_vectorised():
  assert _engine(lambda row: tf.tanh(2 * row)) == ("vectorized", "")


def test_operations_inside_functions_are_looked_at():
  inner = tf.function(_histogram)
  traced = tf.function(lambda row: inner(row) + 1)
  graph = traced.get_concrete_function(tf.TensorSpec([6])).graph
  assert vectorizing.unknown(graph).startswith("UnsortedSegmentSum")


# What the look at places could not see.


def _powers(x):
  return x ** tf.constant(np.linspace(0.5, 2.0, x.shape[-1]), x.dtype)


def test_powers_of_two_shapes_are_known_by_their_form():
  graph = tf.function(_powers).get_concrete_function(tf.TensorSpec([64, 7]))
  assert places.sum_by_place(graph.graph, 64) is not None


def _by_place(x):
  """Adds the number of its row, in the last bit."""
  place = tf.cast(tf.range(x.shape[0])[:, tf.newaxis], x.dtype)
  return x + 1e-3 * place


ROWS = [np.random.default_rng(1).random((4, 5), np.float32) + 1]


def test_tensors_of_open_shape_are_compared():
  def masked(x):
    # TensorFlow does not know how many columns are left.
    kept = tf.boolean_mask(x, tf.constant([True, False, True, True, True]), 1)
    return tf.math.sign(_by_place(kept))

  def honest(x):
    return tf.boolean_mask(x, tf.constant([True, False, True, True, True]), 1)

  assert places.differing(masked, ROWS, 16) is not None
  assert places.differing(honest, ROWS, 16) is None


def test_a_draw_of_zero_hides_nothing():
  seeds = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.int32)

  def dropped(x, seed):
    kept = tf.random.stateless_uniform([x.shape[0], 1], seed) > 0.7
    return tf.where(kept, tf.math.sign(_by_place(x) - 1.5), 0.0)

  def honest(x, seed):
    return x * tf.random.stateless_uniform([x.shape[0], 1], seed)

  assert places.differing(dropped, ROWS, 16, seeds) is not None
  assert places.differing(honest, ROWS, 16, seeds) is None


def test_rows_of_both_signs_are_tried_before_fixed_features():
  inputs = tf.keras.Input((5,))
  network = tf.keras.Model(
    inputs, _layers.ReLU()(_layers.Rescaling(-1)(inputs))
  )
  seen = []
  real = places.differing

  def spy(function, examples, size, seeds=None):
    seen.extend(examples)
    return real(function, examples, size, seeds)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(places, "differing", spy)
    gradients.row_by_row(network)(tf.zeros([16, 5]))
  assert seen[0].min() < -0.5
  assert seen[0].max() > 100
