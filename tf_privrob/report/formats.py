"""How numbers are written, in one place, so that every part agrees."""

from __future__ import annotations

import datetime
import decimal
import math

from tf_privrob.privacy import rounding


def percent(value: float | None, digits: int = 1) -> str:
  """0.934 -> '93.4%'."""
  return "-" if value is None else f"{100 * value:.{digits}f}%"


def upper(value: float, places: int = 3) -> str:
  """0.7612 -> '0.762': so many decimals, rounded up, for an upper bound."""
  step = decimal.Decimal(1).scaleb(-places)
  exact = decimal.Decimal(repr(float(value)))
  return str(exact.quantize(step, decimal.ROUND_CEILING))


def interval(bounds: tuple[float, float] | None) -> str:
  """(0.917, 0.948) -> '91.7-94.8%', with an en dash."""
  if bounds is None:
    return "-"
  return f"{100 * bounds[0]:.1f}\u2013{100 * bounds[1]:.1f}%"


def accuracy(result) -> str:
  """'93.4% (91.7-94.8%)' of a record, or 'not run' of none."""
  if result is None:
    return "not run"
  bounds = result.interval
  return percent(result.accuracy) + (f" ({interval(bounds)})" if bounds else "")


def advantage(result) -> str:
  """'0.210 (0.170-0.250)' of an inference."""
  bounds = result.advantage_interval
  more = f" ({share_interval(bounds)})" if bounds else ""
  return f"{result.advantage:.3f}{more}"


def number(value: object) -> str:
  """Any setting as a person writes it: 4000 -> '4,000', 1e-05 -> '1e-5'."""
  if isinstance(value, bool) or value is None:
    return {True: "yes", False: "no", None: "none"}[value]
  if isinstance(value, int):
    return f"{value:,}" if abs(value) >= 10_000 else str(value)
  if isinstance(value, float):
    if math.isfinite(value) and value == int(value) and 1e4 <= abs(value) < 1e9:
      return f"{int(value):,}"
    return _short_exponent(f"{value:.6g}")
  if isinstance(value, (list, tuple)):
    return ", ".join(number(item) for item in value) or "none"
  return str(value)


def dp_epsilon(value: float | None) -> str:
  """Three significant digits, rounded up: a guarantee is never flattered."""
  if value is None or not math.isfinite(value):
    return "\u221e"
  return f"{float(rounding.up(value, 3)):.6g}"


def dp_epsilon_lower(value: float) -> str:
  """Three significant digits, rounded down: for an audit's lower bound."""
  return f"{float(rounding.down(max(value, 0.0), 3)):.6g}"


def dp_delta(value: float) -> str:
  """1e-05 -> '1e-5', rounded up; 0 stays '0' (pure differential privacy)."""
  return _short_exponent(rounding.up(value, 3))


def dp_delta_lower(value: float) -> str:
  """The same, rounded down: an audit holds at that dp_delta or a smaller."""
  return _short_exponent(rounding.down(value, 3))


def proven(statement) -> str:
  """The proven figure with its condition; they are never apart.

  Args:
    statement: a PrivacyStatement, or anything with its three figures.
  """
  if statement.proven is None:
    return "no finite bound known"
  condition = getattr(statement, "condition", "")
  return budget(statement.proven) + (f" ({condition})" if condition else "")


def three(statement) -> tuple[str, str, str]:
  """Claimed, proven, audited: the cells of a table, never one of them alone.

  Args:
    statement: a PrivacyStatement, or None.
  """
  if statement is None:
    return ("not run",) * 3
  claimed, audited = statement.claimed, "not run"
  if statement.audited is not None:
    audited = f">= {dp_epsilon_lower(statement.audited)}"
    audited += " VIOLATED" if statement.violated else ""
  return (budget(claimed) if claimed else "nothing", proven(statement), audited)


def privacy_figures(statement, separator: str = ", ") -> str:
  """Claimed, proven and audited in words, in this order and never apart.

  Args:
    statement: a PrivacyStatement, or anything with its three figures.
    separator: between the figures.
  """
  claimed, audited = statement.claimed, statement.audited
  return separator.join(
    (
      f"claimed {budget(claimed) if claimed else 'nothing'}",
      f"proven {proven(statement)}",
      "audited not run"
      if audited is None
      else f"audited >= {dp_epsilon_lower(audited)}",
    )
  )


def budget(figures) -> str:
  """(dp_epsilon, dp_delta), both never flattered."""
  return f"({dp_epsilon(figures.dp_epsilon)}, {dp_delta(figures.dp_delta)})"


def share_interval(bounds: tuple[float, float] | None) -> str:
  """(0.12, 0.2) -> '0.120-0.200', with an en dash: of advantages."""
  if bounds is None:
    return "-"
  dash = " to " if min(bounds) < 0 else "\u2013"
  return f"{bounds[0]:.3f}{dash}{bounds[1]:.3f}"


def duration(seconds: float) -> str:
  """123.4 -> '2 min 3 s'."""
  if seconds < 10:
    return f"{seconds:.1f} s"
  whole = round(seconds)
  if whole < 60:
    return f"{whole} s"
  if whole < 3600:
    return f"{whole // 60} min {whole % 60} s"
  return f"{whole // 3600} h {whole % 3600 // 60} min"


def moment(text: str) -> str:
  """An ISO time as '15 November 2025, 21:04 UTC'; other text unchanged."""
  try:
    when = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
  except ValueError:
    return text
  zone = when.strftime(" %Z") if when.tzinfo else ""
  return f"{when.day} {when:%B %Y, %H:%M}{zone}"


def norm(name: str) -> str:
  """'linf' -> 'l\u221e', 'l2' -> 'l\u2082', 'l1' -> 'l\u2081'."""
  signs = {"linf": "\u2113\u221e", "l2": "\u2113\u2082", "l1": "\u2113\u2081"}
  return signs.get(name, name)


def _short_exponent(text: str) -> str:
  mantissa, mark, exponent = text.partition("e")
  return f"{mantissa}e{int(exponent)}" if mark else text
