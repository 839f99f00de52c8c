"""Rows that an attacker would choose as the one example more or less."""

import numpy as np


def canaries(dimension, base):
  """By name; `base` is an ordinary row."""
  alternating = np.where(np.arange(dimension) % 2, 1.0, -1.0)
  found = {
    "ordinary": base,
    "zero": np.zeros(dimension),
    "constant": np.full(dimension, 0.5),
    "flushed squares": np.full(dimension, 1e-19),
    "all squares but one flushed": np.where(  # FLT_MIN is 1.0842e-19 squared
      np.arange(dimension), 1.0835e-19, 1.085e-19
    ),
    "half of the squares flushed": 10.0 ** -np.linspace(18, 24, dimension),
    "one large among small": np.where(np.arange(dimension), 1e-22, 1e-19),
    "subnormal": np.full(dimension, 1e-40),
    "around the least normal": np.resize([1.3e-38, 1.1e-38], dimension),
    "huge": 3e38 * alternating,
    "overflowing squares": np.full(dimension, 1e20),
    "infinite": np.where(np.arange(dimension), 0.5, np.inf),
    "not a number": np.where(np.arange(dimension), 0.5, np.nan),
    "all not a number": np.full(dimension, np.nan),
  }
  return {name: row.astype("float32") for name, row in found.items()}


NAMES = tuple(canaries(2, np.ones(2)))
WITHOUT_DIRECTION = (
  "zero",
  "subnormal",
  "infinite",
  "not a number",
  "all not a number",
)
