"""What a traced function does besides computing: what it draws and keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator

import tensorflow as tf

# Operations that TensorFlow calls stateful and that write nothing: they read a
# variable or run another function. Not among them: assertions, by which one row
# decides whether the pass ends, and random operations with a state.
_HARMLESS = frozenset(
  """
    Case CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3
    CudnnRNNV2 CudnnRNNV3 If ReadVariableOp ResourceGather ResourceGatherNd
    StatefulPartitionedCall StatelessRandomGetAlg VarHandleOp
    VarIsInitializedOp VariableShape While
  """.split()
)
_CALLS_PYTHON = "PyFuncStateless"  # TensorFlow takes its word
_DRAWS = re.compile(
  "Random|Rng|Multinomial|TruncatedNormal|Stateful(Uniform|StandardNormal)"
  "|Shuffle|SampleDistorted"
)


def stateful(graph: tf.Graph) -> Iterator[tuple[str, str]]:
  """Type and name of each operation that may write, call Python or print."""
  for node in _nodes(graph):
    kind = graph.op_def_for_type(node.op)
    writes = kind.is_stateful or any(arg.is_ref for arg in kind.input_arg)
    if (writes or node.op == _CALLS_PYTHON) and node.op not in _HARMLESS:
      yield node.op, node.name


def drawing(graph: tf.Graph) -> Iterator[tuple[str, str]]:
  """Type and name of each operation that makes random numbers.

  Those that make them from a seed are among them: they go by the place of a
  row, and by whatever the seed is made of.
  """
  for node in _nodes(graph):
    if draws(node.op):
      yield node.op, node.name


def all_of(graph: tf.Graph) -> Iterator[tuple[str, str]]:
  """Type and name of every operation."""
  for node in _nodes(graph):
    yield node.op, node.name


def draws(kind: str) -> bool:
  """Whether operations of this type make random numbers."""
  return _DRAWS.search(kind) is not None


def _nodes(graph: tf.Graph) -> Iterator[tf.compat.v1.NodeDef]:
  """Those of the graph and of the functions that it calls."""
  definition = graph.as_graph_def()
  yield from definition.node
  for function in definition.library.function:
    yield from function.node_def
