"""What a record is: a frozen dataclass that is an object of a JSON file.

The annotations are the schema. `from_json` gives the record or one sentence
that names the field, what it must be and what it was; `to_json` gives the
object back. A field that is absent has its default, so that files of earlier
versions are read; a key that is no field is left out, so that files of later
versions are. There is no infinity in a record: null says that there is no
finite number.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Mapping
from typing import Annotated
from typing import Any

Interval = tuple[float, float]
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Within:
  """Bounds of a number, ends included."""

  low: float
  high: float = math.inf

  def __str__(self) -> str:
    if math.isinf(self.high):
      return f">= {self.low:g}"
    return f"in [{self.low:g}, {self.high:g}]"


Share = Annotated[float, Within(0, 1)]
Size = Annotated[float, Within(0)]
Count = Annotated[int, Within(0)]
Advantage = Annotated[float, Within(-1, 1)]

# Metadata of a field that is not in the file where it has its default; another
# name in the file than in Python is metadata too, {"key": ...}.
OPTIONAL = {"optional": True}


@dataclasses.dataclass(frozen=True)
class Record:
  """Base of all records."""

  def to_json(self) -> dict[str, Any]:
    """The object as it stands in the file."""
    return _written(self)

  @classmethod
  def from_json(cls, payload: Any, name: str = ""):
    """Inverts `to_json`.

    Args:
      payload: The object, as `files.read_json` gives it.
      name: What it is, for errors.

    Raises:
      ValueError: If it is anything else than this record.
    """
    return _object(cls, payload, name)

  def _settle(self, name: str, value: Any) -> None:
    """Sets a field that follows from the others, as the record is made."""
    object.__setattr__(self, name, value)


def key_of(field: dataclasses.Field) -> str:
  """The name of a field in the file."""
  return field.metadata.get("key", field.name)


@functools.cache
def hints_of(kind: type) -> dict[str, Any]:
  """The annotations of a record, with the bounds of its numbers."""
  return typing.get_type_hints(kind, include_extras=True)


def as_number(value: Any) -> float | None:
  """A finite number as it is, anything else as None."""
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    return None
  return value if math.isfinite(value) else None


def require_within(interval: Interval | None, **named: float | None) -> None:
  """Refuses the one figure that is given by its name outside of its interval.

  Args:
    interval: What it must lie in, if anything is known.
    **named: The figure, None if it is not known.
  """
  ((name, value),) = named.items()
  if None in (interval, value):
    return
  low, high = interval
  if not low - _ROUNDING <= value <= high + _ROUNDING:
    raise ValueError(
      f"expected {name} in its interval [{low:g}, {high:g}], received {value:g}"
    )


def _written(value: Any) -> Any:
  if dataclasses.is_dataclass(value):
    return {
      key_of(field): _written(getattr(value, field.name))
      for field in dataclasses.fields(value)
      if not field.metadata.get("optional")
      or getattr(value, field.name) != field.default
    }
  if isinstance(value, Mapping):
    return {name: _written(item) for name, item in value.items()}
  if isinstance(value, (list, tuple)):
    return [_written(item) for item in value]
  return value


def _object(kind: type, payload: Any, name: str) -> Any:
  if not isinstance(payload, Mapping):
    raise ValueError(_wrong(name, "an object", payload))
  found = {}
  for field in dataclasses.fields(kind):
    hint = hints_of(kind)[field.name]
    place = f"{name} {key_of(field)}".strip()
    value = payload.get(key_of(field))
    missing = key_of(field) not in payload or not _is_optional(hint)
    if value is None and missing and _has_default(field):
      continue
    found[field.name] = _value(hint, value, place)
  return kind(**found)


def _has_default(field: dataclasses.Field) -> bool:
  given = (field.default, field.default_factory)
  return any(item is not dataclasses.MISSING for item in given)


def _is_optional(hint: Any) -> bool:
  return type(None) in typing.get_args(hint)


def _value(hint: Any, value: Any, name: str) -> Any:
  """What a value of a file is as a field of this annotation."""
  if _is_optional(hint):
    (inner,) = set(typing.get_args(hint)) - {type(None)}
    return None if value is None else _value(inner, value, name)
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated or hint in (int, float):
    return _number(hint, value, name)
  if hint == Interval:
    return _interval(value, name)
  if origin is tuple:
    if not isinstance(value, (list, tuple)):
      raise ValueError(_wrong(name, "a list", value))
    return tuple(
      _value(arguments[0], item, f"{name} {number}")
      for number, item in enumerate(value, 1)
    )
  if dataclasses.is_dataclass(hint):
    return _object(hint, value, name)
  if hint is Any:
    return value
  plain, words = (Mapping, "an object") if origin else (hint, _WORDS[hint])
  if not isinstance(value, plain):
    raise ValueError(_wrong(name, words, value))
  return value


_WORDS = {str: "text", bool: "true or false"}


def _number(hint: Any, value: Any, name: str) -> float:
  bounds = getattr(hint, "__metadata__", (None,))[0]
  kind = hint.__origin__ if bounds else hint
  number = as_number(value)
  whole = kind is not int or (number is not None and number == int(number))
  if number is None or not whole:
    words = "whole number" if kind is int else "number"
    expected = f"{bounds}, a {words}" if bounds else f"to be a {words}"
    raise ValueError(f"expected {name} {expected}, received {value!r}")
  if bounds and not bounds.low <= number <= bounds.high:
    raise ValueError(f"expected {name} {bounds}, received {value!r}")
  return kind(number) if kind is int else number


def _interval(value: Any, name: str) -> Interval:
  pair = value if isinstance(value, (list, tuple)) else ()
  ends = tuple(map(as_number, pair))
  if len(ends) != 2 or None in ends or ends[0] > ends[1]:
    raise ValueError(_wrong(name, "two numbers that increase", value))
  return ends


def _wrong(name: str, words: str, value: Any) -> str:
  return f"expected {name or 'it'} to be {words}, received {value!r}"
