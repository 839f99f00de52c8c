"""Random numbers that pay for privacy: secret keys and their streams.

A `Key` is 256 bits. Its children come from SHA-256 over the key and the names
of the child, so that no two of them are related and none tells its parent. The
numbers of a key are the key stream of AES-256 in counter mode, as OpenSSL
computes it: whoever does not know the key cannot tell them from true random
numbers, however many were seen.

Without a seed the root is drawn from the operating system and written nowhere.
With one it is a hash of the seed, for experiments that are to be repeated: the
guarantee then holds against those who neither know the seed nor guess it.
"""

from __future__ import annotations

import hashlib
import os
from typing import Union

import numpy as np

# What certificates of a seed depend on, in a few words beside each radius.
SEEDED = "only for models made without knowledge of the seed"
_Name = Union[int, str]
_ROOT = b"tf_privrob seed"
_CHILD = b"tf_privrob child"
_LARGEST = 2**128
_PART = 2**14  # numbers at a time


def check_seed(seed: int | None) -> None:
  """Requires None or a whole number in [0, 2^128)."""
  whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
  if seed is not None and not (whole and 0 <= seed < _LARGEST):
    raise ValueError(
      f"Expected seed={seed!r} to be None, for noise from the operating system,"
      " or a whole number in [0, 2^128), for an experiment that is repeated."
    )


def fold_in(seed, *numbers):
  """A further seed of TensorFlow's stateless functions for each number.

  TensorFlow's own `stateless_fold_in` keeps as many bits as its number has:
  with a plain Python integer 32, which can be searched. These keep 64.

  Args:
    seed: Shape [2].
    *numbers: Whole numbers or integer tensors.
  """
  import tensorflow as tf

  for number in numbers:
    seed = tf.random.experimental.stateless_fold_in(
      seed, tf.cast(number, tf.int64)
    )
  return seed


class Key:
  """A secret from which random numbers and further keys are derived.

  Args:
    secret: 32 bytes; whoever knows them knows every number.
  """

  def __init__(self, secret: bytes):
    if not isinstance(secret, bytes) or len(secret) != 32:
      raise ValueError("Expected a secret of 32 bytes. Use Key.of(seed).")
    self._secret = secret

  @classmethod
  def of(cls, seed: int | None) -> Key:
    """The key of a seed; for None a new one from the operating system."""
    check_seed(seed)
    if seed is None:
      return cls(os.urandom(32))
    return cls(hashlib.sha256(_ROOT + int(seed).to_bytes(16, "big")).digest())

  def child(self, *names: _Name) -> Key:
    """The key of this name, e.g. `key.child("step", 12, "noise")`.

    Different names give unrelated keys: each is hashed with its type and its
    length.
    """
    digest = hashlib.sha256(_CHILD + self._secret)
    for name in names:
      encoded = str(name).encode()
      kind = b"s" if isinstance(name, str) else b"i"
      digest.update(kind + len(encoded).to_bytes(8, "big") + encoded)
    return Key(digest.digest())

  def words(self, count: int) -> np.ndarray:
    """The first `count` words of the key stream, uint64.

    They begin alike whatever `count` is. One key is one use: a second call
    gives the same words.
    """
    from cryptography.hazmat.primitives import ciphers
    from cryptography.hazmat.primitives.ciphers import algorithms
    from cryptography.hazmat.primitives.ciphers import modes

    stream = ciphers.Cipher(
      algorithms.AES(self._secret), modes.CTR(bytes(16))
    ).encryptor()
    # OpenSSL wants room for one block more than it writes.
    found = np.empty(count + 2, np.uint64)
    zeros = np.zeros(count, np.uint64)
    stream.update_into(zeros.view(np.uint8).data, found.view(np.uint8).data)
    return found[:count]

  def uniform(self, count: int) -> np.ndarray:
    """`count` independent numbers in [0, 1), multiples of 2^-53."""
    return (self.words(count) >> np.uint64(11)) * 2.0**-53

  def normal(self, count: int) -> np.ndarray:
    """`count` independent standard normal numbers, by Box and Muller 1958.

    The radius is made of a 53-bit uniform number and reaches 8.57. Cosine and
    sine of the angle come from the tangent of its half, which NumPy computes
    several times faster than either; a part that fits the cache at a time.
    """
    half = (count + 1) // 2
    uniform = self.uniform(2 * half).reshape(2, half)
    found = np.empty((2, half))
    for start in range(0, half, _PART):
      part = slice(start, start + _PART)
      first, second = uniform[:, part]
      tangent = np.tan(np.pi * (second - 0.5))
      square = tangent * tangent
      scale = np.sqrt(-2.0 * np.log1p(-first)) / (1.0 + square)
      np.multiply(scale, 1.0 - square, out=found[0, part])
      np.multiply(scale, 2.0 * tangent, out=found[1, part])
    return found.reshape(-1)[:count]

  def laplace(self, count: int) -> np.ndarray:
    """`count` independent numbers with density exp(-|z|) / 2.

    A sign from one bit of a word, and an exponential number, which reaches
    36.7, from 53 others.
    """
    words = self.words(count)
    found = (words >> np.uint64(11)) * -(2.0**-53)
    np.log1p(found, out=found)
    np.negative(found, out=found, where=(words & np.uint64(1)).astype(bool))
    return found

  def permutation(self, count: int) -> np.ndarray:
    """A uniformly random order of 0, ..., count - 1.

    The order of random words, drawn again in the rare case (count^2 / 2^65)
    that two of them are equal: given that they differ, every order is equally
    likely.
    """
    words, attempt = self.words(count), 0
    while len(np.unique(words)) < count:
      attempt += 1
      words = self.child("again", attempt).words(count)
    return np.argsort(words)

  def stateless_seed(self) -> np.ndarray:
    """128 bits for TensorFlow's stateless functions, int64 [2].

    Their generator is not cryptographic: for augmentation, attacks and public
    draws, never for noise that pays for privacy.
    """
    return self.words(2).view(np.int64)

  def integer(self, bits: int = 63) -> int:
    """A whole number below 2^bits, for generators that take one."""
    return int(self.words(1)[0] >> np.uint64(64 - bits))

  def __repr__(self) -> str:
    return "Key(secret)"

  def __reduce__(self):
    raise TypeError("A key is not stored: whoever reads it knows the noise.")
