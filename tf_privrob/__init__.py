"""Differentially private and adversarially robust learning for Keras.

Rooms are imported on first use, so `import tf_privrob` costs milliseconds:

>>> import tf_privrob
>>> dataset = tf_privrob.data.load("mnist_5k")  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import re
from importlib import metadata

__version__ = "0.1.0"

_ROOMS = (
  "attacks",
  "bounds",
  "certify",
  "console",
  "data",
  "gradients",
  "layers",
  "mechanisms",
  "methods",
  "losses",
  "membership",
  "models",
  "papers",
  "privacy",
  "randomness",
  "records",
  "report",
  "runs",
  "validate",
)
_SUPPORTED_TENSORFLOW = (2, 15)
_TENSORFLOW_WHEELS = ("tensorflow", "tensorflow-cpu", "tensorflow-macos")

__all__ = ["__version__", *_ROOMS]


def _check_tensorflow() -> None:
  """Refuses, in one sentence, a TensorFlow that TF Privacy cannot run on."""
  found = None
  for wheel in _TENSORFLOW_WHEELS:
    try:
      found = metadata.version(wheel)
      break
    except metadata.PackageNotFoundError:
      continue
  parts = tuple(int(part) for part in re.findall(r"\d+", found or "")[:2])
  if parts != _SUPPORTED_TENSORFLOW:
    raise ImportError(
      f"tf_privrob {__version__} needs TensorFlow 2.15 (the newest that"
      f" tensorflow-privacy can be imported under), found {found}; run:"
      ' pip install "tensorflow>=2.15,<2.16"'
    )


def __getattr__(name: str):
  if name in _ROOMS:
    return importlib.import_module(f"{__name__}.{name}")
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
  return sorted(__all__)


_check_tensorflow()
