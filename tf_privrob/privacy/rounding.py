"""Privacy figures in a few digits, rounded so that nothing is flattered.

A stated figure is an upper bound and is rounded up, a demonstrated one is a
lower bound and is rounded down: what is printed, read back, is still true.
"""

from __future__ import annotations

import decimal
import math


def up(value: float, digits: int = 4) -> str:
  """The shortest decimal of so many digits that is not below: 3.00049, 3.001.

  Args:
    value: A proven or claimed dp_epsilon, dp_delta or mu.
    digits: Significant ones; a value that has no more is printed as it is.
  """
  return _rounded(value, digits, decimal.ROUND_CEILING)


def down(value: float, digits: int = 4) -> str:
  """The same from below, for what an audit demonstrated."""
  return _rounded(value, digits, decimal.ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
  """Rounds the decimal that Python prints, which reads back as the value."""
  value = float(value)
  if not math.isfinite(value):
    return str(value)
  rounded = decimal.Context(digits, rounding).create_decimal(repr(value))
  text = f"{float(rounded):.{digits}g}"
  if decimal.Decimal(text) == rounded:
    return text
  return f"{rounded.normalize():e}"  # A float of few digits, or too large.
