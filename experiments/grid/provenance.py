"""Where a result is from: commit, command, day, machine, and its model.

Every result has it from the moment that it is measured, so that a record that
is written later says the same.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from typing import Any
from typing import Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNKNOWN = "unknown"
KEY = "provenance"  # of a result
_SOURCES = ("experiments", "tf_privrob")  # whose changes a commit must have


@dataclasses.dataclass(frozen=True)
class Provenance:
  """Where a result is from.

  Attributes:
    command: The command line that measured it.
    commit: The commit of the sources, and whether they were changed since; of
      work in several sessions all of them.
    date: The day that it was measured, as in 2026-11-18.
    machine: Processor ("cpu") and number of cores ("cores").
    versions: Of the library, TensorFlow and Python.
    weights: The hash of the model that was trained or measured, None without.
    training: "weights" and "commit" of the training that had to be done before,
      None where none had to.
  """

  command: str
  commit: str
  date: str
  machine: Mapping[str, Any]
  versions: Mapping[str, str]
  weights: Optional[str] = None
  training: Optional[Mapping[str, str]] = None

  def to_json(self) -> dict[str, Any]:
    """Plain values, for a file."""
    return dataclasses.asdict(self)


def of_today(
  command: str,
  commit: str,
  weights: Optional[str],
  training: Optional[Mapping[str, str]],
) -> Provenance:
  """That of a result which is measured here and now."""
  return Provenance(
    command=command,
    commit=commit,
    date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    machine={"cpu": _cpu(), "cores": os.cpu_count()},
    versions=_versions(),
    weights=weights,
    training=training,
  )


def identity(result: Mapping[str, Any]) -> dict[str, Any]:
  """Weights of the model of a result, and the commit of their training.

  A model that was trained in another study has its own commit there.
  """
  found = result.get(KEY) or {}
  weights, trained = found.get("weights"), found.get("training") or {}
  same = weights and trained.get("weights") == weights
  commit = (trained if same else found).get("commit") or UNKNOWN
  return {"weights": weights, "commit": commit}


def belongs(result: Mapping[str, Any], training: Mapping[str, Any]) -> bool:
  """Whether a result is about the model that this training left."""
  known = (result.get(KEY) or {}).get("training") or {}
  weights = identity(training)["weights"]
  return weights is not None and known.get("weights") == weights


def commit() -> str:
  """The commit of the sources, and whether they were changed since."""
  found = _git("rev-parse", "--short=12", "HEAD")
  if not found:
    return UNKNOWN
  changed = _git("status", "--porcelain", "--", *_SOURCES)
  if changed is None:
    return f"{found}, perhaps with changes"
  return f"{found}, with changes" if changed else found


def _git(*words: str) -> Optional[str]:
  try:
    done = subprocess.run(
      ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
  except (OSError, subprocess.CalledProcessError):
    return None
  return done.stdout.strip()


def _cpu() -> str:
  """The model of the processor, as far as the system tells it."""
  try:
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
  except OSError:
    return platform.processor() or platform.machine()
  lines = [line for line in text.splitlines() if line.startswith("model name")]
  return lines[0].split(":")[1].strip() if lines else platform.machine()


def _versions() -> dict[str, str]:
  import tensorflow as tf

  import tf_privrob

  return {
    "tf_privrob": tf_privrob.__version__,
    "tensorflow": tf.__version__,
    "python": platform.python_version(),
    "numpy": metadata.version("numpy"),
  }
