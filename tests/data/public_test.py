"""Public and private examples: disjoint rows, equal shares, no copies."""

from __future__ import annotations

import json
import time

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from tf_privrob import data


def _dataset(labels, test=4):
  labels = np.asarray(labels)
  count = len(labels)
  x = np.arange(count, dtype=np.float32)[:, None] / max(count, 1)
  return data.from_arrays(
    "small", x, labels, np.ones((test, 1), "f"), np.zeros(test, int), 3, (0, 1)
  )


@hypothesis.given(
  labels=st.lists(st.integers(0, 2), min_size=4, max_size=60),
  share=st.floats(0.2, 0.8),
  seed=st.integers(0, 5),
)
def test_rows_are_parted_with_the_share_of_every_class(labels, share, seed):
  whole = _dataset(labels)
  public, private = data.split_public(whole, share, seed)
  assert public.num_train == round(share * whole.num_train)
  both = np.concatenate([public.x_train, private.x_train])[:, 0]
  np.testing.assert_array_equal(np.sort(both), whole.x_train[:, 0])
  data.require_disjoint(public.x_train, private.x_train)
  for label in range(3):
    expected = share * labels.count(label)
    assert abs((public.y_train == label).sum() - expected) < 1
  for part in (public, private):  # labels stay with their examples, in order
    rows = np.round(part.x_train[:, 0] * len(labels)).astype(int)
    np.testing.assert_array_equal(part.y_train, np.asarray(labels)[rows])
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(part.x_test, whole.x_test)


def test_the_split_says_so_and_follows_the_seed():
  whole = _dataset(np.arange(60) % 3)
  public, private = data.split_public(whole, 0.25, seed=7)
  assert public.split == (
    "The public 15 of 60 training examples (share=0.25 of every class is"
    " public, seed=7), none of them among the private ones. As given by the"
    " caller."
  )
  assert private.split.startswith("The private 45 of 60 training examples")
  again, _ = data.split_public(whole, 0.25, seed=7)
  np.testing.assert_array_equal(public.x_train, again.x_train)
  other, _ = data.split_public(whole, 0.25, seed=8)
  assert not np.array_equal(public.x_train, other.x_train)


@pytest.mark.parametrize("share", [0, 1, 1.5, -0.1, float("nan")])
def test_bad_share(share):
  with pytest.raises(ValueError, match="share="):
    data.split_public(_dataset([0, 1, 2]), share)


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_a_share_that_leaves_nobody(share):
  with pytest.raises(
    ValueError, match=r"at least one public .* of 3, received"
  ):
    data.split_public(_dataset([0, 1, 2]), share)


def _images(count=50, seed=0):
  return np.random.default_rng(seed).random((count, 4, 4, 1), np.float32)


def test_copies_are_counted_and_named():
  public, private = _images(50, 1), _images(40, 2)
  data.require_disjoint(public, private)
  private[[3, 7, 30]] = public[[5, 2, 5]]
  with pytest.raises(
    ValueError,
    match=r"but 3 of 40 occur in both: private 3 \(public 5\), 7 \(public 2\),"
    r" 30 \(public 5\)\. What",
  ):
    data.require_disjoint(public, private)
  with pytest.raises(ValueError, match=r"50 of 50 .*4 \(public 4\), \.\.\."):
    data.require_disjoint(public, public.astype(np.float64))


def test_minus_zero_is_zero_and_a_hair_is_a_difference():
  zeros = np.zeros((1, 4), np.float32)
  with pytest.raises(ValueError, match="1 of 1"):
    data.require_disjoint(zeros, -zeros)
  data.require_disjoint(zeros, np.nextafter(zeros, 1, dtype=np.float32))


def test_rows_of_a_view_are_hashed_as_they_are():
  x = _images(20)
  data.require_disjoint(x[::2], x[1::2])
  with pytest.raises(ValueError, match="10 of 10"):
    data.require_disjoint(x[::2], np.asfortranarray(x[::2]))


@pytest.mark.parametrize(
  ("public", "private", "message"),
  [
    (_images(), (255 * _images()).astype("uint8"), "floating-point private_x"),
    (_images(), _images()[:, :2], r"of one shape, .*\(50, 2, 4, 1\) in pri"),
    (np.ones(3), np.ones(3), "batches of examples"),
  ],
)
def test_what_cannot_be_compared_is_refused(public, private, message):
  with pytest.raises(ValueError, match=message):
    data.require_disjoint(public, private)


def test_mnist_is_compared_in_seconds(real_data):
  public, private = data.split_public(real_data("mnist"), 0.5)
  assert public.num_train == private.num_train == 30_000
  started = time.monotonic()
  data.require_disjoint(public.x_train, private.x_train)
  assert time.monotonic() - started < 10


# What a file tells of the examples that its weights have seen.


def test_what_was_seen_is_known_by_its_hash_and_refused():
  public, private = data.split_public(_dataset(np.arange(60) % 3), 0.5)
  told = json.loads(json.dumps(data.examples_of(public)))
  data.require_unseen(told, private.x_train, (0.0, 1.0))
  some = np.concatenate([private.x_train[:7], public.x_train[3:5]])
  with pytest.raises(ValueError, match=r"2 of 9 .* \(small\).* row 7\."):
    data.require_unseen(told, some, (0.0, 1.0))
  whole = np.concatenate([public.x_train, private.x_train])
  with pytest.raises(ValueError, match="30 of 60"):
    data.require_unseen(told, whole, (0.0, 1.0))


def test_what_cannot_be_told_is_refused():
  public, private = data.split_public(_dataset(np.arange(60) % 3), 0.5)
  told = data.examples_of(public)
  moved = private.rescaled((-1.0, 1.0))
  with pytest.raises(ValueError, match=r"\(0\.0, 1\.0\).*\(-1\.0, 1\.0\)"):
    data.require_unseen(told, moved.x_train, moved.value_range)
  for change in (
    {"hashes": "%%%"},
    {"hashes": 3},
    {"hashes": ""},
    {"hashes": "", "examples": 0},
    {"examples": 1},
    {"value_range": None},
  ):
    with pytest.raises(ValueError, match="a damaged note"):
      data.require_unseen({**told, **change}, private.x_train, (0.0, 1.0))
