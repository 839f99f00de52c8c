"""Signs that a network's weights are not those it was drawn with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy import special

from tf_privrob import randomness
from tf_privrob.models import fresh

_initializers = tf.keras.initializers
_SCALING = (
  _initializers.GlorotNormal,
  _initializers.GlorotUniform,
  _initializers.HeNormal,
  _initializers.HeUniform,
  _initializers.LecunNormal,
  _initializers.LecunUniform,
  _initializers.VarianceScaling,
)
_TRUNCATED = 0.87962566103423978  # deviation of a normal cut off at 2
_UNLIKELY = 1e-9
_ROUNDING = 1e-3  # of half precision, and of an orthogonal matrix


class _Law(NamedTuple):
  """Of one entry: independent, and no wider in the tails than a normal one."""

  mean: float
  stddev: float
  bound: float  # of the distance from the mean


def signs_of_training(network: tf.keras.Model) -> str | None:
  """A phrase if the network seems to be trained or loaded, None if not.

  It looks at Keras' counters, at weights that start at a fixed value and have
  left it, and at weights that lie outside the bounds of their initialiser or
  are spread as fewer than one fresh draw in 10^9 is. There for a clear word
  before weights are thrown away; a trained network may show none of it, so no
  guarantee rests on it.
  """
  if not network.built:
    return None
  found = (*_of_counters(network), *_of_weights(network))
  return found[0] if found else None


def _of_counters(network) -> Iterator[str]:
  for model in (network, *network.submodules):
    if not isinstance(model, tf.keras.Model):
      continue
    steps = max(
      int(getattr(model, "_train_counter", 0)),
      int(getattr(getattr(model, "optimizer", None), "iterations", 0)),
    )
    if steps:
      yield f"{model.name!r} was trained for {steps} steps"


def _of_weights(network) -> Iterator[str]:
  for layer in fresh.parts(network):
    if getattr(layer, "weights_from_config", False):
      continue
    try:
      first, laws = _with_laws(layer, randomness.Key.of(0))
      second = fresh.rebuilt(layer, randomness.Key.of(1))
    except ValueError:
      continue  # nothing is known of its draws
    both = zip(first.get_weights(), second.get_weights())
    for weight, (one, other), law in zip(layer.weights, both, laws):
      value = weight.numpy().astype(np.float64)
      if np.array_equal(one, other):
        if not _close(value, one):
          yield f"{_name(layer, weight)} has left its initial value"
      elif law is not None:
        reason = _unlikely(value, law)
        if reason:
          yield f"{_name(layer, weight)} {reason}"


def _name(layer, weight) -> str:
  return f"weight {weight.name!r} of layer {layer.name!r}"


def _close(value, initial) -> bool:
  """Equal for constants, up to rounding for draws from an own seed."""
  tolerance = 0.0
  if initial.size and np.ptp(initial):
    tolerance = _ROUNDING * np.abs(initial).max()
  return bool(np.all(np.abs(value - initial) <= tolerance))


def _with_laws(layer, key):
  """The layer made again, and the law of each of its weights where known."""
  initial = {}

  def note(next_creator, **kwargs):
    variable = next_creator(**kwargs)
    drawn = getattr(kwargs.get("initial_value"), "func", None)
    initial[id(variable.handle)] = drawn
    return variable

  with tf.variable_creator_scope(note):
    copy = fresh.rebuilt(layer, key)
  laws = [
    _law(initial.get(id(weight.handle)), tuple(weight.shape))
    for weight in copy.weights
  ]
  return copy, laws


def _law(initializer, shape) -> _Law | _initializers.Orthogonal | None:
  kind = type(initializer)
  if kind in _SCALING:
    return _scaled_law(initializer, shape)
  if kind is _initializers.RandomUniform:
    low, high = initializer.minval, initializer.maxval
    half = (high - low) / 2
    return _Law((low + high) / 2, half / math.sqrt(3), half)
  if kind is _initializers.RandomNormal:
    return _Law(initializer.mean, initializer.stddev, math.inf)
  if kind is _initializers.TruncatedNormal:
    width = initializer.stddev
    return _Law(initializer.mean, _TRUNCATED * width, 2 * width)
  return initializer if kind is _initializers.Orthogonal else None


def _scaled_law(initializer, shape) -> _Law:
  """Variance scale / fan, as Keras counts the connections of a unit."""
  fan_in, fan_out = 1, 1
  if len(shape) == 1:
    fan_in = fan_out = shape[0]
  elif len(shape) > 1:
    field = math.prod(shape[:-2])
    fan_in, fan_out = field * shape[-2], field * shape[-1]
  fans = {"fan_in": fan_in, "fan_out": fan_out}
  fan = fans.get(initializer.mode, (fan_in + fan_out) / 2)
  stddev = math.sqrt(initializer.scale / max(1.0, fan))
  bound = math.inf
  if initializer.distribution == "uniform":
    bound = math.sqrt(3) * stddev
  elif initializer.distribution == "truncated_normal":
    bound = 2 / _TRUNCATED * stddev
  return _Law(0.0, stddev, bound)


def _unlikely(value, law) -> str | None:
  """Why the values are no draw of this law, or None."""
  if isinstance(law, _initializers.Orthogonal):
    rank = min(math.prod(value.shape[:-1]), value.shape[-1])
    size = np.sum(value**2) / (law.gain**2 * rank)
    return None if abs(size - 1) <= _ROUNDING else "is not orthogonal any more"
  away = np.abs(value - law.mean)
  if not np.all(away <= law.bound * (1 + _ROUNDING)):
    return "lies outside the bounds of its initialiser"
  # A chi-square for normal entries; bounded ones vary less.
  half, squares = value.size / 2, np.sum(away**2) / law.stddev**2 / 2
  tails = special.gammainc(half, squares), special.gammaincc(half, squares)
  if not min(tails) >= _UNLIKELY / 2:
    return "is not spread as its initialiser draws it"
  return None
