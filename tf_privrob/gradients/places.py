"""Whether a row of a batch comes out the same wherever it stands.

One example more moves others to other places. If they come out otherwise there,
be it by one bit, a kink or a cancellation can make clip norms of it, and the
sum moves further than is accounted. Outputs can hide such a bit; what a pass
makes on the way cannot. So a batch of the real size is filled with one row, and
every tensor of the pass must have equal rows. What loops and branches inside
the graph do is seen in their results only; there, kernels that are known to go
by place on some processor are found by name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Callable

import numpy as np
import tensorflow as tf

from tf_privrob.models import operations

_SUMS = ("EuclideanNorm", "Mean", "Prod", "Sum")
# They compute a few numbers at the end of a tile otherwise than the rest.
_TILED = ("Softmax", "SoftmaxCrossEntropyWithLogits")
_BROADCASTING = ("Atan2", "Pow")  # where they have two shapes
_FEW = (1, 2, 3, 4, 8)
PACKET = 16
TRIALS = 12
_TOGETHER = 32  # tensors


def differing(
  function: Callable[..., object],
  examples: Sequence[np.ndarray],
  size: int,
  seeds: np.ndarray | None = None,
) -> str | None:
  """Names what makes different rows of equal ones, to the bit.

  Of random draws, of which every place has its own as it should, all rows get
  those of the first.

  Args:
    function: a pass, of tensors that share their first axis, and of a seed if
      there are seeds.
    examples: arrays of that many synthetic rows; each row is tried in turn.
    size: rows of a real batch.
    seeds: one for each row that is tried.

  Returns:
    The operation and its type, or None.
  """
  names = []

  @tf.autograph.experimental.do_not_convert
  def compare(batch, results):
    made = _between(batch, tf.nest.flatten(results))
    _hold_draws(made, size)
    pairs = [(tensor, _rows(tensor, size)) for tensor in made]
    pairs = [(tensor, rows) for tensor, rows in pairs if rows is not None]
    copies = [tensor for tensor in made if _has_copies(tensor, size)]
    open_ended = [tensor for tensor in made if _is_open(tensor)]
    names[:] = [f"{t.op.type} {t.op.name!r}" for t, _ in pairs]
    names.extend(f"{t.op.type} {t.op.name!r}" for t in copies + open_ended)
    equal = [_equal_copies(tensor, size) for tensor in copies]
    equal += [_equal_if_rows(tensor, size) for tensor in open_ended]
    return [
      *_equal([rows for _, rows in pairs]),
      tf.stack(equal) if equal else tf.constant([], tf.bool),
    ]

  def compared(*arguments):
    return compare(arguments[: len(examples)], function(*arguments))

  specs = [
    tf.TensorSpec([size, *rows.shape[1:]], rows.dtype) for rows in examples
  ]
  if seeds is not None:
    specs.append(tf.TensorSpec(seeds.shape[1:], seeds.dtype))
  concrete = tf.function(compared).get_concrete_function(*specs)
  for row, batch in enumerate(_batches(examples, size)):
    if seeds is not None:
      batch.append(tf.constant(seeds[row]))
    equal = np.concatenate([part.numpy() for part in concrete(*batch)])
    if not equal.all():
      return names[int(np.argmin(equal))]
  return None


def differing_results(
  function: Callable[..., object], examples: Sequence[np.ndarray], size: int
) -> bool:
  """Whether results of a function as it is, compiled or fused, tell places."""
  for batch in _batches(examples, size):
    for tensor in tf.nest.flatten(function(*batch)):
      if _has_copies(tensor, size):
        if not _equal_copies(tensor, size):
          return True
        continue
      rows = _rows(tensor, size)
      if rows is not None and not tf.reduce_all(_same(rows, 0)):
        return True
  return False


def _batches(examples, size: int) -> Iterator[list[tf.Tensor]]:
  for row in range(len(examples[0])):
    yield [
      tf.constant(np.repeat(rows[row : row + 1], size, axis=0))
      for rows in examples
    ]


def _between(batch, results) -> list[tf.Tensor]:
  """Tensors that were made from the batch or drawn, and have a part in results.

  TensorFlow writes down gradients that nobody asked for, sums over the batch
  among them; they are never computed.
  """
  needed, waiting = set(), [tensor.op for tensor in results]
  while waiting:
    operation = waiting.pop()
    if operation not in needed:
      needed.add(operation)
      waiting += [tensor.op for tensor in operation.inputs]
  known, found = {tensor.op for tensor in batch}, []
  for operation in results[0].graph.get_operations():
    if operation not in needed:
      continue
    drawn = operations.draws(operation.type)
    if drawn or any(tensor.op in known for tensor in operation.inputs):
      known.add(operation)
      found += operation.outputs
  return found


def _hold_draws(tensors: Sequence[tf.Tensor], size: int) -> None:
  """Gives every row of those who use a draw the numbers of the first row."""
  drawn = [tensor for tensor in tensors if operations.draws(tensor.op.type)]
  for tensor in drawn:
    users = [
      (operation, number)
      for operation in tensor.consumers()
      for number, source in enumerate(operation.inputs)
      if source is tensor
    ]
    held = _held(tensor, size)
    held.set_shape(tensor.shape)
    for operation, number in users:
      operation._update_input(number, held)


def _held(tensor: tf.Tensor, size: int) -> tf.Tensor:
  """The draws with the first row for all, along the axis that has the rows.

  Where there is no such axis, the first number stands for all.
  """
  lengths = tensor.shape.as_list() if tensor.shape.rank else []
  axes = [
    axis for axis, length in enumerate(lengths) if length and length % size == 0
  ]
  if axes:
    first = tf.gather(tensor, [0], axis=axes[0])
    times = [1] * len(lengths)
    times[axes[0]] = lengths[axes[0]]
    return tf.tile(first, times)
  first = tf.reshape(tensor, [-1])[:1]
  return tf.reshape(tf.tile(first, [tf.size(tensor)]), tf.shape(tensor))


def _is_open(tensor: tf.Tensor) -> bool:
  """Whether it holds numbers and its shape is known only at run time."""
  known = tensor.shape.rank is not None and tensor.shape.is_fully_defined()
  drawn = operations.draws(_type(tensor))
  return tensor.dtype.is_floating and not known and not drawn


def _equal_if_rows(tensor: tf.Tensor, size: int) -> tf.Tensor:
  """Whether all rows are equal, where it turns out to have rows."""
  flat = tf.reshape(tensor, [-1])
  length = tf.cond(
    tf.rank(tensor) > 0, lambda: tf.shape(tensor)[0], lambda: tf.constant(0)
  )
  has_rows = (length > 0) & (length % size == 0) & (tf.size(flat) > 0)

  def equal():
    together = _same(tf.reshape(flat, [size, -1]), 0)
    apart = _same(tf.reshape(flat, [length // size, size, -1]), 1)
    return tf.reduce_all(together) | tf.reduce_all(apart)

  return tf.cond(has_rows, equal, lambda: tf.constant(True))


def _rows(tensor: tf.Tensor, size: int) -> tf.Tensor | None:
  """The tensor as [size, ...] rows; None for what has none, or copies."""
  if not _is_looked_at(tensor) or _has_copies(tensor, size):
    return None
  axes = [axis for axis, length in enumerate(tensor.shape) if length == size]
  if tensor.shape[0] != size and len(axes) != 1:
    return None
  if tensor.shape[0] != size:
    tensor = tf.experimental.numpy.moveaxis(tensor, axes[0], 0)
  return tf.reshape(tensor, [size, -1])


def _is_looked_at(tensor: tf.Tensor) -> bool:
  shape = tensor.shape
  whole = shape.rank and shape.is_fully_defined() and 0 not in shape
  drawn = operations.draws(_type(tensor))
  return bool(whole) and tensor.dtype.is_floating and not drawn


def _has_copies(tensor: tf.Tensor, size: int) -> bool:
  """Whether there are several rows for each row of the batch."""
  if not _is_looked_at(tensor):
    return False
  return tensor.shape[0] > size and tensor.shape[0] % size == 0


def _equal(tensors: Sequence[tf.Tensor]) -> Iterator[tf.Tensor]:
  """Whether all rows of each tensor are equal, many of them at once.

  Graphs are slow to write, so tensors of one type are compared side by side.
  """
  for dtype, group in itertools.groupby(tensors, lambda tensor: tensor.dtype):
    del dtype
    group = list(group)
    for start in range(0, len(group), _TOGETHER):
      part = group[start : start + _TOGETHER]
      same = _same(tf.concat(part, axis=1), 0)
      ends = np.cumsum([rows.shape[1] for rows in part])
      owners = np.repeat(np.arange(len(part)), np.diff(ends, prepend=0))
      wrong = tf.math.unsorted_segment_max(
        tf.cast(~same, tf.int32), owners, len(part)
      )
      yield wrong <= 0


def _equal_copies(tensor: tf.Tensor, size: int) -> tf.Tensor:
  """Whether all rows are equal, copies next to each other or a batch apart."""
  together = _same(tf.reshape(tensor, [size, -1]), 0)
  apart = _same(tf.reshape(tensor, [tensor.shape[0] // size, size, -1]), 1)
  return tf.reduce_all(together) | tf.reduce_all(apart)


def _type(tensor: tf.Tensor) -> str:
  return "" if hasattr(tensor, "numpy") else tensor.op.type


def _same(tensor: tf.Tensor, axis: int) -> tf.Tensor:
  """Which of the other axes' numbers are the same along this one."""
  first = tf.gather(tensor, [0], axis=axis)
  nan = tf.math.is_nan(tensor) & tf.math.is_nan(first)
  return tf.reduce_all((tensor == first) | nan, axis=axis)


