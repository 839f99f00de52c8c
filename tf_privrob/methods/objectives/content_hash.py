"""A fixed share of a training set, chosen by what is in each example.

Whether an example is chosen depends on the example alone, not on its place in
the data or on its batch: it is chosen at every step or never, also after a
resumed run, and in a private run the choice ties no examples together.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

_PRIME = 2**31 - 1
_SALT = 20191111


def chosen(images: tf.Tensor, labels: tf.Tensor, share: float) -> tf.Tensor:
  """Which examples belong to the share, [B] of bool.

  The 16-bit halves v_k of all float32 values and the label are hashed by

    h = (sum_k a_k v_k)^5 mod p, p = 2^31 - 1,

  with public coefficients a_k drawn once below p (multilinear hashing: two
  different examples collide with probability 1/p over the draw). The power is a
  permutation, as 5 does not divide p - 1, and parts examples that are nearly
  equal. An example is chosen if h < share * p.
  """
  size = int(np.prod(images.shape[1:]))
  flat = tf.reshape(tf.cast(images, tf.float32), [-1, size])
  bits = tf.cast(tf.bitcast(flat, tf.int32), tf.int64)
  low = tf.math.floormod(bits, 2**16)
  high = tf.math.floormod(tf.math.floordiv(bits, 2**16), 2**16)
  label = tf.cast(labels, tf.int64)[:, tf.newaxis]
  coefficients = np.random.default_rng(_SALT).integers(1, _PRIME, 2 * size + 1)
  total = tf.zeros_like(label[:, 0])
  for values, part in zip(
    (low, high, label), np.split(coefficients, [size, 2 * size])
  ):
    products = tf.math.floormod(values * tf.constant(part, tf.int64), _PRIME)
    total += tf.reduce_sum(products, axis=1)
  base = tf.math.floormod(total, _PRIME)
  square = tf.math.floormod(base * base, _PRIME)
  fourth = tf.math.floormod(square * square, _PRIME)
  found = tf.math.floormod(fourth * base, _PRIME)
  return tf.cast(found, tf.float64) < share * _PRIME
