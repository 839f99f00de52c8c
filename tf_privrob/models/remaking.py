"""Makes a layer a second time, from its configuration, as Keras loads one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_privrob import compat
from tf_privrob import randomness


def remade(
  layer: tf.keras.layers.Layer,
  settings: Mapping[str, Any],
  key: randomness.Key,
) -> tf.keras.layers.Layer:
  """A layer of the same class and settings, built for the same shapes.

  It is not built if nobody knows the shapes: the layer was built by hand, by
  another layer perhaps, and is not called in a graph.

  Args:
    layer: Keras must be able to make its class from settings.
    settings: what `get_config` of the layer says, or a part of it.
    key: of the initial weights, but for initialisers with a seed of their own.
  """
  with _seeds_from(key):
    copy = type(layer).from_config(dict(settings))
    shapes = layer.get_build_config() or _shapes_of_call(layer)
    if shapes and not copy.built:
      copy.build_from_config(shapes)
  return copy


def _shapes_of_call(layer: tf.keras.layers.Layer) -> dict[str, Any]:
  try:
    return {"input_shape": layer.get_input_shape_at(0)}
  except RuntimeError:  # it was never called in a graph
    return {}


class _Seeds:
  """Stands for the generator that Keras asks for seeds of initialisers."""

  def __init__(self, key: randomness.Key):
    self._key, self._asked = key, 0

  def randint(self, low: float, high: float) -> int:
    """A whole number from `low` to `high`."""
    self._asked += 1
    drawn = self._key.child("seed", self._asked).integer()
    return int(low) + drawn % (int(high) - int(low) + 1)


@contextlib.contextmanager
def _seeds_from(key: randomness.Key) -> Iterator[None]:
  """Initialisers without a seed get theirs from `key`, in this thread.

  Seeds written into the copy's configuration would not do: a layer that makes
  several inner ones of one configuration, such as Bidirectional, would start
  them alike.
  """
  # Also of `set_random_seed`.
  source = compat.keras_module("src.backend")._SEED_GENERATOR
  before = getattr(source, "generator", None)
  source.generator = _Seeds(key)
  try:
    yield
  finally:
    source.generator = before
