"""What was released through weights, written on the weights themselves.

The mark is a Python attribute of a variable: it goes with the variable into
every model that uses it, outlives assignments, keeps nothing alive, and is not
in any file. Whoever copies values or loads a file has variables without it.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_NAME = "_tf_privrob_released"
_LOCK, _IN_TRAINING = threading.Lock(), set()


@contextlib.contextmanager
def claimed(network: tf.keras.layers.Layer) -> Iterator[None]:
  """While it lasts, no other training may have the network's weights.

  Raises:
    ValueError: another thread trains them: neither would count both.
  """
  variables = network.variables if network.built else ()
  names = set(map(id, (network, *network.submodules, *variables)))
  with _LOCK:
    if not _IN_TRAINING.isdisjoint(names):
      raise ValueError(
        f"Expected a network that nobody trains, received {network.name!r},"
        " whose weights are being trained: no statement would count both."
        " Build another network."
      )
    _IN_TRAINING.update(names)
  try:
    yield
  finally:
    with _LOCK:
      _IN_TRAINING.difference_update(names)


def mark_released(
  variables: Iterable[tf.Variable], record: dict[str, Any]
) -> None:
  """Notes on each variable what was released through it, in place of before.

  Args:
    variables: the weights that a training has published or may publish.
    record: of the training; a copy of it is kept.
  """
  kept = copy.deepcopy(record)
  for variable in variables:
    setattr(variable, _NAME, kept)


def released(network: tf.keras.layers.Layer) -> dict[str, Any] | None:
  """What was released through any of the weights; None: nothing is known.

  Raises:
    ValueError: the weights are of several trainings.
  """
  records = [
    getattr(variable, _NAME)
    for variable in (network.weights if network.built else ())
    if hasattr(variable, _NAME)
  ]
  if any(record != records[0] for record in records):
    raise ValueError(
      f"Expected weights of one training, received {network.name!r} with"
      " weights of several: what they reveal together is not known. Build a new"
      " network, or train the parts one after the other."
    )
  return copy.deepcopy(records[0]) if records else None


def carry_marks(
  sources: Iterable[tf.Variable], targets: Iterable[tf.Variable]
) -> None:
  """Marks variables that took the values of others as those are marked."""
  for source, target in zip(sources, targets):
    if hasattr(source, _NAME):
      mark_released([target], getattr(source, _NAME))
