"""A short name for the weights that a network has at the moment."""

from __future__ import annotations

import hashlib

import tensorflow as tf


def fingerprint(network: tf.keras.Model) -> str:
  """SHA-256 over shapes, types and bytes of all weights, in their order.

  Two networks of one architecture compute the same if it is equal; another
  value of a single weight makes it another one.
  """
  digest = hashlib.sha256()
  for weight in network.weights:
    value = weight.numpy()
    digest.update(f"{value.dtype.str} {value.shape}".encode())
    digest.update(value.tobytes())
  return digest.hexdigest()
