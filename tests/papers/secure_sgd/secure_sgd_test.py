"""SecureSGD as published: its formulas, its step, its statement."""

import dataclasses
import functools
import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.methods import interrupt
from tf_privrob import mechanisms
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import hidden_noise
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.papers.secure_sgd import released as secure_sgd_released

pytestmark = pytest.mark.usefixtures("checked_once")

BASE = papers.SecureSGDConfig(
  dp_epsilon=4.0,
  dp_delta=1e-3,
  l2_clip_norm=1.0,
  batch_size=16,
  epochs=2,
  redistribution=papers.MeasuredRedistribution(throwaway_steps=2, batches=2),
  robustness=papers.ClaimedRobustness(num_draws=50),
  accountant="rdp",
  checkpoint_every=1,
  seed=0,
)
RELEASED = dataclasses.replace(BASE, variant="released_code")
R = np.array([0.5, 1.0, 1.5, 0.0, 2.0])


def arrays(count=64, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.random((count, 6), "float32")
  return x, (x[:, 0] * 3).astype("int64").clip(0, 2)


def network():
  return models.mlp((6,), 3, hidden=(5,), seed=0)


def fitted(config, given=R, net=None, **kwargs):
  method = papers.SecureSGD(net or network(), config, redistribution=given)
  method.fit(*arrays(), verbose=0, **kwargs)
  return method


@functools.cache
def shared(config, public=True):
  """A trained method that no test may change."""
  return fitted(config, given=R if public else None)


# Formulas.


@pytest.mark.parametrize(
  ("history", "noise", "stddev"),
  [("2019", 5.0, 5e-6), ("2020", 5.0, 2.5e-5), ("2021", 4.0, 3.2e-5)],
)
def test_gradient_noise_history_golden(history, noise, stddev):
  config = papers.SecureSGDConfig(
    variant="released_code", noise_history=history, noise_multiplier=noise
  )
  assert config.gradient_stddev == pytest.approx(stddev)
  presets = papers.SecureSGDConfig.presets()
  name = "mnist_released" + ("" if history == "2021" else f"_{history}")
  assert presets[name].gradient_stddev == pytest.approx(stddev)


@pytest.mark.parametrize(
  ("dp_epsilon", "now", "before"), [(4.0, 1.285, 1.65), (1.0, 4.85, 23.6)]
)
def test_hidden_noise_history_golden(dp_epsilon, now, before):
  stddev = mechanisms.extended_stddev(1.0, dp_epsilon, 1e-5)
  config = papers.SecureSGDConfig(variant="released_code")
  assert config.hidden_stddev(stddev) == pytest.approx(now, rel=2e-3)
  for history in ("2019", "2020"):
    old = dataclasses.replace(config, noise_history=history)
    assert old.hidden_stddev(stddev) == pytest.approx(before, rel=2e-3)


def test_released_mnist_sum_is_a_third_of_the_units():
  config = methods.preset("secure_sgd", "mnist_released")
  units = 28 * 28 * 32
  spread = hidden_noise.normalised(np.ones(units), config.redistribution.total)
  assert spread.mean() == pytest.approx(0.3265, abs=1e-4)
  assert hidden_noise.normalised(np.zeros(4)).tolist() == [1.0] * 4


def test_sign_redistribution_by_hand():
  """h = 2 x, logits = h: the gradient of unit k is softmax_k - 1[k = y]."""
  net = tf.keras.Sequential(
    [
      tf.keras.layers.Input((2,)),
      tf.keras.layers.Dense(2, use_bias=False),
      tf.keras.layers.Dense(2, use_bias=False),
    ]
  )
  net.set_weights([2 * np.eye(2), np.array([[1.0, 0.0], [0.0, 3.0]])])
  x = np.array([[0.1, 0.2], [0.3, 0.1], [0.5, 0.5], [0.0, 1.0]], "float32")
  y = np.array([0, 0, 0, 1])
  place = hidden_noise.find(net)
  # Signs of unit 0: -, -, -, +; of unit 1 the opposite.
  found = secure_sgd_released.sign_redistribution(place, x, y)
  np.testing.assert_allclose(found, [1.0, 1.0])
  net.layers[1].kernel.assign([[1.0, 0.0], [0.0, 0.0]])  # unit 1 is dead
  np.testing.assert_allclose(
    secure_sgd_released.sign_redistribution(place, x, y), [2.0, 0.0]
  )
  gradients = np.concatenate(
    list(hidden_noise.hidden_gradients(place, x, y, batch_size=3))
  )
  probs = tf.nn.softmax(net(x)).numpy()
  by_hand = (probs - np.eye(2)[y]) * [1.0, 0.0]
  np.testing.assert_allclose(gradients, by_hand, atol=1e-6)


def test_power_and_sum():
  x, y = arrays()
  place = hidden_noise.find(network())
  first = secure_sgd_released.sign_redistribution(place, x, y)
  second = secure_sgd_released.sign_redistribution(
    place, x, y, power=2.0, total=8.0
  )
  np.testing.assert_allclose(second, 8 * first**2 / (first**2).sum())


def test_released_code_clips_kernels_and_leaves_biases():
  gradients = [tf.constant([[3.0, 4.0]]), tf.constant([300.0, 400.0])]
  kernel, bias = secure_sgd_released.clip(gradients, 0.5)
  np.testing.assert_allclose(kernel, [[0.3, 0.4]], rtol=1e-6)
  np.testing.assert_array_equal(bias, [300.0, 400.0])


# The draw at h.


@pytest.mark.parametrize(
  ("config", "power"), [(BASE, 0.5), (RELEASED, 1.0)], ids=["paper", "released"]
)
def test_fixed_draw_has_its_law_and_no_other(config, power):
  method = shared(config)
  sensitivity = mechanisms.heterogeneous.claimed_sensitivity(
    network().layers[1].kernel.numpy(), R
  )
  first, second = (
    mechanisms.extended_stddev(size, 4.0, 1e-5) for size in (1.0, sensitivity)
  )
  draws = method.draw(1, 2.0, count=5000).numpy()
  for unit, spread in enumerate(R):
    stddev = 0.2 / 2 * math.hypot(first, second * spread**power)
    found = draws[:, unit]
    assert stats.kstest(found, stats.norm(scale=stddev).cdf).pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
      law = stats.norm(scale=wrong * stddev)
      assert stats.kstest(found, law.cdf).pvalue < 1e-6
    # A vote's fresh noise is half of that.
    assert method.fresh_hidden_stddev[unit] == pytest.approx(stddev / 2)


def test_predictions_are_under_the_fixed_draw():
  method = shared(RELEASED)
  x, _ = arrays()
  dense = method.network.layers
  shift = method.fixed_noise.numpy()
  assert np.abs(shift).min() > 0
  hidden = x @ dense[1].kernel.numpy() + dense[1].bias.numpy()
  expected = dense[2](np.maximum(hidden + shift, 0))
  np.testing.assert_allclose(method(x), expected, atol=1e-5)
  np.testing.assert_allclose(method.logits_with_noise(x), expected, atol=1e-5)
  noise = np.ones([len(x), 5], "float32")
  expected = dense[2](np.maximum(hidden + shift + noise, 0))
  found = method.logits_with_noise(x, hidden_noise=noise)
  np.testing.assert_allclose(found, expected, atol=1e-5)


# The step.


def released_step(method):
  """A batch, its clipped mean gradient, and what a step releases of it."""
  outlet = outlet_lib.Simulation(randomness.Key.of(1))
  method.simulate(64, outlet=outlet)
  method.begin(*arrays(), (0.0, 1.0))
  x, y = (tf.constant(part[:16]) for part in arrays(seed=5))
  variables = method.network.trainable_variables
  with tf.GradientTape() as tape:
    loss = tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(y, method(x))
    )
  clipped = secure_sgd_released.clip(
    tape.gradient(loss, variables), method.config.l2_clip_norm
  )
  found, batch = [], (x[None], y[None], tf.ones([1, 16]))
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      method, "apply", lambda released, _: found.extend(released.tensors)
    )
    method.train_step(batch)
  outlet.restart(randomness.Key.of(1))
  return batch, clipped, found


