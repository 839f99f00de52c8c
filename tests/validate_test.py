from __future__ import annotations

import warnings

import numpy as np
import pytest

from tf_privrob import validate

_X = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 2, 2)


def _with(array, index, value):
  array = np.array(array)
  array[index] = value
  return array


_NUMBERS = [
  (validate.positive, 0, r"^Expected dp_epsilon=0 > 0\.$"),
  (validate.positive, -1.0, r"^Expected dp_epsilon=-1\.0 > 0\.$"),
  (validate.positive, float("nan"), r"Expected dp_epsilon=nan > 0\."),
  (validate.positive, float("inf"), r"Expected dp_epsilon=inf > 0\."),
  (validate.positive, "3", r"Expected dp_epsilon='3' > 0\."),
  (validate.positive, True, r"Expected dp_epsilon=True > 0\."),
  (validate.positive, None, r"Expected dp_epsilon=None > 0\."),
  (validate.non_negative, -1e-9, r"Expected dp_epsilon=-1e-09 >= 0\."),
  (validate.non_negative, float("nan"), r"Expected dp_epsilon=nan >= 0\."),
  (validate.positive_int, 0, r"dp_epsilon=0 to be a whole number >= 1\."),
  (validate.positive_int, 1.0, r"dp_epsilon=1\.0 to be a whole number >= 1\."),
  (validate.positive_int, True, r"dp_epsilon=True to be a whole number"),
  (validate.probability, 0.0, r"Expected 0 < dp_epsilon=0\.0 <= 1\."),
  (validate.probability, 1.01, r"Expected 0 < dp_epsilon=1\.01 <= 1\."),
  (validate.open_probability, 1.0, r"Expected 0 < dp_epsilon=1\.0 < 1\."),
  (validate.open_probability, float("nan"), r"Expected 0 < dp_epsilon=nan"),
]


@pytest.mark.parametrize(("check", "value", "message"), _NUMBERS)
def test_numbers_are_refused_by_name(check, value, message):
  with pytest.raises(ValueError, match=message):
    check(dp_epsilon=value)


@pytest.mark.parametrize(
  ("check", "values"),
  [
    (validate.positive, (1e-300, 1, np.float32(0.5), np.int64(3))),
    (validate.non_negative, (0, 0.0, 2.5)),
    (validate.positive_int, (1, 10**12, np.int32(7))),
    (validate.probability, (1e-12, 1, 1.0)),
    (validate.open_probability, (1e-12, 0.999)),
  ],
)
def test_numbers_in_range_pass(check, values):
  for value in values:
    check(value=value)


def test_the_wrong_one_of_several_is_named():
  with pytest.raises(ValueError, match=r"Expected l2_clip_norm=0 > 0"):
    validate.positive(dp_epsilon=1.0, l2_clip_norm=0)


# Names.


@pytest.mark.parametrize(
  ("value", "message"),
  [
    (
      "dpsgd",
      r"^Unknown method='dpsgd'\. Did you mean 'dp_sgd'\? Known: dp_sgd",
    ),
    ("TRADE", r"Unknown method='TRADE'\. Known: dp_sgd, pixel_dp, trades\."),
    ("trade", r"Did you mean 'trades'\?"),
    ("zzzz", r"^Unknown method='zzzz'\. Known: dp_sgd, pixel_dp, trades\.$"),
    (None, r"Unknown method=None\."),
  ],
)
def test_one_of_offers_the_nearest_name(value, message):
  with pytest.raises(ValueError, match=message):
    validate.one_of(("trades", "dp_sgd", "pixel_dp"), method=value)


def test_one_of_accepts_known_names():
  validate.one_of({"a": 1, "b": 2}, first="a", second="b")


# The failure probability.


@pytest.mark.parametrize("value", [0.0, 1.0, -1e-5, float("nan"), None])
def test_dp_delta_is_a_probability(value):
  with pytest.raises(ValueError, match=r"Expected 0 < dp_delta=.* < 1"):
    validate.dp_delta(value)


@pytest.mark.parametrize("value", [1 / 4000, 0.1])
def test_dp_delta_that_says_little_warns(value):
  with pytest.warns(
    UserWarning, match=r">= 1/n = 0\.00025: publishing.*well below 1/n"
  ):
    validate.dp_delta(value, 4000)


@pytest.mark.parametrize("num_examples", [None, 4000])
def test_a_small_dp_delta_is_silent(num_examples):
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    validate.dp_delta(1e-5, num_examples)


# Ranges.


