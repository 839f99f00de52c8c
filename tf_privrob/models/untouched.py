"""Whether a layer still computes what its class and configuration say.

Python lets anyone put a function in the place of a layer's method, or a number
in the place of another. Whoever reads a network by its layers asks here first.
"""

from __future__ import annotations

import functools
import sys
import types
from concurrent import futures

import numpy as np
import tensorflow as tf

from tf_privrob import compat
from tf_privrob import randomness
from tf_privrob.models import remaking
from tf_privrob.models.files import known

_EMPTY = (known.FUNCTIONAL, tf.keras.Sequential, tf.keras.layers.InputLayer)
# What Keras notes on a layer when it is called, trained or saved, and what may
# be written otherwise: no call computes with it.
_NOTES = tuple(
  """_adapt_function _auto_config _auto_get_config _build_input_shape
  _callable_losses _called _eager_losses _inbound_nodes _is_adapted
  _is_compiled _losses _metrics _name_scope_on_declaration
  _non_trainable_weights _outbound_nodes _run_eagerly _saved_model _self
  _steps_per_execution _trainable_weights _updates built""".split()
)
_AT_REST = ("_constraint", "_initializer", "_regularizer")
_IN_EVERY_CALL = ("_activity_regularizer", "activity_regularizer")
_VALUES = (bool, int, float, str, np.generic, tf.DType, tf.TensorShape)
# Where the classes come from that Keras makes its layers of.
_HOMES = (
  *"_thread builtins collections functools numpy tensorflow.".split(),
  f"{compat.keras_package()}.",
)
# Classes that their modules do not show.
_UNNAMED = (
  types.BuiltinFunctionType,
  types.FunctionType,
  types.MethodType,
  type(None),
)
_ABSENT = object()


def is_ours(kind: type) -> bool:
  """Whether a class is one of this library, and not merely called so."""
  return lives_in(kind, "tf_privrob.")


def lives_in(kind: type, packages: str | tuple[str, ...]) -> bool:
  """Whether a module whose name begins so has this very class."""
  home = sys.modules.get(kind.__module__)
  found = getattr(home, kind.__name__, None) is kind
  return found and kind.__module__.startswith(packages)


def is_known(kind: str, found: object) -> bool:
  """Whether it is Keras' own "layer", "activation", ... of any name."""
  return any(found is one for one in known.TABLES[kind].values())


def is_at_rest(name: str) -> bool:
  """Whether an attribute of this name has no part in a call."""
  return name.endswith(_AT_REST) and name not in _IN_EVERY_CALL


def is_note(name: str) -> bool:
  """Whether Keras notes something of this name, with which no call computes."""
  return name.startswith(_NOTES)


def overridden(layer: tf.keras.layers.Layer) -> str | None:
  """A method that this one layer has instead of its class'."""
  for name in vars(layer):
    # Keras itself wraps the one that adapts a layer, which no call runs.
    if name != "reset_state" and callable(getattr(type(layer), name, None)):
      return name
  return None


def exchanged(layer: tf.keras.layers.Layer) -> str | None:
  """An attribute that is not what Keras makes of this layer's configuration.

  The layer is compared with one that is made and built from the same
  configuration. What differs is another function, number or name, an object of
  another class, something else in the place of a weight, or an attribute that
  Keras did not make. The values of weights are not compared. Regularisers,
  initialisers and constraints of weights may be the caller's own, since no call
  runs them, and so may activations, which readers know by identity.
  """
  if not is_known("layer", type(layer)) or type(layer) in _EMPTY:
    return None  # it says itself what it computes, or computes nothing
  regularizer = layer.activity_regularizer
  if not is_known("regularizer", type(regularizer)) and regularizer is not None:
    return "activity_regularizer"  # the only one that every call runs
  try:
    twin = _twin(layer)
  except Exception:  # whatever it raises, its configuration does not make it
    return "configuration"
  found, made = vars(layer), vars(twin)
  by_hand = layer.weights and not twin.weights  # by another layer, mostly
  for name in sorted({*found, *made}):
    if is_note(name) or name.endswith(("activation", *_AT_REST)):
      continue
    pair = found.get(name, _ABSENT), made.get(name, _ABSENT)
    if not _alike(*pair) and not (by_hand and _from_build(*pair)):
      return name
  return None


def _twin(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
  """The layer made again, without what may be the caller's own."""
  bare = object.__new__(type(layer))
  vars(bare).update(
    (name, _named_by_keras(name, value)) for name, value in vars(layer).items()
  )
  settings = bare.get_config().items()
  settings = {name: value for name, value in settings if not is_at_rest(name)}
  if getattr(layer, "synchronized", False):  # Keras does not write it down
    settings["synchronized"] = True

  def make():
    with tf.variable_creator_scope(_of_zeros):
      return remaking.remade(layer, settings, randomness.Key.of(0))

  if tf.executing_eagerly():
    return make()
  # While a function is traced no variable is made, but for other threads.
  with futures.ThreadPoolExecutor(1) as thread:
    return thread.submit(make).result()


def _named_by_keras(name: str, value: object) -> object:
  """An attribute's value, or a known one where it may be the caller's own."""
  if is_at_rest(name):
    return None
  if name.endswith("activation") and not is_known("activation", value):
    return tf.keras.activations.linear
  return value


def _of_zeros(next_creator, **kwargs):
  """A variable whose initial values nobody has to draw."""
  shape, dtype = kwargs.get("shape"), kwargs.get("dtype")
  if shape is not None and callable(kwargs["initial_value"]):
    kwargs["initial_value"] = functools.partial(tf.zeros, shape, dtype)
  return next_creator(**kwargs)


def _from_build(value: object, made: object) -> bool:
  """Whether `build` may have put it there, for shapes that nobody noted."""
  before = made is None or made is _ABSENT
  if not _is_of_keras(value):
    return False
  if isinstance(value, (list, tuple)):
    return (before or type(made) is int) and all(
      type(number) is int for number in value
    )
  if type(value) is tf.keras.layers.InputSpec:
    return before or type(made) is type(value)
  plain = value is None or isinstance(value, (tf.Variable, *_VALUES))
  return before and plain


def _alike(value: object, made: object) -> bool:
  """Whether one attribute may stand for the other in a call."""
  if not _is_of_keras(value):
    return False
  if isinstance(made, tf.Variable):
    return isinstance(value, tf.Variable)
  if type(value) is not type(made):
    return False
  if isinstance(made, dict):
    return value.keys() == made.keys() and all(
      _alike(value[name], made[name]) for name in made
    )
  if isinstance(made, (list, tuple)):
    return len(value) == len(made) and all(map(_alike, value, made))
  if isinstance(made, functools.partial):
    parts = [(one.func, one.args, one.keywords) for one in (value, made)]
    return _alike(*parts)
  if isinstance(made, types.MethodType):
    return _alike(value.__func__, made.__func__)
  if isinstance(made, (types.FunctionType, types.BuiltinFunctionType)):
    return value is made and str(made.__module__).startswith(_HOMES)
  if isinstance(made, np.ndarray):
    return np.array_equal(value, made)
  if isinstance(made, set):
    return value == made
  return not isinstance(made, _VALUES) or value == made


def _is_of_keras(value: object) -> bool:
  """Whether it is of a class that Keras works with, and not called so only."""
  return type(value) in _UNNAMED or lives_in(type(value), _HOMES)
