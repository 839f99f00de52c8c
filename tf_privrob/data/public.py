"""Public and private examples that have nothing in common.

A classifier that was trained on an example has released it: a guarantee for
what is trained behind or in front of it holds only for examples it never saw.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_privrob import validate
from tf_privrob.data import dataset as dataset_lib

_SHOWN = 5
_BYTES = 16  # of the hash of an example


def split_public(
  dataset: dataset_lib.Dataset, share: float, seed: int = 0
) -> tuple[dataset_lib.Dataset, dataset_lib.Dataset]:
  """Parts the training examples into public and private ones.

  The same share of every class is public, up to one example, and
  round(share * n) examples are in all. It stands for a public data set of the
  same kind: which rows are public, and how many of each class, is taken as
  known. Both keep the whole test set and the order of the rows. Rows are
  parted, not contents; `require_disjoint` finds an image that occurs twice.

  Args:
    dataset: Whose training examples are parted.
    share: Share of the public ones, between 0 and 1.
    seed: Seed of the choice.

  Returns:
    The public and the private data set.
  """
  validate.open_probability(share=share)
  chosen = _stratified(dataset.y_train, share, seed)
  if not chosen.any() or chosen.all():
    raise ValueError(
      f"Expected share={share!r} to leave at least one public and one private"
      f" example of {dataset.num_train}, received {int(chosen.sum())} public."
    )

  def part(rows, name, other):
    return dataclasses.replace(
      dataset,
      x_train=dataset.x_train[rows],
      y_train=dataset.y_train[rows],
      split=(
        f"The {name} {int(rows.sum()):,} of {dataset.num_train:,} training"
        f" examples (share={share:g} of every class is public, seed={seed}),"
        f" none of them among the {other} ones. {dataset.split}"
      ),
    )

  return (
    part(chosen, "public", "private"),
    part(~chosen, "private", "public"),
  )


def _stratified(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
  """Which rows are chosen; fractions of an example go to the largest ones."""
  rng = np.random.default_rng(seed)
  classes, counts = np.unique(labels, return_counts=True)
  quotas = np.floor(share * counts).astype(int)
  missing = round(share * len(labels)) - quotas.sum()
  fractions = share * counts - quotas
  quotas[np.argsort(-fractions, kind="stable")[:missing]] += 1
  chosen = np.zeros(len(labels), bool)
  for label, quota in zip(classes, quotas):
    rows = np.flatnonzero(labels == label)
    chosen[rng.permutation(rows)[:quota]] = True
  return chosen


def require_disjoint(public_x: np.ndarray, private_x: np.ndarray) -> None:
  """Refuses two sets of examples of which one occurs in both.

  Examples are compared bit by bit as float32, by a 128-bit hash, so both must
  be in one value range; a shifted or mirrored copy is not recognised.

  Args:
    public_x: `[n, ...]`, floating point.
    private_x: `[m, ...]`, examples of the same shape.

  Raises:
    ValueError: With the number of private examples that are public, and the
      first of their indices.
  """
  shared = shared_examples(public_x=public_x, private_x=private_x)
  if shared:
    raise ValueError(
      f"Expected private examples that are not public, but {len(shared)} of"
      f" {len(private_x)} occur in both: private"
      f" {listed(shared, 'public')}. What was"
      " trained on them has released them; part the data by data.split_public"
      " or drop these rows."
    )


def examples_of(dataset: dataset_lib.Dataset) -> dict[str, Any]:
  """What a file may tell of the examples that its weights were trained on.

  JSON values, with a hash of every training example, by which `require_unseen`
  knows it: for examples that are public.
  """
  keys = b"".join(_keys(dataset.x_train))
  return {
    "dataset": dataset.name,
    "split": dataset.split,
    "value_range": [float(end) for end in dataset.value_range],
    "examples": len(dataset.x_train),
    "hashes": base64.b64encode(keys).decode(),
  }


def require_unseen(
  seen: Mapping[str, Any],
  private_x: np.ndarray,
  value_range: tuple[float, float],
) -> None:
  """Refuses private examples that others' weights were trained on.

  Args:
    seen: what `examples_of` told of the examples behind these weights.
    private_x: `[m, ...]`, floating point.
    value_range: of the private examples.

  Raises:
    ValueError: If one of them was seen, or if that cannot be told.
  """
  try:
    keys = base64.b64decode(seen["hashes"], validate=True)
    if not keys or len(keys) != _BYTES * int(seen["examples"]):
      raise ValueError("not a hash for each example")
    known = {keys[i : i + _BYTES] for i in range(0, len(keys), _BYTES)}
    of_seen = tuple(float(end) for end in seen["value_range"])
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(
      "Expected hashes and the value range of the examples that the weights"
      " were trained on, received a damaged note. Train them again."
    ) from error
  if of_seen != tuple(value_range):
    raise ValueError(
      f"Expected inputs in {of_seen}, the value range that the weights were"
      f" trained on, received value_range={tuple(value_range)}: in another"
      " range no example is recognised. Rescale the data, or train the weights"
      " again."
    )
  shared = [r for r, key in enumerate(_keys(private_x)) if key in known]
  if shared:
    raise ValueError(
      "Expected private examples that the weights have not seen, but"
      f" {len(shared)} of {len(private_x)} are among those that they were"
      f" trained on ({seen.get('dataset', 'of no name')}): the first is row"
      f" {shared[0]}. Leave them out, as --public_share does, or train the"
      " weights on others."
    )


def listed(shared: Sequence[tuple[int, int]], other: str) -> str:
  """The first of `shared_examples` in words: "17 (public 3), ..."."""
  first = [f"{row} ({other} {place})" for row, place in shared[:_SHOWN]]
  return ", ".join(first + ["..."] * (len(shared) > _SHOWN))


def shared_examples(**sets: np.ndarray) -> list[tuple[int, int]]:
  """Rows of the second set that the first one has too, each with its place.

  Examples are compared as by `require_disjoint`.

  Args:
    **sets: Two sets of examples by name, `[n, ...]` and `[m, ...]`.

  Returns:
    Pairs (row in the second set, first row in the first set).
  """
  sets = {name: np.asarray(x) for name, x in sets.items()}
  for name, x in sets.items():
    if x.dtype.kind != "f":
      raise ValueError(
        f"Expected floating-point {name}, received dtype {x.dtype}: bytes and"
        " rescaled bytes would never be equal. Convert both to one range."
      )
  (first_name, first), (second_name, second) = sets.items()
  if first.shape[1:] != second.shape[1:] or first.ndim < 2:
    raise ValueError(
      "Expected batches of examples of one shape, received"
      f" {first.shape} in {first_name} and {second.shape} in {second_name}."
    )
  places = {key: row for row, key in reversed(list(enumerate(_keys(first))))}
  return [
    (row, places[key]) for row, key in enumerate(_keys(second)) if key in places
  ]


def _keys(x: np.ndarray) -> list[bytes]:
  """A hash of every example; -0.0 counts as 0.0."""
  rows = np.ascontiguousarray(x.astype(np.float32) + np.float32(0))
  rows = rows.reshape(len(rows), -1)
  return [hashlib.blake2b(row, digest_size=_BYTES).digest() for row in rows]
