"""What one model answered to members and non-members, kept as plain arrays.

All strategies read `Outputs` and nothing else: a model is asked once, and what
it said can be stored, cooled down by a temperature and judged again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any
from typing import Callable

import numpy as np

from tf_privrob import files
from tf_privrob import run_folder
from tf_privrob import validate

FOLDER = "nonprivate/membership"
KINDS = ("benign", "adversarial", "worst_case", "targeted")
_REMEDIES = {
  "adversarial": "attack_eps=... (or attack=...)",
  "worst_case": "domain=bounds.Interval() and attack_eps=...",
  "targeted": "targeted=True and attack_eps=...",
}

Pair = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Outputs:
  """Logits of a model on members (its training set) and on non-members.

  Attributes:
    member_labels: [n], true classes.
    nonmember_labels: [m].
    benign: Logits [n, k] and [m, k] on the inputs themselves.
    adversarial: The same on untargeted adversarial examples; None: not made.
    worst_case: Verified worst-case logits: upper bounds of z_j - z_y over all
      inputs within attack_eps, 0 for y itself.
    targeted: [n, k - 1, k] and [m, k - 1, k], logits on adversarial examples
      for every other class, by class.
    about: Facts for a JSON file: the attack, its radius, the domain, the seed.
    log_probabilities: Benign and adversarial are logs of given probabilities,
      in float64, so that confidences are these probabilities to the last bit.
  """

  member_labels: np.ndarray
  nonmember_labels: np.ndarray
  benign: Pair
  adversarial: Pair | None = None
  worst_case: Pair | None = None
  targeted: Pair | None = None
  about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  log_probabilities: bool = False

  def __post_init__(self):
    counts = []
    for kind in KINDS:
      pair = getattr(self, kind)
      if pair is not None:
        checked = tuple(
          _logits(array, f"{kind} logits of {part}")
          for array, part in zip(_two(pair, kind), ("members", "non-members"))
        )
        object.__setattr__(self, kind, checked)
        counts = counts or [len(array) for array in checked]
        self._check_shapes(kind, checked, counts)
    for name, count in zip(("member_labels", "nonmember_labels"), counts):
      labels = np.asarray(getattr(self, name))
      validate.labels(self.num_classes, count, **{name: labels})
      object.__setattr__(self, name, _locked(labels.astype(np.int64)))
    object.__setattr__(self, "about", dict(self.about))

  def _check_shapes(self, kind: str, pair: Pair, counts: list[int]) -> None:
    k = self.benign[0].shape[-1]
    inner = (k - 1, k) if kind == "targeted" else (k,)
    if k < 2:
      raise ValueError(
        "Expected logits of at least 2 classes, received 1. Pass [0, logit] for"
        " a binary classifier with one output."
      )
    for array, count in zip(pair, counts):
      if array.shape != (count, *inner):
        raise ValueError(
          f"Expected {kind} logits of shape {(count, *inner)}, received"
          f" {array.shape}: one row an example, in the order of the labels."
        )

  @property
  def num_classes(self) -> int:
    """Number of classes k."""
    return self.benign[0].shape[1]

  @property
  def num_members(self) -> int:
    """Number of members n."""
    return len(self.benign[0])

  @property
  def num_nonmembers(self) -> int:
    """Number of non-members m."""
    return len(self.benign[1])

  def need(self, kind: str) -> Pair:
    """The logits of a kind, or an error that says how to get them."""
    validate.one_of(KINDS, kind=kind)
    pair = getattr(self, kind)
    if pair is None:
      raise ValueError(
        f"Expected {kind} outputs, but they were not made. Pass"
        f" {_REMEDIES[kind]} to membership.Request."
      )
    return pair

  def with_temperature(self, temperature: float) -> Outputs:
    """The outputs of the model whose logits are divided by `temperature`.

    F(x)_i = exp(g(x)_i / T) / sum_j exp(g(x)_j / T), Eq. 21 of Song et al. The
    division comes after the attack, as published: adversarial examples are
    those of the model itself. Bounds of z_j - z_y are divided too, and stay
    bounds.
    """
    validate.positive(temperature=temperature)
    changed = {
      kind: tuple(array / array.dtype.type(temperature) for array in pair)
      for kind in KINDS
      if (pair := getattr(self, kind)) is not None
    }
    about = {**self.about, "temperature": float(temperature)}
    if temperature == 1:
      return dataclasses.replace(self, about=about)
    return dataclasses.replace(
      self, **changed, about=about, log_probabilities=False
    )

  def take(self, member_rows, nonmember_rows) -> Outputs:
    """The outputs of some members and some non-members."""
    rows = (np.asarray(member_rows), np.asarray(nonmember_rows))
    changed = {
      kind: tuple(array[row] for array, row in zip(pair, rows))
      for kind in KINDS
      if (pair := getattr(self, kind)) is not None
    }
    return dataclasses.replace(
      self,
      member_labels=self.member_labels[rows[0]],
      nonmember_labels=self.nonmember_labels[rows[1]],
      **changed,
    )

  def save(self, path: str | os.PathLike) -> pathlib.Path:
    """Writes an npz file, whole or not at all; no pickle."""
    arrays = {
      "member_labels": self.member_labels,
      "nonmember_labels": self.nonmember_labels,
      "log_probabilities": np.array(self.log_probabilities),
      "about": np.array(json.dumps(files.to_jsonable(self.about))),
    }
    for kind in KINDS:
      if (pair := getattr(self, kind)) is not None:
        arrays[f"{kind}_members"], arrays[f"{kind}_nonmembers"] = pair
    return files.write_arrays(path, arrays)

  @classmethod
  def load(cls, path: str | os.PathLike) -> Outputs:
    """Reads what `save` wrote.

    Raises:
      ValueError: There is no such file, or it does not hold outputs.
    """
    arrays = files.read_arrays(path)
    missing = [
      name
      for name in ("member_labels", "nonmember_labels", "benign_members")
      if name not in arrays
    ]
    if missing:
      raise ValueError(
        f"Expected outputs in {os.fspath(path)}, but {', '.join(missing)} are"
        " not there. A file of probabilities is read by"
        " membership.from_predictions."
      )
    pairs = {
      kind: (arrays[f"{kind}_members"], arrays[f"{kind}_nonmembers"])
      for kind in KINDS
      if f"{kind}_members" in arrays
    }
    return cls(
      arrays["member_labels"],
      arrays["nonmember_labels"],
      **pairs,
      about=json.loads(str(arrays["about"])),
      log_probabilities=bool(arrays["log_probabilities"]),
    )

  def __repr__(self) -> str:
    kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
    return (
      f"Outputs({self.num_members} members, {self.num_nonmembers} non-members,"
      f" {self.num_classes} classes: {', '.join(kinds)})"
    )


def cached_outputs(
  folder: run_folder.RunFolder,
  key: str,
  make: Callable[[], Outputs],
  fingerprint: str | None = None,
) -> Outputs:
  """The outputs in <run>/membership/<key>.npz, or what `make` returns.

  Beside them is a fingerprint; where it differs from that of `make` (another
  weight, example, attack or seed), the outputs are made again.

  Args:
    folder: Folder of the run.
    key: Name of the file, letters, digits, "_", "-" and ".".
    make: a `membership.Request`, which has a fingerprint, or any function.
    fingerprint: Fingerprint of what a plain function depends on.

  Raises:
    ValueError: A function without a fingerprint, or a key that is a path.
  """
  if (
    not key or not all(c.isalnum() or c in "_-." for c in key) or key[0] == "."
  ):
    raise ValueError(
      f"Expected a key of letters, digits, '_', '-' and '.', received {key!r}."
    )
  fingerprint = fingerprint or getattr(make, "fingerprint", None)
  if not isinstance(fingerprint, str):
    raise ValueError(
      "Expected a membership.Request, or fingerprint=... with a function:"
      " outputs of another model or data must not be taken for these."
    )
  folder = run_folder.RunFolder(folder)
  name = f"{FOLDER}/{key}"
  path, noted = folder.file(f"{name}.npz"), f"{name}.json"
  before = folder.read_json(noted) if folder.has(noted) else {}
  if before.get("fingerprint") == fingerprint and path.is_file():
    return Outputs.load(path)
  # Without a note, outputs are of nothing: removed first, written last.
  folder.file(noted).unlink(missing_ok=True)
  found = make()
  found.save(path)
  folder.write_json(noted, {"fingerprint": fingerprint, "about": found.about})
  return found


def _two(pair, kind: str):
  if not isinstance(pair, (tuple, list)) or len(pair) != 2:
    raise ValueError(
      f"Expected {kind} to be a pair (of members, of non-members), received"
      f" {type(pair).__name__}."
    )
  return pair


def _logits(array, name: str) -> np.ndarray:
  array = np.asarray(array)
  if array.ndim < 2 or not len(array):
    raise ValueError(
      f"Expected {name} of shape [examples, classes], received {array.shape}."
    )
  if array.dtype.kind != "f":
    raise ValueError(
      f"Expected floating-point {name}, received dtype {array.dtype}."
    )
  if array.dtype != np.float64:
    array = array.astype(np.float32)
  if not np.isfinite(array).all():
    bad = int(
      np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))[0]
    )
    raise ValueError(
      f"Expected finite {name}, received NaN or infinity, first in row {bad}."
    )
  return _locked(array)


def _locked(array: np.ndarray) -> np.ndarray:
  view = array.view()
  view.flags.writeable = False
  return view
