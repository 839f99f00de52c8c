"""Schedules of a training run: moments, ramps, learning rates that drop.

A moment is written as it is said: 500 or "500" is a number of steps, "20e" of
epochs, "50%" a share of the run. Settings hold moments, so that they are flags
and JSON; they become steps once the length of the run is known.
"""

from __future__ import annotations

import re
from typing import Union

import tensorflow as tf

from tf_privrob import validate

Moment = Union[int, str]

_PATTERN = re.compile(r"(\d+(?:\.\d+)?)([e%]?)")


def check(**moments: Moment) -> None:
  """Requires moments."""
  for name, moment in moments.items():
    _parse(moment, name)


def in_steps(moment: Moment, steps: int, epochs: float) -> int:
  """A moment of a run of `steps` steps, which are `epochs` epochs."""
  number, unit = _parse(moment, "moment")
  length = {"": 1.0, "e": steps / epochs, "%": steps / 100}[unit]
  return round(number * length)


def scaled(moment: Moment | None, factor: float) -> Moment | None:
  """The moment of a run that is `factor` times as long."""
  if moment is None:
    return None
  number, unit = _parse(moment, "moment")
  if unit == "%":
    return moment
  number *= factor
  return f"{number:.12g}e" if unit else str(round(number))


def progress(step: tf.Tensor, start: int, length: int) -> tf.Tensor:
  """How much of a ramp is behind: 0 before it, 1 after it, a line between.

  A ramp of length 0 is a jump at its start.
  """
  passed = tf.cast(step, tf.float32) - start
  if length == 0:
    return tf.cast(passed >= 0, tf.float32)
  return tf.clip_by_value(passed / length, 0.0, 1.0)


def parse_drops(drops: str) -> list[tuple[str, float]]:
  """Pairs of moment and factor of "10000:0.5,15000:0.1"."""
  validate.text(learning_rate_drops=drops)
  found = []
  for part in filter(None, drops.replace(" ", "").split(",")):
    moment, colon, factor = part.partition(":")
    try:
      value = float(factor)
    except ValueError:
      value = 0.0
    if not colon or not 0 < value < float("inf"):
      raise ValueError(
        "Expected learning_rate_drops like '10000:0.5,15000:0.1' (from which"
        f" moment on, which factor of learning_rate), received {drops!r}."
      )
    _parse(moment, "learning_rate_drops")
    found.append((moment, value))
  return found


def scaled_drops(drops: str, factor: float) -> str:
  """The drops of a run that is `factor` times as long."""
  return ",".join(
    f"{scaled(moment, factor)}:{value:g}"
    for moment, value in parse_drops(drops)
  )


def learning_rate(rate: float, drops: str, steps: int, epochs: float):
  """The rate, or a schedule in which it is constant by pieces.

  From the step of each moment on, counted from 0, the rate is `rate` times the
  factor beside it.
  """
  pairs = [
    (in_steps(moment, steps, epochs), factor)
    for moment, factor in parse_drops(drops)
  ]
  if not pairs:
    return rate
  starts = [start for start, _ in pairs]
  if starts != sorted(starts):
    raise ValueError(
      f"Expected learning_rate_drops in the order of time, received {drops!r},"
      f" which is at steps {starts} of {steps}. Sort them."
    )
  # Keras keeps a value up to and including its boundary.
  return tf.keras.optimizers.schedules.PiecewiseConstantDecay(
    [start - 1 for start in starts], [rate, *(rate * f for _, f in pairs)]
  )


def _parse(moment: Moment, name: str) -> tuple[float, str]:
  known = isinstance(moment, (int, str)) and not isinstance(moment, bool)
  found = _PATTERN.fullmatch(str(moment)) if known else None
  if not found:
    raise ValueError(
      f"Expected {name}={moment!r} to be a number of steps, or of epochs as in"
      " '20e', or a share of the run as in '50%'."
    )
  return float(found.group(1)), found.group(2)
