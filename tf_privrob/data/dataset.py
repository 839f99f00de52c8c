"""The data set every other room receives: checked, read-only, range declared.

The value range is part of the data, since sensitivities and attack sizes are
measured in it. Rescaling is affine between two ranges that are known without
looking at the examples: a mean or a standard deviation of private data would be
a release of its own.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_privrob import validate


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dataset:
  """A train and a test set of one classification task.

  Arrays are checked once, here, and read-only from then on.

  Attributes:
    name: Short name, as in `data.load(name)`.
    x_train: float32, `[n, ...]`; images have a channel axis.
    y_train: int64, `[n]`, sparse labels in `[0, num_classes)`.
    x_test: float32, `[m, ...]`.
    y_test: int64, `[m]`.
    num_classes: Number of classes.
    value_range: The (low, high) that every input value lies in.
    source: Where the examples were found.
    split: One sentence on how train and test were parted.
    class_names: One name per class, or None.
  """

  name: str
  x_train: np.ndarray
  y_train: np.ndarray
  x_test: np.ndarray
  y_test: np.ndarray
  num_classes: int
  value_range: tuple[float, float]
  source: str
  split: str
  class_names: tuple[str, ...] | None = None

  def __post_init__(self):
    validate.positive_int(num_classes=self.num_classes)
    validate.value_range(self.value_range)
    bounds = (float(self.value_range[0]), float(self.value_range[1]))
    object.__setattr__(self, "value_range", bounds)
    for part in ("train", "test"):
      x, y = f"x_{part}", f"y_{part}"
      inputs = np.asarray(getattr(self, x))
      targets = np.asarray(getattr(self, y))
      validate.examples(bounds, **{x: inputs})
      _check_rank(inputs, x)
      validate.labels(self.num_classes, len(inputs), **{y: targets})
      object.__setattr__(self, x, _locked(inputs, np.float32))
      object.__setattr__(self, y, _locked(targets, np.int64))
    if self.x_test.shape[1:] != self.x_train.shape[1:]:
      raise ValueError(
        "Expected train and test examples of one shape, received"
        f" {self.x_train.shape[1:]} in x_train and {self.x_test.shape[1:]} in"
        " x_test."
      )
    if self.class_names is not None:
      object.__setattr__(self, "class_names", tuple(self.class_names))
      if len(self.class_names) != self.num_classes:
        raise ValueError(
          f"Expected {self.num_classes} class_names, one a class, received"
          f" {len(self.class_names)}."
        )

  @property
  def input_shape(self) -> tuple[int, ...]:
    """Shape of one example."""
    return self.x_train.shape[1:]

  @property
  def num_train(self) -> int:
    """Number of training examples: the n of the privacy statement."""
    return len(self.x_train)

  @property
  def num_test(self) -> int:
    """Number of test examples."""
    return len(self.x_test)

  def take(
    self, num_train: int | None = None, num_test: int | None = None
  ) -> Dataset:
    """The first `num_train` and `num_test` examples; None keeps them all."""
    train = _count(num_train, self.num_train, "num_train")
    test = _count(num_test, self.num_test, "num_test")
    if (train, test) == (self.num_train, self.num_test):
      return self
    return dataclasses.replace(
      self,
      x_train=self.x_train[:train],
      y_train=self.y_train[:train],
      x_test=self.x_test[:test],
      y_test=self.y_test[:test],
      split=(
        f"The first {train:,} of {self.num_train:,} training and the first"
        f" {test:,} of {self.num_test:,} test examples. {self.split}"
      ),
    )

  def rescaled(self, value_range: tuple[float, float]) -> Dataset:
    """The same examples, mapped affinely from their range to another one."""
    validate.value_range(value_range)
    if tuple(map(float, value_range)) == self.value_range:
      return self
    return dataclasses.replace(
      self,
      x_train=rescale(self.x_train, self.value_range, value_range),
      x_test=rescale(self.x_test, self.value_range, value_range),
      value_range=value_range,
    )

  def __repr__(self):
    low, high = self.value_range
    return (
      f"Dataset({self.name!r}, {self.num_train} train and {self.num_test} test"
      f" examples of shape {self.input_shape} in [{low:g}, {high:g}],"
      f" {self.num_classes} classes, from {self.source})"
    )


def from_arrays(
  name: str,
  x_train: np.ndarray,
  y_train: np.ndarray,
  x_test: np.ndarray,
  y_test: np.ndarray,
  num_classes: int,
  value_range: tuple[float, float],
  class_names: tuple[str, ...] | None = None,
) -> Dataset:
  """A data set from your own arrays.

  The arrays are copied, so that no later change of yours can slip past the
  checks (a value out of range would void every sensitivity bound).

  Args:
    name: Any name; reports show it.
    x_train: Floating-point inputs inside `value_range`, batch axis first.
    y_train: Sparse whole-number labels.
    x_test: Inputs to test on, as `x_train`.
    y_test: Labels of the test inputs, as `y_train`.
    num_classes: Number of classes, public knowledge.
    value_range: (low, high) of the inputs by their nature, e.g. (0, 1) for
      pixels; not the extremes that happen to occur in private data.
    class_names: One name per class.

  Returns:
    The checked, read-only data set.
  """
  return Dataset(
    name=name,
    x_train=np.array(x_train),
    y_train=np.array(y_train),
    x_test=np.array(x_test),
    y_test=np.array(y_test),
    num_classes=num_classes,
    value_range=value_range,
    source="arrays of the caller",
    split="As given by the caller.",
    class_names=class_names,
  )


def parse_range(text: str | None) -> tuple[float, float] | None:
  """Reads a `--value_range=-1,1` flag; empty means the data set's own range."""
  if not text:
    return None
  try:
    bounds = tuple(float(part) for part in text.split(","))
  except ValueError:
    bounds = ()
  if len(bounds) != 2:
    raise ValueError(
      f"Expected value_range={text!r} to be two numbers, as in"
      " --value_range=-1,1."
    )
  validate.value_range(bounds)
  return bounds


def rescale(
  x: np.ndarray, source: tuple[float, float], target: tuple[float, float]
) -> np.ndarray:
  """Maps `source` affinely onto `target`, in float32 and never outside it."""
  low, high = np.asarray(target, np.float32)
  scale = (target[1] - target[0]) / (source[1] - source[0])
  if x.dtype == np.uint8:  # 256 values: exact, and one pass over the data
    levels = target[0] + (np.arange(256.0) - source[0]) * scale
    return np.clip(levels.astype(np.float32), low, high)[x]
  out = np.array(x, np.float32)
  if tuple(source) != tuple(target):
    out -= np.float32(source[0])
    out *= np.float32(scale)
    out += np.float32(target[0])
    np.clip(out, low, high, out=out)
  return out


def _check_rank(x: np.ndarray, name: str) -> None:
  if x.ndim < 2:
    raise ValueError(
      f"Expected {name} of rank 2 or more (a batch of examples), received"
      f" shape {x.shape}. Add the missing batch or feature axis."
    )


def _count(wanted: int | None, available: int, name: str) -> int:
  if wanted is None:
    return available
  validate.positive_int(**{name: wanted})
  if wanted > available:
    raise ValueError(
      f"Expected {name}={wanted} <= {available}, the examples there are."
    )
  return int(wanted)


def _locked(array: np.ndarray, dtype) -> np.ndarray:
  """A read-only view, so that the caller's own array keeps its flags."""
  view = array.astype(dtype, copy=False).view()
  view.flags.writeable = False
  return view
