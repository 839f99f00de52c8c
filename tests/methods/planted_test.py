"""Canary gradients: what they add, what is seen of them, which bugs show."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests import marking
from tf_privrob import data
from tf_privrob import gradients
from tf_privrob import methods
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.gradients import factors
from tf_privrob.methods import outlet
from tf_privrob.methods import planted

ROWS, CLASSES, CANARIES, STEPS, BATCH = 240, 4, 1500, 40, 60
RNG = np.random.default_rng(5)
X = RNG.random((ROWS, 8, 8, 1)).astype(np.float32)
Y = RNG.integers(0, CLASSES, ROWS)
CLIP = 0.5


def network():
  return tf.keras.Sequential(
    [
      tf.keras.layers.Input((8, 8, 1)),
      tf.keras.layers.Conv2D(8, 3, 2, activation="tanh"),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(20, activation="tanh"),
      tf.keras.layers.Dense(CLASSES),
    ]
  )


def trained(noise=1.0, canaries=CANARIES, seed=3, method=methods.DPSGD, **more):
  settings = {
    "noise_multiplier": noise,
    "dp_epsilon": 1e4,
    "dp_delta": 1e-3,
    "batch_size": BATCH,
    "epochs": STEPS * BATCH / ROWS,
    "learning_rate": 0.1,
    "l2_clip_norm": CLIP,
    "seed": 0,
    **more,
  }
  model = method(network(), method.config_class(**settings))
  model.planted = planted.Planted(canaries, seed)
  model.fit(X, Y, verbose=0)
  return model


def audited(model):
  record = model.run_record
  return privacy.audit_planted(
    model.planted.nonprivate_seen,
    model.planted.included,
    record["noise_multiplier"],
    record["sampling_prob"],
    1e-3,
    groups=model.planted.groups,
  )


def proven(model):
  return model.privacy_statement().proven.dp_epsilon


# What they add.


def summed(engine, numbers, mask=None):
  """The sum of all real rows and of these canaries, and of real rows alone."""
  net = network()

  def loss(batch, seed):
    del seed
    images, labels = batch
    return tf.keras.losses.sparse_categorical_crossentropy(
      labels, net(images), from_logits=True
    )

  clipped = gradients.ClippedGradients(loss, net, CLIP, engine)
  canaries = planted.Planted(CANARIES, 7)
  joined = canaries.join(clipped)
  sampler = canaries.sampler(data.PoissonSampler(ROWS, 0.5, 16))
  rows = np.concatenate([np.arange(20), ROWS + np.asarray(numbers, int)])
  images, labels, weights = sampler.element(X, Y, rows)
  both = joined.over_chunks((images, labels), tf.constant(weights))
  real = clipped.over_chunks(
    tuple(data.gather_chunks(X, Y, np.arange(20), 16)[:2]),
    tf.constant(data.gather_chunks(X, Y, np.arange(20), 16)[2]),
  )
  places = canaries.places(clipped.variables)
  flat = [
    np.concatenate([np.ravel(g) for g in found.gradients])
    for found in (both, real)
  ]
  return flat, places, both, real


@pytest.mark.parametrize("engine", gradients.ENGINES)
def test_a_canary_adds_one_clip_norm_in_a_coordinate_of_its_own(engine):
  (both, real), places, *_ = summed(engine, [0, 3, 700, 1499])
  added = both - real
  present = places[[0, 3, 700, 1499]]
  assert added[present] == pytest.approx(CLIP, rel=0.02)
  assert (added[present] <= CLIP).all()
  assert not np.delete(added, present).any()


def test_metrics_and_counts_are_those_of_real_rows():
  _, _, both, real = summed(None, [1, 2])
  assert float(both.count) == 20
  assert float(both.loss) == pytest.approx(float(real.loss))
  assert float(both.clipped) == float(real.clipped)


def test_a_batch_without_canaries_is_that_of_real_rows():
  (both, real), *_ = summed(None, [])
  assert np.array_equal(both, real)


def test_no_two_canaries_share_a_coordinate():
  variables = network().trainable_variables
  places = planted.Planted(CANARIES, 1).places(variables)
  assert len(set(places)) == CANARIES
  with pytest.raises(ValueError, match=r"num_canaries=100000 <= \d+, the numb"):
    planted.Planted(100_000, 1).places(variables)


# Who takes part.


def test_canaries_are_drawn_as_examples_are():
  canaries = planted.Planted(4000, 2)
  sampler = canaries.sampler(data.PoissonSampler(ROWS, 0.25, 16))
  key = randomness.Key.of(1)
  drawn = [sampler.indices(key, step) for step in range(60)]
  counts = np.bincount(np.concatenate(drawn), minlength=ROWS + 4000) / 60
  inside = counts[ROWS:][canaries.included]
  assert not counts[ROWS:][~canaries.included].any()
  assert inside.mean() == pytest.approx(0.25, abs=0.005)
  assert counts[:ROWS].mean() == pytest.approx(0.25, abs=0.015)
  assert 0.47 < canaries.included.mean() < 0.53


def test_divisor_and_what_the_accountant_is_told_are_those_of_real_rows():
  plain = data.PoissonSampler(ROWS, 0.25, 16)
  sampler = planted.Planted(4000, 2).sampler(plain)
  assert sampler.expected_batch_size == plain.expected_batch_size
  assert sampler.describe() == plain.describe()
  assert sampler.most_rows > plain.most_rows


def test_batches_that_hide_who_comes_are_refused():
  shuffled = data.ShuffleSampler(ROWS, 60, 16)
  with pytest.raises(ValueError, match="Expected Poisson or full batches"):
    planted.Planted(10, 2).sampler(shuffled)


# What is seen.


def test_what_is_seen_is_who_took_part_and_noise_of_the_accounted_size():
  model = trained(noise=0.08)
  canaries, prob = model.planted, model.run_record["sampling_prob"]
  assert canaries.nonprivate_seen.shape == (STEPS, CANARIES)
  took_part = np.round(canaries.nonprivate_seen)
  assert set(np.unique(took_part)) == {0, 1}
  assert not took_part[:, ~canaries.included].any()
  share = took_part[:, canaries.included].mean()
  assert share == pytest.approx(prob, abs=0.01)
  noise = canaries.nonprivate_seen[:, ~canaries.included]
  assert noise.std() == pytest.approx(0.08, rel=0.02)
  assert np.corrcoef(noise)[0, 1:] == pytest.approx(0, abs=0.15)


@pytest.mark.slow
def test_regularisers_and_full_batches_do_not_count_as_canaries():
  def regularised():
    net = network()
    net.layers[0].kernel_regularizer = tf.keras.regularizers.L2(0.1)
    return tf.keras.models.clone_model(net)

  config = methods.DPSGDConfig(
    noise_multiplier=0.08,
    dp_epsilon=1e4,
    dp_delta=1e-3,
    sampler="full_batch",
    epochs=3,
    learning_rate=0.1,
    l2_clip_norm=CLIP,
  )
  model = methods.DPSGD(regularised(), config)
  model.planted = planted.Planted(300, 1)
  model.fit(X, Y, verbose=0)
  seen = model.planted.nonprivate_seen
  assert seen.shape == (3, 300)
  assert (np.round(seen) == model.planted.included).all()


@pytest.mark.slow
def test_a_training_with_canaries_states_what_one_without_states():
  config = methods.DPSGDConfig(
    noise_multiplier=1.0,
    dp_epsilon=1e4,
    dp_delta=1e-3,
    batch_size=BATCH,
    epochs=STEPS * BATCH / ROWS,
  )
  alone = methods.DPSGD(network(), config)
  alone.fit(X, Y, verbose=0)
  stated = [
    (found.proven, found.releases)
    for found in (alone.privacy_statement(), trained().privacy_statement())
  ]
  assert stated[0] == stated[1]


def test_what_is_seen_is_kept_nowhere_and_the_statement_says_so(tmp_path):
  model = trained(canaries=20, epochs=BATCH / ROWS)
  assert model.planted.nonprivate_seen.shape == (1, 20)  # no rehearsal in it
  assert "tells exact sums" in str(model.privacy_statement())
  config = methods.DPSGDConfig(noise_multiplier=1.0, dp_epsilon=1e4)
  model = methods.DPSGD(network(), config)
  model.planted = planted.Planted(20, 1)
  with pytest.raises(ValueError, match="no run_dir for a training with can"):
    model.fit(X, Y, run_dir=tmp_path, verbose=0)
  assert not [*tmp_path.iterdir()]


# Which bugs show.


def test_a_sound_training_is_audited_below_and_near_its_proof():
  model = trained()
  found = audited(model)
  assert proven(model) / 2 < found.audited <= proven(model)
  assert found.statistic == "likelihood ratio"
  assert found.noise_found == pytest.approx(1, abs=0.01)
  assert 0 < found.any_mechanism < found.audited


def half_the_noise(monkeypatch):
  real = randomness.Key.normal
  monkeypatch.setattr(
    randomness.Key, "normal", lambda self, count: real(self, count) / 2
  )


def noise_used_again(monkeypatch):
  real = randomness.Key.normal
  monkeypatch.setattr(
    randomness.Key,
    "normal",
    lambda self, count: real(randomness.Key.of(count), count),
  )


def one_noise_for_all(monkeypatch):
  real = randomness.Key.normal
  monkeypatch.setattr(
    randomness.Key, "normal", lambda self, count: np.tile(real(self, 1), count)
  )


def no_clipping(monkeypatch):
  monkeypatch.setattr(
    factors, "norms", lambda squares: tf.zeros_like(squares[0])
  )


def clipping_without_one_layer(monkeypatch):
  real = factors.norms
  monkeypatch.setattr(
    factors, "norms", lambda squares: real([*squares[:2], *squares[4:]])
  )


def a_wrong_divisor(monkeypatch):
  real = outlet.Outlet.gaussian

  def divided_twice(self, sums, stddevs, sensitivity):
    return real(self, sums, stddevs / BATCH, sensitivity)

  monkeypatch.setattr(outlet.Outlet, "gaussian", divided_twice)


def twice_the_rate(monkeypatch):
  def doubled(self, key, step):
    uniform = key.child("poisson", step).uniform(self.slots)
    return np.flatnonzero(uniform < 2 * self.sampling_prob)

  monkeypatch.setattr(data.PoissonSampler, "indices", doubled)


@pytest.mark.parametrize(
  "plant",
  marking.slow_but(
    [half_the_noise, no_clipping],
    [
      half_the_noise,
      noise_used_again,
      one_noise_for_all,
      no_clipping,
      clipping_without_one_layer,
      a_wrong_divisor,
      twice_the_rate,
    ],
  ),
)
def test_a_planted_bug_is_caught(monkeypatch, plant):
  stated = proven(trained(canaries=1))
  plant(monkeypatch)
  assert audited(trained()).audited > stated
