"""One example moves no release further than its statement accounts.

Every combination for which a figure is called proven is run here, with its real
sampler and its real step, on data sets that differ by one example.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.laws import cases
from tests.laws import examples
from tests.laws import law
from tf_privrob import methods
from tf_privrob import models
from tf_privrob.methods import proven

pytestmark = pytest.mark.usefixtures("small_chunks")

_AT_ALL_SIZES = ("ordinary", "not a number")
_AT_FIRST_PLACE = ("ordinary", "another label", "high", "not a number")
# How much of the accounted shift some canary must reach: a measurement that
# never comes near the bound would not see it broken. Two rows of a shuffled
# epoch are rarely opposite, which the bound allows for.
_REACHED = {"poisson": 0.99, "shuffle": 0.6, "full_batch": 0.99}
_GRADIENTS = sorted(t for t in cases.TABLE if t[0] in cases.BY_GRADIENTS)


def test_proven_is_said_of_what_is_run_here_and_of_nothing_else():
  assert proven.COMBINATIONS == cases.TABLE


@pytest.mark.parametrize(("name", "kind"), _GRADIENTS)
def test_no_example_moves_a_clipped_sum_further_than_accounted(name, kind):
  bench = cases.BY_GRADIENTS[name].bench(kind, quiet=kind == "full_batch")
  assert bench.method.sampler == examples.planned(kind, examples.ROWS)
  shares = law.shares(bench, kind, examples.SIZES[0])
  assert max(shares.values()) >= _REACHED[kind]
  for size in examples.SIZES[1:]:
    law.shares(bench, kind, size, _AT_ALL_SIZES)
  if kind == "full_batch":  # no example draws for itself: any place will do
    law.shares(bench, kind, examples.SIZES[0], _AT_FIRST_PLACE, first=True)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "changes"),
  [
    ("DPSGD for Natural", {"jit_compile": True}),
    ("DPSGD for Natural", {"engine": "vectorized"}),
    ("DPSGD for Natural", {"engine": "loop"}),
    ("DPSGD for Natural", {"augmentation": "shift_flip", "optimizer": "adam"}),
    ("DPSGD for Smooth", {"regularizer": "stability"}),
    ("DPSGD for Smooth", {"regularizer": "macer", "attack_steps": 0}),
    ("PrivatePixelDP", {"projection": "parseval", "noise_ramp": True}),
    ("PrivatePixelDP", {"noise": "laplace", "attack_norm": "l1"}),
    ("SoundDPAL", {"features": "taylor", "adversarial_weight": 0.5}),
    ("SoundTransDenoiser", {"objective": "stability"}),
    ("SoundTransDenoiser", {"objective": "mse_then_stability"}),
    ("SoundTransDenoiser", {"objective": "classification"}),
    ("TransDenoiser", {"slice_clipping": "flat"}),
    ("TransDenoiser", {"units": "mean", "num_slices": 1}),
    ("TransDenoiser", {"input_noise": "fixed"}),
    ("DPSGD for Adversarial", {"adversarial_ratio": 1.0, "clip_start": False}),
    ("DPSGD for Trades", {"detach_clean": True}),
    ("DPSGD for WRM", {"norm": "l2"}),
    ("DPSGD for IBP", {"engine": "loop", "ramp": methods.Ramp(length="3")}),
    ("DPSGD for DiffAI", {"domain": "hybrid_zonotope", "engine": "vectorized"}),
    ("DPSGD for DualLoss", {"norm": "l1", "engine": "vectorized"}),
  ],
)
def test_other_settings_keep_the_law_too(name, changes):
  bench = cases.BY_GRADIENTS[name].bench("poisson", **changes)
  assert max(law.shares(bench, "poisson", examples.SIZES[0]).values()) > 0.9


def test_the_bound_of_a_shuffled_epoch_is_reached():
  """All rows alike, and a canary whose gradient is the opposite."""
  bench = cases.OPPOSITE.bench("shuffle")
  pair = law.pair_of("shuffle", examples.SIZES[0])
  x, y = np.ones((11, *examples.FLAT), "float32"), np.zeros(11, np.int64)
  without = law.run(bench, pair, x, y)
  with_it = law.run(bench, pair, x, y, (x[0], 1))
  accounted = bench.accounted(pair.steps)["parameters"]["noise_multiplier"]
  assert law.worst_share(pair, with_it, without, accounted) > 0.999


@pytest.mark.parametrize("name", list(cases.HALFSPACES))
def test_no_example_moves_a_sum_over_violations_further(name):
  bench = cases.HALFSPACES[name].bench("poisson")
  assert bench.method.sampler == examples.planned("poisson", examples.ROWS)
  shares = law.shares(bench, "poisson", examples.SIZES[0])
  assert shares["ordinary"] > 0.5
  for size in examples.SIZES[1:]:
    law.shares(bench, "poisson", size, _AT_ALL_SIZES)


def test_no_example_moves_a_count_of_violations_by_more_than_1():
  """Of Algorithm 1 as printed, whose counts have Laplace noise of scale 3."""
  bench = cases.AS_PRINTED.bench("poisson")
  pair = law.pair_of("poisson", examples.SIZES[0])
  x, y = examples.arrays(examples.FLAT, examples.SIZES[0][1])
  seen = {}
  for name, canary in {"": None, **examples.canaries(x, y)}.items():
    bench.outlet.counted = []
    law.run(bench, pair, x, y, canary)
    seen[name] = np.array(bench.outlet.counted)
  without = seen.pop("")
  moved = {float(m) for s in seen.values() for m in np.unique(s - without)}
  assert moved == {0.0, 1.0}
  assert (np.count_nonzero(seen["ordinary"] - without, axis=1) <= 1).all()


@pytest.mark.parametrize("size", examples.SIZES)
@pytest.mark.parametrize("classes", list(cases.PURE))
def test_no_example_moves_a_score_by_more_than_1_or_both_ways(classes, size):
  bench = cases.PURE[classes].bench("full_batch")
  assert bench.method.sampler == examples.planned("full_batch", examples.ROWS)
  unit = bench.accounted(1)
  pair = law.pair_of("full_batch", size)
  x, y = examples.arrays(examples.FLAT, size[1])
  y %= classes
  (without,) = law.run(bench, pair, x, y).noted
  moved = set()
  for row, label in examples.canaries(x, y).values():
    canary = row, label % classes
    (with_it,) = law.run(bench, pair, x, y, canary).noted
    assert with_it.sensitivity == 1
    assert with_it.sums[0].size == unit["count"] * bench.method.net_size
    moved |= set(np.unique(with_it.flat() - without.flat()))
  assert moved == {0.0, -1.0}


@pytest.mark.parametrize("kind", list(examples.PHYSICAL))
def test_batches_are_the_chunks_that_are_run_here(kind):
  sampler, key = examples.planned(kind, examples.ROWS), law.KEY
  x, y = examples.arrays(examples.FLAT)
  for step, batch in enumerate(sampler.batches(x, y, key, 0, 4)):
    rows = sampler.indices(key, step)
    mask = batch[2].numpy() > 0
    np.testing.assert_array_equal(batch[0].numpy()[mask], x[rows])
    np.testing.assert_array_equal(batch[1].numpy()[mask], y[rows])


@pytest.mark.parametrize("size", examples.SIZES)
def test_the_others_are_drawn_as_before_where_batches_are_poisson(size):
  pair = law.pair_of("poisson", size)
  drawn = [pair.takes_part(step) for step in range(pair.steps)]
  assert True in drawn
  assert False in drawn
  for step in range(pair.steps):
    rows = pair.larger.indices(law.KEY, step)
    others = pair.smaller.indices(pair.smaller_key, step)
    np.testing.assert_array_equal(rows[rows < size[1]], others)


@pytest.mark.parametrize("size", examples.SIZES)
def test_a_shuffled_epoch_is_dealt_as_the_proof_says(size):
  pair = law.pair_of("shuffle", size)
  for step in range(pair.steps):
    rows = set(pair.larger.indices(law.KEY, step))
    others = set(pair.smaller.indices(pair.smaller_key, step))
    assert len(rows - others) <= 1
    assert len(others - rows) <= 1
  assert all(len(unit) == pair.larger.steps_per_epoch for unit in pair.units())


# What is not run here is not called proven.

_RECORD = {
  "steps": 3,
  "sessions": 1,
  "noise_multiplier": 2.0,
  "sampling_prob": 0.5,
  "num_examples": 12,
  "participations": 3,
  "initial_weights": "drawn",
  "seeded": False,
  "outlet_multiplier": 2.0,
}


class Mine(methods.DPSGD):
  """A user's own method."""


