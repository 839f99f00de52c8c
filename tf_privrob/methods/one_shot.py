"""A release that is made once in a run, and counted however often it crashed.

The count is on disk before the data are touched; the result is written whole.
A run that is killed in between makes the release again, with new noise, and
its count says so: the plan and the statement compose as many as were begun.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any
from typing import Callable

import numpy as np


def once(
  run_dir: str | os.PathLike | None,
  name: str,
  resume: bool,
  compute: Callable[[int], np.ndarray],
  settings: dict[str, Any] | None = None,
) -> tuple[np.ndarray, int]:
  """The released array, and how many releases of it were begun.

  Args:
    run_dir: run folder; without one the release is made in memory.
    name: of the files, `<name>.json` (the count) and `<name>.npy`.
    resume: take what an earlier session released.
    compute: makes the release; gets the number of the attempt, 0 first, and
      must use fresh noise for each.
    settings: what the cost of one release depends on, as JSON values. They are
      counted with it: a resume with others is refused, also of a run that was
      killed before it had a ledger.
  """
  if run_dir is None:
    return compute(0), 1
  folder = pathlib.Path(run_dir)
  counter, result = folder / f"{name}.json", folder / f"{name}.npy"
  begun, settings = 0, json.loads(json.dumps(settings or {}))
  if counter.exists():
    counted = json.loads(counter.read_text())
    begun = int(counted["releases"])
    if not resume:
      raise ValueError(
        f"Expected a fresh run_dir, found {counter.name} of an earlier run in"
        f" {folder}. Choose another folder, or go on with resume=True."
      )
    known = counted.get("settings", {})
    if known != settings:
      raise ValueError(
        f"Cannot resume {folder}: {counter.name} counts releases with other"
        f" settings, {known}, received {settings}. Use the old"
        " ones, or another folder."
      )
    if result.exists():
      return np.load(result, allow_pickle=False), begun
  folder.mkdir(parents=True, exist_ok=True)
  text = json.dumps({"releases": begun + 1, "settings": settings})
  _write(counter, lambda file: file.write(text.encode()))
  array = compute(begun)
  _write(result, lambda file: np.save(file, array))
  return array, begun + 1


def _write(path: pathlib.Path, write: Callable) -> None:
  """Whole or not at all, and on disk before it returns."""
  draft = path.with_name(path.name + ".tmp")
  with open(draft, "wb") as file:
    write(file)
    file.flush()
    os.fsync(file.fileno())
  os.replace(draft, path)
  descriptor = os.open(path.parent, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def seed_of(seed: int | None, attempt: int) -> int:
  """A seed for one attempt: from the run's, or from the operating system."""
  if seed is None:
    return int.from_bytes(os.urandom(7), "little")
  words = np.random.SeedSequence([seed, 5, attempt]).generate_state(2)
  return int(words[0]) * 2**31 + int(words[1] >> 1)
