"""Which networks compute each row of a batch from that row alone.

Clipping bounds what one example adds to a sum only if no other example's part
changes with it. A trial on a few inputs cannot show that (a mean behind
`stop_gradient`, or behind a head of zeros, leaves no trace), so a network is
known to be row-wise by what it is made of, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from typing import Callable

import numpy as np
import tensorflow as tf

_layers = tf.keras.layers
_activations = tf.keras.activations

_FUNCTIONAL = tf.keras.Sequential.__bases__[0]  # Keras does not export it
_MODELS = (_FUNCTIONAL, tf.keras.Sequential)

# Row by row whatever their settings, but for their activation.
_PLAIN = frozenset(
  getattr(_layers, name)
  for name in """
    Activation ELU LeakyReLU PReLU ReLU ThresholdedReLU
    Dense Conv1D Conv2D Conv3D Conv1DTranspose Conv2DTranspose Conv3DTranspose
    DepthwiseConv1D DepthwiseConv2D SeparableConv1D SeparableConv2D
    AveragePooling1D AveragePooling2D AveragePooling3D
    MaxPooling1D MaxPooling2D MaxPooling3D
    GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D
    GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    Cropping1D Cropping2D Cropping3D ZeroPadding1D ZeroPadding2D ZeroPadding3D
    UpSampling1D UpSampling2D UpSampling3D Flatten Permute RepeatVector Reshape
    GaussianDropout GaussianNoise SpatialDropout1D SpatialDropout2D
    SpatialDropout3D
  """.split()
)
_MERGING = frozenset(
  getattr(_layers, name)
  for name in "Add Average Maximum Minimum Multiply Subtract".split()
)
# Their `axis` may not be that of the batch.
_WITH_AXIS = frozenset(
  getattr(_layers, name)
  for name in """
    Concatenate GroupNormalization LayerNormalization Softmax UnitNormalization
  """.split()
)
_RECURRENT = frozenset(
  {_layers.RNN, _layers.GRU, _layers.LSTM, _layers.SimpleRNN}
)
_CELLS = frozenset({_layers.GRUCell, _layers.LSTMCell, _layers.SimpleRNNCell})
_ATTENTION = frozenset({_layers.AdditiveAttention, _layers.Attention})
_SEVERAL_INPUTS = _MERGING | _ATTENTION | {_layers.Concatenate, _layers.Dot}

# By identity: a function of the same name may do anything.
_OVER_THE_LAST_AXIS = (_activations.softmax, tf.nn.softmax, tf.nn.log_softmax)
_ELEMENTWISE = (
  *(
    getattr(_activations, name)
    for name in """
      elu exponential gelu hard_sigmoid linear mish relu selu sigmoid softplus
      softsign swish tanh
    """.split()
  ),
  *(
    getattr(tf.nn, name)
    for name in """
      elu gelu leaky_relu relu relu6 selu sigmoid silu softplus softsign tanh
    """.split()
  ),
)
# TensorFlow's own names of functions that act element by element.
_OPERATORS = frozenset(
  """
    __operators__.add clip_by_value math.abs math.add math.divide math.exp
    math.maximum math.minimum math.multiply math.negative math.pow math.sigmoid
    math.sign math.sqrt math.square math.subtract math.tanh math.truediv
    nn.elu nn.gelu nn.leaky_relu nn.relu nn.relu6 nn.selu nn.silu math.softplus
    nn.softsign
  """.split()
)
_OUR_ROOMS = ("tf_privrob.layers.", "tf_privrob.methods.")


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
  if type(network) in _MODELS:
    return _in_model(network)
  return f"{_name(network)}, which is no functional or sequential model"


def row_by_row(
  network: tf.keras.layers.Layer,
) -> Callable[..., tf.Tensor]:
  """The network as a function of each row alone, whatever it is made of.

  Returns:
    `function(inputs, training=False)`: the network itself where it is known to
    act row by row; otherwise every row is a batch of one.
  """
  if not_row_wise(network) is None:
    return lambda inputs, training=False: network(inputs, training=training)

  def batches_of_one(inputs, training=False):
    def one(row):
      return network(row[tf.newaxis], training=training)[0]

    try:
      return tf.vectorized_map(one, inputs)
    except (NotImplementedError, ValueError):  # an operation without a rule
      return tf.map_fn(one, inputs, fn_output_signature=network.compute_dtype)

  return batches_of_one


def _name(layer: tf.keras.layers.Layer) -> str:
  return f"{type(layer).__name__} {layer.name!r}"


def _in_model(model: tf.keras.Model, ranks: Sequence[int] = ()) -> str | None:
  """Of a functional or sequential model, called on tensors of these ranks."""
  if not model._is_graph_network or not getattr(
    model, "_has_explicit_input_shape", True
  ):
    return f"{_name(model)}, which does not begin with an Input layer"
  if _overridden(model):
    return f"{_name(model)}, whose {_overridden(model)} was replaced"
  if ranks and list(ranks) != [tensor.shape.rank for tensor in model.inputs]:
    return f"{_name(model)}, called on tensors of another rank"
  by_depth = sorted(model._nodes_by_depth.items(), reverse=True)
  nodes = [node for _, nodes in by_depth for node in nodes]
  return next(filter(None, map(_in_node, nodes)), None)


def _in_node(node) -> str | None:
  """Of one call of one layer in a functional model."""
  layer = node.layer
  if type(layer) is _layers.InputLayer:
    shape = layer._batch_input_shape
    if layer.is_placeholder and shape and shape[0] is None:
      return None
    return f"{_name(layer)} of a fixed batch"
  if type(layer).__name__ == "TFOpLambda":
    return _in_operator(layer, node)
  if not _understood(layer, node):
    return f"{_name(layer)}, called with further arguments"
  ranks = [_rank(tensor) for tensor in node.keras_inputs]
  if None in ranks:
    return f"{_name(layer)}, called on tensors of unknown rank"
  return _in_layer(layer, ranks)


def _rank(tensor) -> int | None:
  """Of a dense tensor of Keras."""
  if isinstance(tensor.type_spec, tf.TensorSpec):
    return tensor.shape.rank
  return None


def _understood(layer, node) -> bool:
  """Whether a layer is called on tensors of the graph and on nothing else."""
  by_name = dict(node.call_kwargs)
  inputs = list(node.call_args)
  if type(layer) is _layers.MultiHeadAttention:
    inputs += [
      by_name.pop(name) for name in ("value", "key") if name in by_name
    ]
    inputs = [tensor for tensor in inputs if tensor is not None]
  elif len(inputs) != 1:
    return False
  elif type(layer) in _SEVERAL_INPUTS or type(layer) in _MODELS:
    inputs = tf.nest.flatten(inputs)
  return all(_is_symbolic(tensor) for tensor in inputs) and all(
    value is None or isinstance(value, bool) for value in by_name.values()
  )


def _in_operator(layer, node) -> str | None:
  """Of a TensorFlow function that was applied to Keras tensors."""
  values = tf.nest.flatten([node.call_args, node.call_kwargs])
  others = [value for value in values if not _is_symbolic(value)]
  decorator = getattr(vars(layer).get("call"), "_tf_decorator", None)
  if layer.symbol not in _OPERATORS or decorator is None:
    return _name(layer)
  if len({_rank(tensor) for tensor in node.keras_inputs} | {None}) != 2:
    return f"{_name(layer)}, called on tensors of several or unknown ranks"
  if not all(_is_scalar(value) for value in others):
    return f"{_name(layer)}, called with a constant tensor"
  return None


def _is_symbolic(value: Any) -> bool:
  """Whether it is a tensor of the graph that Keras records."""
  return hasattr(value, "_keras_history")


def _is_scalar(value: Any) -> bool:
  if isinstance(value, tf.Variable) or callable(value):
    return False
  return isinstance(value, (str, type(None))) or np.ndim(value) == 0


def _in_layer(layer, ranks: Sequence[int]) -> str | None:
  """Of a layer on tensors of these ranks."""
  kind = type(layer)
  if kind in _MODELS:
    return _in_model(layer, ranks)
  fault = _fault(layer, kind, ranks)
  if fault is not None:
    return f"{_name(layer)}{fault}"
  parts = _parts(layer, kind, ranks[0])
  reasons = (_in_layer(part, [rank]) for part, rank in parts)
  return next(filter(None, reasons), None)


def _fault(layer, kind: type, ranks: Sequence[int]) -> str | None:
  """What is not known of the layer itself; "" where it is its class."""
  if not _is_known(kind):
    return ""
  if _overridden(layer):
    return f", whose {_overridden(layer)} was replaced"
  if getattr(layer, "activity_regularizer", None) is not None:
    return " with an activity regulariser"
  for name in ("activation", "recurrent_activation"):
    if not _is_activation(getattr(layer, name, None), ranks[0]):
      return f" with an {name.replace('_', ' ')} of its own"
  rule = _CONDITIONS.get(kind)
  return None if rule is None or rule(layer, ranks) else " with its settings"


def _is_known(kind: type) -> bool:
  ours = vars(kind).get("row_wise") is True and (
    f"{kind.__module__}.".startswith(_OUR_ROOMS)
  )
  return ours or kind in _PLAIN or kind in _CELLS or kind in _CONDITIONS


def _overridden(layer) -> str | None:
  """A method that this one layer has instead of its class'."""
  for name in vars(layer):
    if callable(getattr(type(layer), name, None)):
      return name
  return None


