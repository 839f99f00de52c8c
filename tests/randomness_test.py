"""Keys and their streams: entropy, independence, golden values."""

from __future__ import annotations

import copy
import hashlib

import numpy as np
import pytest
from scipy import stats

from tf_privrob import randomness


def test_words_are_the_key_stream_of_aes_256_in_counter_mode():
  # NIST SP 800-38A, F.5.5, has another counter; this is AES-256 of the blocks
  # 0 and 1 under the all-zero key (FIPS 197; NIST's AESAVS, appendix D has the
  # first: dc95c078a2408989ad48a21492842087).
  words = randomness.Key(bytes(32)).words(3)
  assert words.tobytes()[:16].hex() == "dc95c078a2408989ad48a21492842087"


def test_words_do_not_depend_on_how_many_are_drawn():
  key = randomness.Key.of(3)
  for count in (1, 2, 3, 15, 16, 17, 1000):
    np.testing.assert_array_equal(key.words(count), key.words(1001)[:count])
  assert key.words(0).shape == (0,)


def test_the_root_of_a_seed_is_its_hash():
  expected = hashlib.sha256(b"tf_privrob seed" + (5).to_bytes(16, "big"))
  np.testing.assert_array_equal(
    randomness.Key.of(5).words(4), randomness.Key(expected.digest()).words(4)
  )


def test_without_a_seed_every_key_is_new():
  drawn = {randomness.Key.of(None).words(2).tobytes() for _ in range(100)}
  assert len(drawn) == 100


def test_no_two_names_share_a_key():
  key = randomness.Key.of(0)
  names = [(), ("a",), ("a", "b"), ("ab",), (1,), ("1",), (1, 2), (12,), (-1,)]
  names += [("s", 1), ("s1",), ("", "a"), ("a", "")]
  drawn = {key.child(*path).words(2).tobytes() for path in names}
  assert len(drawn) == len(names)
  # What once had the same key: (seed 2^32 + 5, session 0), (seed 5, session 1).
  pairs = [(2**32 + 5, 0), (5, 1), (5, 0), (2**64 + 5, 0)]
  drawn = {
    randomness.Key.of(seed).child("session", session).words(2).tobytes()
    for seed, session in pairs
  }
  assert len(drawn) == len(pairs)


def test_steps_do_not_collide_in_32_bits():
  # With 32-bit hashes, 2^17 keys have a collision with probability 0.86.
  key, seen = randomness.Key.of(1), set()
  for step in range(2**17):
    seen.add(key.child(step).words(1).tobytes())
  assert len(seen) == 2**17
  halves = {word[:4] for word in seen}
  assert len(halves) < 2**17  # so the test could have seen one


@pytest.mark.parametrize("seed", [-1, 2**128, 1.0, "1", True])
def test_a_bad_seed_is_refused(seed):
  with pytest.raises(ValueError, match=r"Expected seed=.* or a whole number"):
    randomness.Key.of(seed)
  randomness.check_seed(None)
  randomness.check_seed(np.int64(7))


def test_uniform_numbers_are_uniform():
  found = randomness.Key.of(2).uniform(100_000)
  assert found.min() >= 0
  assert found.max() < 1
  assert stats.kstest(found, "uniform").pvalue > 1e-3
  scaled = found * 2.0**53
  assert (scaled == np.round(scaled)).all()
  assert (scaled.astype(np.int64) % 2).mean() == pytest.approx(0.5, abs=0.01)


def test_permutations_are_uniform():
  counts = {}
  for number in range(6000):
    order = tuple(randomness.Key.of(number).permutation(3))
    counts[order] = counts.get(order, 0) + 1
  assert len(counts) == 6
  assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_equal_words_are_drawn_again(monkeypatch):
  key = randomness.Key.of(0)
  real = randomness.Key.words

  def words(self, count):
    return np.zeros(count, np.uint64) if self is key else real(self, count)

  monkeypatch.setattr(randomness.Key, "words", words)
  assert sorted(key.permutation(5)) == [0, 1, 2, 3, 4]


def test_a_key_is_neither_shown_nor_stored():
  key = randomness.Key.of(0)
  assert repr(key) == "Key(secret)"
  with pytest.raises(TypeError, match="not stored"):
    copy.deepcopy(key)
  with pytest.raises(ValueError, match="32 bytes"):
    randomness.Key(b"short")


def test_normal_numbers_have_their_law():
  drawn = randomness.Key.of(11).normal(200_001)
  assert drawn.shape == (200_001,)
  assert stats.kstest(drawn, "norm").pvalue > 1e-3
  for factor in (2 / 3, 3 / 2):
    assert stats.kstest(factor * drawn, "norm").pvalue < 1e-6
  # Of a pair, and of neighbours: no correlation, nor one of the squares.
  for first, second in (
    (drawn[:100_000], drawn[100_001:]),
    drawn.reshape(3, -1)[:2],
  ):
    size = min(len(first), len(second))
    first, second = first[:size], second[:size]
    for power in (1, 2):
      found = np.corrcoef(first**power, second**power)[0, 1]
      assert abs(found) < 5 / np.sqrt(size)


def test_normal_numbers_at_the_ends_of_the_uniforms(monkeypatch):
  """By hand: radius sqrt(-2 log(1 - u)), angle 2 pi v - pi."""
  largest = 1 - 2.0**-53
  firsts, seconds = [0.0, largest, 0.5, largest], [0.0, 0.5, 0.25, largest]
  monkeypatch.setattr(
    randomness.Key, "uniform", lambda self, count: np.array(firsts + seconds)
  )
  drawn = randomness.Key.of(0).normal(8)
  radius = np.sqrt(-2 * np.log1p(-np.array(firsts)))
  angle = 2 * np.pi * np.array(seconds) - np.pi
  assert radius.max() == pytest.approx(8.5716, abs=1e-4)
  expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
  np.testing.assert_allclose(drawn, expected, atol=1e-14)