@pytest.mark.parametrize("history", ["2019", "2020", "2021"])
def test_released_noise_has_its_law_and_no_other(history):
  config = dataclasses.replace(RELEASED, noise_history=history)
  wide = models.mlp((6,), 3, hidden=(400,))
  method = papers.SecureSGD(wide, config, redistribution=np.ones(400))
  _, clipped, released = released_step(method)
  draws = np.concatenate(
    [np.ravel(noisy - exact) for noisy, exact in zip(released, clipped)]
  )
  stddev = config.gradient_stddev
  assert stats.kstest(draws, stats.norm(scale=stddev).cdf).pvalue > 1e-3
  for wrong in (2 / 3, 3 / 2):
    law = stats.norm(scale=wrong * stddev)
    assert stats.kstest(draws, law.cdf).pvalue < 1e-6


def test_released_step_by_hand():
  method = papers.SecureSGD(network(), RELEASED, redistribution=R)
  batch, clipped, released = released_step(method)
  before = [variable.numpy() for variable in method.network.variables]
  method.train_step(batch)
  variables = method.network.trainable_variables
  for old, noisy, exact, variable in zip(before, released, clipped, variables):
    np.testing.assert_allclose(noisy, exact, atol=6 * RELEASED.gradient_stddev)
    np.testing.assert_allclose(variable, old - 0.1 * noisy, atol=1e-7)


