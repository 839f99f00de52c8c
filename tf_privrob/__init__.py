"""Differentially private and adversarially robust learning for Keras.

Rooms are imported on first use, so `import tf_privrob` costs milliseconds:

>>> import tf_privrob
>>> dataset = tf_privrob.data.load("mnist_5k")  # doctest: +SKIP
"""

from __future__ import annotations

import importlib

from tf_privrob import compat

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

__all__ = ["__version__", *_ROOMS]


def __getattr__(name: str):
  if name in _ROOMS:
    return importlib.import_module(f"{__name__}.{name}")
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
  return sorted(__all__)


compat.check()
