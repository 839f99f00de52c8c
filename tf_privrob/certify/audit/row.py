"""The outcome of the attacks on one certified row, as a line of a file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tf_privrob.certify.audit import search as audit_search


@dataclasses.dataclass(frozen=True)
class AuditRow:
  """What each attack did to one row.

  Attributes:
    index: of the input.
    prediction: the class that the row states.
    radius: the row's.
    closest: nearest boundary found on a line, over the radius, or inf.
    outcomes: by attack, the size of its change and the class there if it is
      another one, else None.
    fell_at: smallest factor tried, from 1 on, with a change of class inside
      the radius times it; inf if none is known.
    seconds: time spent on the row.
  """

  index: int
  prediction: int
  radius: float
  closest: float
  outcomes: Mapping[str, tuple[float, int | None]]
  fell_at: float = math.inf
  seconds: float = 0.0

  @property
  def fell(self) -> list[str]:
    """Attacks that changed the class."""
    return [name for name, (_, to) in self.outcomes.items() if to is not None]

  def violation(self) -> dict[str, Any]:
    """The smallest change that an attack succeeded with."""
    name = min(self.fell, key=lambda name: self.outcomes[name][0])
    size, other = self.outcomes[name]
    return {
      "index": self.index,
      "radius": self.radius,
      "size": size,
      "attack": name,
      "from": self.prediction,
      "to": other,
    }

  def to_csv_row(self) -> list[str]:
    """Values in the order of `csv_fields()`; floats survive a round trip."""
    cells = [str(self.index), str(self.prediction)]
    cells += [repr(self.radius), repr(self.closest)]
    for name in audit_search.ATTACKS:
      size, other = self.outcomes[name]
      cells += [repr(size), "" if other is None else str(other)]
    return [*cells, repr(self.fell_at), repr(self.seconds)]

  @classmethod
  def from_csv_row(cls, cells: Sequence[str]) -> AuditRow:
    """Inverse of `to_csv_row`."""
    if len(cells) != len(csv_fields()):
      raise ValueError(
        f"Expected {len(csv_fields())} cells, received {len(cells)}."
      )
    pairs = zip(cells[4:-2:2], cells[5:-2:2])
    return cls(
      int(cells[0]),
      int(cells[1]),
      float(cells[2]),
      float(cells[3]),
      {
        name: (float(size), int(other) if other else None)
        for name, (size, other) in zip(audit_search.ATTACKS, pairs)
      },
      float(cells[-2]),
      float(cells[-1]),
    )


def csv_fields() -> tuple[str, ...]:
  """Columns: the row, size and class of each attack's point, the factor."""
  names = ["index", "prediction", "radius", "closest"]
  for name in audit_search.ATTACKS:
    names += [f"{name}_size", f"{name}_to"]
  return (*names, "fell_at", "seconds")
