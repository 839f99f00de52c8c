"""Checkpoints of a run: plain arrays, written whole or not at all."""

from __future__ import annotations

import os
import pathlib
import zipfile
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_KEPT = 2  # the newest, and one more in case a power cut spoils it


def save(
  folder: pathlib.Path, step: int, variables: Sequence[tf.Variable]
) -> pathlib.Path:
  """Writes `step-<n>.npz` under another name and renames it.

  A process that is killed leaves the old files or the new one, never half a
  file. There is no pickle in it: only numbers, by position.
  """
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / f"step-{step:09d}.npz"
  temporary = folder / "writing.tmp"
  with open(temporary, "wb") as file:
    np.savez(file, step=step, **_named(variables))
  os.replace(temporary, path)
  for old in sorted(folder.glob("step-*.npz"))[:-_KEPT]:
    old.unlink()
  return path


def restore(
  folder: pathlib.Path, variables: Sequence[tf.Variable]
) -> int | None:
  """Loads the newest readable checkpoint; returns its step, None if none."""
  for path in sorted(folder.glob("step-*.npz"), reverse=True):
    try:
      with open(path, "rb") as file:
        arrays = np.load(file, allow_pickle=False)
        loaded = [arrays[name] for name in _named(variables)]
        step = int(arrays["step"])
    except (OSError, EOFError, zipfile.BadZipFile, ValueError):
      continue
    except KeyError as error:
      raise ValueError(
        f"Expected {len(variables)} variables in {path.name}, received another"
        f" number ({error}). The network or the optimizer is not the one that"
        " the run was started with."
      ) from error
    for variable, value in zip(variables, loaded):
      if variable.shape != value.shape:
        raise ValueError(
          f"Expected {variable.name} of shape {tuple(variable.shape)} in"
          f" {path.name}, received {value.shape}. The network or the optimizer"
          " is not the one that the run was started with."
        )
      variable.assign(value)
    return step
  return None


def _named(variables: Sequence[tf.Variable]) -> dict[str, np.ndarray]:
  return {f"v{i}": variable.numpy() for i, variable in enumerate(variables)}
