import numpy as np
import pytest

from tf_privrob import data
from tf_privrob import randomness

_N, _M = 64, 6
_KINDS = [
  (order, paired)
  for order in ("random", "sequential", "partition")
  for paired in (True, False)
]


def _sampler(order="random", paired=True, num_examples=_N, batch_size=_M):
  return data.FixedBatchSampler(num_examples, batch_size, order, paired)


def _run(sampler, steps, seed=1):
  key = randomness.Key.of(seed)
  return [sampler.indices(key, step) for step in range(steps)]


@pytest.mark.parametrize(("order", "paired"), _KINDS)
@pytest.mark.parametrize("num_examples", [12, 13, 64, 71])
def test_batches_have_exactly_m_rows_and_share_none(
  order, paired, num_examples
):
  sampler = _sampler(order, paired, num_examples)
  for rows in _run(sampler, 50):
    assert len(set(rows.tolist())) == len(rows) == (12 if paired else 6)
    assert rows.min() >= 0
    assert rows.max() < num_examples


def test_random_batches_reach_everyone_in_both_roles():
  benign, sources = np.zeros(_N), np.zeros(_N)
  steps = 2000
  for rows in _run(_sampler("random"), steps):
    benign[rows[:_M]] += 1
    sources[rows[_M:]] += 1
  expected = steps * _M / _N
  bound = 5 * np.sqrt(expected * (1 - _M / _N))
  for counts in (benign, sources):
    assert np.abs(counts - expected).max() < bound
  # Roles of one example are independent of its place in the data.
  assert abs(np.corrcoef(benign, np.arange(_N))[0, 1]) < 0.5


@pytest.mark.parametrize("paired", [True, False])
def test_sequential_batches_are_slices_by_hand(paired):
  found = _run(_sampler("sequential", paired, num_examples=20), 4)
  slices = [np.arange(0, 6), np.arange(6, 12), np.arange(12, 18)]
  chosen = [[0, 1], [2, 0], [1, 2], [0, 1]] if paired else [[0], [1], [2], [0]]
  for rows, expected in zip(found, chosen):
    np.testing.assert_array_equal(
      rows, np.concatenate([slices[i] for i in expected])
    )


def _roles(sampler, steps):
  benign, sources = set(), set()
  for rows in _run(sampler, steps):
    benign |= set(rows[: sampler.batch_size].tolist())
    sources |= set(rows[sampler.batch_size :].tolist())
  return benign, sources


def test_released_mnist_code_never_changes_a_role():
  """Facts 1.8: 22 slices, so that no example is ever of both kinds."""
  sampler = _sampler("sequential", num_examples=55_000, batch_size=2499)
  parts = [rows[[0, 2499]] for rows in _run(sampler, 4002)]
  benign, sources = (set(column) for column in np.transpose(parts).tolist())
  assert len(benign) == len(sources) == 11
  assert not benign & sources
  # The rows behind these first rows, over one round of eleven steps.
  benign, sources = _roles(sampler, 11)
  assert len(benign) == len(sources) == 11 * 2499
  assert not benign & sources


def test_an_odd_number_of_slices_swaps_the_roles():
  benign, sources = _roles(_sampler("sequential", num_examples=5 * _M), 5)
  assert benign == sources == set(range(5 * _M))


@pytest.mark.parametrize("paired", [True, False])
def test_partition_walks_once_an_epoch_through_the_same_batches(paired):
  sampler = _sampler("partition", paired, num_examples=10 * _M + 3)
  length = sampler.steps_per_epoch
  assert length == (5 if paired else 10)
  rows = _run(sampler, 20 * length)
  orders = []
  for epoch in range(20):
    walked = np.concatenate(rows[epoch * length : (epoch + 1) * length])
    batches = walked.reshape(10, _M)
    starts = batches[:, 0]
    np.testing.assert_array_equal(batches, starts[:, None] + np.arange(_M))
    assert sorted(starts) == list(range(0, 10 * _M, _M))
    orders.append(tuple(starts))
  assert len(set(orders)) == 20


def test_partition_changes_roles_and_leaves_another_batch_out():
  sampler = _sampler("partition", num_examples=5 * _M)
  assert sampler.steps_per_epoch == 2
  benign, sources = _roles(sampler, 100)
  assert benign == sources == set(range(5 * _M))


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("order", ["random", "partition"])
def test_a_draw_depends_on_key_and_step_alone(order, paired):
  sampler = _sampler(order, paired, num_examples=600)
  whole = np.concatenate(_run(sampler, 40))
  np.testing.assert_array_equal(whole, np.concatenate(_run(sampler, 40)))
  np.testing.assert_array_equal(
    sampler.indices(randomness.Key.of(1), 33), _run(sampler, 40)[33]
  )
  assert (whole != np.concatenate(_run(sampler, 40, seed=2))).any()


def test_elements_are_the_rows_of_their_steps():
  rng = np.random.default_rng(0)
  x, y = rng.random((_N, 4, 3), "float32"), rng.integers(0, 9, _N)
  for paired in (True, False):
    sampler, key = _sampler(paired=paired), randomness.Key.of(3)
    batches = sampler.batches(x, y, key, start_step=5, steps=4)
    assert len(batches) == 4
    shapes = [spec.shape.as_list() for spec in batches.element_spec]
    assert shapes == [[_M, 4, 3], [_M]] * (2 if paired else 1)
    found = list(batches.as_numpy_iterator())
    assert len(found) == 4
    for step, element in enumerate(found, start=5):
      rows = sampler.indices(key, step)
      for part, (images, labels) in enumerate(zip(element[::2], element[1::2])):
        chosen = rows[part * _M : (part + 1) * _M]
        np.testing.assert_array_equal(images, x[chosen])
        np.testing.assert_array_equal(labels, y[chosen])
        assert images.dtype == x.dtype


def test_what_the_ledger_is_told():
  sampler = _sampler("partition")
  assert sampler.describe() == {
    "kind": "fixed",
    "num_examples": _N,
    "expected_batch_size": 6.0,
    "order": "partition",
    "paired": 1,
  }
  assert sampler.expected_batch_size == _M
  assert sampler.max_participations(3, 17) == 17


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ((10, 6), r"at least 12 .* received 10\. Lower batch_size to at most 5"),
    ((5, 6, "random", False), r"batch_size=6 <= n = 5"),
  ],
)
def test_bad_settings_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    data.FixedBatchSampler(*arguments)


@pytest.mark.parametrize(
  ("rows", "labels", "start_step", "steps", "message"),
  [
    (63, 64, 0, 2, "Expected x with num_examples=64 rows"),
    (64, 65, 0, 2, "Expected y with num_examples=64 rows"),
    (64, 64, 0, 0, "steps=0"),
    (64, 64, -1, 2, "start_step=-1"),
  ],
)
def test_bad_arguments_are_refused(rows, labels, start_step, steps, message):
  x, y = np.zeros((rows, 3), "float32"), np.zeros(labels, int)
  with pytest.raises(ValueError, match=message):
    _sampler().batches(x, y, randomness.Key.of(0), start_step, steps)