def _is_activation(function, rank: int) -> bool:
  if function is None or isinstance(function, _layers.Layer):
    return True  # a layer is among `_parts`
  if any(function is known for known in _OVER_THE_LAST_AXIS):
    return rank > 1
  return any(function is known for known in _ELEMENTWISE)


def _parts(layer, kind: type, rank: int) -> list[tuple[Any, int]]:
  """Layers inside a layer, with the rank of what they are called on."""
  parts = []
  if isinstance(getattr(layer, "activation", None), _layers.Layer):
    parts.append((layer.activation, rank))
  if kind is _layers.Bidirectional:
    parts += [(layer.forward_layer, rank), (layer.backward_layer, rank)]
  if kind is _layers.TimeDistributed:
    parts.append((layer.layer, rank - 1))
  if kind in _RECURRENT or kind is _layers.StackedRNNCells:
    cells = getattr(layer, "cells", None) or [layer.cell]
    parts += [(cell, rank) for cell in cells]
  return parts


def _axes_are_apart(layer, ranks) -> bool:
  """Whether the axes of a layer leave the batch's alone."""
  axes = np.ravel(layer.axes if type(layer) is _layers.Dot else layer.axis)
  return all(int(axis) % rank for axis in axes for rank in ranks)


def _draws_freely(layer, ranks) -> bool:
  del ranks
  return layer.noise_shape is None and np.ndim(layer.rate) == 0


