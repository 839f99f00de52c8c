from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.methods import interrupt
from tests.papers.transdenoiser import transdenoiser_cases as cases
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.papers.transdenoiser import config as config_lib

pytestmark = pytest.mark.usefixtures("checked_once")

NOTHING = np.zeros(cases.BATCH, "float32")


def _scales(found, rows, draws=100):
  """Standard deviation of the update, variable by variable."""
  step = cases.Stepper(found)
  updates = [step(rows, seed) for seed in range(draws)]
  return [np.std(np.stack(parts), axis=0).mean() for parts in zip(*updates)]


# A step.


def test_sepdp_adds_one_draw_of_xi_up_clip_norms():
  """On an empty batch only the noise is left: right scale, and no other."""
  found = cases.prepared(variant="sepdp", l2_clip_norm=0.5)
  scales = _scales(found, cases.batch(mask=NOTHING))
  np.testing.assert_allclose(scales, 1.5 * 0.5, rtol=0.05)


@pytest.mark.slow
def test_an_empty_group_gets_no_noise_and_an_empty_batch_none_at_all():
  """Read literally, the lines 12 to 23 add noise to groups that exist."""
  found = cases.prepared(noise_per="group")
  assert max(_scales(found, cases.batch(mask=NOTHING), 20)) == 0
  found = cases.prepared(noise_per="batch")
  scales = _scales(found, cases.batch(mask=NOTHING))
  np.testing.assert_allclose(scales, 1.5, rtol=0.05)


@pytest.mark.slow
def test_both_groups_together_have_twice_the_variance():
  """With S_min = 0 by structure each group gets N(0, xi_up^2)."""
  found = cases.prepared(kind="norm", noise_per="group", xi_up=20.0)
  step, rows = cases.Stepper(found), cases.batch()
  seen = {}
  for seed in range(150):
    update = step(rows, seed)
    found.set_step(randomness.Key.of(seed).stateless_seed(), 0)
    total = cases.total(found, rows)
    both = bool(np.all(total.members.numpy() > 0))
    seen.setdefault(both, []).append(
      np.concatenate([u.ravel() for u in update])
    )
  assert len(seen[True]) > 50
  spread = np.stack(seen[True]).std(axis=0).mean()
  np.testing.assert_allclose(spread, math.sqrt(2) * 20, rtol=0.03)


@pytest.mark.parametrize(
  ("units", "factor"), [("sum", 1.0), ("mixed", 1.0), ("mean", cases.BATCH)]
)
def test_units_of_the_noise(units, factor):
  found = cases.prepared(kind="norm", units=units, noise_per="batch")
  scales = _scales(found, cases.batch(mask=NOTHING))
  np.testing.assert_allclose(scales, 1.5 * factor, rtol=0.06)


# Statements.


def _trained(config=cases.PAPER, kind="tanh", **changes):
  found = cases.method(config, kind, **changes)
  found.fit(*cases.arrays(), verbose=0)
  return found


@functools.cache
def _shared(config=cases.PAPER, kind="tanh", **changes):
  """A trained method that no test may change."""
  return _trained(config, kind, **changes)


def test_paper_claims_and_proves_nothing():
  statement = _shared().privacy_statement()
  release = privacy.poisson_sgd(1.5, cases.BATCH / cases.COUNT, cases.STEPS)
  assert statement.claimed.dp_epsilon == pytest.approx(
    privacy.dp_epsilon([release], 1e-3, "rdp")
  )
  assert statement.proven is None
  text = statement.text()
  for part in (
    "S_min of the private",
    "leaves with",
    "T S_min",
    "own if",
    "2 s",
  ):
    assert part in text


