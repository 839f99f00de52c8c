"""Which of many cases run in every test run, and which with the slow ones."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable

import pytest


def slow_but(fast: Collection, cases: Iterable) -> list:
  """The cases for `parametrize`, all slow but for these."""
  return [case if case in fast else _slow(case) for case in cases]


def _slow(case):
  values = case if isinstance(case, tuple) else (case,)
  return pytest.param(*values, marks=pytest.mark.slow)
