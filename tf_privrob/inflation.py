"""What an audit of radii could have seen, in words.

An audit that finds nothing says little unless one knows what it would have
found: the same attacks inside radii that are larger by known factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Inflated = Sequence[tuple[float, int]]  # a factor, and rows that fell by it


def sentence(
  violations: int, count: int, inflated: Inflated, detectable: float
) -> str:
  """How large an error of the radii would have been seen.

  Args:
    violations: Rows that fell inside their radii.
    count: Rows attacked.
    inflated: By factor, rows that fell inside radii times as large.
    detectable: Smallest factor whose rows would have been a verdict of
      "violated"; inf if none is.
  """
  first = f"Violations inside the stated radii: {violations:,} of {count:,}; "
  if not inflated:
    return f"{first}how large an error would have been seen was not measured."
  if math.isinf(detectable):
    most, fallen = inflated[-1]
    return (
      f"{first}inside radii {most:g} times as large {fallen:,} fell, so no"
      f" inflation up to {most:g} would have been seen: this audit has no power"
      " here."
    )
  return (
    f"{first}had the radii been {detectable:g} times as large,"
    f" {dict(inflated)[detectable]:,} of {count:,} would have fallen, so an"
    f" error of a factor of {detectable:g} would have been seen; a smaller one"
    " need not have been."
  )


def short(inflated: Inflated, detectable: float) -> str:
  """The same in a few words, beside a verdict."""
  if not inflated:
    return "power not measured"
  if math.isinf(detectable):
    return f"no power: not even a factor of {inflated[-1][0]:g} would be seen"
  return f"a factor of {detectable:g} would have been seen"
