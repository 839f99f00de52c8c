"""Whether a row of a batch comes out the same wherever it stands.

One example more moves others to other places. If they come out otherwise there,
be it by one bit, a kink or a cancellation can make clip norms of it, and the
sum moves further than is accounted. Two things are looked at: sums in the graph
that are known to go by place, which a later layer might hide, and rows of a
synthetic batch that change places, for whatever else a processor may do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob.models import operations

_SUMS = ("EuclideanNorm", "Mean", "Prod", "Sum")
_FEW = (1, 2, 3, 4, 8)
PACKET = 16
_SIZE, _PLACES = 32, (1, 2, 3, 5, 8, 13, 31)


def sum_by_place(graph: tf.Graph, rows: int | None = None) -> str | None:
  """Names a sum whose order of additions depends on the place of a row.

  Where axes in the middle are added up, TensorFlow takes packets of 4, 8 or 16
  numbers along the last axis in one order of additions, and what does not fill
  a packet within one row in another. All rows are alike only if the axes behind
  hold whole packets, or less than one.

  Args:
    graph: of a pass.
    rows: of its batch, if known; a tensor whose first axis holds no multiple of
      them has no rows.
  """
  for operation in _operations(graph):
    shape = operation.inputs[0].shape if operation.type in _SUMS else None
    if shape is None or (rows and shape.rank and (shape[0] or 0) % rows):
      continue
    if shape.rank is None or None in shape[1:]:
      return operation.name
    if any(_by_place(shape, axes) for axes in _axes(operation, shape.rank)):
      return operation.name
  return None


def _by_place(shape: Sequence[int], axes: Sequence[int]) -> bool:
  axes = [axis for axis in axes if shape[axis] != 1]
  if not axes or 0 in axes:
    return False  # nothing is added, or over the first axis: no row's own
  kept = math.prod(shape[max(axes) + 1 :])
  return kept not in _FEW and kept % PACKET > 0


def _axes(operation: tf.Operation, rank: int) -> list[list[int]]:
  """Which axes are added up; any single one, where nobody knows."""
  axes = tf.get_static_value(operation.inputs[1])
  if axes is None:
    try:  # a vectorised loop shifts them by an addition
      with tf.compat.v1.Session(graph=operation.graph) as session:
        axes = session.run(operation.inputs[1])
    except (tf.errors.OpError, ValueError):
      return [[axis] for axis in range(1, rank)]
  return [[int(axis) % rank for axis in np.ravel(axes)]]


def _operations(graph: tf.Graph) -> Iterator[tf.Operation]:
  """Those of the graph and of the functions that it calls."""
  yield from graph.get_operations()
  for function in graph.as_graph_def().library.function:
    called = graph._get_function(function.signature.name)
    if getattr(called, "graph", None) is not None:
      yield from called.graph.get_operations()


def alike_everywhere(network: tf.keras.Model) -> bool:
  """Whether rows of the network's output are the same at every place."""
  shape = tuple(network.input_shape[1:])
  graph = tf.function(network).get_concrete_function(
    tf.TensorSpec([None, *shape])
  )
  if sum_by_place(graph.graph) is not None:
    return False
  rows = np.random.default_rng(0).random((1, *shape), np.float32)

  def row(batch, place, seed):
    del seed
    return network(batch[0])[place]

  return same_everywhere(row, [rows], tf.zeros([2], tf.int32))


def draws(graph: tf.Graph) -> bool:
  """Whether there are random numbers, which go by place as they should."""
  return any(True for _ in operations.drawing(graph))


def same_everywhere(function, batch, seed) -> bool:
  """Whether a row's part is the same, to the bit, at several places.

  Args:
    function: `function(batch, place, seed)` returns what the row at `place`
      adds to a sum, in tensors.
    batch: of synthetic rows.
    seed: of every pass.
  """
  rows = [np.resize(tensor, [_SIZE, *tensor.shape[1:]]) for tensor in batch]
  function = tf.function(function)

  def part(place):
    moved = tuple(tf.constant(np.roll(tensor, place, 0)) for tensor in rows)
    found = function(moved, tf.constant(place), seed)
    return [tensor.numpy() for tensor in tf.nest.flatten(found)]

  first, others = part(0), map(part, _PLACES)
  return all(all(map(np.array_equal, first, other)) for other in others)