@pytest.mark.usefixtures("one_noise")
def test_paper_with_a_public_r_is_dp_sgd_with_a_shifted_bias():
  public = {"public_weights": "of a test"}
  method = papers.SecureSGD(network(), BASE, redistribution=R, **public)
  method.fit(*arrays(), verbose=0)
  plain = methods.DPSGD(
    network(),
    methods.DPSGDConfig(
      **{
        field.name: getattr(BASE, field.name)
        for field in dataclasses.fields(methods.DPSGDConfig)
        if hasattr(BASE, field.name)  # it has no other objective
      }
    ),
    **public,
  )
  plain.network.layers[1].bias.assign_add(method.fixed_noise[0])
  plain.fit(*arrays(), verbose=0)
  found = [w.numpy() for w in method.network.weights]
  found[1] = found[1] + method.fixed_noise.numpy()[0]
  for mine, theirs in zip(found, plain.network.weights):
    np.testing.assert_allclose(mine, theirs, atol=1e-6)
  stated = [
    m.privacy_statement().replace(weights=None) for m in (method, plain)
  ]
  assert stated[0] == stated[1]


def test_only_trainable_layers_are_trained():
  net = network()
  net.layers[2].trainable = False
  before = [weight.numpy() for weight in net.layers[2].weights]
  first = net.layers[1].kernel.numpy()
  fitted(RELEASED, net=net)
  for old, new in zip(before, net.layers[2].weights):
    np.testing.assert_array_equal(old, new)
  assert np.abs(first - net.layers[1].kernel).max() > 0


# Statements and the run.


def test_steps_end_where_the_codes_accountant_says():
  config = dataclasses.replace(
    RELEASED, dp_epsilon=0.3, epochs=1e6, noise_multiplier=4.0
  )
  plan = papers.SecureSGD(network(), config).plan(64)

  def spent(steps):
    release = privacy.poisson_sgd(4.0, 16 / 64, steps)
    return privacy.dp_epsilon([release], 1e-3, "rdp")

  assert spent(plan.steps) <= 0.3 < spent(plan.steps + 1)
  few = dataclasses.replace(config, dp_epsilon=4.0, epochs=1)
  assert papers.SecureSGD(network(), few).plan(64).steps == 4


def test_released_code_claims_and_proves_nothing():
  statement = shared(RELEASED, public=False).privacy_statement()
  release = privacy.poisson_sgd(4.0, 16 / 64, 8)
  expected = privacy.dp_epsilon([release], 1e-3, "rdp")
  assert statement.claimed.dp_epsilon == pytest.approx(expected)
  assert statement.claimed.dp_epsilon < 4.0
  assert statement.proven is None
  text = statement.text()
  for reason in (
    "mean gradient of a batch",
    "Biases are not clipped",
    "raw training data",
    "shuffled epochs",
    "accountant counts one",
  ):
    assert reason in text
  assert "variance" not in text
  old = fitted(dataclasses.replace(RELEASED, noise_history="2019"))
  assert "2019 code, which takes a variance" in old.privacy_statement().text()
  assert "raw training data" not in old.privacy_statement().text()
  assert old.privacy_statement().proven is None


def test_paper_is_proven_exactly_where_r_is_public():
  public = shared(BASE).privacy_statement()
  assert public.proven == public.claimed
  raw = shared(BASE, public=False).privacy_statement()
  assert raw.proven is None
  assert raw.claimed == public.claimed
  assert "raw training data" in raw.caveats[0]


def test_before_training_it_claims_its_target():
  statement = papers.SecureSGD(network(), RELEASED).privacy_statement()
  assert statement.claimed == privacy.Budget(4.0, 1e-3)
  assert statement.proven is None
  with pytest.raises(ValueError, match="trained model"):
    papers.SecureSGD(network(), RELEASED).fresh_hidden_stddev  # noqa: B018


@pytest.mark.parametrize("public", [False, True], ids=["raw", "public"])
@pytest.mark.parametrize("config", [BASE, RELEASED], ids=["paper", "released"])
def test_file_predicts_and_states_the_same(tmp_path, config, public):
  method = shared(config, public)
  method.save(tmp_path / "model.keras")
  loaded = tf.keras.models.load_model(tmp_path / "model.keras")
  x, y = arrays()
  np.testing.assert_array_equal(loaded(x), method(x))
  assert loaded.privacy_statement() == method.privacy_statement()
  rows = [
    m.certifier().certify(m, x[:4], y[:4], seed=0) for m in (method, loaded)
  ]
  rows = [[dataclasses.replace(r, seconds=0.0) for r in part] for part in rows]
  assert rows[0] == rows[1]
  assert {row.kind for row in rows[0]} == {"claimed"}


