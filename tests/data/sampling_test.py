from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import scipy.stats

from tf_privrob import data
from tf_privrob import randomness

_STEPS = 4000
_NUM_EXAMPLES = 200
_SAMPLING_PROB = 0.05
_LEVEL = 1e-4  # seeds are fixed: a red test stays red


def _key(seed, session=0):
  return randomness.Key.of(seed).child("session", session)


def _inclusions(sampler, seed=7, session=0, steps=_STEPS):
  """Whether example j is drawn at step t, as a matrix of 0 and 1."""
  drawn, key = np.zeros((steps, sampler.num_examples)), _key(seed, session)
  for step in range(steps):
    drawn[step, sampler.indices(key, step)] = 1
  return drawn


def _violations(drawn, sampling_prob):
  """The laws of Poisson sampling that `drawn` breaks, each by its own test."""
  steps, num_examples = drawn.shape
  variance = sampling_prob * (1 - sampling_prob)
  centred = (drawn - sampling_prob) / np.sqrt(variance)
  sizes = drawn.sum(1)
  p_values = {
    # All inclusions together: N(0, 1) after scaling.
    "rate": _two_sided(centred.sum() / np.sqrt(drawn.size)),
    # Each example has the same rate: chi-square over examples.
    "uniformity": _chi_square(centred.sum(0) / np.sqrt(steps)),
    # The batch size varies as Binomial(n, q) does, no more and no less.
    "size": _binomial_fit(sizes, num_examples, sampling_prob),
    # Two examples are independent within a step (half of the pairs, each once).
    "pairs": _chi_square(
      (centred[:, ::2] * centred[:, 1::2]).sum(0) / np.sqrt(steps)
    ),
    # An example's steps are independent, here at a lag of one step.
    "steps": _two_sided(
      (centred[1:] * centred[:-1]).sum() / np.sqrt(centred[1:].size)
    ),
  }
  return {law for law, p_value in p_values.items() if p_value < _LEVEL}


def _two_sided(z):
  return 2 * scipy.stats.norm.sf(abs(z))


def _chi_square(z):
  statistic = np.sum(np.square(z))
  upper = scipy.stats.chi2.sf(statistic, len(z))
  return 2 * min(upper, 1 - upper)


def _binomial_fit(sizes, num_examples, sampling_prob):
  law = scipy.stats.binom(num_examples, sampling_prob)
  edges = np.unique(law.ppf(np.linspace(0.05, 0.95, 10)))
  cells = np.searchsorted(edges, sizes)  # size <= edge
  observed = np.bincount(cells, minlength=len(edges) + 1)
  expected = np.diff(np.concatenate([[0], law.cdf(edges), [1]])) * len(sizes)
  return scipy.stats.chisquare(observed, expected).pvalue


def _poisson(num_examples=_NUM_EXAMPLES, sampling_prob=_SAMPLING_PROB):
  return data.PoissonSampler(num_examples, sampling_prob, 16)


@pytest.fixture(scope="module")
def poisson_draws():
  return _inclusions(_poisson())


def test_poisson_draws_obey_every_law(poisson_draws):
  assert _violations(poisson_draws, _SAMPLING_PROB) == set()


@pytest.mark.parametrize("factor", [2 / 3, 3 / 2, 1.03])
def test_another_rate_is_rejected(poisson_draws, factor):
  assert "rate" in _violations(poisson_draws, factor * _SAMPLING_PROB)


@pytest.mark.parametrize("sampling_prob", [0.3, 0.9])
def test_laws_hold_at_other_rates(sampling_prob):
  draws = _inclusions(_poisson(60, sampling_prob), seed=3)
  assert _violations(draws, sampling_prob) == set()


def test_batch_sizes_are_binomial_and_not_constant(poisson_draws):
  sizes = poisson_draws.sum(1)
  assert len(np.unique(sizes)) > 10
  mean = _NUM_EXAMPLES * _SAMPLING_PROB
  np.testing.assert_allclose(sizes.mean(), mean, rtol=0.03)
  np.testing.assert_allclose(sizes.var(), mean * (1 - _SAMPLING_PROB), rtol=0.1)


class _DropsOverflow(data.PoissonSampler):
  """Broken: whoever does not fit into one chunk is silently left out."""

  def indices(self, key, step):
    return super().indices(key, step)[: self.physical_batch_size]


