"""One example moves no release further than its statement accounts.

Every combination for which a figure is called proven is run here, with its real
sampler and its real step, on data sets that differ by one example.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.laws import cases
from tests.laws import law
from tf_privrob import randomness
from tf_privrob.methods import proven

_STEPS = {"poisson": 6, "full_batch": 1}
_AT_ALL_SIZES = ("ordinary", "not a number")
_AT_FIRST_PLACE = ("ordinary", "another label", "high", "not a number")
# How much of the accounted shift an ordinary row must reach: a measurement that
# never comes near the bound would not see it broken. Two rows of a shuffled
# epoch are rarely opposite, which the bound allows for.
_REACHED = {"poisson": 0.99, "shuffle": 0.6, "full_batch": 0.99}
_GRADIENTS = sorted(t for t in cases.TABLE if t[0] in cases.BY_GRADIENTS)


def test_proven_is_said_of_what_is_run_here_and_of_nothing_else():
  assert proven.COMBINATIONS == cases.TABLE


def _pair(kind, size):
  sampler = cases.planned(kind, size[0])
  steps = _STEPS.get(kind) or 2 * sampler.steps_per_epoch
  return law.Pair.of(sampler, size[1], steps)


def _shares(bench, kind, size, names=None, first=False):
  """Of the accounted shift, by canary."""
  pair = _pair(kind, size)
  x, y = cases.arrays(bench.method.network.input_shape[1:], size[1])
  unit = bench.accounted(pair.steps)
  assert unit["count"] >= len(pair.units())
  accounted = unit["parameters"]["noise_multiplier"]
  without = law.run(bench, pair, x, y)
  found = {}
  for name, canary in cases.canaries(x, y).items():
    if names is None or name in names:
      with_it = law.run(bench, pair, x, y, canary, first)
      found[name] = law.worst_share(pair, with_it, without, accounted)
  return found


@pytest.mark.parametrize(("name", "kind"), _GRADIENTS)
def test_no_example_moves_a_clipped_sum_further_than_accounted(name, kind):
  bench = cases.BY_GRADIENTS[name].bench(kind, quiet=kind == "full_batch")
  assert bench.method.sampler == cases.planned(kind, cases.ROWS)
  shares = _shares(bench, kind, cases.SIZES[0])
  assert _REACHED[kind] <= shares["ordinary"]
  for size in cases.SIZES[1:]:
    _shares(bench, kind, size, _AT_ALL_SIZES)
  if kind == "full_batch":  # no example draws for itself: any place will do
    _shares(bench, kind, cases.SIZES[0], _AT_FIRST_PLACE, first=True)


@pytest.mark.parametrize("name", list(cases.HALFSPACES))
def test_no_example_moves_a_sum_over_violations_further(name):
  bench = cases.HALFSPACES[name].bench("poisson")
  assert bench.method.sampler == cases.planned("poisson", cases.ROWS)
  shares = _shares(bench, "poisson", cases.SIZES[0])
  assert shares["ordinary"] > 0.5
  for size in cases.SIZES[1:]:
    _shares(bench, "poisson", size, _AT_ALL_SIZES)


@pytest.mark.parametrize("size", cases.SIZES)
@pytest.mark.parametrize("classes", list(cases.PURE))
def test_no_example_moves_a_score_by_more_than_1_or_both_ways(classes, size):
  bench = cases.PURE[classes].bench("full_batch")
  assert bench.method.sampler == cases.planned("full_batch", cases.ROWS)
  unit = bench.accounted(1)
  pair = _pair("full_batch", size)
  x, y = cases.arrays(cases.FLAT, size[1])
  y %= classes
  (without,) = law.run(bench, pair, x, y).noted
  moved = set()
  for row, label in cases.canaries(x, y).values():
    canary = row, label % classes
    (with_it,) = law.run(bench, pair, x, y, canary).noted
    assert with_it.sensitivity == 1
    assert with_it.sums[0].size == unit["count"] * bench.method.net_size
    moved |= set(np.unique(with_it.flat() - without.flat()))
  assert moved == {0.0, -1.0}


@pytest.mark.parametrize("kind", list(cases.PHYSICAL))
def test_batches_are_the_chunks_that_are_run_here(kind):
  sampler, key = cases.planned(kind, cases.ROWS), law.KEY
  x, y = cases.arrays(cases.FLAT)
  for step, batch in enumerate(sampler.batches(x, y, key, 0, 4)):
    rows = sampler.indices(key, step)
    mask = batch[2].numpy() > 0
    np.testing.assert_array_equal(batch[0].numpy()[mask], x[rows])
    np.testing.assert_array_equal(batch[1].numpy()[mask], y[rows])


@pytest.mark.parametrize("size", cases.SIZES)
def test_the_others_are_drawn_as_before_where_batches_are_poisson(size):
  pair = _pair("poisson", size)
  drawn = [pair.takes_part(step) for step in range(pair.steps)]
  assert True in drawn
  assert False in drawn
  for step in range(pair.steps):
    rows = pair.larger.indices(law.KEY, step)
    others = pair.smaller.indices(pair.smaller_key, step)
    np.testing.assert_array_equal(rows[rows < size[1]], others)


@pytest.mark.parametrize("size", cases.SIZES)
def test_a_shuffled_epoch_is_dealt_as_the_proof_says(size):
  pair = _pair("shuffle", size)
  for step in range(pair.steps):
    rows = set(pair.larger.indices(law.KEY, step))
    others = set(pair.smaller.indices(pair.smaller_key, step))
    assert len(rows - others) <= 1
    assert len(others - rows) <= 1
  assert all(len(unit) == pair.larger.steps_per_epoch for unit in pair.units())


def test_keys_of_the_coupling_are_not_those_of_other_draws():
  other = randomness.Key.of(4)
  sampler = cases.planned("shuffle", cases.ROWS)
  assert (sampler.indices(law.KEY, 0) != sampler.indices(other, 0)).any()
