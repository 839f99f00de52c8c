"""What a forward pass may not leave behind: state is stored without noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Callable

import numpy as np
import tensorflow as tf

from tf_privrob.models import operations


def refuse_state(
  function: Callable[..., object],
  network: tf.keras.layers.Layer,
  traced: tuple,
  arguments: tuple,
):
  """Raises if a pass through the network in training mode writes anything.

  What a layer writes is saved with the model and never gets noise: a layer
  that keeps its last input publishes it. The function is traced once and all
  its operations are looked at, those of inner functions too; then it runs once
  and the variables are compared.

  Args:
    function: the loss, or whatever calls the network, gradients and all.
    network: whose variables are watched.
    traced: shapes and types of its arguments, as those of a real pass.
    arguments: of the run; synthetic, since they decide nothing.

  Returns:
    The traced pass, a concrete function.

  Raises:
    ValueError: names what writes.
  """
  refuse_batch_normalization(network)
  refuse_stateful_layers(network)
  concrete = tf.function(function).get_concrete_function(*traced)
  refuse_writes(concrete.graph)
  _refuse_changes(lambda: function(*arguments), network)
  return concrete


def refuse_writes(graph: tf.Graph) -> None:
  """Raises if an operation of the graph or of its functions writes state."""
  found = sorted({f"{op} {name!r}" for op, name in operations.stateful(graph)})
  if found:
    raise ValueError(
      "Expected a forward pass that only reads its variables, received"
      f" {', '.join(found[:3])}: what it writes is kept without noise, and"
      " saved with the model. Remove the layer, or the part of the loss, that"
      " assigns, asserts, prints, calls Python or draws at random by itself"
      " (Keras' own random layers are fine)."
    )


def _refuse_changes(run: Callable[[], object], network) -> None:
  """Runs once; where variables changed, puts them back and raises."""
  variables = _variables(network)
  before = [variable.numpy() for variable in variables]
  run()
  changed = [
    (variable, value)
    for variable, value in zip(variables, before)
    if not np.array_equal(variable.numpy(), value, equal_nan=True)
  ]
  for variable, value in changed:
    variable.assign(value)
  if changed:
    raise ValueError(
      "Expected a forward pass that only reads its variables, but it changes"
      f" {changed[0][0].name!r}: what it writes is kept without noise, and"
      " saved with the model. Remove the layer that assigns to it."
    )


def _variables(network: tf.keras.layers.Layer) -> list[tf.Variable]:
  """All that the network holds, also where Keras does not keep track."""
  found = {variable.ref(): variable for variable in network.variables}
  for module in [network, *network.submodules]:
    for value in vars(module).values():
      found.update((variable.ref(), variable) for variable in _held(value))
  return [v for v in found.values() if v.dtype.is_numpy_compatible]


def _held(value) -> Iterator[tf.Variable]:
  """Variables in an attribute, or in a list or dictionary there."""
  if isinstance(value, dict):
    value = list(value.values())
  for part in value if isinstance(value, (list, tuple)) else [value]:
    if isinstance(part, tf.Variable):
      yield part


def refuse_batch_normalization(network: tf.keras.layers.Layer) -> None:
  """Raises where a batch statistic would tie the examples together."""
  for layer in [network, *network.submodules]:
    # Keras has three such classes without a common public one.
    names = [kind.__name__ for kind in type(layer).__mro__]
    if any("BatchNormalization" in name for name in names) and layer.trainable:
      raise ValueError(
        f"Expected per-example layers, received {type(layer).__name__}"
        f" {layer.name!r}: it normalises by statistics of the whole batch, so"
        " no example's gradient can be clipped on its own and its moving"
        " averages store data without noise. Replace it by"
        " GroupNormalization or LayerNormalization, or freeze it"
        " (trainable=False)."
      )


def refuse_stateful_layers(network: tf.keras.layers.Layer) -> None:
  """Raises where a recurrent layer carries its state to the next batch."""
  for layer in [network, *network.submodules]:
    if isinstance(layer, tf.keras.layers.RNN) and layer.stateful:
      raise ValueError(
        f"Expected layers without a memory, received {type(layer).__name__}"
        f" {layer.name!r} with stateful=True: it carries what it saw of one"
        " batch to the next, and into the saved model. Use stateful=False."
      )
