"""Cuts a network where noise is added: f(x) = after(before(x) + noise)."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tf_privrob import certify
from tf_privrob import validate
from tf_privrob.models import cuts as splitting
from tf_privrob.models import graph

POSITIONS = ("before_activation", "after_activation")


@dataclasses.dataclass(frozen=True, eq=False)
class NoisePlace:
  """A network in two pieces, which share its layers and weights.

  Attributes:
    layers: all layers before the noise, in order; none for noise at the input.
    last_activation: whether the last of them comes with its own activation;
      otherwise that belongs to the second piece.
    input_shape: of one input.
    noise_shape: of one example's noise.
    front: from the input to the last layer's input or output; None: nothing.
    rest: from the last layer's output to the logits.
    network: the whole.
  """

  layers: tuple[tf.keras.layers.Layer, ...]
  last_activation: bool
  input_shape: tuple[int, ...]
  noise_shape: tuple[int, ...]
  front: tf.keras.Model | None
  rest: tf.keras.Model
  network: tf.keras.Model

  def before(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    """What the noise is added to."""
    if self.front is not None:
      x = self.front(x, training=training)
    if self.last_activation:
      return x
    last = self.layers[-1]
    activation, last.activation = last.activation, None
    try:
      return last(x)
    finally:
      last.activation = activation

  def after(self, hidden: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Logits from what the noise was added to."""
    if not self.last_activation:
      hidden = self.layers[-1].activation(hidden)
    return self.rest(hidden, training=training)

  def norms(self, stddev: np.ndarray | None = None) -> certify.OperatorNorms:
    """Certified norms of `before` with the present weights, at inference.

    Args:
      stddev: of the noise, one value a coordinate; the norms are then those of
        diag(stddev)^-1 before(x).
    """
    return certify.prefix_norms(
      self.layers, self.input_shape, self.last_activation, stddev
    )

  def values(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`before` in float64 at inference, and a bound on its error."""
    return certify.prefix_values(self.layers, x, self.last_activation)

  def kernel_layers(self) -> list[tf.keras.layers.Layer]:
    """The layers before the noise that have a kernel."""
    return [layer for layer in self.layers if hasattr(layer, "kernel")]


def find(
  network: tf.keras.Model,
  noise_after: int,
  noise_position: str = "before_activation",
) -> NoisePlace:
  """Cuts a network, and checks that the sensitivity at the cut is known.

  Args:
    network: functional or sequential Keras classifier.
    noise_after: number of layers with weights before the noise; 0 is the
      input.
    noise_position: before or after the activation of the last of them, be it
      the layer's own or a layer that follows; the same where it has none.

  Raises:
    ValueError: there is no such place, the network has another way around it,
      or a layer before it has an unknown sensitivity.
  """
  validate.one_of(POSITIONS, noise_position=noise_position)
  chain = splitting.layers_of(network)
  input_shape = tuple(network.input_shape[1:])
  weighted = [layer for layer in chain if layer.weights]
  whole = isinstance(noise_after, (int, np.integer))
  if not whole or not 0 <= noise_after < len(weighted):
    raise ValueError(
      f"Expected noise_after={noise_after!r} to be a whole number in [0,"
      f" {len(weighted) - 1}]: {network.name!r} has {len(weighted)} layers with"
      " weights, and at least one must follow the noise."
    )
  if noise_after == 0:
    shapes = input_shape, input_shape
    return NoisePlace((), True, *shapes, None, network, network)
  last = weighted[noise_after - 1]
  layers = _chain_to(network, last, noise_after)
  own = getattr(last, "activation", None)
  own = None if own is tf.keras.activations.linear else own
  early = noise_position == "before_activation" and own is not None
  if noise_position == "after_activation" and own is None:
    following = [
      layer
      for layer in chain
      if certify.is_activation(layer) and graph.feeding(layer) == [last]
    ]
    if len(following) == 1:
      last = following[0]
      layers.append(last)
  rest = splitting.rest_of(network, last)
  end = last.input if early else last.output
  place = NoisePlace(
    layers=tuple(layers),
    last_activation=not early,
    input_shape=input_shape,
    noise_shape=tuple(last.output_shape[1:]),
    front=_front(network, end),
    rest=rest,
    network=network,
  )
  certify.prefix_norms(layers, input_shape, not early, quick=True)  # or raises
  return place


def _front(network: tf.keras.Model, end) -> tf.keras.Model | None:
  return None if end is network.input else tf.keras.Model(network.input, end)


def _chain_to(
  network: tf.keras.Model, last: tf.keras.layers.Layer, noise_after: int
) -> list[tf.keras.layers.Layer]:
  """The layers from the input to `last`, which must form a chain."""
  layers = [last]
  while not isinstance(layers[0], tf.keras.layers.InputLayer):
    graph.made_by(layers[0].get_output_at(0))  # or raises
    before = graph.feeding(layers[0])
    if len(before) != 1:
      raise ValueError(
        "Expected a chain of layers before the noise, received"
        f" {type(layers[0]).__name__} {layers[0].name!r}, which joins"
        f" {len(before)} of them: its sensitivity is unknown. Choose a smaller"
        " noise_after."
      )
    layers.insert(0, before[0])
  layers = layers[1:]
  for layer in layers:
    calls = graph.calls_of(layer)
    if len(calls) != 1:  # which call is meant cannot be told
      raise ValueError(
        f"Expected {layer.name!r} before the noise to be used only once,"
        f" received {len(calls)} calls, in {network.name!r} or in"
        " another network. Pass tf.keras.models.clone_model(network) with its"
        " weights."
      )
  if sum(bool(layer.weights) for layer in layers) != noise_after:
    raise ValueError(
      f"Expected the first {noise_after} layers with weights of"
      f" {network.name!r} to form a chain, received branches before"
      f" {last.name!r}: the sensitivity there is unknown. Choose a smaller"
      " noise_after."
    )
  return layers
