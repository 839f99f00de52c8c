"""The versions that this library runs on, and all in which they differ.

There are two stacks. Python 3.9 to 3.11 has TensorFlow 2.15, whose Keras is
Keras 2, and TF Privacy. Python 3.12 and 3.13 have TensorFlow 2.16 to 2.21,
whose Keras is Keras 3 unless the environment says otherwise before it is first
touched: then it is Keras 2, as the package tf-keras. `check`, which importing
`tf_privrob` runs, says so, or says in one sentence why it cannot.

No other file asks for a version or names a home of Keras. Nothing is imported
here before it is needed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import os
import pathlib
import re
import sys
import types
from collections.abc import Iterator
from importlib import metadata

_TENSORFLOW = ((2, 15), (2, 21))
_ACCOUNTING = ((0, 4, 3), (0, 6))  # the figures are tested on all of these
_TF_PRIVACY = (0, 9)
_WHEELS = ("tensorflow", "tensorflow-cpu", "tensorflow-macos")
_SWITCH = "TF_USE_LEGACY_KERAS"
_ON = ("1", "true", "True")

_OLD = '"tensorflow>=2.15,<2.16"'
_NEW = '"tensorflow>=2.16,<2.22" "tf-keras>=2.16,<2.22"'
_EXTRAS = {
  "cleverhans": ("cleverhans==4.0.0", "attacks"),
  "tensorflow_datasets": ("tensorflow-datasets", "tfds"),
}


class MissingPackageError(ImportError):
  """A package that only some need is not there; says how to install it."""


def check() -> None:
  """Chooses Keras 2, or refuses what is installed in one sentence.

  Raises:
    ImportError: TensorFlow, tf-keras or dp-accounting is missing or of another
      version, or Keras 3 was chosen before.
  """
  tensorflow = _first_version(*_WHEELS)
  if not _between(tensorflow, *_TENSORFLOW):
    raise ImportError(
      f"tf_privrob needs TensorFlow 2.15 to 2.21, found {_text(tensorflow)};"
      f" run: pip install {_OLD if sys.version_info < (3, 12) else _NEW}"
    )
  accounting = _first_version("dp-accounting")
  if not _between(accounting, *_ACCOUNTING):
    raise ImportError(
      f"tf_privrob needs dp-accounting 0.4.3 to 0.6, found {_text(accounting)};"
      ' run: pip install "dp-accounting>=0.4.3,<0.7"'
    )
  if tensorflow[:2] > (2, 15):
    _choose_keras_2(tensorflow[:2])


def _choose_keras_2(tensorflow: tuple[int, ...]) -> None:
  minor = ".".join(map(str, tensorflow))
  keras = _first_version("tf-keras")
  if keras[:2] != tensorflow:
    raise ImportError(
      f"tf_privrob runs on Keras 2, which is the package tf-keras {minor} next"
      f" to TensorFlow {minor}, found {_text(keras)}; run: pip install"
      f' "tf-keras=={minor}.*"'
    )
  said = os.environ.setdefault(_SWITCH, "1")
  if said not in _ON:
    raise ImportError(
      f"tf_privrob runs on Keras 2, and {_SWITCH}={said} in the environment"
      " chooses Keras 3: set it to 1, or unset it."
    )
  loaded = sys.modules.get("tensorflow")
  if loaded is None or not hasattr(loaded, "keras"):
    return
  if keras_package() != "tf_keras":
    raise ImportError(
      "tf_privrob runs on Keras 2, and this program has used Keras 3 already:"
      " import tf_privrob before the first use of tf.keras, or set"
      f" {_SWITCH}=1 before TensorFlow is imported."
    )
  # So that `from tensorflow.keras import layers` finds Keras 2 too: TensorFlow
  # does this itself where the switch is set before it is imported.
  home = pathlib.Path(importlib.util.find_spec("tf_keras").origin).parent
  place = str(home / "api" / "_v2")
  if place not in loaded.__path__:
    loaded.__path__.insert(0, place)


def _first_version(*wheels: str) -> tuple[int, ...]:
  """The version of the first of these that is installed; () if none is."""
  for wheel in wheels:
    try:
      return _numbers(metadata.version(wheel))
    except metadata.PackageNotFoundError:
      continue
  return ()


def _numbers(version: str) -> tuple[int, ...]:
  release = re.match(r"\d+(\.\d+)*", version)
  return tuple(map(int, release.group().split("."))) if release else ()


def _between(
  version: tuple[int, ...], least: tuple[int, ...], most: tuple[int, ...]
) -> bool:
  """Whether a version is in this range; 2.21.1 is not above 2.21."""
  return version >= least and version[: len(most)] <= most


def _text(version: tuple[int, ...]) -> str:
  return ".".join(map(str, version)) or "none"


# Keras.


@functools.lru_cache(maxsize=1)
def keras_package() -> str:
  """The package that `tf.keras` is made of: "keras" or "tf_keras"."""
  import tensorflow as tf

  return tf.keras.layers.Layer.__module__.partition(".")[0]


def keras_module(name: str) -> types.ModuleType:
  """A module of Keras that is not public, such as "src.saving.saving_lib"."""
  return importlib.import_module(f"{keras_package()}.{name}")


def is_of_keras(module: str | None) -> bool:
  """Whether a module of this name belongs to the Keras in use."""
  return (module or "").startswith(f"{keras_package()}.")


def qualified_name(kind: type) -> str:
  """Module and name of a class, the same for Keras under either name."""
  module = re.sub(r"^tf_keras\.", "keras.", kind.__module__)
  return f"{module}.{kind.__qualname__}"


# Packages that only some need.


def optional(module: str) -> types.ModuleType:
  """Imports a module of a package that only some need.

  Raises:
    MissingPackageError: it is not installed, or cannot be imported.
  """
  try:
    return importlib.import_module(module)
  except ImportError as error:
    package = module.partition(".")[0]
    raise MissingPackageError(
      f"{package} cannot be imported ({error}); {remedy(package)}"
    ) from error


def remedy(package: str) -> str:
  """How to get a package that only some need."""
  requirement, extra = _EXTRAS[package]
  return f'run: pip install "{requirement}" (the extra [{extra}] has it).'


@functools.lru_cache(maxsize=1)
def tf_privacy() -> types.ModuleType | None:
  """TF Privacy's accounting of DP-SGD, where TF Privacy can be imported."""
  usable = _first_version(*_WHEELS)[:2] == (2, 15)
  if not usable or _first_version("tensorflow-privacy")[:2] != _TF_PRIVACY:
    return None
  try:
    return importlib.import_module(
      "tensorflow_privacy.privacy.analysis.compute_dp_sgd_privacy_lib"
    )
  except ImportError:
    return None


