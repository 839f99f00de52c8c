from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import data
from tf_privrob import randomness

_KEY = randomness.Key.of(3)


def _examples(num_examples):
  """Inputs and labels from which a row's number can be read back."""
  rows = np.arange(num_examples)
  x = (rows[:, np.newaxis] + [1, 1000]).astype(np.float32)
  return x, rows + 1


def _check_delivery(element, drawn, physical_batch_size):
  """Every drawn example is delivered exactly once, and nobody else."""
  x, y, mask = (np.asarray(part) for part in element)
  chunks = max(1, -(-len(drawn) // physical_batch_size))
  assert x.shape == (chunks, physical_batch_size, 2)
  assert y.shape == mask.shape == (chunks, physical_batch_size)
  assert mask.dtype == np.float32
  assert set(np.unique(mask)) <= {0.0, 1.0}
  assert mask.sum() == len(drawn)
  valid = mask == 1
  np.testing.assert_array_equal(x[valid][:, 0] - 1, drawn)
  np.testing.assert_array_equal(x[valid][:, 1] - 1000, drawn)
  np.testing.assert_array_equal(y[valid] - 1, drawn)
  assert not x[~valid].any()
  assert not y[~valid].any()


@hypothesis.given(
  drawn=st.lists(st.integers(0, 29), unique=True),
  physical_batch_size=st.integers(1, 40),
)
def test_chunks_hold_every_index_exactly_once(drawn, physical_batch_size):
  element = data.gather_chunks(
    *_examples(30), np.array(drawn, np.int64), physical_batch_size
  )
  _check_delivery(element, drawn, physical_batch_size)


def test_chunks_by_hand():
  x, y, mask = data.gather_chunks(*_examples(9), np.array([8, 0, 5]), 2)
  assert x[..., 0].tolist() == [[9, 1], [6, 0]]
  assert y.tolist() == [[9, 1], [6, 0]]
  assert mask.tolist() == [[1, 1], [1, 0]]


def test_an_empty_draw_is_one_masked_chunk():
  x, y, mask = data.gather_chunks(*_examples(9), np.array([], np.int64), 4)
  assert x.shape == (1, 4, 2)
  assert not x.any()
  assert not y.any()
  assert not mask.any()


_SAMPLERS = [
  data.PoissonSampler(60, 0.1, 4),  # most steps overflow the first chunk
  data.PoissonSampler(60, 0.01, 4),  # most steps are empty
  data.ShuffleSampler(60, 25, 10),
  data.FullBatchSampler(60, 16),
]


@pytest.mark.parametrize("sampler", _SAMPLERS)
def test_batches_deliver_the_draws(sampler):
  batches = sampler.batches(*_examples(60), _KEY, 5, 30)
  assert batches.cardinality() == 30
  elements = list(batches.as_numpy_iterator())
  assert len(elements) == 30
  for step, element in enumerate(elements, start=5):
    drawn = sampler.indices(_KEY, step)
    _check_delivery(element, drawn, sampler.physical_batch_size)


def test_empty_and_overflowing_steps_both_occur():
  sizes = [
    {len(sampler.indices(_KEY, step)) for step in range(5, 35)}
    for sampler in _SAMPLERS[:2]
  ]
  assert max(sizes[0]) > 8  # three chunks
  assert 0 in sizes[1]


def test_a_pipeline_that_drops_the_overflow_is_caught(monkeypatch):
  from tf_privrob.data import batching

  sampler = _SAMPLERS[0]
  honest = batching.gather_chunks

  def first_chunk_only(x, y, indices, size):
    return honest(x, y, indices[:size], size)

  monkeypatch.setattr(batching, "gather_chunks", first_chunk_only)
  with pytest.raises(AssertionError):
    test_batches_deliver_the_draws(sampler)


@pytest.mark.parametrize("sampler", _SAMPLERS)
def test_shapes_are_static_and_the_graph_is_traced_once(sampler):
  physical = sampler.physical_batch_size
  batches = sampler.batches(*_examples(60), _KEY, 0, 30)
  assert [spec.shape.as_list() for spec in batches.element_spec] == [
    [None, physical, 2],
    [None, physical],
    [None, physical],
  ]
  assert [spec.dtype for spec in batches.element_spec] == [
    tf.float32,
    tf.int64,
    tf.float32,
  ]
  traces = []

  @tf.function
  def count(iterator):
    traces.append(1)
    x, _, mask = next(iterator)
    return tf.reduce_sum(mask), tf.shape(x)[0]

  iterator = iter(batches)
  results = [count(iterator) for _ in range(30)]
  assert len(traces) == 1
  drawn = [len(sampler.indices(_KEY, step)) for step in range(30)]
  assert [int(total) for total, _ in results] == drawn
  if sampler.kind == "poisson" and sampler.sampling_prob == 0.1:
    assert len({int(chunks) for _, chunks in results}) > 1


@pytest.mark.parametrize("sampler", _SAMPLERS)
def test_batches_can_begin_at_any_step(sampler):
  x, y = _examples(60)
  whole = list(sampler.batches(x, y, _KEY, 0, 12).as_numpy_iterator())
  later = list(sampler.batches(x, y, _KEY, 7, 5).as_numpy_iterator())
  for expected, element in zip(whole[7:], later):
    for a, b in zip(expected, element):
      np.testing.assert_array_equal(a, b)


def test_keras_fit_reads_on_from_epoch_to_epoch():
  """As documented: one fit with steps_per_epoch never repeats a draw."""
  sampler = data.PoissonSampler(60, 0.1, 4)
  totals = []

  class Count(tf.keras.Model):
    def train_step(self, element):
      _, _, mask = element
      tf.py_function(lambda m: totals.append(int(m)), [tf.reduce_sum(mask)], [])
      return {"total": tf.reduce_sum(mask)}

  model = Count()
  model.compile()
  batches = sampler.batches(*_examples(60), _KEY, 0, 12)
  model.fit(batches, epochs=3, steps_per_epoch=4, verbose=0)
  assert totals == [len(sampler.indices(_KEY, step)) for step in range(12)]


def test_the_data_are_not_copied_or_changed():
  x, y = _examples(60)
  x.flags.writeable = y.flags.writeable = False
  before = x.copy()
  list(_SAMPLERS[0].batches(x, y, _KEY, 0, 5))
  np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (
      {"x": np.zeros((59, 2), np.float32)},
      r"x with num_examples=60 rows.*\(59",
    ),
    ({"y": np.zeros(61, int)}, r"y with num_examples=60 rows.*\(61,\)"),
    ({"steps": 0}, r"steps=0 to be a whole number >= 1"),
    ({"start_step": -1}, r"start_step=-1 to be a whole number >= 0"),
  ],
)
def test_bad_arguments_are_refused_before_the_first_step(change, message):
  x, y = _examples(60)
  arguments = {
    **{"x": x, "y": y, "key": _KEY, "start_step": 0, "steps": 1},
    **change,
  }
  with pytest.raises(ValueError, match=message):
    _SAMPLERS[0].batches(**arguments)