class MyLoss(methods.Natural):
  """A user's own objective."""


def _stated(kind, sampler, objective=None, **facts):
  config = cases.BY_GRADIENTS["DPSGD for Natural"].method("poisson").config
  if objective is not None:
    config = dataclasses.replace(config, objective=objective)
  network = cases.smooth()
  weights = models.fingerprint(kind(network, config))
  record = {**_RECORD, "sampler": sampler, "weights": weights, **facts}
  return kind(network, config, record).privacy_statement()


def test_what_is_run_here_is_called_proven():
  assert _stated(methods.DPSGD, "poisson").proven is not None


def test_a_class_of_ones_own_is_not_called_proven():
  found = _stated(Mine, "poisson")
  assert (found.proven, found.gaussian_mu) == (None, None)
  assert (
    "Mine for Natural with sampler 'poisson' is not among" in found.caveats[0]
  )


@pytest.mark.parametrize("name", ["MyLoss", "Natural"])
def test_an_objective_of_ones_own_is_not_called_proven(name):
  objective = type(name, (MyLoss,), {})()
  found = _stated(methods.DPSGD, "poisson", objective)
  assert (found.proven, found.gaussian_mu) == (None, None)
  assert f"DPSGD for {name} with sampler 'poisson'" in found.caveats[0]