# Quiet logs.


def quiet() -> None:
  """Keeps TensorFlow's start-up lines and Keras' timing advice off stderr.

  Some lines come before any setting is read, so that stderr is held while
  TensorFlow is imported; what is not of its log is written afterwards. Whoever
  sets TF_CPP_MIN_LOG_LEVEL below 3 sees them all.
  """
  # Among them errors about GPUs that are not there.
  level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  if level == "3" and "tensorflow" not in sys.modules:
    sys.meta_path.insert(0, _QuietTensorFlow())
  logging.getLogger("tensorflow").addFilter(_is_no_timing)


def _is_no_timing(record: logging.LogRecord) -> bool:
  return "is slow compared to the batch time" not in record.getMessage()


class _QuietTensorFlow:
  """Holds stderr during the first import of TensorFlow, whoever does it."""

  def find_spec(self, name, path=None, target=None):
    """The spec that the other finders give, with a loader that is quiet."""
    if name != "tensorflow":
      return None
    sys.meta_path.remove(self)
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.loader is not None:
      execute = spec.loader.exec_module

      def quietly(module):
        with _stderr_held():
          execute(module)

      spec.loader.exec_module = quietly
    return spec


_OF_THE_LOG = re.compile(
  rb"([IWE]\d{4} \d\d:|WARNING: All log messages before absl|To enable)"
)


@contextlib.contextmanager
def _stderr_held() -> Iterator[None]:
  """Holds what is written to stderr, also by C++, and drops lines of a log."""
  import tempfile

  sys.stderr.flush()
  before = os.dup(2)
  with tempfile.TemporaryFile() as held:
    os.dup2(held.fileno(), 2)
    try:
      yield
    finally:
      sys.stderr.flush()
      os.dup2(before, 2)
      os.close(before)
      held.seek(0)
      lines = held.read().splitlines(keepends=True)
      os.write(2, b"".join(x for x in lines if not _OF_THE_LOG.match(x)))