@pytest.mark.parametrize(
  ("bounds", "message"),
  [
    ((1, 0), r"value_range=\(1, 0\) to be increasing"),
    ((0, 0), r"to be increasing"),
    ((0, float("inf")), r"to be increasing"),
    ((float("-inf"), 0), r"to be increasing"),
    ((0, 1e39), r"value_range=\(0, 1e\+39\) to be numbers of float32"),
    ((-1e39, 1), r"at most 3\.40282e\+38 apart"),
    ((-3e38, 3e38), r"apart\. Rescale"),
    ((0, 10**400), r"numbers of float32"),
    ((0, float("nan")), r"value_range=\(0, nan\) to be two numbers"),
    ((0, 1, 2), r"to be two numbers"),
    ((0,), r"to be two numbers"),
    (("0", "1"), r"to be two numbers"),
    (1.0, r"value_range=1\.0 to be two numbers"),
    ("01", r"value_range='01' to be two numbers"),
    (None, r"value_range=None to be two numbers"),
  ],
)
def test_value_range_is_refused(bounds, message):
  with pytest.raises(ValueError, match=message):
    validate.value_range(bounds)


@pytest.mark.parametrize("bounds", [(0, 1), [-0.5, 0.5], np.array([0.0, 255])])
def test_value_range_passes(bounds):
  validate.value_range(bounds)


# Inputs.


@pytest.mark.parametrize(
  ("array", "message"),
  [
    (
      _with(_X, (2, 0, 1), np.nan),
      r"finite values in x, received NaN or infinity, first in example 2\.",
    ),
    (_with(_X, (1, 1, 1), np.inf), r"first in example 1\. Remove or repair"),
    (_with(_X, (0, 0, 0), -np.inf), r"first in example 0\."),
    (
      255 * _X,
      r"Expected x in \[0, 1\], received values in \[0, 255\]\. Rescale it or",
    ),
    (_X - 0.5, r"Expected x in \[0, 1\], received values in \[-0\.5, 0\.5\]"),
    (
      (255 * _X).astype(np.uint8),
      r"floating-point x in \[0, 1\], received dtype uint8\. Convert it, e\.g\."
      r" x\.astype\('float32'\) / 255",
    ),
    (_X.astype(object), r"floating-point x .* received dtype object"),
    (_X[:0], r"at least one example in x, got none"),
    (np.zeros((2, 0), np.float32), r"at least one example in x, got none"),
    (np.float32(0.5), r"a batch of examples in x, received a single number"),
    (np.float32("nan"), r"received a single number"),
  ],
)
def test_examples_are_refused(array, message):
  with pytest.raises(ValueError, match=message):
    validate.examples((0, 1), x=array)


def test_examples_of_the_wrong_rank_are_refused():
  with pytest.raises(
    ValueError,
    match=r"x_test of rank 4 .*received shape \(3, 2, 2\)\. Add the missing",
  ):
    validate.examples((0, 1), rank=4, x_test=_X)
  validate.examples((0, 1), rank=3, x_test=_X)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bound", [0.1, 0.3, 1.0, 2.8215])
def test_bounds_are_compared_in_the_arrays_precision(dtype, bound):
  edge = np.array([[-bound, bound]], dtype)
  validate.examples((-bound, bound), x=edge)
  beyond = np.nextafter(edge, edge * dtype(2))
  with pytest.raises(ValueError, match=r"Rescale it or declare"):
    validate.examples((-bound, bound), x=beyond)


def test_every_array_is_checked():
  with pytest.raises(ValueError, match=r"Expected second in \[0, 1\]"):
    validate.examples((0, 1), first=_X, second=_X + 1)


# Labels.


@pytest.mark.parametrize(
  ("array", "message"),
  [
    (
      np.eye(3),
      r"sparse labels in y, received shape \(3, 3\), which looks one-hot\."
      r" Pass y\.argmax\(axis=1\)",
    ),
    (np.zeros((5, 1), int), r"of rank 1 .*\(5, 1\).*pass y\.reshape\(-1\)"),
    (np.int64(1), r"y of rank 1 .* received shape \(\)"),
    (np.zeros(0, int), r"at least one label in y, got none"),
    (np.array([0.0, 1.0]), r"whole-number labels in y, received dtype float64"),
    (np.array([True, False]), r"whole-number labels in y, received dtype bool"),
    (
      np.array([0, 12]),
      r"^Expected labels in \[0, 3\), received max 12 in y\."
      r" Pass num_classes=13 or fix the labels\.$",
    ),
    (np.array([0, 3]), r"received max 3 in y\. Pass num_classes=4"),
    (np.array([-1, 2]), r"received min -1 in y\. Fix the labels"),
  ],
)
def test_labels_are_refused(array, message):
  with pytest.raises(ValueError, match=message):
    validate.labels(3, y=array)


def test_labels_are_counted():
  with pytest.raises(
    ValueError, match=r"one label per example, received 4 labels in y for 5"
  ):
    validate.labels(3, 5, y=np.zeros(4, int))
  validate.labels(3, 4, y=np.array([0, 1, 2, 0], np.uint8))


# Batches.


@pytest.mark.parametrize("size", [0, 0.5, 101, float("nan"), None])
def test_batch_size_is_refused(size):
  with pytest.raises(
    ValueError,
    match=r"Expected 1 <= batch_size=.* <= n = 100\. A logical batch cannot",
  ):
    validate.batch_size(size, 100)


def test_batch_size_passes():
  for size in (1, 37.5, 100):
    validate.batch_size(size, 100)
