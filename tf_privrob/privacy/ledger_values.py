"""The parameters that a ledger keeps: as JSON, and compared by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from tf_privrob.privacy import ledger_format


def plain(**named: Mapping[str, Any]) -> dict:
  """The one mapping that is given by its name, as JSON gives it back."""
  ((name, mapping),) = named.items()
  values = dict(mapping)
  try:
    text = json.dumps(values, allow_nan=False, default=_scalar)
  except (TypeError, ValueError) as error:
    raise ValueError(
      "Expected finite numbers, strings, lists or dicts in"
      f" {name}={values!r}: {error}."
    ) from None
  return json.loads(text)


def _scalar(value: Any) -> Any:
  """NumPy scalars as Python ones."""
  if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
    return value.item()
  raise TypeError(f"{type(value).__name__} has no JSON form")


def require_same(path: str, what: str, old: dict, new: dict) -> None:
  """Refuses to continue another mechanism, and names all that changed."""
  changed = list(_changes(old, new))
  if changed:
    raise ledger_format.LedgerError(
      f"Cannot resume {path}: it paid for a {what} with other parameters ("
      + "; ".join(changed)
      + "). Resume with the recorded values, or choose another run_dir."
    )


class _Absent:
  def __repr__(self) -> str:
    return "'absent'"


_ABSENT = _Absent()


def _changes(old: dict, new: dict, prefix: str = "") -> Iterator[str]:
  """Every value that differs, under its dotted name."""
  for name in sorted({*old, *new}):
    before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
    if isinstance(before, dict) and isinstance(after, dict):
      yield from _changes(before, after, f"{prefix}{name}.")
    elif before != after:
      yield f"{prefix}{name}: {before!r} -> {after!r}"