class _FixedSize(data.PoissonSampler):
  """Broken: uniform subsets of constant size, often mistaken for Poisson."""

  def indices(self, key, step):
    order = key.child(step).permutation(self.num_examples)
    return order[: round(self.expected_batch_size)]


class _Twins(data.PoissonSampler):
  """Broken: examples 2j and 2j + 1 share one coin."""

  def indices(self, key, step):
    even = super().indices(key, step)
    even = even[even % 2 == 0]
    return np.sort(np.concatenate([even, even + 1]))


class _Repeats(data.PoissonSampler):
  """Broken: every batch is used twice."""

  def indices(self, key, step):
    return super().indices(key, step // 2)


@pytest.mark.parametrize(
  ("broken", "law"),
  [
    (_DropsOverflow, "uniformity"),
    (_DropsOverflow, "size"),
    (_FixedSize, "size"),
    (_Twins, "pairs"),
    (_Repeats, "steps"),
  ],
)
def test_broken_samplers_are_caught(broken, law):
  sampler = broken(_NUM_EXAMPLES, _SAMPLING_PROB, 12)
  draws = _inclusions(sampler, seed=7)
  assert law in _violations(draws, _SAMPLING_PROB)


def test_shuffling_is_not_poisson_sampling():
  draws = _inclusions(data.ShuffleSampler(_NUM_EXAMPLES, 10, 16))
  assert _violations(draws, _SAMPLING_PROB) >= {"size", "steps"}


def test_rate_one_draws_everybody_and_a_tiny_rate_nobody():
  assert _poisson(50, 1.0).indices(_key(0), 0).tolist() == list(range(50))
  empty = _poisson(50, 1e-12).indices(_key(0), 0)
  assert empty.shape == (0,)
  assert empty.dtype == np.int64


# Randomness: a function of the session's key and the step, nothing else.


@pytest.mark.parametrize(
  "sampler", [_poisson(), data.ShuffleSampler(_NUM_EXAMPLES, 10, 16)]
)
def test_draws_depend_on_key_and_step_only(sampler):
  draw = sampler.indices(_key(5, 2), 1)
  sampler.indices(_key(9, 9), 999)  # other calls leave no trace
  np.testing.assert_array_equal(sampler.indices(_key(5, 2), 1), draw)
  for other in [(6, 2, 1), (5, 3, 1), (5, 2, 2), (2, 5, 1)]:
    found = sampler.indices(_key(*other[:2]), other[2])
    assert found.tolist() != draw.tolist()


def test_draws_of_two_sessions_are_independent():
  first = _inclusions(_poisson(), session=0, steps=1000) - _SAMPLING_PROB
  second = _inclusions(_poisson(), session=1, steps=1000) - _SAMPLING_PROB
  variance = _SAMPLING_PROB * (1 - _SAMPLING_PROB)
  z = (first * second).sum() / variance / np.sqrt(first.size)
  assert _two_sided(z) > _LEVEL


def test_golden_draw():
  """The same on every machine: a change would break reproducibility."""
  key = _key(1, 2)
  draws = [_poisson().indices(key, step)[:10] for step in (0, 10**12)]
  assert np.array(draws).tolist() == [
    [12, 18, 76, 117, 129, 132, 136, 141, 147, 155],
    [21, 45, 46, 52, 65, 82, 104, 113, 116, 138],
  ]


# Shuffling.


def _epoch(sampler, epoch=0):
  steps, key = sampler.steps_per_epoch, _key(1)
  return [sampler.indices(key, epoch * steps + step) for step in range(steps)]


def test_shuffle_sees_everybody_once_an_epoch():
  sampler = data.ShuffleSampler(23, 5, 4)
  assert sampler.steps_per_epoch == 5
  for epoch in range(3):
    batches = _epoch(sampler, epoch)
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
    assert sorted(np.concatenate(batches)) == list(range(23))
  assert sampler.expected_batch_size == 5  # Also of the last batch.


@pytest.mark.parametrize(
  ("num_examples", "sizes"), [(19, [5, 5, 5, 4]), (15, [5, 5, 5, 0])]
)
def test_a_neighbour_has_as_many_batches(num_examples, sizes):
  for more in (0, 1):
    sampler = data.ShuffleSampler(num_examples + more, 5, 4, steps_per_epoch=4)
    found = [len(batch) for batch in _epoch(sampler)]
    assert found == [*sizes[:-1], sizes[-1] + more]
  longer = data.ShuffleSampler(21, 5, 4, steps_per_epoch=4)
  assert [len(batch) for batch in _epoch(longer)] == [5, 5, 5, 6]


def test_dropping_the_last_batch_is_said():
  sampler = data.ShuffleSampler(23, 5, 4, drop_last=True)
  assert sampler.steps_per_epoch == 4  # 3 of 23 sit out
  absent = set()
  for epoch in range(3):
    batches = _epoch(sampler, epoch)
    assert [len(batch) for batch in batches] == [5] * 4
    seen = np.concatenate(batches)
    assert len(np.unique(seen)) == 20
    absent.add(frozenset(range(23)) - set(seen.tolist()))
  assert len(absent) == 3  # not always the same three
  assert sampler.describe()["drop_last"] is True
  assert "drop_last" not in data.ShuffleSampler(23, 5, 4).describe()


def test_shuffle_orders_are_uniform():
  sampler, key = data.ShuffleSampler(3, 3, 3), _key(0)
  orders = [tuple(sampler.indices(key, step)) for step in range(6000)]
  _, counts = np.unique(orders, axis=0, return_counts=True)
  assert len(counts) == 6
  assert scipy.stats.chisquare(counts).pvalue > _LEVEL


@pytest.mark.parametrize("start_step", [0, 1, 3, 4, 6])
@pytest.mark.parametrize("steps", [0, 1, 2, 4, 5, 9])
def test_max_participations_is_reached_and_never_exceeded(start_step, steps):
  sampler = data.ShuffleSampler(23, 5, 4)
  most = 0
  for seed in range(40):
    counts, key = np.zeros(23, int), _key(seed)
    for step in range(start_step, start_step + steps):
      counts[sampler.indices(key, step)] += 1
    most = max(most, counts.max())
  assert most == sampler.max_participations(start_step, steps)


def test_max_participations_without_amplification():
  assert _poisson().max_participations(3, 7) == 7
  assert data.FullBatchSampler(9, 4).max_participations(3, 7) == 7


def test_full_batch_is_everybody_at_every_step():
  sampler = data.FullBatchSampler(9, 4)
  assert sampler.indices(_key(0), 5).tolist() == list(range(9))
  assert (sampler.expected_batch_size, sampler.steps_per_epoch) == (9, 1)


# What the accountant is told.


def test_describe():
  poisson = data.PoissonSampler.from_batch_size(60000, 256, 128)
  assert poisson.describe() == {
    "kind": "poisson",
    "num_examples": 60000,
    "sampling_prob": 256 / 60000,
    "expected_batch_size": 256.0,
  }
  assert poisson.steps_per_epoch == 234
  shuffle = data.ShuffleSampler(1000, 300, 128)
  assert shuffle.describe() == {
    "kind": "shuffle",
    "num_examples": 1000,
    "expected_batch_size": 300.0,
    "steps_per_epoch": 4,
  }
  assert data.FullBatchSampler(10, 4).describe() == {
    "kind": "full_batch",
    "num_examples": 10,
    "expected_batch_size": 10.0,
  }
  for sampler in (poisson, shuffle):
    assert json.loads(json.dumps(sampler.describe())) == sampler.describe()


def test_the_physical_size_is_no_business_of_the_ledger():
  small = _poisson()
  large = dataclasses.replace(small, physical_batch_size=4096)
  assert small.describe() == large.describe()
  drawn = [sampler.indices(_key(1), 3) for sampler in (small, large)]
  np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize(
  ("build", "message"),
  [
    (
      lambda: data.PoissonSampler.from_batch_size(9, 10, 4),
      r"batch_size=10 <= n = 9\. A logical batch cannot be larger",
    ),
    (
      lambda: data.PoissonSampler.from_batch_size(9, 0.5, 4),
      r"Expected 1 <= batch_size=0\.5",
    ),
    (lambda: data.ShuffleSampler(9, 10, 4), r"batch_size=10 <= n = 9"),
    (
      lambda: data.ShuffleSampler(9, 4, 3, 3, drop_last=True),
      r"at most 2 whole batches of 4 from n = 9",
    ),
  ],
)
def test_bad_arguments_are_refused(build, message):
  with pytest.raises(ValueError, match=message):
    build()
