"""The proof in `privacy.shuffled_sgd`, on the draws of the sampler itself."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import scipy.stats

from tf_privrob import data
from tf_privrob import privacy
from tf_privrob import randomness

_LEVEL = 1e-4  # seeds are fixed: a red test stays red


def _batch(sampler, seed, step):
  return sampler.indices(randomness.Key.of(seed), step)


def _order(sampler, seed):
  """An epoch's permutation, as the sampler's own batches give it."""
  steps = range(sampler.steps_per_epoch)
  return np.concatenate([_batch(sampler, seed, step) for step in steps])


def _without(order, example):
  """The coupled order of the others: the last one takes the place of it."""
  order = order.copy()
  order[order == example] = order[-1]
  return order[:-1]


def _uniform(orders, size):
  """The p-value of the orders of `size` examples being equally likely."""
  counts = dict.fromkeys(itertools.permutations(range(size)), 0)
  for order in orders:
    counts[tuple(order)] += 1
  return scipy.stats.chisquare(list(counts.values())).pvalue


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5])
def test_orders_are_uniform_before_and_after_the_coupling(batch_size):
  sampler = data.ShuffleSampler(5, batch_size, 4)
  orders = [_order(sampler, seed) for seed in range(6000)]
  assert _uniform(orders, 5) > _LEVEL
  # The removed example is the last row, so that the others keep their numbers.
  coupled = [_without(order, 4) for order in orders]
  assert _uniform(coupled, 4) > _LEVEL
  # As likely as what the sampler deals to the neighbour.
  fewer = dataclasses.replace(sampler, num_examples=4)
  assert _uniform([_order(fewer, seed) for seed in range(3000)], 4) > _LEVEL


def test_the_coupling_is_n_to_one_and_onto():
  orders = [np.array(order) for order in itertools.permutations(range(5))]
  found = [tuple(_without(order, 2)) for order in orders]
  assert len(set(found)) == math.factorial(4)
  assert set(np.unique(found, axis=0, return_counts=True)[1]) == {5}


def _shifts(larger, smaller, seed, rng):
  """How far each batch's sum moves, for examples of norm at most 1."""
  values = rng.choice([-1.0, 1.0], size=larger.num_examples)
  order = _order(larger, seed)
  other = _without(order, int(rng.integers(larger.num_examples)))
  moved = []
  for step in range(larger.steps_per_epoch):
    batch = _batch(larger, seed, step)
    np.testing.assert_array_equal(batch, order[larger.places(step)])
    neighbour = other[smaller.places(step)]
    moved.append(abs(values[batch].sum() - values[neighbour].sum()))
  return sorted(moved, reverse=True)


@pytest.mark.parametrize(("num_examples", "steps"), [(13, 4), (12, 3), (11, 3)])
@pytest.mark.parametrize("batch_size", [4, 1, 12])
def test_one_example_moves_two_batches_by_two_and_one(
  num_examples, steps, batch_size
):
  """With b dividing n, n - 1 or n + 1, and S of one or the other neighbour."""
  steps = {4: steps, 1: num_examples, 12: 1}[batch_size]
  rng = np.random.default_rng(num_examples)
  largest = 0.0
  for given in (steps, steps + 1):
    larger = data.ShuffleSampler(num_examples, batch_size, 4, given)
    smaller = data.ShuffleSampler(num_examples - 1, batch_size, 4, given)
    for seed in range(200):
      first, *rest = [*_shifts(larger, smaller, seed, rng), 0.0]
      assert first <= 2
      assert rest[0] <= 1
      assert not any(rest[1:])
      largest = max(largest, math.hypot(first, rest[0]))
  assert largest <= 5**0.5
  if larger.steps_per_epoch > 2:
    assert largest == pytest.approx(5**0.5)  # The bound is reached.


def test_neighbours_are_dealt_the_batches_that_the_coupling_says():
  """Batches as sets: the neighbour's own draws have the coupled draws' law."""
  larger = data.ShuffleSampler(6, 2, 4)
  smaller = data.ShuffleSampler(5, 2, 4, steps_per_epoch=3)

  def sets(order):
    return str([sorted(order[smaller.places(step)]) for step in range(3)])

  coupled, own = {}, {}
  for seed in range(6000):
    key = sets(_without(_order(larger, seed), 5).tolist())
    coupled[key] = coupled.get(key, 0) + 1
    key = sets(_order(smaller, 10**6 + seed).tolist())
    own[key] = own.get(key, 0) + 1
  assert coupled.keys() == own.keys()
  table = [[coupled[key], own[key]] for key in own]
  assert scipy.stats.chi2_contingency(table).pvalue > _LEVEL


def _lost(larger, smaller, noise, dp_delta, draws=60):
  """The dp_epsilon that an attack on the sum of the first two steps shows.

  Half of the examples add 1 and half add -1. Where two steps are one epoch
  their sums cancel but for one example; where they are two epochs they do not.
  The noise is integrated exactly, over the sampler's own draws.
  """
  values = np.where(np.arange(larger.num_examples) % 2, 1.0, -1.0)
  threshold = np.linspace(1, 300, 600)

  def beyond(sampler):
    total = np.zeros_like(threshold)
    for seed in range(draws):
      rows = [_batch(sampler, seed, step) for step in (0, 1)]
      mean = values[np.concatenate(rows)].sum()
      tails = scipy.stats.norm(mean, noise * math.sqrt(2))
      total += tails.sf(threshold) + tails.cdf(-threshold)
    return total / draws

  first, second = beyond(larger), beyond(smaller)
  best = 0.0
  for p, q in ((first, second), (second, first)):
    best = max(best, float(np.max(np.log(np.maximum(p - dp_delta, 1e-30) / q))))
  return best


def test_two_steps_of_which_a_neighbour_had_only_one_an_epoch():
  """n = 10,000, b = 5,000: the stated 0.38 was refuted by an attack."""
  noise, dp_delta = 20.0, 1e-5
  larger = data.ShuffleSampler(10_000, 5_000, 500)
  smaller = dataclasses.replace(larger, num_examples=9_999)
  epochs = larger.max_participations(0, 2)
  stated = privacy.dp_epsilon(privacy.shuffled_sgd(noise, epochs), dp_delta)
  assert stated == pytest.approx(0.38, abs=0.01)
  assert _lost(larger, smaller, noise, dp_delta) <= stated


def test_dropping_the_last_batch_is_refuted_and_has_no_bound():
  """The same attack on the batches that were dealt before."""
  larger = data.ShuffleSampler(10_000, 5_000, 500, drop_last=True)
  smaller = data.ShuffleSampler(9_999, 5_000, 500, drop_last=True)
  assert (larger.steps_per_epoch, smaller.steps_per_epoch) == (2, 1)
  assert _lost(larger, smaller, 20.0, 1e-5) > 4
  with pytest.raises(ValueError, match="no bound is known"):
    privacy.shuffled_sgd(20.0, 1, drop_last=True)
  for relation, shift in (("replace_one", 2.0), ("zero_out", 1.0)):
    release = privacy.shuffled_sgd(20.0, 1, relation, drop_last=True)
    assert release.event.noise_multiplier == 20.0 / shift
