"""Weights in files of Keras 3, copied into a model that was rebuilt.

Keras 3 names groups by classes, counted in the order in which the description
lists layers, and that is the order walked here. Keras 2 may list the layers of
the same graph in another one.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob.models.files import hdf5
from tf_privrob.models.files import known

_AGAIN = " Write it by model.save(path)."
_MODELS = ("Functional", "Sequential")
_CELL = (("cell", "cell", None),)
_ONE = (("layer", "layer", "layer"),)
# The layers that a layer is made of: its attribute here, the group in the file
# and the setting that describes it, in the order in which Keras 3 made them.
_INNER = {
  "Bidirectional": (
    ("forward_layer", "forward_layer", "layer"),
    ("backward_layer", "backward_layer", "backward_layer"),
  ),
  "ConvLSTM1D": _CELL,
  "ConvLSTM2D": _CELL,
  "ConvLSTM3D": _CELL,
  "GRU": _CELL,
  "LSTM": _CELL,
  "MultiHeadAttention": tuple(
    (f"_{name}_dense", f"{name}_dense", None)
    for name in ("query", "key", "value", "output")
  ),
  "SimpleRNN": _CELL,
  "SpectralNormalization": _ONE,
  "TimeDistributed": _ONE,
}
_RENAMED = {
  ("DepthwiseConv1D", "depthwise_kernel"): "kernel",
  ("DepthwiseConv2D", "depthwise_kernel"): "kernel",
  ("SpectralNormalization", "sn_u"): "vector_u",
}
_SEEDS = "seed_generator"  # groups of what random layers draw from


@dataclasses.dataclass(frozen=True)
class _Place:
  """A layer with its own weights.

  Attributes:
    path: of its group in a .keras file.
    layer: that was rebuilt.
    name: as described; None for a part that no description names.
    trained: whether it is, and all that it is a part of.
  """

  path: str
  layer: tf.keras.layers.Layer
  name: str | None
  trained: bool

  def weights(self) -> list[tuple[tf.Variable, bool]]:
    """In the order of Keras 3, with whether they are trained."""
    return [
      *((weight, self.trained) for weight in self.layer._trainable_weights),
      *((weight, False) for weight in self.layer._non_trainable_weights),
    ]


def copy_keras(
  value: dict[str, Any], model: tf.keras.Model, store: hdf5.Store
) -> None:
  """Gives a model the weights of a .keras file of Keras 3.

  Args:
    value: its description (`keras3.translated`).
    model: rebuilt from it.
    store: the file's weights.

  Raises:
    RefusedError: a weight is missing, another, or belongs to no layer.
  """
  values, used = [], set()
  for place in _places(value, model):
    path = f"{place.path}/vars".lstrip("/")
    weights = place.weights()
    for number, (weight, _) in enumerate(weights):
      values.append((weight, _read(weight, store, path, f"{number}")))
      used.add(f"{path}/{number}")
    if weights and place.name is not None:
      # Earlier versions wrote no names.
      _require_same(store.text(store.group(path), "name"), place.name)
  _refuse_others(store, ("layers/", "vars/"), used)
  _assign(model, values)


def copy_hdf5(
  value: dict[str, Any], model: tf.keras.Model, store: hdf5.Store
) -> None:
  """Gives a model the weights of an .h5 file of Keras 3; as `copy_keras`."""
  values, used = [], set()
  for part, layer in _parts(value["config"], model):
    group, found = ("model_weights", layer.name), {}
    for place in _places(part, layer):
      for weight, trained in place.weights():
        # One that two layers have is where the first is, named by the second.
        found[id(weight)] = weight, trained, place
    weights = sorted(found.values(), key=lambda each: not each[1])
    names = store.texts(store.group(*group), "weight_names") if weights else []
    if len(names) != len(weights):
      raise known.RefusedError(
        f"has {len(names)} weights of {layer.name!r}, expected {len(weights)}."
        + _AGAIN
      )
    for (weight, _, place), name in zip(weights, names):
      *path, last = name.split("/")
      _require_same(last, _name(weight, place.layer))
      _require_same(path[-1] if path else None, place.name)
      values.append((weight, _read(weight, store, *group, name)))
      used.add("/".join((*group, name)))
  _refuse_others(store, ("model_weights/",), used)
  _assign(model, values)


def _parts(
  config: dict[str, Any], model: tf.keras.Model
) -> Iterator[tuple[dict[str, Any], tf.keras.layers.Layer]]:
  """Layers of a model with their descriptions, but for its inputs."""
  for part in config["layers"]:
    if part["class_name"] != "InputLayer":
      yield part, model.get_layer(part["config"]["name"])


def _places(
  value: dict[str, Any] | None,
  layer: tf.keras.layers.Layer,
  path: str = "",
  trained: bool = True,
) -> Iterator[_Place]:
  """A layer, then those that it is made of, in the order of the file."""
  trained = trained and layer.trainable
  kind = value["class_name"] if value else None
  inner = _INNER.get(kind, ())
  named = value is not None and (value["config"].get("name") == layer.name)
  yield _Place(path, layer, layer.name if named else None, trained)
  for attribute, group, setting in inner:
    part = value["config"].get(setting) if setting else None
    found = getattr(layer, attribute)
    yield from _places(part, found, f"{path}/{group}", trained)
  if kind in _MODELS:
    count: collections.Counter = collections.Counter()
    for part, found in _parts(value["config"], layer):
      name = _group(part["class_name"])
      number = f"_{count[name]}" if count[name] else ""
      count[name] += 1
      place = f"{path}/layers/{name}{number}".lstrip("/")
      yield from _places(part, found, place, trained)


def _group(kind: str) -> str:
  """The name of a class as Keras names groups: conv2d_transpose, p_re_lu."""
  words = re.sub(r"(?<!^)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])", "_", kind)
  return words.lower()


def _name(weight: tf.Variable, layer: tf.keras.layers.Layer) -> str:
  """The name of a weight in Keras 3."""
  name = weight.name.rpartition("/")[2].partition(":")[0]
  return _RENAMED.get((type(layer).__name__, name), name)


def _read(weight: tf.Variable, store: hdf5.Store, *path: str) -> np.ndarray:
  dtype = np.dtype(weight.dtype.as_numpy_dtype)
  return store.numbers(tuple(weight.shape), dtype, *path)


def _require_same(found: str | None, expected: str | None) -> None:
  """Refuses weights of another name; None is no name at all."""
  if None not in (found, expected) and found != expected:
    raise known.RefusedError(
      f"has weights of {found[:200]!r} in the place of those of {expected!r}."
      + _AGAIN
    )


def _refuse_others(
  store: hdf5.Store, rooms: tuple[str, ...], used: set[str]
) -> None:
  """Refuses arrays of layers that no layer here has; seeds are none."""
  for path in store.arrays():
    if (
      path.startswith(rooms)
      and path not in used
      and _SEEDS not in path.split("/")
    ):
      raise known.RefusedError(
        f"has a weight {path[:200]!r} that none of its layers has." + _AGAIN
      )


def _assign(model: tf.keras.Model, values: list[tuple[tf.Variable, Any]]):
  """Gives all weights their values; none may be left as it was made."""
  given = {id(weight) for weight, _ in values}
  left = [weight.name for weight in model.weights if id(weight) not in given]
  if left:
    raise known.RefusedError(
      f"holds no values of {', '.join(left)[:200]}. Load it yourself and pass"
      " the model."
    )
  for weight, value in values:
    weight.assign(value)
