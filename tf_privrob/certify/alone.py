"""A model as a function of one input, whatever it makes of company.

A certificate is about f on a batch of one. Votes are counted in large batches,
and no trial shows that company has no part in them: 16 passes among strangers
say nothing of a batch of noisy copies of one input. So a model is shown batches
only where it is known to act row by row at inference by what it is made of
(`models.row_wise`). Everything else, be it a layer that nobody knows, a softmax
over the batch or a function, is shown one row at a time: by a graph that was
traced for a batch of one, or by calls, where it cannot be traced.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob.models import graph as graph_lib
from tf_privrob.models import row_wise
from tf_privrob.models import untouched

Rows = Callable[..., tf.Tensor]


def not_row_wise(model: Any, noise: bool = False) -> str | None:
  """Names a part of a model that is not known to act row by row at inference.

  Args:
    model: A Keras model, one with noise inside, or any function.
    noise: Whether it is called with noise inside; `noisy_parts` then say what
      it runs, of classes of this library only.

  Returns:
    A phrase, or None: batches may be shown to it.
  """
  try:
    parts = _noisy_parts(model) if noise else [_network(model)]
    reasons = (row_wise.not_row_wise(part, inference=True) for part in parts)
    return next(filter(None, reasons), None)
  except ValueError as error:  # of whoever reads the graph
    return str(error)


def _network(model: Any) -> tf.keras.Model:
  return (
    model if type(model) in graph_lib.MODELS else graph_lib.network_of(model)
  )


def _noisy_parts(model: Any) -> Sequence[tf.keras.Model]:
  ours = untouched.is_ours(type(model)) and hasattr(model, "noisy_parts")
  if not ours or untouched.overridden(model):
    raise ValueError(
      "Expected a model of this library with noise inside, received"
      f" {type(model).__name__}."
    )
  return model.noisy_parts


def as_logits_fn(logits_fn: Any) -> Rows:
  """Calls a Keras model in inference mode; leaves functions as they are."""
  if isinstance(logits_fn, tf.keras.Model):
    return functools.partial(logits_fn, training=False)
  if not callable(logits_fn):
    raise ValueError(
      "Expected logits_fn to be a Keras model or a function of a batch,"
      f" received {type(logits_fn).__name__}."
    )
  return logits_fn


def logits_of(model: Any) -> Rows:
  """The logits of a model at inference, each of its row alone."""
  return each(as_logits_fn(model), not_row_wise(model))


def each(function: Rows, mixing: str | None) -> Rows:
  """The function; the same of each row alone where something may mix them."""
  return function if mixing is None else OneByOne(function)


class OneByOne:
  """A function of batches that shows each row alone to another function.

  Args:
    function: From tensors, each with a row an input, to a tensor of as many.
      It is traced once for each shape of rows, and called where it cannot be.
  """

  def __init__(self, function: Rows):
    self._function = function
    self._lock = threading.RLock()
    self._made: dict[tuple, tuple] = {}

  def __call__(self, *batch: tf.Tensor) -> tf.Tensor:
    """The function of each row, in a graph or outside of one."""
    batch = tuple(map(tf.convert_to_tensor, batch))
    _, mapped = self._of(batch)
    return mapped(*batch)

  def traced(self, batch: Sequence[np.ndarray]):
    """The graph for one row such as those of a batch; None: there is none."""
    return self._of(tuple(map(tf.convert_to_tensor, batch)))[0]

  def _of(self, batch: tuple[tf.Tensor, ...]) -> tuple:
    kind = tuple((part.dtype, *part.shape[1:]) for part in batch)
    with self._lock, tf.init_scope():
      if kind not in self._made:
        self._made[kind] = self._make(batch)
      return self._made[kind]

  def _make(self, batch: tuple[tf.Tensor, ...]) -> tuple:
    specs = [tf.TensorSpec([1, *part.shape[1:]], part.dtype) for part in batch]
    try:
      traced = tf.function(
        self._function, autograph=False
      ).get_concrete_function(*specs)
      one, found = traced, traced.structured_outputs
    except Exception:  # whatever it is that cannot be traced
      zeros = [tf.zeros(spec.shape, spec.dtype) for spec in specs]
      found = tf.convert_to_tensor(self._function(*zeros))
      traced, one = None, self._called(found)

    def rows(*batch):
      return tf.map_fn(
        lambda row: one(*(part[tf.newaxis] for part in row))[0],
        batch,
        fn_output_signature=tf.TensorSpec(found.shape[1:], found.dtype),
      )

    open_batch = [
      tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) for spec in specs
    ]
    return traced, tf.function(
      rows, autograph=False, input_signature=open_batch
    )

  def _called(self, found: tf.Tensor) -> Rows:
    """The function by calls from a graph, one at a time."""

    def call(*arrays):
      with self._lock:
        return np.asarray(self._function(*map(tf.constant, arrays)))

    def one(*row):
      made = tf.numpy_function(call, row, found.dtype)
      return tf.ensure_shape(made, found.shape)

    return one
