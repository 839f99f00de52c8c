"""Outputs of a model in its run folder, made again when anything changed."""

from __future__ import annotations

from typing import Callable

from tf_privrob import run_folder
from tf_privrob.membership import outputs as outputs_lib

FOLDER = "nonprivate/membership"


def cached_outputs(
  folder: run_folder.RunFolder,
  key: str,
  make: Callable[[], outputs_lib.Outputs],
  fingerprint: str | None = None,
) -> outputs_lib.Outputs:
  """The outputs in <run>/membership/<key>.npz, or what `make` returns.

  Beside them is a fingerprint; where it differs from that of `make` (another
  weight, example, attack or seed), the outputs are made again.

  Args:
    folder: of the run.
    key: name of the file, letters, digits, "_", "-" and ".".
    make: a `membership.Request`, which has a fingerprint, or any function.
    fingerprint: of what a plain function depends on.

  Raises:
    ValueError: a function without a fingerprint, or a key that is a path.
  """
  if (
    not key or not all(c.isalnum() or c in "_-." for c in key) or key[0] == "."
  ):
    raise ValueError(
      f"Expected a key of letters, digits, '_', '-' and '.', received {key!r}."
    )
  fingerprint = fingerprint or getattr(make, "fingerprint", None)
  if not isinstance(fingerprint, str):
    raise ValueError(
      "Expected a membership.Request, or fingerprint=... with a function:"
      " outputs of another model or data must not be taken for these."
    )
  folder = run_folder.RunFolder(folder)
  name = f"{FOLDER}/{key}"
  path, noted = folder.file(f"{name}.npz"), f"{name}.json"
  before = folder.read_json(noted) if folder.has(noted) else {}
  if before.get("fingerprint") == fingerprint and path.is_file():
    return outputs_lib.Outputs.load(path)
  # Without a note, outputs are of nothing: removed first, written last.
  folder.file(noted).unlink(missing_ok=True)
  found = make()
  found.save(path)
  folder.write_json(noted, {"fingerprint": fingerprint, "about": found.about})
  return found
