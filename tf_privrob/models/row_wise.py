"""Which networks compute each row of a batch from that row alone.

Clipping bounds what one example adds to a sum only if no other example's part
changes with it, and a certificate is about one input only if no other one votes
with it. A trial on a few inputs cannot show that (a mean behind
`stop_gradient`, behind a head of zeros or beside other company leaves no
trace), so a network is known to be row-wise by what it is made of, and by
nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob.models import graph
from tf_privrob.models import known_layers
from tf_privrob.models import untouched

_layers = tf.keras.layers


def not_row_wise(
  network: tf.keras.layers.Layer, inference: bool = False
) -> str | None:
  """Names the first part that is not known to act row by row.

  Known are functional and sequential Keras models, nested too, of Keras' own
  layers (exact types, not subclasses) whose axes are not that of the batch and
  whose activations are Keras' or TensorFlow's own, sums and products of tensors
  of one rank, and this library's layers that say `row_wise = True`. Nothing is
  tried out: what is not known may well be row-wise.

  At inference batch normalisation uses what it has stored. What is asked of
  layers there is more in other ways: that they are as Keras makes them
  (`untouched.exchanged`), do not round to half precision, by which rows come
  out otherwise at other places, and are not called as in training.

  Args:
    network: What may be called with batches.
    inference: Whether it is called at inference only.

  Returns:
    A phrase such as "Lambda 'centred'", or None: each row of the output is a
    function of the same row of the input, the weights and random draws.
  """
  if type(network) in graph.MODELS:
    return _Reading(inference).in_model(network)
  return f"{_name(network)}, which is no functional or sequential model"


class _Reading:
  """One look at a network, in training or at inference."""

  def __init__(self, inference: bool):
    self._inference = inference

  def in_model(
    self, model: tf.keras.Model, ranks: Sequence[int] = ()
  ) -> str | None:
    """Of a functional or sequential model, called on tensors of these ranks."""
    if not graph.begins_with_input(model):
      return f"{_name(model)}, which does not begin with an Input layer"
    if untouched.overridden(model):
      return f"{_name(model)}, whose {untouched.overridden(model)} was replaced"
    if ranks and list(ranks) != [tensor.shape.rank for tensor in model.inputs]:
      return f"{_name(model)}, called on tensors of another rank"
    return next(filter(None, map(self._in_call, graph.calls(model))), None)

  def _in_call(self, call: graph.Call) -> str | None:
    """Of one call of one layer in a functional model."""
    layer = call.layer
    if type(layer) is _layers.InputLayer:
      shape = layer._batch_input_shape
      # Half of a network that was cut begins with a tensor of the whole.
      begins = layer.is_placeholder or self._inference
      if begins and shape and shape[0] is None:
        return None
      return f"{_name(layer)} of a fixed batch"
    if type(layer).__name__ == "TFOpLambda":  # Keras does not export it either
      return _in_operator(call)
    if not _understood(call) or (self._inference and _in_training(call)):
      return f"{_name(layer)}, called with further arguments"
    ranks = [_rank(tensor) for tensor in call.inputs]
    if None in ranks:
      return f"{_name(layer)}, called on tensors of unknown rank"
    return self._in_layer(layer, ranks) or _out_of_place(call)

  def _in_layer(self, layer, ranks: Sequence[int]) -> str | None:
    """Of a layer on tensors of these ranks."""
    if type(layer) in graph.MODELS:
      return self.in_model(layer, ranks)
    fault = known_layers.fault(layer, ranks, self._inference)
    if fault is not None:
      return f"{_name(layer)}{fault}"
    parts = known_layers.parts(layer, ranks[0])
    reasons = (self._in_layer(part, [rank]) for part, rank in parts)
    return next(filter(None, reasons), None)


def _name(layer: tf.keras.layers.Layer) -> str:
  return f"{type(layer).__name__} {layer.name!r}"


def _in_training(call: graph.Call) -> bool:
  return bool(call.kwargs.get("training"))


def _out_of_place(call: graph.Call) -> str | None:
  """Names a call whose output has the batch elsewhere than as its first axis.

  Its size is unknown: [1, batch, 5] or [batch, batch, 5], from whatever a layer
  made of its inputs, has one more such axis than they have.
  """
  known = sum(_open_axes(tensor) for tensor in call.inputs)
  for tensor in call.outputs:
    if list(tensor.shape[:1]) != [None] or _open_axes(tensor) > known:
      return f"{_name(call.layer)}, whose output has the batch elsewhere"
  return None


def _open_axes(tensor) -> int:
  """How many axes behind the first have an unknown size."""
  return list(tensor.shape[1:]).count(None)


def _rank(tensor) -> int | None:
  """Of a dense tensor of Keras."""
  if isinstance(tensor.type_spec, tf.TensorSpec):
    return tensor.shape.rank
  return None


def _understood(call: graph.Call) -> bool:
  """Whether a layer is called on tensors of the graph and on nothing else."""
  layer, inputs, by_name = call.layer, list(call.args), dict(call.kwargs)
  if type(layer) is _layers.MultiHeadAttention:
    inputs += [
      by_name.pop(name) for name in ("value", "key") if name in by_name
    ]
    inputs = [tensor for tensor in inputs if tensor is not None]
  elif len(inputs) != 1:
    return False
  elif (
    type(layer) in known_layers.SEVERAL_INPUTS or type(layer) in graph.MODELS
  ):
    inputs = tf.nest.flatten(inputs)
  return all(graph.is_symbolic(tensor) for tensor in inputs) and all(
    value is None or isinstance(value, bool) for value in by_name.values()
  )


def _in_operator(call: graph.Call) -> str | None:
  """Of a TensorFlow function that was applied to Keras tensors."""
  layer = call.layer
  # Not flattened: a nested list is a constant tensor.
  values = [*call.args, *call.kwargs.values()]
  others = [value for value in values if not graph.is_symbolic(value)]
  decorator = getattr(vars(layer).get("call"), "_tf_decorator", None)
  if layer.symbol not in known_layers.OPERATORS or decorator is None:
    return _name(layer)
  if len({_rank(tensor) for tensor in call.inputs} | {None}) != 2:
    return f"{_name(layer)}, called on tensors of several or unknown ranks"
  if not all(_is_scalar(value) for value in others):
    return f"{_name(layer)}, called with a constant tensor"
  return _out_of_place(call)


def _is_scalar(value: Any) -> bool:
  if isinstance(value, tf.Variable) or callable(value):
    return False
  return isinstance(value, (str, type(None))) or np.ndim(value) == 0
