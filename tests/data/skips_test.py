import numpy as np
import pytest
from scipy import stats

from tf_privrob import data


def _rows(n=50, q=0.04, steps=4000, seed=0):
  return data.poisson_rows(n, q, steps, np.random.default_rng(seed))


def test_steps_and_rows_are_in_order_and_distinct():
  steps, rows = _rows()
  places = steps * 50 + rows
  assert (np.diff(places) > 0).all()
  assert (0 <= rows).all()
  assert (rows < 50).all()
  assert (0 <= steps).all()
  assert (steps < 4000).all()


def test_sizes_are_binomial_and_nothing_else():
  steps, _ = _rows()
  sizes = np.bincount(steps, minlength=4000)

  def pvalue(q):
    law = stats.binom(50, q)
    edges = np.arange(7)
    seen = [*(sizes == k for k in edges[:-1]), sizes >= edges[-1]]
    probs = [*law.pmf(edges[:-1]), law.sf(edges[-1] - 1)]
    return stats.chisquare(
      [s.sum() for s in seen], 4000 * np.array(probs)
    ).pvalue

  assert pvalue(0.04) > 1e-3
  for wrong in (0.04 * 2 / 3, 0.04 * 3 / 2):
    assert pvalue(wrong) < 1e-6


def test_every_example_is_as_likely_as_any_other():
  _, rows = _rows(steps=20_000)
  counts = np.bincount(rows, minlength=50)
  assert stats.chisquare(counts).pvalue > 1e-3


def test_two_examples_and_two_steps_are_independent():
  steps, rows = _rows(n=4, q=0.3, steps=20_000, seed=1)
  hits = np.zeros((20_000, 4), bool)
  hits[steps, rows] = True
  together = (hits[:, 0] & hits[:, 1]).mean()
  later = (hits[:-1, 2] & hits[1:, 2]).mean()
  for found in (together, later):
    assert abs(found - 0.09) < 4.5 * np.sqrt(0.09 * 0.91 / 20_000)


def test_probability_one_takes_everyone():
  steps, rows = data.poisson_rows(3, 1.0, 2, np.random.default_rng(0))
  np.testing.assert_array_equal(steps, [0, 0, 0, 1, 1, 1])
  np.testing.assert_array_equal(rows, [0, 1, 2, 0, 1, 2])


def test_rare_draws_may_be_none():
  steps, _ = data.poisson_rows(5, 1e-6, 3, np.random.default_rng(0))
  assert len(steps) == 0


@pytest.mark.parametrize("q", [0.0, 1.5, -0.1])
def test_bad_probability(q):
  with pytest.raises(ValueError, match="sampling_prob"):
    data.poisson_rows(5, q, 3, np.random.default_rng(0))
