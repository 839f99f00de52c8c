"""Layers that act row by row: exact classes, and settings to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob.models import untouched

_layers = tf.keras.layers
_activations = tf.keras.activations

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
_ACTIVATIONS = ("activation", "recurrent_activation")
_WHOLE = ("float32", "float64")
SEVERAL_INPUTS = _MERGING | _ATTENTION | {_layers.Concatenate, _layers.Dot}

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
OPERATORS = frozenset(
  """
    __operators__.add clip_by_value math.abs math.add math.divide math.exp
    math.maximum math.minimum math.multiply math.negative math.pow math.sigmoid
    math.sign math.sqrt math.square math.subtract math.tanh math.truediv
    nn.elu nn.gelu nn.leaky_relu nn.relu nn.relu6 nn.selu nn.silu math.softplus
    nn.softsign
  """.split()
)
_OUR_ROOMS = (
  "tf_privrob.layers.",
  "tf_privrob.methods.",
  "tf_privrob.papers.",
)


def fault(layer, ranks: Sequence[int], inference: bool = False) -> str | None:
  """What is not known of the layer itself; "" where it is its class."""
  kind = type(layer)
  if not _is_known(kind) and not (inference and kind in _AT_INFERENCE):
    return ""
  if untouched.overridden(layer):
    return f", whose {untouched.overridden(layer)} was replaced"
  if getattr(layer, "activity_regularizer", None) is not None:
    return " with an activity regulariser"
  for name in _ACTIVATIONS:
    if not _is_activation(getattr(layer, name, None), ranks[0]):
      return f" with an {name.replace('_', ' ')} of its own"
  if inference and untouched.exchanged(layer):
    return f", whose {untouched.exchanged(layer)} was replaced"
  if inference and layer.compute_dtype not in _WHOLE:
    return f" in {layer.compute_dtype}, which rounds by the place in a batch"
  rules = _AT_INFERENCE if inference and kind in _AT_INFERENCE else _CONDITIONS
  rule = rules.get(kind)
  return None if rule is None or rule(layer, ranks) else " with its settings"


def _is_known(kind: type) -> bool:
  says = vars(kind).get("row_wise") is True
  ours = says and untouched.lives_in(kind, _OUR_ROOMS)
  return ours or kind in _PLAIN or kind in _CELLS or kind in _CONDITIONS


def _is_activation(function, rank: int) -> bool:
  if function is None or isinstance(function, _layers.Layer):
    return True  # a layer is among `parts`
  if any(function is known for known in _OVER_THE_LAST_AXIS):
    return rank > 1
  return any(function is known for known in _ELEMENTWISE)


def parts(layer, rank: int) -> list[tuple[Any, int]]:
  """Layers inside a layer, with the rank of what they are called on."""
  kind, found = type(layer), []
  # Cells are called on one step at a time, and so are their activations.
  one_step = rank - 1 if kind in _RECURRENT else rank
  for name in _ACTIVATIONS:
    function = getattr(layer, name, None)
    if isinstance(function, _layers.Layer):
      found.append((function, one_step))
  if kind is _layers.Bidirectional:
    found += [(layer.forward_layer, rank), (layer.backward_layer, rank)]
  if kind is _layers.TimeDistributed:
    found.append((layer.layer, rank - 1))
  if kind in _RECURRENT or kind is _layers.StackedRNNCells:
    cells = getattr(layer, "cells", None) or [layer.cell]
    found += [(cell, one_step) for cell in cells]
  return found


def _axes_are_apart(layer, ranks) -> bool:
  """Whether the axes of a layer leave the batch's alone."""
  axes = np.ravel(layer.axes if type(layer) is _layers.Dot else layer.axis)
  return all(int(axis) % rank for axis in axes for rank in ranks)


def _draws_freely(layer, ranks) -> bool:
  del ranks
  return layer.noise_shape is None and np.ndim(layer.rate) == 0


def _has_own_statistics(layer, ranks) -> bool:
  """Batch normalisation that uses what is stored, where it is no training."""
  plain = layer.virtual_batch_size is None and not layer.renorm
  return plain and _axes_are_apart(layer, ranks)


def _is_frozen(layer, ranks) -> bool:
  """Batch normalisation by stored statistics, in training too."""
  return not layer.trainable and _has_own_statistics(layer, ranks)


def _alike_for_all(*values) -> Callable[..., bool]:
  """Whether what a layer computes with has one row, for all rows."""

  def condition(layer, ranks) -> bool:
    shapes = [np.shape(getattr(layer, name)) for name in values]
    return all(
      len(shape) < ranks[0] or (shape[:1] == (1,) and len(shape) == ranks[0])
      for shape in shapes
    )

  return condition


def _of_one_rank(layer, ranks) -> bool:
  """Products of tensors of several ranks match one's batch with other axes."""
  del layer
  return len(set(ranks)) == 1


def _attends_within_rows(layer, ranks) -> bool:
  axes = getattr(layer, "_attention_axes", None)
  apart = axes is None or all(0 < axis < min(ranks) - 1 for axis in axes)
  return _of_one_rank(layer, ranks) and min(ranks) > 2 and apart


def _goes_through_sequences(layer, ranks) -> bool:
  """Of vectors, one after the other, from a state of its own."""
  return ranks[0] == 3 and not (layer.stateful or layer.time_major)


_CONDITIONS = {
  # Keras settles how to join several ranks at the first call, for all calls.
  **dict.fromkeys(_MERGING, _of_one_rank),
  **dict.fromkeys(_WITH_AXIS, _axes_are_apart),
  **dict.fromkeys(_ATTENTION, _attends_within_rows),
  **dict.fromkeys(_RECURRENT, _goes_through_sequences),
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
# Where statistics and constants are those that a layer has, of these layers.
_AT_INFERENCE = {
  _layers.BatchNormalization: _has_own_statistics,
  # Nobody looks at what it is made of, which can be exchanged.
  _layers.MultiHeadAttention: lambda layer, ranks: False,
  _layers.Normalization: _alike_for_all("mean", "variance"),
  _layers.Rescaling: _alike_for_all("scale", "offset"),
}
