"""Batch normalisation as part of the layer before it, once training is over."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf

from tf_privrob.models import graph
from tf_privrob.models import marks

_layers = tf.keras.layers
_LINEAR = (_layers.Conv2D, _layers.Dense)


def folded(network: tf.keras.Model) -> tf.keras.Model:
  """The same function at inference, without batch normalisation.

  With s = sqrt(variance + epsilon) of the moving variance,

    gamma (W x + b - mean) / s + beta = (gamma W / s) x + gamma (b - mean) / s +
    beta,

  one convolution or dense layer, to rounding. A frozen classifier is spared the
  layer, and gradients through it stay row-wise at every size.

  Args:
    network: a functional or sequential model; it is left alone. A normalisation
      that follows something else than a linear layer, or a layer that feeds
      others, too, stays.

  Returns:
    The network itself where nothing can be folded.
  """
  found = _pairs(network)
  if not found:
    return network
  gone = {layer.name for layer in found.values()}

  def clone(layer):
    config = layer.get_config()
    if layer.name in gone:
      return _layers.Activation("linear", name=layer.name)
    if layer.name in found:
      config["use_bias"] = True
    return type(layer).from_config(config)

  made = tf.keras.models.clone_model(network, clone_function=clone)
  for layer in made.layers:
    if layer.name in gone or isinstance(layer, _layers.InputLayer):
      continue
    source = network.get_layer(layer.name)
    weights = source.get_weights()
    if layer.name in found:
      weights = _with(weights, found[layer.name])
    layer.set_weights(weights)
    marks.carry_marks(source.weights, layer.weights)
  return made


def _pairs(network: tf.keras.Model) -> dict[str, tf.keras.layers.Layer]:
  """Normalisations by the name of the linear layer that nothing else reads."""
  calls = graph.calls(network)
  often = collections.Counter(call.layer.name for call in calls)
  seen = [tensor for call in calls for tensor in call.inputs]
  readers = collections.Counter(map(id, [*seen, *network.outputs]))
  found = {}
  for call in calls:
    if not isinstance(call.layer, _layers.BatchNormalization):
      continue
    (tensor,) = call.inputs
    layer = graph.maker(tensor).layer
    if (
      type(layer) in _LINEAR
      and layer.activation is tf.keras.activations.linear
      and readers[id(tensor)] == 1
      and often[layer.name] == often[call.layer.name] == 1
      and list(call.layer.axis) == [len(tensor.shape) - 1]
    ):
      found[layer.name] = call.layer
  return found


def _with(weights: list[np.ndarray], layer) -> list[np.ndarray]:
  """Kernel and bias of both layers together, computed in float64."""
  kernel = weights[0].astype(np.float64)
  bias = weights[1] if len(weights) > 1 else 0.0
  mean, variance = layer.moving_mean.numpy(), layer.moving_variance.numpy()
  scale = 1 / np.sqrt(variance.astype(np.float64) + layer.epsilon)
  if layer.scale:
    scale = scale * layer.gamma.numpy()
  shift = layer.beta.numpy() if layer.center else 0.0
  return [kernel * scale, (bias - mean) * scale + shift]
