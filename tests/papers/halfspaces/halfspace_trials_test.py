import dataclasses

import numpy as np
import pytest

from tests.papers.halfspaces import halfspace_cases as cases
from tf_privrob import data
from tf_privrob import papers
from tf_privrob.papers.halfspaces import trials as halfspace_trials

COUNT, DIMENSION, CLASSES = 300, 7, 3


def _arrays(seed=0):
  rng = np.random.default_rng(seed)
  x = cases.unit(rng.normal(size=(COUNT, DIMENSION)))
  return x, rng.integers(0, CLASSES, COUNT)


def _trials(**changes):
  settings = {
    "num_classes": CLASSES,
    "batch_size": 2,
    "margins": (0.5, 0.05),
    "stddevs": (0.0, 0.7),
    "trials": 3,
    "epochs": 1.03,
    "seed": 5,
    **changes,
  }
  return papers.Trials(**settings)


def _by_loop(trials, block, x, y, trial, margin, stddev):
  """One run with the batches and the noise of the program, step by step."""
  shared = trials.composition != "independent_batches"
  steps = trials.steps(COUNT)
  draws = [
    data.poisson_rows(
      COUNT,
      trials.batch_size / COUNT,
      steps,
      np.random.default_rng([trials.seed, trial, 0 if shared else k, 0]),
    )
    for k in range(CLASSES)
  ]
  rng = np.random.default_rng([trials.seed, trial, 0, 1])
  weights = np.zeros((DIMENSION, CLASSES))
  noise = None
  for step in range(steps):
    rows = [drawn[drawn_steps == step] for drawn_steps, drawn in draws]
    if trials.composition == "kesler":
      noise = rng.standard_normal((DIMENSION, CLASSES), np.float32)
      update = cases.kesler_step(x[rows[0]], y[rows[0]], weights, margin)
    else:
      if step % block == 0:
        drawn = rng.standard_normal((CLASSES, block, DIMENSION), np.float32)
      noise = drawn[:, step % block].T
      update = np.stack(
        [
          cases.binary_step(x[rows[k]], y[rows[k]], weights[:, k], k, margin)
          for k in range(CLASSES)
        ],
        axis=1,
      )
    weights = weights + update + stddev * noise
  return weights


@pytest.mark.parametrize("composition", halfspace_trials.COMPOSITIONS)
@pytest.mark.parametrize(
  ("batch_size", "block"), [(1, 16), (2, 8), (5, 3), (40, 1)]
)
def test_all_at_once_is_one_by_one(composition, batch_size, block):
  """Blocks that do not divide the steps, too: 1.03 epochs."""
  x, y = _arrays()
  trials = _trials(composition=composition, batch_size=batch_size)
  found = trials.train(x, y)
  assert found.shape == (3, 2, 2, DIMENSION, CLASSES)
  for trial in (0, 2):
    for i, margin in enumerate(trials.margins):
      for j, stddev in enumerate(trials.stddevs):
        expected = _by_loop(trials, block, x, y, trial, margin, stddev)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
          found[trial, i, j], expected, atol=2e-5 * scale
        )


def test_memory_cuts_trials_into_parts_without_changing_them(
  monkeypatch, capsys
):
  """31 steps, one a block: of all trials at once, or of each by itself."""
  x, y = _arrays()
  trials, found = _trials(batch_size=10, trials=4), {}
  for memory, blocks in ((2**24, 31), (700, 4 * 31)):
    monkeypatch.setattr(halfspace_trials, "_MEMORY", memory)
    found[memory] = trials.train(x, y, progress=True)
    assert f"blocks: {blocks}/{blocks}" in capsys.readouterr().err
  np.testing.assert_allclose(found[700], found[2**24], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("composition", halfspace_trials.COMPOSITIONS)
def test_noise_adds_up_over_the_steps(composition):
  """With margin > 1 all is violated, so that noise is all that differs."""
  x, y = _arrays()
  trials = _trials(
    composition=composition,
    margins=(2.0,),
    stddevs=(0.0, 3.0),
    trials=40,
    batch_size=30,
    epochs=1.0,
  )
  if composition == "kesler":  # the rival depends on the weights
    trials = dataclasses.replace(trials, epochs=0.1)
  found = trials.train(x, y)
  noise = found[:, 0, 1] - found[:, 0, 0]
  expected = 3.0 * np.sqrt(trials.steps(COUNT))
  assert noise.std() == pytest.approx(expected, rel=0.08)
  flat = noise.reshape(40, -1)
  correlation = np.corrcoef(flat)[np.triu_indices(40, 1)]
  assert np.abs(correlation).mean() < 0.3  # 1 / sqrt(21) is 0.22


def test_classes_share_a_batch_only_if_asked():
  x, y = _arrays()
  found = {
    name: _trials(
      composition=name, margins=(2.0,), stddevs=(0.0,), epochs=0.2
    ).train(x, y)[:, 0, 0]
    for name in ("independent_batches", "shared_batch")
  }
  # sum_k y_k = 2 - K for every example: with one batch the sums agree.
  sums = {name: weights.sum(axis=2) for name, weights in found.items()}
  shared = found["shared_batch"]
  rows = [
    data.poisson_rows(COUNT, 2 / COUNT, 30, np.random.default_rng([5, t, 0, 0]))
    for t in range(3)
  ]
  total = np.stack([x[r].sum(axis=0) for _, r in rows])
  np.testing.assert_allclose(sums["shared_batch"], -total, atol=1e-4)
  assert np.abs(sums["independent_batches"] + total).max() > 0.1
  assert shared.shape == (3, DIMENSION, CLASSES)


def test_seed_decides():
  x, y = _arrays()
  first = _trials().train(x, y)
  np.testing.assert_array_equal(first, _trials().train(x, y))
  assert not np.array_equal(first, _trials(seed=6).train(x, y))
  assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"composition": "paper_literal"}, "composition='paper_literal'"),
  ],
)
def test_bad_settings(changes, message):
  with pytest.raises(ValueError, match=message):
    _trials(**changes)


def test_bad_data():
  x, y = _arrays()
  with pytest.raises(ValueError, match=r"norm at most 1, received 2"):
    _trials().train(2 * x, y)
  with pytest.raises(ValueError, match=r"received max 4 in labels"):
    _trials().train(x, y + 2)
  with pytest.raises(ValueError, match="batch_size=301"):
    _trials(batch_size=301).train(x, y)
