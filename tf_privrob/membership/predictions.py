"""Outputs from stored predictions: no model is needed to judge them."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from tf_privrob import files
from tf_privrob import validate
from tf_privrob.membership import outputs as outputs_lib

_PARTS = ("member", "nonmember")
_LABELS = tuple(f"{part}_labels" for part in _PARTS)
# What begins the names of arrays, by the kind of outputs that they become.
_PREFIXES = {
  "benign": "",
  "adversarial": "adversarial_",
  "worst_case": "verified_",
  "targeted": "targeted_",
}
# Names in the files that Song, Shokri and Mittal (CCS 2019) released.
_OF_THE_AUTHORS = {
  "output_train_benign": "member_predictions",
  "output_test_benign": "nonmember_predictions",
  "output_train_adversarial": "adversarial_member_predictions",
  "output_test_adversarial": "adversarial_nonmember_predictions",
  "train_label": "member_labels",
  "test_label": "nonmember_labels",
}
# What a sum of k rounded float32 numbers may be off.
_TOLERANCE = 1e-3
# In float32 it is 0 again.
_LEAST = float(np.finfo(np.float32).smallest_subnormal) / 4


def _names(kind: str) -> tuple[str, str]:
  """Of the arrays of a kind, for members and for non-members."""
  return tuple(f"{_PREFIXES[kind]}{part}_predictions" for part in _PARTS)


_NEEDED = (*_names("benign"), *_LABELS)
PREDICTION_KEYS = (
  *_LABELS,
  *(name for kind in _PREFIXES for name in _names(kind)),
)


def from_predictions(path: str | os.PathLike) -> outputs_lib.Outputs:
  """Outputs from an npz file of probabilities.

  The file holds member_labels and nonmember_labels, member_predictions [n, k]
  and nonmember_predictions [m, k], and optionally pairs of the same names that
  begin with another word:

  * adversarial_: on adversarial examples, [n, k] and [m, k];
  * verified_: the softmax of verified worst-case logits, [n, k] and [m, k];
  * targeted_: on adversarial examples for every other class, by class, [n,
    k - 1, k] and [m, k - 1, k].

  Files that the authors of CCS 2019 released are read by their own names:
  output_train_benign, output_test_benign, output_train_adversarial,
  output_test_adversarial, train_label and test_label.

  Confidences on inputs and adversarial examples are the given numbers to the
  last bit of float32. A probability of 0 counts as a quarter of the smallest
  positive float32.

  Raises:
    ValueError: Arrays are missing, are not probabilities, or have names that
      mean nothing.
  """
  arrays = _renamed(files.read_arrays(path), path)
  found = {
    kind: tuple(_logs(arrays[name], name, kind) for name in _names(kind))
    for kind in _PREFIXES
    if _is_given(arrays, kind)
  }
  labels = [arrays[name] for name in _LABELS]
  if "worst_case" in found:
    found["worst_case"] = tuple(
      _differences(logs, truth)
      for logs, truth in zip(found["worst_case"], labels)
    )
  return outputs_lib.Outputs(
    *labels,
    **found,
    about={"predictions": os.path.basename(path), "attack_eps": None},
    log_probabilities=True,
  )


def _renamed(
  arrays: Mapping[str, np.ndarray], path: str | os.PathLike
) -> dict[str, np.ndarray]:
  """The arrays by our names; refuses a file that lacks some or has others."""
  known, needed = list(PREDICTION_KEYS), _NEEDED
  ours = dict.fromkeys(PREDICTION_KEYS)
  if set(_OF_THE_AUTHORS) & set(arrays):
    known = list(_OF_THE_AUTHORS)
    needed = [n for n in known if "adversarial" not in n]
    ours = _OF_THE_AUTHORS
  missing = [name for name in needed if name not in arrays]
  if missing:
    raise ValueError(
      f"Expected {', '.join(needed)} in {os.fspath(path)!r}, but"
      f" {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not there"
      f" (found: {', '.join(sorted(arrays)) or 'nothing'})."
    )
  for name in arrays:
    validate.one_of(known, array=name)
  return {ours[name] or name: array for name, array in arrays.items()}


def _is_given(arrays: Mapping[str, np.ndarray], kind: str) -> bool:
  """Whether a kind is there, of members and of non-members."""
  names = _names(kind)
  given = [name in arrays for name in names]
  if any(given) and not all(given):
    raise ValueError(f"Expected both {names[0]} and {names[1]}, or neither.")
  return all(given)


def _differences(logs: np.ndarray, labels: np.ndarray) -> np.ndarray:
  """Log p_j - log p_y, which bound z_j - z_y where p is verified."""
  validate.labels(logs.shape[1], len(logs), labels=np.asarray(labels))
  return logs - logs[np.arange(len(logs)), labels][:, None]


def _logs(probabilities: np.ndarray, name: str, kind: str) -> np.ndarray:
  """Checked probabilities as logs, in float64."""
  rank = 3 if kind == "targeted" else 2
  if probabilities.ndim != rank or probabilities.dtype.kind != "f":
    inner = "classes - 1, classes" if rank == 3 else "classes"
    raise ValueError(
      f"Expected {name} to be floats of shape [examples, {inner}], received"
      f" {probabilities.dtype} of shape {probabilities.shape}."
    )
  values = probabilities.astype(np.float64)
  sums = values.sum(axis=-1)
  # Written so that NaN is bad too.
  good = (values >= 0).all(axis=-1) & (np.abs(sums - 1) <= _TOLERANCE)
  if not good.all():
    bad = tuple(np.argwhere(~good)[0])
    row = bad[0] if rank == 2 else tuple(map(int, bad))
    raise ValueError(
      f"Expected probabilities in {name}: numbers in [0, 1] that sum to 1 in"
      f" every row. Row {row} has values in [{values[bad].min():g},"
      f" {values[bad].max():g}] with sum {sums[bad]:g}. Apply a softmax to"
      " logits first."
    )
  return np.log(np.maximum(values, _LEAST))
