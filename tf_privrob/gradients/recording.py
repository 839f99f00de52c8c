"""Watches the layers of a network while a loss is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from collections.abc import Sequence

import tensorflow as tf

from tf_privrob.gradients import rules


def layers_with_weights(
  network: tf.keras.layers.Layer,
) -> list[tf.keras.layers.Layer]:
  """The layers to watch: together they own every weight, each weight once.

  Usually these are the innermost layers. A layer that has weights of its own
  besides those of layers inside it is watched as a whole, and so is a
  recurrent layer, whose cell runs inside a loop.
  """
  found, inside = [], set()
  for layer in [network, *network.submodules]:
    if (
      isinstance(layer, tf.keras.layers.Layer)
      and id(layer) not in inside
      and (isinstance(layer, tf.keras.layers.RNN) or _owns_weights(layer))
      and layer.trainable_weights
    ):
      found.append(layer)
      inside.update(id(part) for part in layer.submodules)
  return [layer for layer in found if id(layer) not in inside]


def _owns_weights(layer: tf.keras.layers.Layer) -> bool:
  nested = {
    weight.ref()
    for part in layer.submodules
    if isinstance(part, tf.keras.layers.Layer)
    for weight in part.trainable_weights
  }
  return any(w.ref() not in nested for w in layer.trainable_weights)


@contextlib.contextmanager
def record(
  layers: Sequence[tf.keras.layers.Layer], tape: tf.GradientTape
) -> Iterator[list[rules.Call]]:
  """Collects every call of `layers`, with its output watched by `tape`.

  The instance's `call` is shadowed for the time of the block. Where a rule
  wants the gradient before the activation, the layer runs without it and the
  activation is applied afterwards, which gives the same output. Calls inside
  a graph loop (an attack being crafted) are left alone.
  """
  calls: list[rules.Call] = []
  home = _graph()

  def shadow(layer):
    original = layer.call
    split = rules.pre_activation(layer)
    from_patches = rules.computes_from_patches(layer)

    @tf.autograph.experimental.do_not_convert
    def call(*args, **kwargs):
      if _graph() is not home:
        return original(*args, **kwargs)
      patches = None
      if from_patches:
        output, patches = rules.convolve(layer, args[0])
      elif split:
        output = _without_activation(layer, original, args, kwargs)
      else:
        output = original(*args, **kwargs)
      tape.watch(output)
      calls.append(rules.Call(layer, args, kwargs, output, original, patches))
      if split and layer.activation is not None:
        return layer.activation(output)
      return output

    return call

  try:
    for layer in layers:
      # Around Keras' attribute tracking: nothing of this stays on the layer.
      object.__setattr__(layer, "call", shadow(layer))
    yield calls
  finally:
    for layer in layers:
      vars(layer).pop("call", None)


def _graph() -> tf.Graph | None:
  """The graph being built, None when executing eagerly."""
  if tf.executing_eagerly():
    return None
  return tf.compat.v1.get_default_graph()


def _without_activation(layer, original, args, kwargs) -> tf.Tensor:
  activation, layer.activation = layer.activation, None
  try:
    return original(*args, **kwargs)
  finally:
    layer.activation = activation


def dense_gradients(
  tape: tf.GradientTape,
  losses: tf.Tensor,
  variables: Sequence[tf.Variable],
  weights: tf.Tensor | None = None,
) -> list[tf.Tensor]:
  """Of sum_i weights_i losses_i; zeros where a variable is not used."""
  gradients = tape.gradient(
    losses,
    variables,
    output_gradients=weights,
    unconnected_gradients=tf.UnconnectedGradients.ZERO,
  )
  return [tf.convert_to_tensor(gradient) for gradient in gradients]
