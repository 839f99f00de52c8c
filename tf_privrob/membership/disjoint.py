"""Members and non-members that have no example in common."""

from __future__ import annotations

import numpy as np

_SHOWN = 5


def require_disjoint(members_x: np.ndarray, nonmembers_x: np.ndarray) -> None:
  """Refuses non-members that are members too, by a hash of each example.

  Args:
    members_x: [n, ...], floating point.
    nonmembers_x: [m, ...], in the same value range.

  Raises:
    ValueError: with how many and the first of their rows.
  """
  shared = _shared(members_x, nonmembers_x)
  if shared:
    first = ", ".join(
      f"{own} (member {other})" for own, other in shared[:_SHOWN]
    )
    more = ", ..." if len(shared) > _SHOWN else ""
    raise ValueError(
      f"Expected non-members that are not members, but {len(shared)} of"
      f" {len(nonmembers_x)} are: non-member {first}{more}. No attack can tell"
      " these apart; drop them by membership.distinct(members_x,"
      " nonmembers_x)."
    )


def distinct(members_x: np.ndarray, nonmembers_x: np.ndarray) -> np.ndarray:
  """Rows of the non-members that do not occur among the members."""
  shared = _shared(members_x, nonmembers_x)
  rows = [row for row, _ in shared]
  return np.setdiff1d(np.arange(len(nonmembers_x)), rows)


def _shared(members_x, nonmembers_x) -> list[tuple[int, int]]:
  from tf_privrob import data

  return data.shared_examples(members_x=members_x, nonmembers_x=nonmembers_x)