def _is_frozen(layer, ranks) -> bool:
  """Batch normalisation by stored statistics."""
  plain = layer.virtual_batch_size is None and not layer.renorm
  return plain and not layer.trainable and _axes_are_apart(layer, ranks)


def _attends_within_rows(layer, ranks) -> bool:
  axes = getattr(layer, "_attention_axes", None)
  apart = axes is None or all(0 < axis < min(ranks) - 1 for axis in axes)
  return min(ranks) > 2 and apart


_CONDITIONS = {
  **dict.fromkeys(_MERGING, lambda layer, ranks: True),
  **dict.fromkeys(_WITH_AXIS, _axes_are_apart),
  **dict.fromkeys(_ATTENTION, _attends_within_rows),
  **dict.fromkeys(
    _RECURRENT, lambda layer, _: not (layer.stateful or layer.time_major)
  ),
  _layers.AlphaDropout: _draws_freely,
  _layers.BatchNormalization: _is_frozen,
  _layers.Bidirectional: lambda layer, ranks: True,
  _layers.Dot: _axes_are_apart,
  _layers.Dropout: _draws_freely,
  _layers.Embedding: lambda layer, ranks: not layer.mask_zero,
  _layers.MultiHeadAttention: _attends_within_rows,
  _layers.Rescaling: lambda layer, _: (
    not (np.ndim(layer.scale) or np.ndim(layer.offset))
  ),
  _layers.StackedRNNCells: lambda layer, ranks: True,
  _layers.TimeDistributed: lambda layer, ranks: True,
}
