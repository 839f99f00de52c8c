"""The radii of metrics.json, as far as the rows of certificates.csv say so.

All figures of a certified curve follow from its rows. They are found again
here; where the two files do not say the same, neither counts.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from typing import Any

from tf_privrob import binomial
from tf_privrob import files
from tf_privrob import randomness
from tf_privrob import records
from tf_privrob import run_folder
from tf_privrob.records.evaluation import CurvePoint

_ROWS = "certificates.csv"
_COUNTED = {"label", "prediction", "radius", "abstained", "norm", "confidence"}
_SETTINGS = ("smoothing_stddev", "num_selection", "num_estimation")


def read(folder: run_folder.RunFolder, entry: Any) -> records.Radii | None:
  """The radii, which are claims unless all rows say that they are proven.

  Args:
    folder: of the run.
    entry: what metrics.json has of them, if anything.

  Returns:
    the radii, None where there is no entry. Without certificates.csv they are
    those of metrics.json.

  Raises:
    ValueError: the entry is something else, or not what the rows say.
  """
  if not entry:
    return None
  radii = records.Radii.from_json(entry)
  rows = _rows(folder)
  if rows is None:
    return radii
  if _seeded_before(folder, radii, rows):
    radii = dataclasses.replace(radii, condition=randomness.SEEDED)
  differ = _differing(radii, _found(folder, radii, rows))
  if differ:
    raise ValueError(
      f"expected the {', '.join(differ)} that the {len(rows)} rows of {_ROWS}"
      " have, received others; nothing certified is shown. Certify again"
    )
  return radii.of_rows(row.get("kind") or "unknown" for row in rows)


def _rows(folder: run_folder.RunFolder) -> list[dict[str, str]] | None:
  """The rows of certificates.csv; None if there is no such file."""
  text = files.read_text(folder.file(_ROWS))
  if text is None:
    return None
  lines = text[: text.rfind("\n") + 1].splitlines()  # a crash may cut the last
  return list(csv.DictReader(lines))


def _seeded_before(
  folder: run_folder.RunFolder,
  radii: records.Radii,
  rows: list[dict[str, str]],
) -> bool:
  """Whether a version whose rows say nothing of it took draws of a seed."""
  made = (folder.read_json(f"{_ROWS}.json") or {}).get("settings") or {}
  silent = not rows or "condition" not in rows[0]
  return silent and made.get("seed") is not None and not radii.deterministic


def _found(
  folder: run_folder.RunFolder,
  radii: records.Radii,
  rows: list[dict[str, str]],
) -> dict[str, Any]:
  """What the rows, and the settings beside them, say of the fields of `radii`.

  Rows without a label, a class or a radius only say what they rest on.
  """
  made = (folder.read_json(f"{_ROWS}.json") or {}).get("settings") or {}
  found = {name: made[name] for name in _SETTINGS if name in made}
  if radii.model is not None:
    found.update(count=len(rows), model=_one(rows, "model"))
  if rows and "condition" in rows[0]:
    found["condition"] = _one(rows, "condition")
  if rows and _COUNTED <= set(rows[0]):
    good = [
      float(row["radius"]) for row in rows if row["label"] == row["prediction"]
    ]
    found.update(
      count=len(rows),
      norm=_one(rows, "norm"),
      confidence=float(_one(rows, "confidence")),
      abstained=sum(row["abstained"] == "1" for row in rows),
      mean_radius=math.fsum(good) / len(rows),
      curve=tuple(_point(p.radius, good, len(rows)) for p in radii.curve),
    )
  return found


def _one(rows: list[dict[str, str]], name: str) -> str:
  """What all rows have in a column."""
  values = sorted({str(row.get(name)) for row in rows})
  if len(values) != 1:
    raise ValueError(
      f"expected rows of one {name} in {_ROWS}, received {values}; nothing"
      " certified is shown. Certify again"
    )
  return values[0]


def _point(radius: float, good: list[float], count: int) -> CurvePoint:
  right = sum(own >= radius for own in good)
  return CurvePoint(radius, right / count, binomial.interval(right, count))


def _differing(radii: records.Radii, found: dict[str, Any]) -> list[str]:
  """The fields that say something else than was found."""
  return [
    name
    for name, value in found.items()
    if not _same(getattr(radii, name), value)
  ]


def _same(one: Any, other: Any) -> bool:
  """Whether two values agree, up to rounding; None says nothing."""
  if one is None:
    return True
  if isinstance(one, CurvePoint):
    one, other = dataclasses.astuple(one), dataclasses.astuple(other)
  if isinstance(one, tuple) and isinstance(other, tuple):
    return len(one) == len(other) and all(map(_same, one, other))
  if isinstance(one, float) and isinstance(other, (int, float)):
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
  return one == other
