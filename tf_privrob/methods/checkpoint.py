"""Checkpoints of a run: plain arrays, bound to the ledger that paid for them.

Each has the identity of its run, the steps that were charged, the ledger's
checksum at that moment, and a SHA-256 over all of it. So a ledger that lost
lines, was edited, or belongs to another run is seen: it does not know the
checkpoint. An older checkpoint than the newest is always safe to go on from,
since its steps were paid for, and those that are taken again are paid again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import files

_KEPT = 2  # the newest, and one more in case a power cut spoils it
_NAME = re.compile(r"step-(\d{1,18})\.npz")


@dataclasses.dataclass(frozen=True)
class Restored:
  """What was restored.

  Attributes:
    step: of the weights.
    charged: steps that were paid for when they were written.
    ledger_checksum: of the ledger at that moment, empty without a file.
    path: of the file, None if nothing was charged and none was written yet.
    skipped: newer files that could not be used, each with the reason.
  """

  step: int
  charged: int
  ledger_checksum: str = ""
  path: pathlib.Path | None = None
  skipped: tuple[str, ...] = ()


def save(
  folder: str | os.PathLike,
  step: int,
  variables: Sequence[tf.Variable],
  run: str,
  charged: int,
  ledger_checksum: str,
) -> pathlib.Path:
  """Writes `step-<n>.npz` whole and on the disk, then removes older ones.

  A process that is killed leaves the old files or the new one, never half a
  file. There is no pickle in it: only numbers, by position.

  Args:
    folder: of the checkpoints; made if it is not there.
    step: of the weights.
    variables: all that a resumed run needs, always in this order.
    run: identity of the run, `Ledger.run`.
    charged: steps paid for so far, `Ledger.steps`.
    ledger_checksum: `Ledger.checksum`.

  Raises:
    ValueError: if a variable is not made of numbers, or on a full disk.
  """
  about = {
    "run": run,
    "step": int(step),
    "charged": int(charged),
    "ledger_checksum": ledger_checksum,
  }
  folder = pathlib.Path(folder)
  path = folder / f"step-{step:09d}.npz"
  files.remove_drafts(folder)  # the ledger's lock keeps others out
  _write(path, about, _named(variables))
  older = [old for number, old in _stored(folder) if number < step]
  for old in older[: -(_KEPT - 1)]:
    with contextlib.suppress(OSError):
      old.unlink()
  return path


def bind(folder: str | os.PathLike, ledger_checksum: str) -> None:
  """Binds the newest checkpoint to what its ledger has told since.

  A ledger that loses these lines does not know the checkpoint any more. One
  that cannot be read or written stays as it is: it is bound to earlier lines.

  Args:
    folder: Of the checkpoints.
    ledger_checksum: `Ledger.checksum`.
  """
  for number, path in reversed(_stored(pathlib.Path(folder))):
    with contextlib.suppress(ValueError, OSError):
      about, arrays = _read(path, number)
      about["ledger_checksum"] = ledger_checksum
      _write(path, about, arrays)
      return


def restore(
  folder: str | os.PathLike,
  variables: Sequence[tf.Variable],
  run: str,
  charged: int,
  knows: Callable[[str], bool] | None = None,
) -> Restored:
  """Loads the newest checkpoint that can be read, if its ledger agrees.

  Args:
    folder: of the checkpoints.
    variables: as they were given to `save`; assigned all or not at all.
    run: identity of the run, `Ledger.run`.
    charged: steps in the ledger, `Ledger.steps`.
    knows: `Ledger.knows`. Without it, an edited ledger is not seen.

  Raises:
    ValueError: if the checkpoint is of another run, is ahead of its ledger, is
      unknown to it, or does not fit the variables; or if there is none.
  """
  folder = pathlib.Path(folder)
  skipped: list[str] = []
  for number, path in reversed(_stored(folder)):
    try:
      about, arrays = _read(path, number)
    except ValueError as error:
      skipped.append(f"{path.name}: {error}")
      continue
    _check_paid(path, about, run, charged, knows)
    _assign(path, variables, arrays)
    return Restored(
      about["step"],
      about["charged"],
      about["ledger_checksum"],
      path,
      tuple(skipped),
    )
  if not charged and not skipped:
    return Restored(step=0, charged=0)
  found = "; ".join(skipped) or "there is none"
  raise ValueError(
    f"Expected a checkpoint in {folder}, for {charged} steps were charged,"
    f" received none that can be read ({found}): weights that were paid for are"
    " lost: begin a new run_dir."
  )


def _stored(folder: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
  """Step and path of what is named like a checkpoint, oldest first."""
  try:
    names = os.listdir(folder)
  except FileNotFoundError:
    return []
  except OSError as error:
    raise ValueError(
      f"Expected a folder of checkpoints at {folder}, but it cannot be read"
      f" ({error}). Make it a folder that this user may read."
    ) from error
  found = [(_NAME.fullmatch(name), folder / name) for name in names]
  return sorted((int(match[1]), path) for match, path in found if match)


def _write(path: pathlib.Path, about: dict, arrays: dict) -> None:
  arrays = {"about": np.array(json.dumps(about)), **arrays}
  arrays["sha256"] = np.array(digest(arrays))
  files.write_arrays(path, arrays, compressed=False)


def _read(path: pathlib.Path, number: int) -> tuple[dict, dict]:
  """What a file says, and its arrays; a ValueError if it is not whole."""
  try:
    arrays = files.read_arrays(path)
    known, about = arrays.pop("sha256"), json.loads(str(arrays["about"]))
    whole = str(known) == digest(arrays) and about["step"] == number
    _require_types(about)
  except OSError as error:
    raise ValueError(f"it cannot be read ({error})") from error
  except (KeyError, TypeError) as error:
    raise ValueError("it does not say which run it is of") from error
  if not whole:
    raise ValueError("it is not as it was written")
  del arrays["about"]
  return about, arrays


def _require_types(about: dict) -> None:
  types = {"run": str, "step": int, "charged": int, "ledger_checksum": str}
  for name, kind in types.items():
    if not isinstance(about[name], kind):
      raise TypeError(name)


def _check_paid(
  path: pathlib.Path,
  about: dict,
  run: str,
  charged: int,
  knows: Callable[[str], bool] | None,
) -> None:
  """Refuses weights that this ledger did not pay for."""
  advice = (
    " Put back the ledger.jsonl that belongs to these weights, or begin a new"
    " run_dir."
  )
  if about["run"] != run:
    raise ValueError(
      f"Expected checkpoint {path} to be of run {run}, as its ledger is,"
      f" received one of run {about['run']}." + advice
    )
  if about["charged"] > charged:
    raise ValueError(
      f"Expected checkpoint {path} to have at most the {charged} steps that its"
      f" ledger paid for, received {about['charged']}: the ledger lost lines."
      + advice
    )
  if knows is not None and not knows(about["ledger_checksum"]):
    raise ValueError(
      f"Expected checkpoint {path} to be known to its ledger, received the"
      f" checksum {about['ledger_checksum']!r}, which it never had: the ledger"
      " was replaced or edited, or the folder was copied and both were"
      " continued." + advice
    )


def _assign(
  path: pathlib.Path,
  variables: Sequence[tf.Variable],
  arrays: Mapping[str, np.ndarray],
) -> None:
  """Assigns all variables, after all of them were seen to fit."""
  advice = (
    " The network or the optimizer is not the one that the run was started"
    " with."
  )
  if len(arrays) != len(variables):
    raise ValueError(
      f"Expected {len(variables)} variables in {path.name}, received"
      f" {len(arrays)}." + advice
    )
  values = [arrays.get(f"v{i}") for i in range(len(variables))]
  for variable, value in zip(variables, values):
    dtype = variable.dtype.as_numpy_dtype
    kind = _plain(np.empty(0, dtype)).dtype
    if (
      value is None
      or value.shape != tuple(variable.shape)
      or value.dtype != kind
    ):
      found = "none" if value is None else f"{value.shape} of {value.dtype}"
      raise ValueError(
        f"Expected {variable.name} of shape {tuple(variable.shape)} of"
        f" {variable.dtype.name} in {path.name}, received {found}." + advice
      )
  for variable, value in zip(variables, values):
    variable.assign(value.view(variable.dtype.as_numpy_dtype))


def _named(variables: Sequence[tf.Variable]) -> dict[str, np.ndarray]:
  arrays = {}
  for i, variable in enumerate(variables):
    array = _plain(np.asarray(variable.numpy()))
    if array.dtype.kind not in "biufc":
      raise ValueError(
        f"Expected numbers in {variable.name}, received {variable.dtype.name}:"
        " a checkpoint keeps nothing else. Take it out of the network."
      )
    arrays[f"v{i}"] = array
  return arrays


def _plain(array: np.ndarray) -> np.ndarray:
  """Numbers that NumPy has no name for (bfloat16) as whole ones."""
  kind = array.dtype.kind
  return array.view(f"u{array.dtype.itemsize}") if kind == "V" else array


def digest(arrays: Mapping[str, np.ndarray]) -> str:
  """SHA-256 over names, kinds, shapes and bytes."""
  found = hashlib.sha256()
  for name in sorted(arrays):
    array = arrays[name]
    found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
    found.update(array.tobytes())
  return found.hexdigest()
