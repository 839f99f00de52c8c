"""Cuts a network into its first layer and the rest, as f = g(a(x))."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tf_privrob import layers
from tf_privrob.models import graph

_BOUNDED = ("tanh", "sigmoid", "softsign", "hard_sigmoid")
_SHAPING = (
  tf.keras.layers.InputLayer,
  tf.keras.layers.Flatten,
  tf.keras.layers.Reshape,
)


@dataclasses.dataclass(frozen=True)
class Parts:
  """The parts of a network; they share its layers and weights.

  Attributes:
    before: reshapes the input for the first layer; None if it need not.
    first: Conv2D or Dense, whose weights are theta_1.
    rest: from the output of `first`, after its activation, to the logits.
    last: the Dense layer of the logits, whose kernel is W_pi.
  """

  before: tf.keras.Model | None
  first: tf.keras.layers.Layer
  rest: tf.keras.Model
  last: tf.keras.layers.Dense


def split(network: tf.keras.Model) -> Parts:
  """Splits after the first layer with weights, which must be linear in x.

  Args:
    network: functional or sequential Keras classifier.

  Raises:
    ValueError: for networks whose first layer is not Conv2D or Dense, that use
      it twice, or whose last hidden layer is not bounded.
  """
  first = first_layer(network)
  chain = network.layers
  ahead = chain[: chain.index(first)]
  before = None
  if any(not isinstance(layer, tf.keras.layers.InputLayer) for layer in ahead):
    before = tf.keras.Model(network.input, first.input)
  last = chain[-1]
  if type(last) is not tf.keras.layers.Dense or last is first:
    raise ValueError(
      "Expected a network that ends in a Dense layer of logits, received"
      f" {type(last).__name__} {last.name!r}."
    )
  _require_bounded(network, last)
  return Parts(before, first, rest_of(network, first), last)


def rest_of(
  network: tf.keras.Model, first: tf.keras.layers.Layer
) -> tf.keras.Model:
  """From the output of `first` to the logits."""
  try:
    rest = tf.keras.Model(first.output, network.output)
  except ValueError as error:
    raise ValueError(
      f"Expected {first.name!r} to be the only way from the input to the logits"
      f" of {network.name!r}, received a network with another one."
    ) from error
  except AttributeError as error:  # it has several outputs
    raise ValueError(
      f"Expected {first.name!r} of {network.name!r} to be used only once."
    ) from error
  if first in rest.layers:
    raise ValueError(
      f"Expected {first.name!r}, the first layer of {network.name!r}, to be"
      " used only once."
    )
  return rest


def first_layer(network: tf.keras.Model) -> tf.keras.layers.Layer:
  """The first layer with weights: Conv2D or Dense, else a ValueError."""
  chain = layers_of(network)
  first = next((layer for layer in chain if layer.weights), None)
  ahead = chain if first is None else chain[: chain.index(first)]
  wrong = [layer for layer in ahead if type(layer) not in _SHAPING]
  if wrong or not _is_linear(first):
    found = wrong[0] if wrong else first
    raise ValueError(
      "Expected a network that begins with a Conv2D or Dense layer, which"
      " becomes the autoencoder, received"
      f" {type(found).__name__} {getattr(found, 'name', '')!r} there."
    )
  _require_plain(first)
  return first


def layers_of(network: tf.keras.Model) -> list[tf.keras.layers.Layer]:
  """The layers of a network whose graph is known, else a ValueError."""
  graph.require_graph(network)
  return network.layers


def _is_linear(layer: Any) -> bool:
  """Whether it is one with a kernel that can be written."""
  return type(layer) in (
    tf.keras.layers.Conv2D,
    tf.keras.layers.Dense,
  ) and isinstance(layer.kernel, tf.Variable)


def _require_plain(first: tf.keras.layers.Layer) -> None:
  """Refuses convolutions of another form, and Dense layers over positions."""
  graph.made_by(first.get_output_at(0))  # or raises
  if isinstance(first, tf.keras.layers.Dense):
    if len(first.input_shape) != 2:
      raise ValueError(
        f"Expected vectors before Dense {first.name!r}, received inputs of"
        f" shape {first.input_shape}. Put a Flatten layer before it."
      )
  elif (
    first.groups != 1
    or tuple(first.dilation_rate) != (1, 1)
    or first.data_format != "channels_last"
  ):
    raise ValueError(
      "Expected a convolution without groups and dilation, channels last, as"
      f" the first layer, received Conv2D {first.name!r}."
    )


def _require_bounded(network: tf.keras.Model, last: Any) -> None:
  """|h_pi| <= 1 is what the label sensitivity rests on."""
  hidden = graph.feeding(last)[0]
  activation = getattr(hidden, "activation", None)
  known = [getattr(tf.keras.activations, name) for name in _BOUNDED]
  known += [tf.nn.tanh, tf.nn.sigmoid, tf.nn.softsign]
  clipped = type(hidden) is layers.BoundedActivation and hidden.bound <= 1
  if not clipped and not any(activation is function for function in known):
    raise ValueError(
      f"Expected the last hidden layer of {network.name!r} to be bounded by 1,"
      f" since the sensitivity of the labels rests on it, received"
      f" {type(hidden).__name__} {hidden.name!r}. Put"
      " layers.BoundedActivation(1.0) before the logits, or use tanh."
    )