def test_a_class_that_takes_the_name_of_ours_is_not_called_proven():
  found = _stated(type("DPSGD", (Mine,), {}), "poisson")
  assert found.proven is None
  assert "DPSGD for Natural with sampler 'poisson'" in found.caveats[0]


def test_a_sampler_that_was_not_tried_is_not_called_proven(monkeypatch):
  left = proven.COMBINATIONS - {("DPSGD for Natural", "shuffle")}
  monkeypatch.setattr(proven, "COMBINATIONS", left)
  found = _stated(methods.DPSGD, "shuffle")
  assert found.proven is None
  assert (
    "DPSGD for Natural with sampler 'shuffle' is not among" in found.caveats[0]
  )


@pytest.mark.parametrize("name", sorted(cases.BY_GRADIENTS))
def test_only_the_samplers_of_the_table_are_tried(name):
  case = cases.BY_GRADIENTS[name]
  model = case.method("poisson")
  for kind in cases.ALL:
    assert proven.tried(model, kind) == (kind in case.samplers)
  assert not proven.tried(model, "one_of_my_own")


def test_noise_of_a_scale_that_follows_the_data_is_not_called_proven():
  """TransDenoiser as published: what it saves is read off the batch."""
  found = _stated(methods.DPSGD, "poisson", outlet_multiplier=None)
  assert found.proven is None
  bench = cases.BY_GRADIENTS["TransDenoiser"].bench("poisson", variant="paper")
  x, y = examples.arrays(examples.FLAT, 11)
  pair = law.pair_of("poisson", examples.SIZES[0])
  (noted, *_) = law.run(bench, pair, x, y).noted
  assert noted.stddevs is None