@pytest.mark.parametrize("clipping", ["per_slice", "flat"])
@pytest.mark.parametrize("constant", ["sepdp", "singular"])
def test_constant_noise_is_proven_with_all_slices_together(clipping, constant):
  if constant == "sepdp":
    found = _shared(variant="sepdp", slice_clipping=clipping)
  else:
    found = _trained(kind="norm", noise_per="batch", slice_clipping=clipping)
  multiplier = 1.5 / (math.sqrt(2) if clipping == "per_slice" else 1)
  release = privacy.poisson_sgd(
    multiplier, cases.BATCH / cases.COUNT, cases.STEPS
  )
  statement = found.privacy_statement()
  assert statement.proven.dp_epsilon == pytest.approx(
    privacy.dp_epsilon([release], 1e-3), rel=1e-3
  )
  assert ("one by one" in statement.text()) == (clipping == "per_slice")
  assert "T S_min" not in statement.text()
  assert "frozen classifier" in statement.text()


@pytest.mark.slow
def test_a_draw_for_each_group_is_never_constant():
  assert _shared(kind="norm").privacy_statement().proven is None


def test_sepdp_ends_where_what_is_proven_reaches_the_budget():
  """One example moves both slices, so that more is proven than is claimed."""
  found = _trained(variant="sepdp", dp_epsilon=8.0, epochs=config_lib.AS_PAID)
  statement = found.privacy_statement()
  assert statement.claimed.dp_epsilon < statement.proven.dp_epsilon <= 8
  prob = cases.BATCH / cases.COUNT
  assert found.planned_steps < privacy.max_steps(8.0, 1e-3, 1.5, prob, "rdp")
  steps = found.planned_steps + 1
  one_more = privacy.poisson_sgd(1.5 / math.sqrt(2), prob, steps)
  assert privacy.dp_epsilon([one_more], 1e-3, "rdp") > 8


def test_the_statement_says_where_s_min_is_kept():
  kept = _trained(refresh_every=2).privacy_statement().text()
  assert "computed at every 2th step" in kept
  assert "computed at every" not in _shared().privacy_statement().text()


def test_nodp_claims_nothing():
  statement = _trained(variant="nodp").privacy_statement()
  assert statement.claimed is None
  assert statement.proven is None
  assert "without noise on the gradients" in statement.text()


def test_tally_counts_singular_steps_and_savings():
  with_factor = _trained(units="sum").nonprivate_tally()
  assert [row["parameters"] for row in with_factor] == [56, 54]
  assert all(row["proof"] is None for row in with_factor)
  assert max(row["saving"] for row in with_factor) > 0
  for row in with_factor:
    assert row["saving"] >= row["saving_without_T"] >= 0
  singular = _shared(kind="norm").nonprivate_tally()
  assert [row["zero"] for row in singular] == [1.0, 1.0]
  assert [row["saving"] for row in singular] == [0.0, 0.0]
  assert all(row["proof"] for row in singular)
  with pytest.raises(ValueError, match="variant='paper'"):
    _shared(variant="sepdp", slice_clipping="flat").nonprivate_tally()


# The sound heir.


def test_sound_statement_is_that_of_dp_sgd():
  statement = _shared(cases.SOUND).privacy_statement()
  release = privacy.poisson_sgd(1.0, cases.BATCH / cases.COUNT, cases.STEPS)
  assert statement.proven.dp_epsilon == pytest.approx(
    privacy.dp_epsilon([release], 1e-3, "rdp"), rel=1e-3
  )
  assert statement.claimed == statement.proven
  assert "frozen classifier" in statement.text()


@pytest.mark.parametrize("objective", config_lib.OBJECTIVES)
def test_sound_neighbours_move_the_sum_by_the_clip_norm_at_most(objective):
  found = cases.prepared(cases.SOUND, objective=objective, l2_clip_norm=0.01)
  rows = cases.batch(6)
  seed = tf.constant([1, 2])
  arguments = (rows[0][0], rows[1][0])
  whole = found.clipped_gradients(arguments, seed=seed).gradients
  for row in range(6):
    without = found.clipped_gradients(
      arguments, 1.0 - tf.one_hot(row, 6), seed
    ).gradients
    moved = tf.linalg.global_norm([a - b for a, b in zip(whole, without)])
    assert 0.009 < float(moved) <= 0.01


