from __future__ import annotations

import dataclasses
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
    total = found.clipped_gradients.over_chunks(
      rows[:2], rows[2], found.run_state.seed(1)
    )
    both = bool(np.all(total.members.numpy() > 0))
    seen.setdefault(both, []).append(
      np.concatenate([u.ravel() for u in update])
    )
  assert len(seen[True]) > 50
  spread = np.stack(seen[True]).std(axis=0).mean()
  np.testing.assert_allclose(spread, math.sqrt(2) * 20, rtol=0.03)


def test_the_rule_of_line_16_with_numbers_from_a_naive_loop():
  """sigma_bar of a batch = the formula on S_min of Jacobians one by one."""
  found = cases.prepared(
    noise_per="batch", units="sum", amplification="steps", l2_clip_norm=0.8
  )
  rows = cases.batch()
  total = found.clipped_gradients.over_chunks(
    rows[:2], rows[2], found.run_state.seed(1)
  )
  non = _non_negative(found, rows, total)
  smallest = []
  for part in found._parts.slices:
    coefficient = tf.function(functools.partial(_coefficient, found, part))
    derivative = tf.function(functools.partial(_mixed, found.denoiser, part))
    matrix = 0
    for row in np.flatnonzero(non):
      a = coefficient(rows, tf.constant(row)).numpy()
      jacobian = derivative(rows[0][0, row]).numpy().astype(np.float64)
      matrix = matrix + a**2 * jacobian @ jacobian.T
    smallest.append(np.linalg.svd(matrix, compute_uv=False).min())
  expected = papers.extra_stddev(
    np.array(smallest) / 0.8**2, 0.25, 0.0, 1.5, found.planned_steps
  )
  # What is saved is small beside 1.5: compared by itself.
  saved = 1.5**2 - expected**2
  assert (saved > 0).all()
  np.testing.assert_allclose(
    1.5**2 - found._extra_stddev(total).numpy() ** 2, saved, rtol=0.02
  )


def _non_negative(found, rows, total):
  """Which examples have a remainder >= 0, for the noise of this step."""
  seed = randomness.fold_in(found.run_state.seed(1), 0)
  metrics = found.example_losses((rows[0][0], rows[1][0]), seed)[1]
  non = metrics["non_negative"].numpy()
  assert non.sum() == total.members[0].numpy()
  return non


def _coefficient(found, part, rows, row):
  """min(1, C / |slice of the gradient|) of one example."""
  seed = randomness.fold_in(found.run_state.seed(1), 0)
  with tf.GradientTape() as tape:
    losses = found.example_losses((rows[0][0], rows[1][0]), seed)[0]
    loss = losses[row]
  norm = tf.linalg.global_norm(tape.gradient(loss, part))
  return tf.minimum(1.0, found.config.l2_clip_norm / norm)


def _mixed(denoiser, part, target):
  """d/dtheta grad_x |g(x) - target|^2 at x = target, one row a parameter."""
  x = target[None]
  with tf.GradientTape(persistent=True) as outer:
    with tf.GradientTape() as inner:
      inner.watch(x)
      loss = tf.reduce_sum((denoiser(x) - target) ** 2)
    slope = inner.gradient(loss, x)[0]
  found = [outer.jacobian(slope, variable) for variable in part]
  flat = [tf.reshape(j, [slope.shape[0], -1]) for j in found]
  return tf.transpose(tf.concat(flat, axis=1))


@pytest.mark.parametrize(
  ("units", "factor"), [("sum", 1.0), ("paper", 1.0), ("mean", cases.BATCH)]
)
def test_units_of_the_noise(units, factor):
  found = cases.prepared(kind="norm", units=units, noise_per="batch")
  scales = _scales(found, cases.batch(mask=NOTHING))
  np.testing.assert_allclose(scales, 1.5 * factor, rtol=0.06)


def test_units_of_the_matrix():
  """Beside the sum, M_t of the paper is 1 / B^2 as large."""
  rows = cases.batch()
  savings = {}
  for units in ("sum", "paper"):
    found = cases.prepared(units=units, amplification="none", xi_up=1.5)
    total = found.clipped_gradients.over_chunks(
      rows[:2], rows[2], found.run_state.seed(1)
    )
    savings[units] = 1 - (found._extra_stddev(total).numpy() / 1.5) ** 2
  assert savings["sum"].max() > 0
  np.testing.assert_allclose(
    savings["sum"], cases.BATCH**2 * savings["paper"], rtol=1e-4, atol=1e-9
  )


def test_amplification_is_the_number_of_steps_or_epochs_or_none():
  found = {
    kind: cases.prepared(amplification=kind)._amplification
    for kind in ("steps", "epochs", "none")
  }
  assert found == {"steps": cases.STEPS, "epochs": 2.0, "none": 1.0}


def test_fixed_noise_belongs_to_the_example():
  found = cases.prepared(input_noise="fixed")
  x = tf.constant(cases.arrays(8)[0])
  first = found._noise_of(x, tf.constant([1, 2]))
  again = found._noise_of(x[::-1], tf.constant([3, 4]))[::-1]
  np.testing.assert_array_equal(first, again)
  assert len(np.unique(np.round(first[:, 0], 6))) == 8
  other = cases.prepared(input_noise="fixed", seed=4)
  assert not np.any(first == other._noise_of(x, tf.constant([1, 2])))
  many = tf.constant(cases.arrays(3000)[0])
  drawn = found._noise_of(many, None).numpy()
  np.testing.assert_allclose(drawn.std(), 0.25, rtol=0.03)
  fresh = cases.prepared()
  seeds = (tf.constant([1, 2]), tf.constant([3, 4]))
  assert not np.any(
    fresh._noise_of(x, seeds[0]) == fresh._noise_of(x, seeds[1])
  )


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


@pytest.mark.parametrize("objective", ["mse", "stability", "classification"])
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
  errors = found.denoiser(x) - x
  np.testing.assert_allclose(
    values["mse"], np.sum(errors**2, axis=1), rtol=1e-4
  )
  log_probs = tf.nn.log_softmax(found.network(x)).numpy()
  np.testing.assert_allclose(
    values["classification"], -log_probs[np.arange(4), y], rtol=1e-4
  )
  frozen = found.network.layers[-1]
  wanted = tf.nn.softmax(x @ frozen.kernel + frozen.bias).numpy()
  np.testing.assert_allclose(
    values["stability"], -(wanted * log_probs).sum(axis=1), rtol=1e-4
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
  paper = dataclasses.replace
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
  for name in ("amplification", "input_noise", "units", "noise_per"):
    with pytest.raises(ValueError, match=name):
      paper(cases.PAPER, **{name: "other"})


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
