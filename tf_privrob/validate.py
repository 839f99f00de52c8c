"""Argument checks: one wording for every error, before any budget is spent.

Every check takes its subject by keyword, so that the message can name it:

>>> positive(dp_epsilon=-1.0)
Traceback (most recent call last):
ValueError: Expected dp_epsilon=-1.0 > 0.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
from typing import Any

import numpy as np

_LARGEST = float(np.finfo(np.float32).max)


def _is_number(value: Any) -> bool:
  return (
    isinstance(value, (int, float, np.integer, np.floating))
    and not isinstance(value, bool)
    and value == value  # not NaN
  )


def positive(**values: float) -> None:
  """Requires finite numbers > 0."""
  for name, value in values.items():
    if not _is_number(value) or not 0 < value < math.inf:
      raise ValueError(f"Expected {name}={value!r} > 0.")


def non_negative(**values: float) -> None:
  """Requires finite numbers >= 0."""
  for name, value in values.items():
    if not _is_number(value) or not 0 <= value < math.inf:
      raise ValueError(f"Expected {name}={value!r} >= 0.")


def positive_int(**values: int) -> None:
  """Requires whole numbers >= 1."""
  for name, value in values.items():
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < 1:
      raise ValueError(f"Expected {name}={value!r} to be a whole number >= 1.")


def non_negative_int(**values: int) -> None:
  """Requires whole numbers >= 0."""
  for name, value in values.items():
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < 0:
      raise ValueError(f"Expected {name}={value!r} to be a whole number >= 0.")


def probability(**values: float) -> None:
  """Requires 0 < value <= 1."""
  for name, value in values.items():
    if not _is_number(value) or not 0 < value <= 1:
      raise ValueError(f"Expected 0 < {name}={value!r} <= 1.")


def open_probability(**values: float) -> None:
  """Requires 0 < value < 1."""
  for name, value in values.items():
    if not _is_number(value) or not 0 < value < 1:
      raise ValueError(f"Expected 0 < {name}={value!r} < 1.")


def closed_probability(**values: float) -> None:
  """Requires 0 <= value <= 1."""
  for name, value in values.items():
    if not _is_number(value) or not 0 <= value <= 1:
      raise ValueError(f"Expected 0 <= {name}={value!r} <= 1.")


def instance(kind: type, **values: Any) -> None:
  """Requires objects of a class, or of a class made from it."""
  for name, value in values.items():
    if not isinstance(value, kind):
      raise ValueError(
        f"Expected {name}={value!r} to be made by {kind.__name__}(...)."
      )


def boolean(**values: bool) -> None:
  """Requires True or False."""
  for name, value in values.items():
    if not isinstance(value, (bool, np.bool_)):
      raise ValueError(f"Expected {name}={value!r} to be True or False.")


def text(**values: str) -> None:
  """Requires strings."""
  for name, value in values.items():
    if not isinstance(value, str):
      raise ValueError(f"Expected {name}={value!r} to be a string.")


def numbers(
  check: Callable[..., None], least: int = 1, **values: Sequence[float]
) -> None:
  """Requires a list of at least so many numbers that each pass `check`."""
  for name, value in values.items():
    known = isinstance(value, (list, tuple)) or np.ndim(value) == 1
    if not known or len(value) < least:
      raise ValueError(
        f"Expected {name}={value!r} to be a list of {least} or more numbers."
      )
    check(**{f"{name}[{i}]": number for i, number in enumerate(value)})


def sizes(**values: tuple[int, int]) -> None:
  """Requires two whole numbers >= 1: height and width."""
  for name, value in values.items():
    if not isinstance(value, (list, tuple)) or len(value) != 2:
      raise ValueError(
        f"Expected {name}={value!r} to be two whole numbers >= 1."
      )
    numbers(positive_int, **{name: value})


def one_of(choices: Collection[str], **values: str) -> None:
  """Requires a known name, and offers the nearest one."""
  for name, value in values.items():
    if not isinstance(value, str) or value not in choices:
      near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.4)
      hint = f" Did you mean {near[0]!r}?" if near else ""
      raise ValueError(
        f"Unknown {name}={value!r}.{hint} Known: {', '.join(sorted(choices))}."
      )


def dp_delta(dp_delta: float, num_examples: int | None = None) -> None:
  """Requires 0 < dp_delta < 1 and warns where it says little: >= 1/n."""
  open_probability(dp_delta=dp_delta)
  if num_examples and dp_delta >= 1 / num_examples:
    warnings.warn(
      f"dp_delta={dp_delta:g} >= 1/n = {1 / num_examples:.3g}: publishing one"
      " example in the clear would satisfy it. Choose dp_delta well below 1/n.",
      UserWarning,
      stacklevel=3,
    )


def value_range(bounds: tuple[float, float]) -> None:
  """Requires two increasing numbers whose distance float32 can hold."""
  pair = isinstance(bounds, (tuple, list, np.ndarray)) and len(bounds) == 2
  if not pair or not all(map(_is_number, bounds)):
    raise ValueError(f"Expected value_range={bounds!r} to be two numbers.")
  if not -math.inf < bounds[0] < bounds[1] < math.inf:
    raise ValueError(f"Expected value_range={bounds!r} to be increasing.")
  if not max(*map(abs, bounds), bounds[1] - bounds[0]) <= _LARGEST:
    raise ValueError(
      f"Expected value_range={bounds!r} to be numbers of float32, at most"
      f" {_LARGEST:g} apart. Rescale the inputs."
    )


def examples(
  bounds: tuple[float, float], rank: int | None = None, **arrays: np.ndarray
) -> None:
  """Requires non-empty, finite float inputs inside the declared range."""
  low, high = bounds
  for name, array in arrays.items():
    array = np.asarray(array)
    if rank is not None and array.ndim != rank:
      raise ValueError(
        f"Expected {name} of rank {rank} (a batch of examples), received shape"
        f" {array.shape}. Add the missing batch or channel axis."
      )
    if array.ndim == 0:
      raise ValueError(
        f"Expected a batch of examples in {name}, received a single number."
      )
    if array.size == 0:
      raise ValueError(f"Expected at least one example in {name}, got none.")
    if array.dtype.kind != "f":
      raise ValueError(
        f"Expected floating-point {name} in [{low}, {high}], received dtype"
        f" {array.dtype}. Convert it, e.g. {name}.astype('float32') / 255."
      )
    if not np.isfinite(array).all():
      bad = int(np.flatnonzero(~np.isfinite(array))[0] // array[0].size)
      raise ValueError(
        f"Expected finite values in {name}, received NaN or infinity, first in"
        f" example {bad}. Remove or repair it before training."
      )
    # Compared in the array's own precision: float32(0.3) > 0.3.
    least, most = np.asarray(bounds, array.dtype)
    if array.min() < least or array.max() > most:
      raise ValueError(
        f"Expected {name} in [{low}, {high}], received values in"
        f" [{array.min():g}, {array.max():g}]. Rescale it or declare its"
        " value_range."
      )


def labels(num_classes: int, count: int | None = None, **arrays) -> None:
  """Requires sparse integer labels in [0, num_classes), one per example."""
  for name, array in arrays.items():
    array = np.asarray(array)
    if array.ndim == 2 and array.shape[1] == num_classes:
      raise ValueError(
        f"Expected sparse labels in {name}, received shape {array.shape}, which"
        f" looks one-hot. Pass {name}.argmax(axis=1)."
      )
    if array.ndim != 1:
      raise ValueError(
        f"Expected {name} of rank 1 (one label an example), received shape"
        f" {array.shape}. If it holds one label a row, pass"
        f" {name}.reshape(-1)."
      )
    if array.size == 0:
      raise ValueError(f"Expected at least one label in {name}, got none.")
    if array.dtype.kind not in "iu":
      raise ValueError(
        f"Expected whole-number labels in {name}, received dtype"
        f" {array.dtype}. Pass {name}.astype('int64')."
      )
    if array.min() < 0 or array.max() >= num_classes:
      extreme = "min" if array.min() < 0 else "max"
      value = int(array.min() if array.min() < 0 else array.max())
      remedy = (
        "Fix the labels."
        if value < 0
        else f"Pass num_classes={value + 1} or fix the labels."
      )
      raise ValueError(
        f"Expected labels in [0, {num_classes}), received {extreme} {value} in"
        f" {name}. {remedy}"
      )
    if count is not None and len(array) != count:
      raise ValueError(
        f"Expected one label per example, received {len(array)} labels in"
        f" {name} for {count} examples."
      )


def batch_size(size: float, num_examples: int) -> None:
  """Requires 1 <= size <= n."""
  if not _is_number(size) or not 1 <= size <= num_examples:
    raise ValueError(
      f"Expected 1 <= batch_size={size!r} <= n = {num_examples}. A logical"
      " batch cannot be larger than the data set."
    )
