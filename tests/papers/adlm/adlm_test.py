import dataclasses
import zipfile
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.methods import interrupt
from tf_privrob import layers
from tf_privrob import losses
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.methods import relevance
from tf_privrob.papers.adlm import config as adlm_config
from tf_privrob.papers.adlm import published as adlm
from tf_privrob.papers.dpal import fixed_batches

_layers = tf.keras.layers
_SHAPE, _CLASSES = (6,), 3
_BASE = adlm_config.AdLMConfig(
  dp_epsilon_relevance=1.0,
  dp_epsilon_features=50.0,
  dp_epsilon_labels=50.0,
  relevance_steps=3,
  batch_size=32,
  steps=6,
  eval_every=3,
  checkpoint_every=1,
  seed=0,
)


def _arrays(count=64, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.uniform(-1, 1, (count, *_SHAPE)).astype("float32")
  return x, ((x[:, 0] + 1) * 1.4999).astype("int64")


def _network(hidden=5, seed=0):
  init = tf.keras.initializers.GlorotUniform
  return tf.keras.Sequential(
    [
      _layers.Input(_SHAPE),
      _layers.Dense(8, "relu", kernel_initializer=init(seed)),
      _layers.Dense(hidden, "tanh", kernel_initializer=init(seed + 1)),
      _layers.Dense(_CLASSES, kernel_initializer=init(seed + 2)),
    ]
  )


def _method(network=None, given=None, **changes):
  config = dataclasses.replace(_BASE, **changes)
  given = {"relevance_map": np.ones(_SHAPE)} if given is None else given
  return adlm.AdLM(network or _network(), config, **given)


def _fit(method, **kwargs):
  method.fit(*_arrays(), value_range=(-1, 1), verbose=0, **kwargs)
  return method


def _distance(a, b):
  pairs = zip(a.get_weights(), b.get_weights())
  return float(np.sqrt(sum(((u - v) ** 2).sum() for u, v in pairs)))


def _begun(method, x, key=None):
  """What fit does before the first step, without paying for it."""
  key = key or randomness.Key.of(3)
  method.simulate(len(x), (-1, 1), outlet_lib.Simulation(key))
  method.begin(x, None, (-1, 1))
  method.set_step(np.array([3, 4]), 0)
  method.begin_session()
  return method


def _steps(method, steps=6):
  """Takes steps on the data; returns the rows of each."""
  x, y = _arrays()
  key, sampler = randomness.Key.of(0), _begun(method, x).sampler
  for step, batch in enumerate(sampler.batches(x, y, key, 0, steps)):
    method.set_step(key.child(step).stateless_seed(), step)
    method.train_step(batch)
  return [sampler.indices(key, step) for step in range(steps)]


# Constants.


def _adlm_mnist(stride=1):
  """AdLM's own MNIST network, or one that halves by its stride."""
  pool = [_layers.MaxPooling2D(2)] if stride == 1 else []
  return tf.keras.Sequential(
    [
      _layers.Input((28, 28, 1)),
      _layers.Conv2D(32, 5, stride, "same", activation="relu"),
      *pool,
      _layers.Conv2D(64, 5, 1, "same", activation="relu"),
      _layers.MaxPooling2D(2),
      _layers.Flatten(),
      _layers.Dense(25, "relu"),
      layers.BoundedActivation(),
      _layers.Dense(10),
    ]
  )


@pytest.mark.parametrize(
  "network", [_adlm_mnist(1), _adlm_mnist(2), models.dpal_mnist()]
)
def test_mnist_sensitivity_is_golden(network):
  assert adlm.AdLM(network).input_sensitivity == 9800


def test_mnist_scales_are_golden():
  method = adlm.AdLM(_adlm_mnist())
  assert method.input_scale == pytest.approx(9800 / (0.075 * 1800))
  assert method.label_scale == pytest.approx(1812.5 / (0.15 * 1800))


def test_sensitivity_of_a_dense_layer_and_a_given_one():
  assert _method().input_sensitivity == 2 * 6 * 8
  assert _method(input_sensitivity=7.0).input_sensitivity == 7


def test_presets_are_the_papers():
  presets = adlm_config.AdLMConfig.presets()
  paper = presets["mnist_paper"]
  assert paper.claimed_dp_epsilon == pytest.approx(0.3)
  assert paper.steps == int(60000 / 1800 * 2400 + 1)
  assert (paper.batch_size, paper.learning_rate) == (1800, 3e-4)
  assert paper.noise == presets["mnist_small"].noise == "once"
  assert presets["mnist_released"].noise == "per_step"
  assert presets["mnist_released"].label_noise == "released_mnist"
  assert presets["mnist_small"].steps < 1000


# The noise.


def _prepared(relevances, kernel_noise=False, **changes):
  """A method with wide layers whose draws were made, without a step."""
  features = len(relevances)
  network = tf.keras.Sequential(
    [
      _layers.Input((features,)),
      _layers.Dense(400 if kernel_noise else 2, "tanh"),
      _layers.Dense(10),
    ]
  )
  method = _method(network, {"relevance_map": relevances}, **changes)
  return _begun(method, np.zeros((64, features), "float32"))


@pytest.mark.parametrize(
  ("factor", "accepted"), [(1.0, True), (2 / 3, False), (1.5, False)]
)
@pytest.mark.parametrize("group", [0, 1])
def test_input_noise_has_the_law_of_each_feature(group, factor, accepted):
  """A third of the features is relevant; each third has its own scale."""
  relevances = np.repeat([0.6, 0.1], [2000, 4000])
  method = _prepared(
    relevances, dp_epsilon_features=0.5, input_sensitivity=30.0
  )
  beta = [0.6, 0.1][group] * 6000 / (0.6 * 2000 + 0.1 * 4000)
  expected = factor * 30 / (beta * 0.5 * 32)
  fresh = method.input_noise(tf.constant([1, 2])).numpy()
  for noise in (fresh, method.run_state.input_noise.numpy()):
    part = noise[:2000] if group == 0 else noise[2000:]
    p_value = stats.kstest(part / expected, "laplace").pvalue
    assert (p_value > 1e-3) == accepted


@pytest.mark.parametrize(
  ("factor", "accepted"), [(1.0, True), (2 / 3, False), (1.5, False)]
)
def test_label_noise_has_the_papers_law(factor, accepted):
  method = _prepared(np.ones(3), kernel_noise=True, dp_epsilon_labels=0.7)
  expected = factor * 10 * (400 + 400**2 / 4) / (0.7 * 32)
  noise = method.run_state.label_noise.numpy()
  assert noise.shape == (400, 10)
  p_value = stats.kstest(noise.ravel() / expected, "laplace").pvalue
  assert (p_value > 1e-3) == accepted


def _inputs_seen(**changes):
  """The perturbed batches that reach the network, and the batches drawn."""
  seen, honest = [], _layers.Dense.call

  def spy(layer, inputs):
    if layer is first and inputs.shape[0] == 32:
      seen.append(inputs.numpy())
    return honest(layer, inputs)

  first = _layers.Dense(8)
  network = tf.keras.Sequential(
    [_layers.Input(_SHAPE), first, _layers.Dense(5, "tanh"), _layers.Dense(3)]
  )
  x, _ = _arrays()
  with mock.patch.object(_layers.Dense, "call", spy):
    rows = _steps(_method(network, **changes))
  return np.array(seen), x[np.array(rows)]


@pytest.mark.parametrize("noise", ["per_step", "once"])
def test_one_draw_is_shared_by_the_batch(noise):
  seen, drawn = _inputs_seen(noise=noise)
  added = seen - drawn
  assert len(added) == 6
  for step in added:
    np.testing.assert_allclose(step, np.tile(step[:1], (32, 1)), atol=1e-5)
  gap = np.abs(added[1][0] - added[0][0]).max()
  assert (gap < 1e-5) == (noise == "once")
  assert np.abs(added[0]).max() > 1e-3


def test_differences_of_examples_are_exact():
  """Why sharing a draw hides nothing: x_bar_i - x_bar_j = x_i - x_j."""
  seen, drawn = _inputs_seen(dp_epsilon_features=0.5, input_clip=1e4)
  assert np.abs(seen[0] - drawn[0]).max() > 1
  np.testing.assert_allclose(
    seen[0] - seen[0][:1], drawn[0] - drawn[0][:1], atol=1e-4
  )


def test_perturbed_inputs_are_clipped():
  seen, _ = _inputs_seen(dp_epsilon_features=1e-3, input_clip=2.0)
  assert np.abs(seen).max() == 2


def test_there_is_no_noise_at_inference():
  method = _fit(_method())
  x, _ = _arrays()
  np.testing.assert_array_equal(
    method.predict(x, verbose=0), method.network.predict(x, verbose=0)
  )


# Training.


@pytest.mark.parametrize("variant", fixed_batches.VARIANTS)
def test_a_step_is_the_gradient_of_the_perturbed_objective(variant):
  """With plain SGD, by hand; the noise term acts on the last kernel alone."""
  method = _method(
    variant=variant, steps=1, noise="once", dp_epsilon_labels=1.0
  )
  method.compile(tf.keras.optimizers.SGD(0.1))
  twin = _network()
  (rows,) = _steps(method, 1)
  x, y = _arrays()
  state = method.run_state
  with tf.GradientTape() as tape:
    logits = twin(x[rows] + state.input_noise)
    total = tf.reduce_mean(losses.taylor_cross_entropy(logits, y[rows]))
  plain = tape.gradient(total, twin.trainable_variables)
  times = 1 if variant == "paper" else _CLASSES
  for i, (variable, gradient) in enumerate(
    zip(twin.trainable_variables, plain)
  ):
    if i == len(plain) - 2:  # the last kernel
      gradient = gradient - times * state.label_noise
    variable.assign_sub(0.1 * gradient)
  assert float(tf.reduce_max(tf.abs(state.label_noise))) > 0.1
  assert _distance(method.network, twin) < 1e-5


def test_training_learns_without_retracing():
  x, y = _arrays(2000)
  method = _method(
    batch_size=500, steps=150, eval_every=50, learning_rate=2e-2, noise="once"
  )
  traces = []
  step = method.train_step

  def counted(batch):
    traces.append(1)
    return step(batch)

  method.train_step = counted
  history = method.fit(
    x, y, value_range=(-1, 1), validation_data=(x, y), verbose=0
  ).history
  assert history["nonprivate/loss"][-1] < 0.8 * history["nonprivate/loss"][0]
  assert history["val_accuracy"][-1] > 0.8
  assert len(traces) == 1


@pytest.mark.slow
def test_same_seed_same_run_and_other_seed_other_run():
  given = {}  # also the relevance network is trained the same way
  first, second, other = (
    _fit(_method(given=given, seed=s)).network for s in (1, 1, 2)
  )
  assert _distance(first, second) == 0
  assert _distance(first, other) > 0


def test_saved_and_loaded(tmp_path):
  method = _fit(_method(given={}, seed=123457))
  path = tmp_path / "x.keras"
  method.save(path)
  loaded = tf.keras.models.load_model(path)
  x, _ = _arrays()
  np.testing.assert_array_equal(
    loaded.predict(x, verbose=0), method.predict(x, verbose=0)
  )
  assert loaded.config == dataclasses.replace(method.config, seed=None)
  assert loaded.privacy_statement() == method.privacy_statement()
  with zipfile.ZipFile(path) as archive:
    assert "123457" not in archive.read("config.json").decode()
  with pytest.raises(ValueError, match="trained for 6 steps"):
    _fit(loaded)


def test_resumed_with_the_same_map_and_draws(tmp_path):
  method = _method(given={}, noise="once", seed=None)
  with pytest.raises(KeyboardInterrupt):
    _fit(method, run_dir=tmp_path, callbacks=[interrupt.StopAfter(2)])
  draws = [v.numpy() for v in method.run_state.variables()]
  kept = (tmp_path / "relevance.npy").read_bytes()
  again = _fit(
    _method(given={}, noise="once", seed=None), run_dir=tmp_path, resume=True
  )
  for old, new in zip(draws, again.run_state.variables()):
    np.testing.assert_array_equal(old, new.numpy())
  assert (tmp_path / "relevance.npy").read_bytes() == kept  # no second map
  assert again.run_record["steps"] == 6
  assert again.run_record["sessions"] == 2


def test_resume_with_another_noise_is_refused(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    _fit(_method(), run_dir=tmp_path, callbacks=[interrupt.StopAfter(2)])
  with pytest.raises(privacy.LedgerError, match=r"_features: 50\.0 -> 9\.0"):
    _fit(_method(dp_epsilon_features=9.0), run_dir=tmp_path, resume=True)


# The relevance map.


def test_the_map_is_adlms_and_decides_the_factors():
  network, (x, _) = _network(seed=7), _arrays()
  key = randomness.Key.of(5)
  method = _method(given={"relevance_network": network}, relevance_examples=40)
  _begun(method, x, key)
  key = key.child("once", "relevance", 1)
  rows = np.random.default_rng(key.integer()).permutation(64)[:40]
  expected = relevance.paper_relevance(
    network, x[rows], None, 64, 1.0, key.child("noise")
  )
  np.testing.assert_allclose(
    method.run_state.factors, relevance.budget_factors(expected), rtol=1e-6
  )


def test_a_given_network_stays_out_of_the_model(tmp_path):
  network = _network(seed=7)
  method = _fit(_method(given={"relevance_network": network}))
  assert len(method.trainable_variables) == 6
  method.save(tmp_path / "x.keras")
  count = tf.keras.models.load_model(tmp_path / "x.keras").count_params()
  assert count == network.count_params()


# The statement.


def test_statement_claims_the_sum_and_proves_nothing():
  method = _method(given={}, noise="per_step")
  statement = _fit(method).privacy_statement()
  assert statement.claimed == privacy.Budget(101.0, 0.0)
  assert statement.proven is None
  text = statement.text()
  for reason in (
    "trained on the same data without privacy",
    "shared by all examples",
    "labels flow without noise",
    "averages out",
  ):
    assert reason in text
  # 1 + 6 * 50 + 50
  assert "6 steps compose to dp_epsilon=351" in text


def test_statement_of_one_draw_and_of_a_given_map():
  text = _fit(_method()).privacy_statement().text()
  assert "drawn once and used in every step" in text
  assert "The relevance map was given" in text
  assert "compose to" not in text
  given = {"relevance_network": _network()}
  assert (
    "network that was given" in _method(given=given).privacy_statement().text()
  )


@pytest.mark.usefixtures("one_noise")
def test_label_noise_does_not_reach_the_layers_below():
  """Flipping all labels moves the first kernel alike under any noise."""
  moved = []
  for dp_epsilon_labels in (1e9, 1e-3):
    method = _method(steps=1, dp_epsilon_labels=dp_epsilon_labels)
    method.compile(tf.keras.optimizers.SGD(0.1))
    moved.append(_fit(method).network.get_weights())
  quiet, loud = moved
  np.testing.assert_array_equal(quiet[0], loud[0])
  assert np.abs(quiet[-2] - loud[-2]).max() > 1


# Failures.


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"variant": "sound"}, "use SoundAdLMConfig"),
  ],
)
def test_bad_settings(changes, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(_BASE, **changes)


def test_inputs_out_of_range_are_refused_not_clipped():
  x, y = _arrays()
  with pytest.raises(ValueError, match=r"in \[-1, 1\].*value_range=\(0, 2\)"):
    _method().fit(x, y, value_range=(0, 2), verbose=0)
  x[3, 2] = 1.01
  with pytest.raises(ValueError, match=r"Expected x_train in \[-1, 1\]"):
    _method().fit(x, y, value_range=(-1, 1), verbose=0)


def test_batches_larger_than_the_data_are_refused(tmp_path):
  method = _method(batch_size=65)
  with pytest.raises(ValueError, match="batch_size=65 <= n = 64"):
    _fit(method, run_dir=tmp_path)
  assert not list(tmp_path.iterdir())


def test_another_batch_size_than_calibrated_is_refused():
  method = _fit(_method())
  x, y = _arrays()
  with pytest.raises(ValueError, match="noise was calibrated for, received 8"):
    method.train_step((tf.constant(x[:8]), tf.constant(y[:8])))


def test_an_unbounded_last_hidden_layer_is_refused():
  network = tf.keras.Sequential(
    [_layers.Input((6,)), _layers.Dense(4, "relu"), _layers.Dense(3)]
  )
  with pytest.raises(ValueError, match="bounded by 1"):
    adlm.AdLM(network)


@pytest.mark.parametrize(
  "bad", [np.ones(5), np.ones((6, 1)), np.r_[np.ones(5), np.nan]]
)
def test_a_map_that_does_not_fit_is_refused(bad, tmp_path):
  with pytest.raises(ValueError, match=r"finite relevance map of shape \(6,\)"):
    _fit(_method(given={"relevance_map": bad}), run_dir=tmp_path)
  assert not list(tmp_path.iterdir())


def test_network_and_map_together_are_refused():
  both = {"relevance_network": _network(), "relevance_map": np.ones(6)}
  with pytest.raises(ValueError, match="received both"):
    _method(given=both)


def test_a_network_without_relevance_needs_another(tmp_path):
  def network():
    return tf.keras.Sequential(
      [_layers.Input((6,)), _layers.Dense(4, "sigmoid"), _layers.Dense(3)]
    )

  with pytest.raises(ValueError, match="activations linear, relu, tanh"):
    _fit(_method(network(), {}), run_dir=tmp_path)
  assert not list(tmp_path.iterdir())
  _fit(_method(network(), {"relevance_network": _network()}))
