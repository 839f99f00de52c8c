from __future__ import annotations

import decimal
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_privrob import privacy
from tf_privrob.privacy import rounding

_POSITIVE = st.floats(1e-300, 1e300)


@pytest.mark.parametrize(
  ("value", "up", "down"),
  [
    (3.00049, "3.001", "3"),
    (3.0, "3", "3"),
    (3.0000000000000004, "3.001", "3"),
    (2.9999999, "3", "2.999"),
    (1e-5, "1e-05", "1e-05"),
    (1.00001e-5, "1.001e-05", "1e-05"),
    (0.0, "0", "0"),
    (123456.0, "1.235e+05", "1.234e+05"),
    (np.float32(0.1), "0.1001", "0.1"),  # 0.10000000149...
    (math.inf, "inf", "inf"),
    (5e-324, "5e-324", "5e-324"),
    (1.5e-323, "1.5e-323", "1.5e-323"),
    (1.234567e-309, "1.235e-309", "1.234e-309"),
    (1.7976931348623157e308, "1.798e+308", "1.797e+308"),
  ],
)
def test_by_hand(value, up, down):
  assert (rounding.up(value), rounding.down(value)) == (up, down)


@given(_POSITIVE, st.integers(3, 6))
def test_what_is_printed_holds_and_is_close(value, digits):
  up = float(rounding.up(value, digits))
  down = float(rounding.down(value, digits))
  assert down <= value <= up
  assert up <= value * (1 + 10.0 ** (1 - digits))
  assert down >= value * (1 - 10.0 ** (1 - digits))


@given(st.floats(5e-324, 1e-300), st.integers(3, 6))
def test_subnormals_lose_nothing_in_print(value, digits):
  """The decimal itself, not only the number that it is read as."""
  exact = decimal.Decimal(repr(value))
  assert decimal.Decimal(rounding.up(value, digits)) >= exact
  assert decimal.Decimal(rounding.down(value, digits)) <= exact


@given(st.floats(0, 1e6), st.floats(0, 0.999))
def test_a_budget_never_prints_less_than_it_is(dp_epsilon, dp_delta):
  text = str(privacy.Budget(dp_epsilon, dp_delta))
  left, right = text.split(" at ")
  for part, name, value in (
    (left, "dp_epsilon", dp_epsilon),
    (right, "dp_delta", dp_delta),
  ):
    read = float(part.replace(f"{name}=", ""))
    assert value <= read <= value * (1 + 1e-3) + 1e-300


def test_exact_budgets_print_as_they_are():
  assert str(privacy.Budget(3.0, 1e-5)) == "dp_epsilon=3 at dp_delta=1e-05"
  assert str(privacy.Budget(3.00049, 1e-5)).startswith("dp_epsilon=3.001 ")