def test_objectives_by_hand():
  x, y = (tf.constant(a) for a in cases.arrays(4))
  seed = tf.constant([5, 6])
  values = {}
  for objective in ("mse", "stability", "classification"):
    found = cases.prepared(cases.SOUND, objective=objective, input_stddev=1e-6)
    values[objective] = found.example_losses((x, y), seed)[0].numpy()
  both = cases.prepared(
    cases.SOUND,
    objective="mse_then_stability",
    mse_share=0.5,
    input_stddev=1e-6,
  )
  for step in range(cases.STEPS):
    both.set_step(np.array([1, 2]), step)
    name = "mse" if step < cases.STEPS / 2 else "stability"
    of_step = both.example_losses((x, y), seed)[0].numpy()
    np.testing.assert_allclose(of_step, values[name], rtol=1e-6)
  errors = found.denoiser(x) - x
  np.testing.assert_allclose(
    values["mse"], np.sum(errors**2, axis=1), rtol=1e-4
  )
  log_probs = tf.nn.log_softmax(found.network(x)).numpy()
  np.testing.assert_allclose(
    values["classification"], -log_probs[np.arange(4), y], rtol=1e-4
  )
  frozen = found.network.layers[-1]
  answers = np.argmax(x @ frozen.kernel + frozen.bias, axis=1)
  assert np.any(answers != y)
  np.testing.assert_allclose(
    values["stability"], -log_probs[np.arange(4), answers], rtol=1e-4
  )


def test_denoised_smoothing_learns_and_claims_nothing():
  found = _trained(
    papers.DenoisedSmoothingConfig(objective="mse", seed=3),
    batch_size=cases.BATCH,
    augmentation_multiplicity=2,
    learning_rate=0.03,
    epochs=60,
  )
  x = tf.constant(cases.arrays(200, seed=9)[0])
  noisy = x + found.input_noise(x.shape, tf.constant([1, 2]))
  start = cases.denoiser()
  before = tf.reduce_mean((start(noisy) - x) ** 2)
  after = tf.reduce_mean((found.denoiser(noisy) - x) ** 2)
  assert after < 0.25 * before
  statement = found.privacy_statement()
  assert statement.claimed is None
  assert statement.proven is None


# Any classifier, from memory or from a file.


@pytest.mark.parametrize("kind", ["model", "path"])
def test_any_classifier_can_be_the_frozen_one(kind, tmp_path):
  frozen = cases.classifier()
  frozen.layers[-1].bias.assign([1.0, 2.0, 3.0])  # as if trained
  given = frozen
  if kind == "path":
    given = tmp_path / "classifier.keras"
    frozen.save(given)
  found = papers.SoundTransDenoiser(
    cases.denoiser(), cases.SOUND, classifier=given
  )
  before = [w.numpy() for w in frozen.weights]
  start = [w.numpy() for w in found.network.trainable_variables]
  found.fit(*cases.arrays(), verbose=0)
  last = found.network.layers[-1]
  for value, weight in zip(before, last.weights):
    np.testing.assert_array_equal(value, weight)
  moved = [
    np.abs(a - b.numpy()).max()
    for a, b in zip(start, found.network.trainable_variables)
  ]
  assert len(moved) == 4
  assert min(moved) > 0


@pytest.mark.parametrize("config", [cases.PAPER, cases.SOUND])
def test_save_and_load(config, tmp_path):
  found = _shared(config)
  found.save(tmp_path / "model.keras")
  loaded = tf.keras.models.load_model(tmp_path / "model.keras", compile=False)
  x = cases.arrays()[0]
  np.testing.assert_array_equal(found(x), loaded(x))
  np.testing.assert_array_equal(found.denoiser(x), loaded.denoiser(x))
  assert loaded.privacy_statement() == found.privacy_statement()
  assert loaded.certifier().smoothing_stddev == config.input_stddev
  if config is cases.PAPER:
    assert loaded.nonprivate_tally() == found.nonprivate_tally()


@pytest.mark.parametrize("config", [cases.PAPER, cases.SOUND])
def test_the_same_seed_gives_the_same_run(config):
  weights = _shared(config).network.get_weights()
  for one, other in zip(weights, _trained(config).network.get_weights()):
    np.testing.assert_array_equal(one, other)