def sum_by_place(graph: tf.Graph, rows: int | None = None) -> str | None:
  """Names an operation that is known to go by the place of a row.

  Sums everywhere, and powers of two shapes; in functions that the graph calls,
  also kernels that compute the end of a tile otherwise, unless the graph itself
  has the same, in which case `differing` sees it.

  Where axes in the middle are added up, TensorFlow takes packets of 4, 8 or 16
  numbers along the last axis in one order of additions, and what does not fill
  a packet within one row in another. All rows are alike only if the axes behind
  hold whole packets, or less than one.

  Args:
    graph: of a pass.
    rows: of its batch, if known; a tensor whose first axis holds no multiple of
      them has no rows.
  """
  own = {_kernel(op) for op in graph.get_operations()}
  for operation in operations_of(graph):
    if _is_broadcasting(operation):
      return operation.name
    if operation.type in _TILED and _kernel(operation) not in own:
      return operation.name
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


def operations_of(graph: tf.Graph) -> Iterator[tf.Operation]:
  """Those of the graph and of the functions that it calls."""
  yield from graph.get_operations()
  for function in graph.as_graph_def().library.function:
    called = graph._get_function(function.signature.name)
    if getattr(called, "graph", None) is not None:
      yield from called.graph.get_operations()


def _is_broadcasting(operation: tf.Operation) -> bool:
  shapes = {str(t.shape) for t in operation.inputs if t.shape.rank != 0}
  return operation.type in _BROADCASTING and len(shapes) > 1


def _kernel(operation: tf.Operation) -> tuple:
  return operation.type, *(str(tensor.shape) for tensor in operation.inputs)


def draws(graph: tf.Graph) -> bool:
  """Whether there are random numbers, which go by place as they should."""
  return any(True for _ in operations.drawing(graph))
