"""Switches by which TensorFlow computes otherwise than a network says."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import tensorflow as tf

_FOLDING = ("arithmetic_optimization", "constant_folding")
_VARIABLES = ("TF_SET_ONEDNN_FPMATH_MODE", "ONEDNN_DEFAULT_FPMATH_MODE")


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


@contextlib.contextmanager
def as_written() -> Iterator[None]:
  """While it lasts, graphs compute what is written down, step by step.

  Otherwise TensorFlow folds constants into each other, and (x + 3e7) - 3e7
  becomes x, which no call of the model returns. Operations are still run as one
  where that changes no more than roundings.
  """
  before = tf.config.optimizer.get_experimental_options()
  tf.config.optimizer.set_experimental_options(dict.fromkeys(_FOLDING, False))
  try:
    yield
  finally:
    tf.config.optimizer.set_experimental_options(
      {name: before.get(name, True) for name in _FOLDING}
    )
