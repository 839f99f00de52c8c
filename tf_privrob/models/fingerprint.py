"""A short name for the weights that a network has at the moment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import tensorflow as tf


def fingerprint(network: tf.keras.Model) -> str:
  """SHA-256 over shapes, types and bytes of all weights, in their order.

  Two networks of one architecture compute the same if it is equal; another
  value of a single weight makes it another one.
  """
  return fingerprint_of(network.weights)


def fingerprint_of(variables: Iterable[tf.Variable]) -> str:
  """The same of these variables."""
  digest = hashlib.sha256()
  for variable in variables:
    value = variable.numpy()
    digest.update(f"{value.dtype.str} {value.shape}".encode())
    digest.update(value.tobytes())
  return digest.hexdigest()
