from __future__ import annotations

import dataclasses

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from tf_privrob import data
from tf_privrob.data import dataset as dataset_lib


def _arrays(**changes):
  arrays = {
    "x_train": np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 2, 2, 1),
    "y_train": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": np.full((3, 2, 2, 1), 0.5, np.float32),
    "y_test": np.array([2, 1, 0]),
  }
  return {**arrays, **changes}


def _small(num_classes=3, value_range=(0, 1), class_names=None, **changes):
  return data.from_arrays(
    "small",
    num_classes=num_classes,
    value_range=value_range,
    class_names=class_names,
    **_arrays(**changes),
  )


def test_properties_and_types():
  small = _small(x_train=_arrays()["x_train"].astype(np.float64))
  assert small.input_shape == (2, 2, 1)
  assert (small.num_train, small.num_test, small.num_classes) == (6, 3, 3)
  assert small.value_range == (0.0, 1.0)
  for part in ("train", "test"):
    assert getattr(small, f"x_{part}").dtype == np.float32
    assert getattr(small, f"y_{part}").dtype == np.int64
  assert "6 train and 3 test examples of shape (2, 2, 1)" in repr(small)


@pytest.mark.parametrize("field", ["x_train", "y_train", "x_test", "y_test"])
def test_arrays_are_read_only_and_the_callers_are_not_shared(field):
  arrays = _arrays()
  small = data.from_arrays("small", num_classes=3, value_range=(0, 1), **arrays)
  before = getattr(small, field).copy()
  with pytest.raises(ValueError, match="read-only"):
    getattr(small, field)[0] = 0
  arrays[field][:] = 1
  np.testing.assert_array_equal(getattr(small, field), before)
  with pytest.raises(dataclasses.FrozenInstanceError):
    setattr(small, field, before)


def test_take_is_the_first_n_and_says_so():
  small = _small()
  part = small.take(4, 2)
  np.testing.assert_array_equal(part.x_train, small.x_train[:4])
  np.testing.assert_array_equal(part.y_test, small.y_test[:2])
  assert part.split.startswith(
    "The first 4 of 6 training and the first 2 of 3 test examples."
  )
  assert small.take() is small
  assert small.take(num_train=2).num_test == 3
  with pytest.raises(ValueError, match=r"Expected num_train=7 <= 6"):
    small.take(7)
  with pytest.raises(ValueError, match=r"num_test=0 to be a whole number"):
    small.take(2, 0)


def test_rescaled_is_affine_and_exact_at_the_ends():
  small = _small()
  wide = small.rescaled((-1, 1))
  assert wide.value_range == (-1.0, 1.0)
  np.testing.assert_allclose(wide.x_train, 2 * small.x_train - 1, atol=1e-6)
  assert (wide.x_train.min(), wide.x_train.max()) == (-1, 1)
  np.testing.assert_array_equal(wide.y_train, small.y_train)
  assert small.rescaled((0, 1)) is small


@hypothesis.given(
  low=st.floats(-100, 100, width=16),
  span=st.floats(2**-6, 64, width=32),
)
def test_rescaling_stays_inside_and_comes_back(low, span):
  small = _small()
  there = small.rescaled((low, low + span))  # its own checks are the test
  scale = max(abs(low), abs(low + span))
  back = there.rescaled((0, 1))
  # Rounding to float32 near `low` is magnified by 1 / span on the way back.
  np.testing.assert_allclose(
    back.x_train, small.x_train, atol=1e-6 + 4e-7 * scale / span
  )


def test_bytes_are_rescaled_without_looking_at_the_data():
  dim = np.array([[3, 7]], np.uint8)  # a min-max scaling would give 0 and 1
  np.testing.assert_allclose(
    dataset_lib.rescale(dim, (0, 255), (0, 1)), [[3 / 255, 7 / 255]], rtol=1e-7
  )
  every = np.arange(256, dtype=np.uint8)
  scaled = dataset_lib.rescale(every, (0, 255), (-1, 1))
  np.testing.assert_allclose(scaled, every / 127.5 - 1, atol=1e-7)
  assert scaled.dtype == np.float32


@pytest.mark.parametrize(
  ("text", "expected"),
  [("-1,1", (-1.0, 1.0)), ("0, 0.5", (0.0, 0.5)), ("", None), (None, None)],
)
def test_parse_range(text, expected):
  assert data.parse_range(text) == expected


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("1", r"value_range='1' to be two numbers, as in --value_range=-1,1"),
    ("0,1,2", r"to be two numbers, as in"),
    ("a,b", r"value_range='a,b' to be two numbers"),
    ("1,0", r"to be increasing"),
    ("nan,1", r"to be two numbers"),
    ("0,inf", r"to be increasing"),
  ],
)
def test_parse_range_refuses(text, message):
  with pytest.raises(ValueError, match=message):
    data.parse_range(text)


def _with(array, index, value):
  array = array.copy()
  array[index] = value
  return array


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (
      {"x_train": (255 * _arrays()["x_train"]).astype(np.uint8)},
      r"floating-point x_train in \[0\.0, 1\.0\], received dtype uint8",
    ),
    (
      {"x_test": _with(_arrays()["x_test"], (1, 0, 0), np.nan)},
      r"finite values in x_test, .* first in example 1",
    ),
    (
      {"x_train": 2 * _arrays()["x_train"]},
      r"Expected x_train in \[0\.0, 1\.0\], received values in \[0, 2\]",
    ),
    ({"x_train": np.ones(6, np.float32)}, r"x_train of rank 2 or more"),
    ({"x_test": np.ones((3, 4), np.float32)}, r"one shape, received \(2, 2, 1"),
    ({"y_test": np.eye(3)}, r"y_test.*looks one-hot.*y_test\.argmax"),
    ({"y_train": np.zeros(5, int)}, r"received 5 labels in y_train for 6"),
    (
      {"y_train": np.array([0, 1, 2, 3, 4, 12])},
      r"labels in \[0, 3\), received max 12 in y_train\. Pass num_classes=13",
    ),
    ({"x_train": np.ones((0, 2, 2, 1), np.float32)}, r"at least one example"),
    ({"num_classes": 0}, r"num_classes=0 to be a whole number >= 1"),
    ({"value_range": (1, 0)}, r"value_range=\(1, 0\) to be increasing"),
    ({"value_range": 1.0}, r"value_range=1\.0 to be two numbers"),
    ({"class_names": ("a", "b")}, r"Expected 3 class_names.*received 2"),
  ],
)
def test_bad_arrays_are_refused(change, message):
  with pytest.raises(ValueError, match=message):
    _small(**change)


def test_a_range_that_float32_cannot_hold_exactly_is_accepted():
  value = np.full((6, 2), 0.3, np.float32)  # float32(0.3) > 0.3
  small = _small(x_train=value, x_test=value[:3], value_range=(-0.3, 0.3))
  assert small.x_train.max() == np.float32(0.3)