def test_a_resumed_run_keeps_its_draw(tmp_path):
  config = dataclasses.replace(RELEASED, seed=None)
  net = network()
  method = papers.SecureSGD(net, config)
  with pytest.raises(KeyboardInterrupt):
    method.fit(
      *arrays(),
      verbose=0,
      run_dir=tmp_path,
      callbacks=[interrupt.StopAfter(3)],
    )
  draw, spread = method.fixed_noise.numpy(), method.redistribution.numpy()
  again = papers.SecureSGD(network(), config)
  again.fit(*arrays(), verbose=0, run_dir=tmp_path, resume=True)
  np.testing.assert_array_equal(again.fixed_noise, draw)
  np.testing.assert_array_equal(again.redistribution, spread)
  assert again.run_record["steps"] == 8


def test_history_is_part_of_what_a_run_is(tmp_path):
  fitted(RELEASED, run_dir=tmp_path)
  other = dataclasses.replace(RELEASED, noise_history="2019")
  with pytest.raises(ValueError, match="noise_history: '2021' -> '2019'"):
    fitted(other, run_dir=tmp_path, resume=True)


def test_attacks_see_a_vote():
  method = shared(RELEASED)
  x, _ = arrays()
  first, second = (method.noisy_logits(x, seed).numpy() for seed in (1, 2))
  assert np.abs(first - second).max() > 1e-3
  np.testing.assert_array_equal(first, method.noisy_logits(x, 1))
  in_graph = tf.function(method.noisy_logits)(
    tf.constant(x), tf.constant([0, 1])
  )
  np.testing.assert_allclose(in_graph, first, atol=1e-5)
  drawn = np.sqrt(np.mean((first - method(x)) ** 2))
  stddev = method.fresh_hidden_stddev.max()
  kernel = method.network.layers[2].kernel.numpy()
  assert drawn < 3 * stddev * np.linalg.norm(kernel, 2)


# Bad input.


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"variant": "sound"}, "use SoundSecureSGDConfig"),
    ({"noise_history": "2019"}, "released code's history"),
    ({"noise_multiplier": None}, "constant of the code"),
    ({"noise_multiplier": 0.0}, "constant of the code"),
    ({"variant": "released_code", "sampler": "shuffle"}, "whatever it says"),
    ({"variant": "released_code", "ema_decay": 0.5}, "keeps the last weights"),
    ({"augmentation_multiplicity": 2}, "SoundSecureSGD takes both"),
    ({"augmentation": "noise"}, "SoundSecureSGD takes both"),
  ],
)
def test_bad_settings(changes, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(BASE, **changes)


@pytest.mark.parametrize(
  ("given", "message"),
  [
    (-R, ">= 0"),
    (np.ones(4), r"shape \(5,\).*received \(4,\)"),
    (2 * R, "sum of 5 > 0, received a sum of 10"),
  ],
)
def test_bad_redistribution(given, message):
  with pytest.raises(ValueError, match=message):
    papers.SecureSGD(network(), BASE, redistribution=given)
  other = BASE.changed(total=10.0)
  papers.SecureSGD(network(), other, redistribution=2 * R)


def test_bad_networks():
  layers = tf.keras.layers
  odd = tf.keras.Sequential(
    [layers.Input((6,)), layers.Reshape((6, 1)), layers.LSTM(3)]
  )
  with pytest.raises(ValueError, match=r"LSTM|noise_after"):
    papers.SecureSGD(odd, BASE)
  inputs = tf.keras.Input((6,))
  hidden = layers.Dense(6)(inputs)
  around = tf.keras.Model(
    inputs, layers.Dense(3)(layers.Add()([hidden, inputs]))
  )
  with pytest.raises(ValueError, match="only way from the input"):
    papers.SecureSGD(around, BASE)


def test_a_batch_that_does_not_fit_is_refused_before_r_is_measured(tmp_path):
  config = dataclasses.replace(RELEASED, batch_size=65)
  method = papers.SecureSGD(network(), config)
  with pytest.raises(ValueError, match="batch_size=65"):
    method.fit(*arrays(), verbose=0, run_dir=tmp_path / "run")
  assert not (tmp_path / "run").exists()


def test_registry_knows_it():
  config = methods.preset("secure_sgd", "mnist_released")
  assert config.variant == "released_code"
  assert config.redistribution.total == 8192
  config = config.changed(total=None)
  found = methods.build("secure_sgd", network(), config)
  assert type(found) is papers.SecureSGD
