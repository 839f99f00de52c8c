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

import numpy as np
import tensorflow as tf

_SUMS = ("EuclideanNorm", "Mean", "Prod", "Sum")
_FEW = (1, 2, 3, 4, 8)
_PACKET = 16
_SIZE, _PLACES = 32, (1, 2, 3, 5, 8, 13, 31)


def sum_by_place(graph: tf.Graph) -> str | None:
  """Names a sum whose order of additions depends on the place of a row.

  Where axes in the middle are added up, TensorFlow takes packets of 4, 8 or 16
  numbers along the last axis in one order of additions, and what does not fill
  a packet within one row in another. All rows are alike only if the axes behind
  hold whole packets, or less than one.
  """
  for name, shape, axes in _sums(graph):
    kept = math.prod(shape[max(axes) + 1 :])
    if kept not in _FEW and kept % _PACKET:
      return name
  return None


def _sums(graph: tf.Graph) -> Iterator[tuple[str, list[int], list[int]]]:
  """Name, shape and added axes of all sums over more than one number."""
  for operation in _operations(graph):
    if operation.type not in _SUMS:
      continue
    shape, axes = (
      operation.inputs[0].shape,
      tf.get_static_value(operation.inputs[1]),
    )
    if shape.rank is None or axes is None or None in shape[1:]:
      yield operation.name, [0, 1, 5], [1]  # of unknown axes: it may be one
      continue
    axes = [int(axis) % shape.rank for axis in np.ravel(axes)]
    # Over the first axis a sum is no row's own.
    if axes and 0 not in axes and math.prod(shape[a] for a in axes) > 1:
      yield operation.name, list(shape), axes


def _operations(graph: tf.Graph) -> Iterator[tf.Operation]:
  """Those of the graph and of the functions that it calls."""
  yield from graph.get_operations()
  for function in graph.as_graph_def().library.function:
    called = graph._get_function(function.signature.name)
    if getattr(called, "graph", None) is not None:
      yield from called.graph.get_operations()


def same_everywhere(function, batch, seed) -> bool | None:
  """Whether a row's part is the same, to the bit, at several places.

  Args:
    function: `function(batch, place, seed)` returns what the row at `place`
      adds to a sum, in tensors.
    batch: of synthetic rows.
    seed: of every pass.

  Returns:
    None where it follows the seed, so that nothing can be compared.
  """
  rows = [np.resize(tensor, [_SIZE, *tensor.shape[1:]]) for tensor in batch]
  function = tf.function(function)

  def part(place, seed):
    moved = tuple(tf.constant(np.roll(tensor, place, 0)) for tensor in rows)
    return [t.numpy() for t in function(moved, tf.constant(place), seed)]

  first = part(0, seed)
  if not all(map(np.array_equal, first, part(0, seed + 1))):
    return None
  parts = (part(place, seed) for place in _PLACES)
  return all(all(map(np.array_equal, first, other)) for other in parts)
