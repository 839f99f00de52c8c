"""Random layers of Keras draw from the seed of a pass, and from nothing else.

Dropout and noise layers draw by the place of a row in the batch, from a seed of
31 bits that is fixed when the layer is made. Whoever finds it knows every draw,
and one example more or fewer gives all others other draws. Under the secret
seed of a step the draws of all places are alike and independent, and which row
has which place does not matter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tf_privrob import randomness


@contextlib.contextmanager
def following(
  network: tf.keras.layers.Layer, seed: tf.Tensor
) -> Iterator[None]:
  """While it lasts, Keras' random layers draw by `seed`, each by its own.

  Args:
    network: whose layers draw.
    seed: shape [2], of a chunk of rows or of one row.
  """
  layers = [
    layer
    for layer in network.submodules
    if isinstance(layer, tf.keras.layers.Layer)
    and hasattr(layer, "_random_generator")
  ]
  generators = [layer._random_generator for layer in layers]
  try:
    for number, (layer, generator) in enumerate(zip(layers, generators)):
      object.__setattr__(
        layer, "_random_generator", _generator(generator, seed, number)
      )
    yield
  finally:
    for layer, generator in zip(layers, generators):
      object.__setattr__(layer, "_random_generator", generator)


def _generator(generator, seed: tf.Tensor, number: int):
  """One like Keras' own, whose every draw has a seed of its own."""
  found = type(generator)(seed=0, rng_type="stateless")
  asked = 0

  def next_seed():
    nonlocal asked
    asked += 1
    return randomness.fold_in(seed, number, asked)

  found.make_seed_for_stateless_op = next_seed
  return found
