"""Which networks compute each row of a batch from that row alone.

Clipping bounds what one example adds to a sum only if no other example's part
changes with it. A trial on a few inputs cannot show that (a mean behind
`stop_gradient`, or behind a head of zeros, leaves no trace), so a network is
known to be row-wise by what it is made of, and by nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any
from typing import Callable

import numpy as np
import tensorflow as tf

from tf_privrob.gradients import known_layers
from tf_privrob.gradients import places
from tf_privrob.models import graph
from tf_privrob.models import untouched

_layers = tf.keras.layers


def not_row_wise(network: tf.keras.layers.Layer) -> str | None:
  """Names the first part that is not known to act row by row.

  Known are functional and sequential Keras models, nested too, of Keras' own
  layers (exact types, not subclasses) whose axes are not that of the batch and
  whose activations are Keras' or TensorFlow's own, sums and products of tensors
  of one rank, and this library's layers that say `row_wise = True`. Nothing is
  tried out: what is not known may well be row-wise.

  Returns:
    A phrase such as "Lambda 'centred'", or None: each row of the output is a
    function of the same row of the input, the weights and random draws.
  """
  if type(network) in graph.MODELS:
    return _in_model(network)
  return f"{_name(network)}, which is no functional or sequential model"


def row_by_row(
  network: tf.keras.layers.Layer,
) -> Callable[..., tf.Tensor]:
  """The network as a function of each row alone, whatever it is made of.

  Returns:
    `function(inputs, training=False)`: the network itself where it is known to
    act row by row, and every row comes out the same wherever it stands in a
    batch of this size; otherwise, or in a batch of unknown size, every row is a
    batch of one.
  """
  known = not_row_wise(network) is None

  @functools.cache
  def alike(size: int) -> bool:
    shape = network.input_shape[1:]
    examples = [_trial_rows(shape)]
    spec = tf.TensorSpec([size, *shape])
    with tf.init_scope():
      concrete = tf.function(network).get_concrete_function(spec)
      return (
        places.sum_by_place(concrete.graph) is None
        and places.differing(network, examples, size) is None
        and not places.differing_results(concrete, examples, size)
      )

  def batches_of_one(inputs, training=False):
    def one(row):
      return network(row[tf.newaxis], training=training)[0]

    return tf.map_fn(one, inputs, fn_output_signature=network.compute_dtype)

  def by_row(inputs, training=False):
    size = inputs.shape[0]
    if known and size is not None and alike(size):
      return network(inputs, training=training)
    return batches_of_one(inputs, training)

  return by_row


def _trial_rows(shape: Sequence[int]) -> np.ndarray:
  """Rows of the usual ranges of values, of both signs, and constant ones."""
  rng = np.random.default_rng(0)
  half = (places.TRIALS // 2, *shape)
  return np.concatenate(
    [
      rng.uniform(0, 1, half),
      rng.uniform(-1, 1, half),
      255 * rng.uniform(0, 1, (2, *shape)),
      *(np.full((1, *shape), value) for value in (-1.0, 0.5, 1.0)),
    ]
  ).astype(np.float32)


def _name(layer: tf.keras.layers.Layer) -> str:
  return f"{type(layer).__name__} {layer.name!r}"


def _in_model(model: tf.keras.Model, ranks: Sequence[int] = ()) -> str | None:
  """Of a functional or sequential model, called on tensors of these ranks."""
  if not graph.begins_with_input(model):
    return f"{_name(model)}, which does not begin with an Input layer"
  if untouched.overridden(model):
    return f"{_name(model)}, whose {untouched.overridden(model)} was replaced"
  if ranks and list(ranks) != [tensor.shape.rank for tensor in model.inputs]:
    return f"{_name(model)}, called on tensors of another rank"
  return next(filter(None, map(_in_call, graph.calls(model))), None)


def _in_call(call: graph.Call) -> str | None:
  """Of one call of one layer in a functional model."""
  layer = call.layer
  if type(layer) is _layers.InputLayer:
    shape = layer._batch_input_shape
    if layer.is_placeholder and shape and shape[0] is None:
      return None
    return f"{_name(layer)} of a fixed batch"
  if type(layer).__name__ == "TFOpLambda":  # Keras does not export it either
    return _in_operator(call)
  if not _understood(call):
    return f"{_name(layer)}, called with further arguments"
  ranks = [_rank(tensor) for tensor in call.inputs]
  if None in ranks:
    return f"{_name(layer)}, called on tensors of unknown rank"
  return _in_layer(layer, ranks) or _out_of_place(call)


def _out_of_place(call: graph.Call) -> str | None:
  """Names a call whose output has the batch elsewhere than as its first axis.

  Its size is unknown where all others are known: [1, batch, 5] or [batch,
  batch, 5], from whatever a layer made of its inputs, would show.
  """
  open_axes = any(None in tensor.shape[1:] for tensor in call.inputs)
  for tensor in call.outputs:
    first, others = list(tensor.shape[:1]), tensor.shape[1:]
    if first != [None] or (None in others and not open_axes):
      return f"{_name(call.layer)}, whose output has the batch elsewhere"
  return None


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


def _in_layer(layer, ranks: Sequence[int]) -> str | None:
  """Of a layer on tensors of these ranks."""
  if type(layer) in graph.MODELS:
    return _in_model(layer, ranks)
  fault = known_layers.fault(layer, ranks)
  if fault is not None:
    return f"{_name(layer)}{fault}"
  parts = known_layers.parts(layer, ranks[0])
  reasons = (_in_layer(part, [rank]) for part, rank in parts)
  return next(filter(None, reasons), None)
