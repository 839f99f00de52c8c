import dataclasses
import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tests.methods import interrupt
from tf_privrob import mechanisms
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.methods import relevance
from tf_privrob.papers.adlm import config as adlm_config
from tf_privrob.papers.adlm import sound as adlm_sound

pytestmark = pytest.mark.usefixtures("checked_once")

_BASE = adlm_config.SoundAdLMConfig(
  dp_epsilon=4.0,
  dp_delta=1e-3,
  relevance=adlm_config.Relevance(dp_epsilon=1.0),
  sampler="full_batch",  # calibrates in no time
  batch_size=16,
  epochs=8,
  accountant="rdp",
  seed=0,
)


def _arrays(count=64, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.random((count, 6), "float32")
  x[:, 3:] *= 0.01  # the first three features matter
  return x, (x[:, 0] * 3).astype("int64").clip(0, 2)


def _network():
  return models.mlp((6,), 3, hidden=(5,), activation="tanh", seed=0)


def _method(network=None, given=None, **changes):
  config = dataclasses.replace(_BASE, **changes)
  return adlm_sound.SoundAdLM(network or _network(), config, **(given or {}))


def _fit(method, **kwargs):
  method.fit(*_arrays(), verbose=0, **kwargs)
  return method


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """A run with the settings above and its folder, to read."""
  folder = tmp_path_factory.mktemp("run")
  return _fit(_method(), run_dir=folder), folder


def _distance(a, b):
  pairs = zip(a.get_weights(), b.get_weights())
  return float(np.sqrt(sum(((u - v) ** 2).sum() for u, v in pairs)))


# The scaling.


def test_factors_by_hand():
  given = {"relevance_map": np.array([1.0, 2.0, 3.0, 4.0, 5.0, 1.04])}
  method = _fit(
    _method(given=given, relevance=adlm_config.Relevance(power=0.5, floor=0.2))
  )
  expected = np.sqrt([0.04, 0.25, 0.5, 0.75, 1.0, 0.04])
  np.testing.assert_allclose(method.scaling.factors, expected, rtol=1e-6)


def test_scaling_is_a_pre_conditioner():
  """Gradients of a weight are scaled as the feature that it reads."""
  network, x = _network(), tf.constant(_arrays()[0])
  factors = np.array([1.0, 0.5, 0.25, 1.0, 1.0, 0.1])
  method = _method(network)
  method.scaling.factors.assign(factors)
  kernel = network.layers[1].kernel
  with tf.GradientTape(persistent=True) as tape:
    scaled = tf.reduce_sum(method(x))
    by_hand = tf.reduce_sum(network(x * factors))
  np.testing.assert_allclose(
    tape.gradient(scaled, kernel), tape.gradient(by_hand, kernel), rtol=1e-5
  )
  with tf.GradientTape() as tape:
    tape.watch(x)
    total = tf.reduce_sum(method(x))
  plain_input = tf.constant(x * factors)
  with tf.GradientTape() as plain:
    plain.watch(plain_input)
    again = tf.reduce_sum(network(plain_input))
  np.testing.assert_allclose(
    tape.gradient(total, x),
    factors * plain.gradient(again, plain_input),
    rtol=1e-5,
  )


@pytest.mark.usefixtures("one_noise")
def test_with_all_features_alike_it_is_dp_sgd():
  shared = ("dp_epsilon", "dp_delta", "sampler", "epochs", "accountant")
  config = methods.DPSGDConfig(
    seed=0, **{name: getattr(_BASE, name) for name in shared}
  )
  plain = methods.DPSGD(_network(), config)
  plain.fit(*_arrays(), verbose=0)
  method = _fit(_method(given={"relevance_map": np.ones(6)}))
  assert _distance(method.network.layers[1], plain.network) < 1e-6
  assert method.privacy_statement().proven == plain.privacy_statement().proven


def _begun(method, x, seed=0):
  """What fit does before the first step, without paying for it."""
  key = randomness.Key.of(seed)
  method.simulate(len(x), outlet=outlet_lib.Simulation(key))
  method.begin(x, None, (0, 1))
  return key.child("once", "relevance", 1)


def test_the_map_is_the_noisy_one_that_is_paid_for():
  method, (x, _) = _method(), _arrays()
  key = _begun(method, x)
  expected = relevance.private_relevance(
    _network(),
    x,
    None,
    mechanisms.GaussianMechanism.analytic(1e-4, 1.0, 1e-3),
    key,
    stabiliser=0.01,
  )
  expected = np.sqrt(relevance.normalise(expected, "linear"))
  np.testing.assert_allclose(
    method.scaling.factors, np.maximum(expected, 0.1), rtol=1e-6
  )
  assert method.mechanism.dp_epsilon_at(1e-3) == pytest.approx(1.0)


def test_a_clear_difference_is_found_under_noise():
  x = np.repeat(_arrays()[0], 20, axis=0)
  method = _method(
    relevance=adlm_config.Relevance(dp_epsilon=2.0), dp_delta=1e-4
  )
  _begun(method, x)
  factors = method.scaling.factors.numpy()
  assert factors.max() == 1
  assert factors[:3].min() > 1.5 * factors[3:].max()


@pytest.mark.slow
def test_a_relevance_network_of_the_callers(trained, tmp_path):
  other = models.mlp((6,), 4, hidden=(7,), seed=9)
  _fit(_method(given={"relevance_network": other}), run_dir=tmp_path)
  folders = (tmp_path, trained[1])
  first, second = (np.load(d / "relevance.npy") for d in folders)
  assert np.any(first != second)


# What is proven.


@pytest.mark.parametrize(
  ("mechanism", "accountant", "sampling_prob"),
  [
    ("gaussian", "pld", 16 / 64),
    pytest.param("gaussian", "rdp", 16 / 64, marks=pytest.mark.slow),
    ("laplace", "rdp", 1.0),
  ],
)
def test_map_and_training_are_composed_within_the_budget(
  mechanism, accountant, sampling_prob
):
  changes = {"accountant": accountant}
  changes["relevance"] = adlm_config.Relevance(mechanism, 1.0)
  if sampling_prob < 1:
    changes.update(sampler="poisson", epochs=2)
  method = _fit(_method(**changes))
  statement = method.privacy_statement()
  names = [release["name"] for release in statement.releases]
  assert names == ["noisy clipped gradients", "noisy relevance map"]
  noise = method.run_record["noise_multiplier"]
  gradients = privacy.poisson_sgd(noise, sampling_prob, 8)
  both = privacy.dp_epsilon(
    [gradients, relevance.release(method.mechanism)], 1e-3, accountant
  )
  assert statement.proven.dp_epsilon == pytest.approx(both)
  assert 3.9 < statement.proven.dp_epsilon <= 4.0
  assert statement.proven.dp_delta == 1e-3
  # The gradients alone would have left room: the map has been paid for.
  assert privacy.dp_epsilon(gradients, 1e-3, accountant) < 3.9
  assert "[the caller]" in statement.text()


def test_a_public_map_costs_nothing(trained):
  method = _fit(_method(given={"relevance_map": np.arange(6.0)}))
  statement = method.privacy_statement()
  assert len(statement.releases) == 1
  assert "map that was given does not depend" in statement.text()
  assert (
    method.run_record["noise_multiplier"]
    < trained[0].run_record["noise_multiplier"]
  )


def test_a_relevance_network_that_was_not_free_is_paid_for():
  cost = privacy.Budget(1.0, 5e-4)
  method = _fit(_method(given={"relevance_budget": cost}))
  statement = method.privacy_statement()
  assert [release["name"] for release in statement.releases][1:] == [
    "noisy relevance map",
    "relevance network",
  ]
  noise = method.run_record["noise_multiplier"]
  rest = [
    privacy.poisson_sgd(noise, 1.0, 8),
    relevance.release(method.mechanism),
  ]
  # Basic composition: (1, 5e-4) and the rest at 1e-3 - 5e-4.
  total = 1.0 + privacy.dp_epsilon(rest, 5e-4, "rdp")
  assert statement.proven.dp_epsilon == pytest.approx(total)
  assert statement.proven.dp_delta == 1e-3
  assert 3.9 < total <= 4.0
  assert method.mechanism.dp_epsilon_at(5e-4) == pytest.approx(1.0)


def test_the_spent_figure_counts_the_map(trained):
  lines = (trained[1] / "history.jsonl").read_text().splitlines()
  spent = [json.loads(line)["dp_epsilon"] for line in lines]
  assert 1.0 < spent[0] < spent[-1] <= 4.0


def _killed(*args):
  raise KeyboardInterrupt


def test_a_release_that_a_crash_lost_is_counted(trained, tmp_path):
  method = _method()
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(relevance, "private_relevance", _killed)
    with pytest.raises(KeyboardInterrupt):
      _fit(method, run_dir=tmp_path)
  cheaper = _method(relevance=adlm_config.Relevance(dp_epsilon=0.5))
  with pytest.raises(ValueError, match=r"dp_epsilon: 1\.0 -> 0\.5"):
    _fit(cheaper, run_dir=tmp_path, resume=True)
  method = _fit(_method(), run_dir=tmp_path, resume=True)
  statement = method.privacy_statement()
  assert statement.releases[1]["count"] == 2
  assert statement.proven.dp_epsilon <= 4.0
  once = trained[0].run_record["noise_multiplier"]
  assert method.run_record["noise_multiplier"] > once


def test_no_noise_means_no_proven_figure():
  statement = _fit(_method(noise_multiplier=0.0)).privacy_statement()
  assert statement.proven is None


def test_untrained_model_has_no_statement():
  with pytest.raises(ValueError, match="Call fit first"):
    _method().privacy_statement()


# The run.


@pytest.mark.slow
def test_training_learns_without_retracing():
  x, y = _arrays(2000)
  method = _method(
    sampler="poisson",
    batch_size=200,
    epochs=15,
    learning_rate=4.0,
    dp_delta=1e-4,
  )
  traces, step = [], method.train_step

  def counted(batch):
    traces.append(1)
    return step(batch)

  method.train_step = counted
  history = method.fit(x, y, verbose=0).history["nonprivate/loss"]
  assert history[-1] < 0.8 * history[0]
  assert method.evaluate(x, y, verbose=0)[1] > 0.75
  assert len(traces) == 1


@pytest.mark.slow
def test_same_seed_same_run_and_other_seed_other_run(trained, tmp_path):
  second, other = (
    _fit(_method(seed=s), run_dir=tmp_path / str(s)).network for s in (0, 1)
  )
  assert _distance(trained[0].network, second) == 0
  assert _distance(trained[0].network, other) > 0


@pytest.mark.parametrize("public", [False, True])
def test_saved_and_loaded(tmp_path, public):
  given = {"relevance_map": np.arange(6.0)} if public else {}
  given["relevance_budget"] = privacy.Budget(0.5, 1e-4)
  method = _fit(_method(given=given, seed=123457))
  path = tmp_path / "x.keras"
  method.save(path)
  loaded = tf.keras.models.load_model(path)
  x, _ = _arrays()
  np.testing.assert_array_equal(
    loaded.predict(x, verbose=0), method.predict(x, verbose=0)
  )
  np.testing.assert_array_equal(loaded.scaling.factors, method.scaling.factors)
  assert loaded.privacy_statement() == method.privacy_statement()
  with zipfile.ZipFile(path) as archive:
    assert "123457" not in archive.read("config.json").decode()
  with pytest.raises(ValueError, match="trained for 8 steps"):
    _fit(loaded)


def test_resumed_with_the_same_map(tmp_path):
  method = _method(seed=None)
  with pytest.raises(KeyboardInterrupt):
    _fit(method, run_dir=tmp_path, callbacks=[interrupt.StopAfter(3)])
  again = _fit(_method(seed=None), run_dir=tmp_path, resume=True)
  np.testing.assert_array_equal(again.scaling.factors, method.scaling.factors)
  assert again.run_record["steps"] == 8
  statement = again.privacy_statement()
  assert statement.releases[1]["count"] == 1
  assert statement.proven.dp_epsilon <= 4.0


def test_resume_with_another_budget_is_refused(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    _fit(_method(), run_dir=tmp_path, callbacks=[interrupt.StopAfter(3)])
  with pytest.raises(privacy.LedgerError, match=r"dp_epsilon: 4\.0 -> 6\.0"):
    _fit(_method(dp_epsilon=6.0), run_dir=tmp_path, resume=True)
  with pytest.raises(privacy.LedgerError, match="relevance_map"):
    _fit(
      _method(given={"relevance_map": np.ones(6)}),
      run_dir=tmp_path,
      resume=True,
    )


# Failures.


def test_a_map_dearer_than_the_budget_is_refused_before_it_is_made(tmp_path):
  method = _method(relevance=adlm_config.Relevance(dp_epsilon=5.0))
  with pytest.raises(ValueError, match="noisy relevance map alone cost"):
    _fit(method, run_dir=tmp_path)
  assert not list(tmp_path.iterdir())


def test_a_relevance_budget_beyond_the_runs_is_refused():
  with pytest.raises(ValueError, match="dp_delta below that of the run"):
    _method(given={"relevance_budget": privacy.Budget(1.0, 1e-3)})


def test_a_network_without_relevance_needs_a_map():
  def network():
    inputs = tf.keras.Input((6,))
    hidden = tf.keras.layers.Dense(4, "tanh")(inputs)
    joined = tf.keras.layers.Concatenate()([hidden, inputs])
    return tf.keras.Model(inputs, tf.keras.layers.Dense(3)(joined))

  with pytest.raises(ValueError, match="received Concatenate"):
    _fit(_method(network()))
  _fit(_method(network(), {"relevance_map": np.arange(6.0)}))


def test_a_map_of_another_shape_is_refused():
  with pytest.raises(ValueError, match=r"relevance map of shape \(6,\)"):
    _fit(_method(given={"relevance_map": np.ones(5)}))


def test_presets_are_those_of_dp_sgd_with_a_map():
  presets = adlm_config.SoundAdLMConfig.presets()
  assert not set(presets) & set(adlm_config.AdLMConfig.presets())
  for name, preset in presets.items():
    assert name.endswith("_sound")
    assert isinstance(preset, adlm_config.SoundAdLMConfig), name
    assert preset.relevance.dp_epsilon < preset.dp_epsilon
    assert preset.variant == "sound"
