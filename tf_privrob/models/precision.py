"""Where TensorFlow computes otherwise than a network says: switches, and 0."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import tensorflow as tf

SMALLEST = 2.0**-126  # a processor may take what is below for 0
_FOLDING = ("arithmetic_optimization", "constant_folding")
_LOCK = threading.Lock()
_INSIDE: list[None] = []  # one for each block that is open
_BEFORE: dict[str, bool] = {}
_VARIABLES = (
  "TF_SET_ONEDNN_FPMATH_MODE",
  "ONEDNN_DEFAULT_FPMATH_MODE",
  "DNNL_DEFAULT_FPMATH_MODE",
)


def require_inference() -> None:
  """Refuses a switch by which `model(x)` is a call of training."""
  with tf.init_scope():
    if tf.keras.backend.learning_phase():
      raise ValueError(
        "Expected calls at inference, received Keras' global learning phase 1,"
        " by which model(x) is a call of training. Turn it off by"
        " tf.keras.backend.set_learning_phase(0)."
      )


def require_whole_products(why: str) -> None:
  """Refuses switches that shorten float32 products on a processor.

  Args:
    why: what would not hold, as the end of a sentence.
  """
  options = tf.config.optimizer.get_experimental_options()
  mixed = [k for k, on in options.items() if on and "mixed_precision" in k]
  if mixed:
    raise ValueError(
      f"Expected products in float32, received the option {mixed[0]!r} of"
      f" TensorFlow's graph optimizer, by which {why}. Turn it off by"
      " tf.config.optimizer.set_experimental_options."
    )
  for name in _VARIABLES:
    if os.environ.get(name, "STRICT").upper() not in ("", "STRICT"):
      raise ValueError(
        f"Expected products in float32, received {name}={os.environ[name]} in"
        f" the environment, by which {why}. Unset it."
      )


def require_normal_slope(slope: float, name: str) -> None:
  """Refuses the slope of an activation that a processor may take for 0."""
  if 0 < abs(slope) < SMALLEST:
    raise ValueError(
      f"Expected a slope of 0 or of at least {SMALLEST:g} below zero in"
      f" {name!r}, received {slope:g}, which a processor may take for 0. Use 0."
    )


@contextlib.contextmanager
def as_written() -> Iterator[None]:
  """While it lasts, graphs compute what is written down, step by step.

  Otherwise TensorFlow folds constants into each other, and (x + 3e7) - 3e7
  becomes x, which no call of the model returns. Operations are still run as one
  where that changes no more than roundings. The setting is the process'; the
  last of several threads puts it back.
  """
  with _LOCK:
    options = tf.config.optimizer.get_experimental_options()
    if not _INSIDE:
      _BEFORE.update({name: options.get(name, True) for name in _FOLDING})
    _INSIDE.append(None)
    # By every thread, which remembers the options that it has seen.
    tf.config.optimizer.set_experimental_options(dict.fromkeys(_FOLDING, False))
  try:
    yield
  finally:
    with _LOCK:
      _INSIDE.pop()
      if not _INSIDE:
        tf.config.optimizer.set_experimental_options(dict(_BEFORE))
