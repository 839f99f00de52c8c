"""Compiled functions that are traced once per shape, and only then."""

from __future__ import annotations

import dataclasses
import os
from typing import Any
from typing import Callable

import tensorflow as tf

_SMALLEST_PIECE = 32
_MAX_PIECES = 8  # Each piece is a copy of the model in the graph.


class Traced:
  """A function of named tensors, traced once per set of names and shapes.

  Like `tf.function`, but without its warning about repeated tracing: every
  attack on every model is a graph of its own here, and rightly so.

  Args:
    function: Takes tensors by keyword.
    jit_compile: Whether XLA compiles the graph.
  """

  def __init__(self, function: Callable, jit_compile: bool = False):
    self._function = tf.function(
      lambda tensors: function(**tensors), jit_compile=jit_compile
    )
    self._graphs = {}

  @property
  def traces(self) -> int:
    """Number of graphs built so far."""
    return len(self._graphs)

  def __call__(self, **tensors: Any) -> Any:
    """Runs the graph for these names, dtypes and shapes."""
    tensors = {k: tf.convert_to_tensor(v) for k, v in tensors.items()}
    key = tuple((k, v.dtype, *v.shape) for k, v in sorted(tensors.items()))
    if key not in self._graphs:
      specs = {k: tf.TensorSpec(v.shape, v.dtype) for k, v in tensors.items()}
      self._graphs[key] = self._function.get_concrete_function(specs)
    return self._graphs[key](tensors)


def default_pieces(batch: int | None) -> int:
  """Pieces into which a batch is best split on this machine; 1: not at all.

  On CPU, a step of an attack has stretches that use a single core. One piece
  per core, side by side, fills them (benchmarks/attacks.py).
  """
  if tf.config.list_logical_devices("GPU") or not batch:
    return 1
  pieces = min(os.cpu_count() or 1, batch // _SMALLEST_PIECE, _MAX_PIECES)
  while pieces > 1 and batch % pieces:
    pieces -= 1
  return max(pieces, 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Splittable:
  """A model whose examples do not see each other: a batch may be cut."""

  model: Callable

  def __call__(self, x: tf.Tensor) -> tf.Tensor:
    """The model's logits."""
    return self.model(x)


def pieces_of(logits_fn: Callable, x: tf.Tensor) -> int:
  """Into how many pieces an attack on `logits_fn` cuts the batch `x`."""
  if not isinstance(logits_fn, Splittable) or tf.executing_eagerly():
    return 1
  return default_pieces(x.shape[0])
