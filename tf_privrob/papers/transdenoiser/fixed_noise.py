"""Input noise that is drawn once for each example (appendix G)."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_privrob import randomness


class FixedNoise:
  """Unit noise that is a function of an example and of a secret key.

  The same at every step, and at every place of a batch; two equal examples have
  equal noise. Whoever knows the key and an example knows its noise. An object
  of its own, so that Keras saves no key.

  Args:
    key: until `settle` gives it another one.
  """

  def __init__(self, key: randomness.Key):
    self._words = tf.Variable([0, 0], dtype=tf.int32, trainable=False)
    self.settle(key)

  def settle(self, key: randomness.Key) -> None:
    """Takes the key of a run, which is the same in all its sessions."""
    words = key.child("fixed input noise").words(1)
    self._words.assign(words.view(np.int32))

  def __call__(self, images: tf.Tensor) -> tf.Tensor:
    """The noise of each example."""
    shape = images.shape[1:]
    bits = tf.reshape(tf.bitcast(images, tf.int32), [images.shape[0], -1])
    weights = np.random.default_rng(0).integers(
      -(2**31), 2**31, (bits.shape[1], 2), dtype=np.int64
    )
    weights = (weights | 1).astype(np.int32)
    hashes = tf.reduce_sum(bits[:, :, tf.newaxis] * weights, axis=1)  # mod 2^32
    return tf.map_fn(
      lambda seed: tf.random.stateless_normal(shape, seed),
      hashes + self._words,
      fn_output_signature=tf.TensorSpec(shape, tf.float32),
    )