@pytest.mark.parametrize(
  ("shape", "device", "expected"),
  [
    ((28, 28, 1), "CPU", 128),
    ((28, 28, 1), "GPU", 1024),
    ((32, 32, 3), "CPU", 64),
    ((8, 8, 1), "CPU", 512),
    ((192, 168, 1), "CPU", 16),
    ((192, 168, 1), "GPU", 128),
  ],
)
def test_default_physical_batch_size(shape, device, expected):
  assert data.default_physical_batch_size(shape, device=device) == expected


@pytest.mark.parametrize("batch_size", [1, 60, 256, 300, 1024, 8192])
def test_default_physical_batch_size_leaves_room_for_poisson_draws(batch_size):
  physical = data.default_physical_batch_size(
    (28, 28, 1), batch_size, device="CPU"
  )
  sampler = data.PoissonSampler.from_batch_size(60000, batch_size, physical)
  sizes = np.array([len(sampler.indices(_KEY, step)) for step in range(200)])
  rows = physical * np.maximum(1, -(-sizes // physical))
  assert physical <= 1.5 * 128 + 16
  # Padding costs little: two standard deviations and rounding to sixteens.
  # (Chunks of exactly 256 would average 384 rows for batches of 256.)
  assert rows.mean() <= batch_size + 3 * np.sqrt(batch_size) + 16


@pytest.mark.parametrize(("batch_size", "expected"), [(1024, 128), (288, 144)])
def test_fixed_batches_have_no_padding(batch_size, expected):
  physical = data.default_physical_batch_size(
    (28, 28, 1), batch_size, fixed_size=True, device="CPU"
  )
  assert physical == expected


def test_unknown_device_is_refused():
  with pytest.raises(ValueError, match="Unknown device='TPU'"):
    data.default_physical_batch_size((28, 28, 1), device="TPU")
