"""Poisson batches of a whole run in one draw, for runs of many small steps."""

from __future__ import annotations

import math

import numpy as np

from tf_privrob import validate


def poisson_rows(
  num_examples: int,
  sampling_prob: float,
  steps: int,
  rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
  """Who takes part in which of `steps` Poisson batches.

  Walks through the steps * n independent coins of probability q in the order
  of the steps and jumps from one success to the next: the gaps are independent
  and geometric. The law is that of `PoissonSampler`, at the cost of the
  q steps n successes in place of all the coins.

  Args:
    num_examples: n.
    sampling_prob: q in (0, 1].
    steps: Number of batches.
    rng: The generator that the gaps come from.

  Returns:
    The step and the row of each success: steps in order, rows of one step in
    order and distinct.
  """
  validate.positive_int(num_examples=num_examples, steps=steps)
  validate.probability(sampling_prob=sampling_prob)
  coins = num_examples * steps
  found, last = [], -1
  while last < coins:
    expected = (coins - last) * sampling_prob
    count = int(expected + 4 * math.sqrt(expected)) + 8
    gaps = rng.geometric(sampling_prob, count)
    found.append(last + np.cumsum(gaps, dtype=np.int64))
    last = int(found[-1][-1])
  places = np.concatenate(found)
  places = places[: np.searchsorted(places, coins)]
  return places // num_examples, places % num_examples
