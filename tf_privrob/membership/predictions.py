"""Outputs from stored predictions: no model is needed to judge them."""

from __future__ import annotations

import os

import numpy as np

from tf_privrob import files
from tf_privrob.membership import outputs as outputs_lib

_NEEDED = (
  "member_predictions",
  "nonmember_predictions",
  "member_labels",
  "nonmember_labels",
)
_PREFIX = "adversarial_"
# What a sum of k rounded float32 numbers may be off.
_TOLERANCE = 1e-3
# In float32 it is 0 again.
_LEAST = float(np.finfo(np.float32).smallest_subnormal) / 4


def from_predictions(path: str | os.PathLike) -> outputs_lib.Outputs:
  """Outputs from an npz file of probabilities.

  The file holds member_predictions [n, k] and nonmember_predictions [m, k],
  member_labels and nonmember_labels, and optionally the same predictions on
  adversarial examples, adversarial_member_predictions and
  adversarial_nonmember_predictions. Confidences are the given numbers to the
  last bit of float32. A probability of 0 counts as a quarter of the smallest
  positive float32.

  Raises:
    ValueError: Arrays are missing, or are not probabilities.
  """
  arrays = files.read_arrays(path)
  missing = [name for name in _NEEDED if name not in arrays]
  if missing:
    raise ValueError(
      f"Expected {', '.join(_NEEDED)} in {os.fspath(path)!r}, but"
      f" {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not there"
      f" (found: {', '.join(sorted(arrays)) or 'nothing'})."
    )
  adversarial = [_PREFIX + name for name in _NEEDED[:2]]
  given = [name in arrays for name in adversarial]
  if any(given) and not all(given):
    raise ValueError(
      f"Expected both {adversarial[0]} and {adversarial[1]}, or neither."
    )
  return outputs_lib.Outputs(
    arrays["member_labels"],
    arrays["nonmember_labels"],
    benign=tuple(_logs(arrays[name], name) for name in _NEEDED[:2]),
    adversarial=(
      tuple(_logs(arrays[name], name) for name in adversarial)
      if all(given)
      else None
    ),
    about={"predictions": os.path.basename(path), "attack_eps": None},
    log_probabilities=True,
  )


def _logs(probabilities: np.ndarray, name: str) -> np.ndarray:
  """Checked probabilities as logs, in float64."""
  if probabilities.ndim != 2 or probabilities.dtype.kind != "f":
    raise ValueError(
      f"Expected {name} to be floats of shape [examples, classes], received"
      f" {probabilities.dtype} of shape {probabilities.shape}."
    )
  values = probabilities.astype(np.float64)
  sums = values.sum(axis=1)
  # Written so that NaN is bad too.
  good = (values >= 0).all(axis=1) & (np.abs(sums - 1) <= _TOLERANCE)
  if not good.all():
    bad = int(np.flatnonzero(~good)[0])
    raise ValueError(
      f"Expected probabilities in {name}: numbers in [0, 1] that sum to 1 in"
      f" every row. Row {bad} has values in [{values[bad].min():g},"
      f" {values[bad].max():g}] with sum {sums[bad]:g}. Apply a softmax to"
      " logits first."
    )
  return np.log(np.maximum(values, _LEAST))
