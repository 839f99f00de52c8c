"""Leave-one-out sensitivity: what a model forgets with a training point."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Callable

import numpy as np
from scipy import special

from tf_privrob import progress as progress_lib
from tf_privrob import validate


@dataclasses.dataclass(frozen=True, eq=False)
class Sensitivity:
  """Confidences of left-out points, with and without them in training.

  Attributes:
    indices: Rows of the training set, in the order of the groups.
    original: True-class confidence of the model trained on all points.
    retrained: Confidence of the model trained without the point's group.
  """

  indices: np.ndarray
  original: np.ndarray
  retrained: np.ndarray

  @property
  def differences(self) -> np.ndarray:
    """Original minus retrained: positive where the point was remembered."""
    return self.original - self.retrained

  def to_json(self) -> dict[str, list[float]]:
    """Rows in ascending order of the difference, as in Figure 2."""
    order = np.argsort(self.differences, kind="stable")
    return {
      "indices": self.indices[order].tolist(),
      "original": self.original[order].tolist(),
      "retrained": self.retrained[order].tolist(),
      "differences": self.differences[order].tolist(),
    }


def leave_out_groups(
  labels: np.ndarray, num_groups: int = 6, seed: int = 0
) -> list[np.ndarray]:
  """Disjoint groups of one training point of every class.

  Song et al. 2019 leave out 6 groups, hence 60 points of 10 classes.

  Raises:
    ValueError: A class has fewer points than there are groups.
  """
  validate.positive_int(num_groups=num_groups)
  labels = np.asarray(labels)
  classes, counts = np.unique(labels, return_counts=True)
  if counts.min() <= num_groups:
    label = classes[np.argmin(counts)]
    raise ValueError(
      f"Expected more than num_groups={num_groups} points of every class,"
      f" received {counts.min()} of class {label}."
    )
  rng = np.random.default_rng(seed)
  chosen = [
    rng.permutation(np.flatnonzero(labels == label))[:num_groups]
    for label in classes
  ]
  return list(np.stack(chosen, axis=1))


def sensitivity(
  train: Callable[[np.ndarray, np.ndarray], Callable],
  x: np.ndarray,
  y: np.ndarray,
  groups: Sequence[np.ndarray],
  original: Callable | None = None,
  progress: bool = True,
) -> Sensitivity:
  """Retrains without each group and compares confidences (Figure 2).

  The sensitivity of a left-out point is its true-class confidence under the
  model trained on all points, minus that under the model trained without its
  group (Song et al. 2019, Section 5.2.1; the sign is chosen here).

  Args:
    train: A function from inputs and labels to a classifier that returns
      logits. It must be deterministic, or the differences also show its
      randomness.
    x: Training inputs.
    y: Their labels.
    groups: Rows to leave out together; see `leave_out_groups`.
    original: The classifier trained on all points; None trains it.
    progress: Show a line.
  """
  x, y = np.asarray(x), np.asarray(y)
  groups = [np.asarray(group) for group in groups]
  _check_groups(groups, len(x))
  if len(y) != len(x):
    raise ValueError(
      f"Expected one label per example, received {len(y)} for {len(x)}."
    )
  bar = progress_lib.Progress(len(groups) + 1, "training without a group")
  original = train(x, y) if original is None else original
  before, after = [], []
  for group in groups:
    if progress:
      bar.update()
    kept = np.ones(len(x), bool)
    kept[group] = False
    retrained = train(x[kept], y[kept])
    for model, found in ((original, before), (retrained, after)):
      found.append(_confidence(model, x[group], y[group]))
  if progress:
    bar.update()
  return Sensitivity(*map(np.concatenate, (groups, before, after)))


def _confidence(model: Callable, x: np.ndarray, y: np.ndarray) -> np.ndarray:
  logits = np.asarray(model(x), np.float64)
  if logits.ndim != 2 or len(logits) != len(x):
    raise ValueError(
      f"Expected logits of shape [{len(x)}, classes] from the trained model,"
      f" received {logits.shape}."
    )
  return special.softmax(logits, axis=1)[np.arange(len(y)), y]


def _check_groups(groups: list[np.ndarray], count: int) -> None:
  if not groups or not all(len(group) for group in groups):
    raise ValueError("Expected at least one group of at least one row.")
  rows = np.concatenate(groups)
  if rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= count:
    raise ValueError(
      f"Expected groups of rows in [0, {count}), received values in"
      f" [{rows.min()}, {rows.max()}]."
    )
  if len(np.unique(rows)) != len(rows):
    raise ValueError("Expected groups without a row that occurs twice.")