def test_resume_keeps_claim_and_tally(tmp_path):
  first = cases.method()
  with pytest.raises(KeyboardInterrupt):
    first.fit(
      *cases.arrays(),
      run_dir=tmp_path / "run",
      callbacks=[interrupt.StopAfter(2)],
      verbose=0,
    )
  second = cases.method()
  second.fit(*cases.arrays(), run_dir=tmp_path / "run", resume=True, verbose=0)
  assert second.run_record["sessions"] == 2
  assert second.run_record["steps"] >= cases.STEPS
  changed = cases.method(xi_up=1.6)
  with pytest.raises(ValueError, match="xi_up"):
    changed.fit(
      *cases.arrays(), run_dir=tmp_path / "run", resume=True, verbose=0
    )


# Bad input.


def test_bad_settings():

  def paper(settings, **changes):
    return settings.changed(**changes)

  with pytest.raises(ValueError, match=r"xi_low=2.0 <= xi_up=1.5"):
    paper(cases.PAPER, xi_low=2.0)
  with pytest.raises(ValueError, match="noise_multiplier=None"):
    paper(cases.PAPER, noise_multiplier=1.0)
  with pytest.raises(ValueError, match="SoundTransDenoiserConfig"):
    paper(cases.PAPER, variant="sound")
  with pytest.raises(ValueError, match="Did you mean 'sepdp'"):
    paper(cases.PAPER, variant="sepdb")
  with pytest.raises(ValueError, match="SoundTransDenoiser takes copies"):
    paper(cases.PAPER, augmentation_multiplicity=2)
  with pytest.raises(ValueError, match="set input_stddev"):
    paper(cases.SOUND, augmentation="noise")


def test_a_slice_beyond_the_limit_says_what_to_do():
  with pytest.raises(ValueError, match=r"max_slice_size=50.*more slices"):
    cases.prepared(max_slice_size=50)
  cases.prepared(kind="norm", max_slice_size=50)  # proven, so never computed
  with pytest.raises(ValueError, match="Lower num_slices"):
    cases.prepared(num_slices=3)


def test_a_denoiser_that_changes_the_shape_is_refused():
  narrow = tf.keras.Sequential(
    [tf.keras.layers.Input((cases.SIZE,)), tf.keras.layers.Dense(4)]
  )
  with pytest.raises(ValueError, match=r"\(6,\).*\(4,\)"):
    papers.SoundTransDenoiser(
      narrow, cases.SOUND, classifier=cases.classifier()
    )


def test_data_of_another_shape_or_range_are_refused():
  x, y = cases.arrays()
  found = cases.method(cases.SOUND)
  with pytest.raises(ValueError, match=r"shape \(6,\)"):
    found.fit(x[:, :5], y, verbose=0)
  ranged = papers.SoundTransDenoiser(
    cases.denoiser(),
    cases.SOUND,
    classifier=cases.classifier(),
    classifier_range=(-1.0, 1.0),
  )
  with pytest.raises(ValueError, match=r"Expected inputs in \(-1.0, 1.0\)"):
    ranged.fit(x, y, verbose=0)


def test_public_data_that_overlap_are_refused_before_any_budget(tmp_path):
  x, y = cases.arrays()
  found = papers.SoundTransDenoiser(
    cases.denoiser(),
    cases.SOUND,
    classifier=cases.classifier(),
    public_data=np.concatenate([cases.arrays(5, seed=8)[0], x[3:4]]),
  )
  with pytest.raises(ValueError, match="1 of 96 occur in both"):
    found.fit(x, y, run_dir=tmp_path / "run", verbose=0)
  assert not (tmp_path / "run").exists()
  disjoint = papers.SoundTransDenoiser(
    cases.denoiser(),
    cases.SOUND,
    classifier=cases.classifier(),
    public_data=cases.arrays(5, seed=8)[0],
  )
  disjoint.fit(x, y, verbose=0)
  assert "compared by hash" in disjoint.privacy_statement().text()


def test_a_network_without_a_denoiser_is_refused():
  with pytest.raises(ValueError, match="denoised_classifier"):
    papers.SoundTransDenoiser(cases.classifier(), cases.SOUND)
