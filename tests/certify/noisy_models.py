"""Models with room for noise inside, and the same noise by hand."""

import math

import numpy as np
import tensorflow as tf

from tf_privrob.certify.smoothing import votes


class Cut:
  """Logits after(before(x)), with room for noise at x and at h = before(x)."""

  def before(self, x):
    return x

  def logits_with_noise(self, x, input_noise, hidden_noise):
    h = self.before(x if input_noise is None else x + input_noise)
    return self.after(h if hidden_noise is None else h + hidden_noise)

  def hidden_values(self, x):
    hidden = np.asarray(self.before(tf.constant(x)), np.float64)
    return hidden, np.zeros_like(hidden)

  def logits_from_hidden(self, hidden):
    return self.after(hidden)

  def __call__(self, x):
    return self.logits_with_noise(x, None, None)


class BySign(Cut):
  """Two classes by the sign of the last coordinate of h."""

  def after(self, h):
    return tf.concat([tf.zeros_like(h[:, -1:]), h[:, -1:]], axis=1)


def copies(value, scale, draws, seed, names, law="laplace"):
  """Noisy copies of a value, one number after the other.

  Args:
    value: [features].
    scale: of the noise.
    draws: how many.
    seed: of the certifier.
    names: of the key, but for the block.
    law: "laplace" or "normal".
  """
  spacing = 2.0 ** math.floor(math.log2(scale / 512))
  found = []
  for block in range(math.ceil(draws / votes.BLOCK)):
    key = votes.seed_key(seed).child(*names, block)
    numbers = iter(getattr(key, law)(votes.BLOCK * len(value)))
    for _ in range(votes.BLOCK):
      sums = [float(part) + scale * next(numbers) for part in value]
      found.append([spacing * round(part / spacing) for part in sums])
  return np.array(found[:draws])
