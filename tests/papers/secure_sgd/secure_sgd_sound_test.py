"""The sound heir of SecureSGD: its noise, its release, its radius."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.methods import interrupt
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import hidden_noise
from tf_privrob.methods import outlet as outlet_lib

pytestmark = pytest.mark.usefixtures("checked_once")

BASE = papers.SoundSecureSGDConfig(
  dp_epsilon=4.0,
  dp_delta=1e-3,
  redistribution=papers.ReleasedRedistribution(release_dp_epsilon=1.0),
  sampler="full_batch",  # calibrates in no time
  batch_size=16,
  epochs=4,
  accountant="rdp",
  seed=0,
)
PRIVATE = BASE.changed(kind="private")
FEW = {"num_selection": 20, "num_estimation": 200}
R = np.array([0.5, 1.0, 1.5, 0.4, 1.6])


def arrays(count=64, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.random((count, 6), "float32")
  return x, (x[:, 0] * 3).astype("int64").clip(0, 2)


def network():
  return models.mlp((6,), 3, hidden=(5,), activation="tanh", seed=0)


def build(config=BASE, net=None, **given):
  return papers.SoundSecureSGD(net or network(), config, **given)


def fitted(config=BASE, net=None, given=None, **kwargs):
  method = build(config, net, **(given or {}))
  method.fit(*arrays(), verbose=0, **kwargs)
  return method


@functools.cache
def shared(config=BASE):
  """A trained method that no test may change."""
  return fitted(config)


def linear(first, second):
  """x -> x first second, without biases."""
  net = tf.keras.Sequential(
    [
      tf.keras.layers.Input((len(first),)),
      tf.keras.layers.Dense(len(first[0]), use_bias=False),
      tf.keras.layers.Dense(len(second[0]), use_bias=False),
    ]
  )
  net.set_weights([np.array(first), np.array(second)])
  return net


# The noise.


def rejects_other_scales(draws, scale):
  assert stats.kstest(draws, stats.norm(scale=scale).cdf).pvalue > 1e-3
  for wrong in (2 / 3, 3 / 2):
    law = stats.norm(scale=wrong * scale)
    assert stats.kstest(draws, law.cdf).pvalue < 1e-6


def test_training_noise_is_fresh_for_each_example_and_has_its_law():
  """Two classes: the loss tells the difference of the noisy logits."""
  spread = np.array([0.5, 1.5])
  method = build(
    dataclasses.replace(BASE, hidden_noise=0.3),
    linear(2 * np.eye(2), np.eye(2)),
    redistribution=spread,
  )
  method.simulate(64)
  method.redistribution.assign(spread)
  images, labels = tf.zeros([4000, 2]), tf.zeros([4000], tf.int64)

  def noise(seed):
    losses, _ = method.example_losses((images, labels), tf.constant([seed, 0]))
    return np.log(np.expm1(losses.numpy().astype(float)))

  draws = noise(1)
  # N(0, (0.3 * 2)^2 r) at either logit.
  rejects_other_scales(draws, 0.6 * np.sqrt(spread.sum()))
  assert np.unique(draws).size > 3900
  assert not np.any(draws == noise(2))
  np.testing.assert_array_equal(draws, noise(1))


def test_copies_of_an_example_have_noise_of_their_own():
  config = dataclasses.replace(BASE, augmentation_multiplicity=4)
  method, other = build(config), build()
  for one in (method, other):
    one.simulate(64)
  x, y = (tf.constant(part) for part in arrays())
  losses, _ = method.example_losses((x, y), tf.constant([1, 2]))
  single, _ = other.example_losses((x, y), tf.constant([1, 2]))
  assert losses.shape == [64]
  # Averages of four draws spread less around the loss without noise.
  plain = tf.nn.sparse_softmax_cross_entropy_with_logits(y, method(x))
  assert np.std(losses - plain) < 0.7 * np.std(single - plain)


def test_inference_noise_has_its_law():
  method = build(net=linear(np.eye(3), np.eye(3)))
  spread = np.array([0.5, 0.5, 2.0])
  method.redistribution.assign(spread)
  draws = method.noisy_logits(np.zeros([4000, 3], "float32"), seed=3).numpy()
  for unit, value in enumerate(spread):
    rejects_other_scales(draws[:, unit], 0.25 * np.sqrt(value))


def test_larger_weights_do_not_escape_the_noise():
  method = build()
  first = method.certifier()
  kernel = method.network.layers[1].kernel
  kernel.assign(10 * kernel)
  second = method.certifier()
  assert second.scale == pytest.approx(10 * first.scale, rel=1e-4)
  for p1 in (0.6, 0.9):
    assert second.radius(p1, 1 - p1) == pytest.approx(
      first.radius(p1, 1 - p1), rel=1e-4
    )


def test_kernel_norm_is_the_largest_singular_value():
  rng = np.random.default_rng(0)
  for shape in ((5, 5, 1, 32), (7, 3), (3, 7)):
    kernel = rng.normal(size=shape).astype("float32")
    expected = np.linalg.norm(kernel.reshape(-1, shape[-1]), 2)
    found = float(hidden_noise.kernel_norm(kernel))
    assert found == pytest.approx(expected, rel=1e-4)


# The radius.


def test_radius_by_hand():
  method = fitted(given={"redistribution": R})
  np.testing.assert_allclose(method.redistribution, R, rtol=1e-6)
  assert method.privacy_statement().proven == (
    shared().privacy_statement().proven
  )
  kernel = method.network.layers[1].kernel.numpy().astype(float)
  stddev = 0.25 * np.linalg.norm(kernel, 2) * np.sqrt(R)
  norm = np.linalg.norm(kernel / stddev, 2)
  gap = stats.norm.ppf(0.9) - stats.norm.ppf(0.05)
  found = method.certifier().radius(0.9, 0.05)
  assert found == pytest.approx(gap / 2 / norm, rel=0.02)
  assert found <= gap / 2 / norm * (1 + 1e-5)
  # l_inf is at least l2 / sqrt(d), but for the last bit.
  least = found / np.sqrt(6) * (1 - 1e-12)
  assert method.certifier("linf").radius(0.9, 0.05) >= least


def half_space(rng):
  """A method whose smoothed classifier has the true radius |u.x|.

  With u, w the largest singular pair of M = D^-1 A^T and logits (0, w D^-1 h),
  the noise of the second logit is N(0, 1), and a change of x along u moves it
  as much as the norm of M allows.
  """
  first = rng.normal(size=(3, 4))
  spread = np.array([0.25, 0.5, 1.25, 2.0])
  stddev = 0.25 * np.linalg.norm(first, 2) * np.sqrt(spread)
  left, values, right = np.linalg.svd((first / stddev).T)
  second = np.stack([np.zeros(4), left[:, 0] / stddev], axis=1)
  method = build(net=linear(first, second), redistribution=spread)
  method.redistribution.assign(spread)
  return method, right[0], values[0]


ALPHA, COUNT = 0.1, 400
LIMIT = ALPHA + 3.1 * np.sqrt(ALPHA * (1 - ALPHA) / COUNT)


def failure_rate(method, direction, distance, **changes):
  rng = np.random.default_rng(1)
  side = rng.choice([-1.0, 1.0], COUNT)
  x = np.outer(side * distance, direction).astype("float32")
  certificate = dataclasses.replace(
    method.certifier(
      num_selection=20, num_estimation=100, confidence=1 - ALPHA
    ),
    **changes,
  )
  rows = certificate.certify(method, x)
  return np.mean(
    [
      not row.abstained
      and (row.prediction != (sign > 0) or row.radius > distance)
      for row, sign in zip(rows, side)
    ]
  )


def test_certificate_keeps_its_confidence_and_is_not_idle():
  method, direction, norm = half_space(np.random.default_rng(0))
  distance = 0.8 / norm
  assert failure_rate(method, direction, distance) <= LIMIT
  # Falsification: the norm that a uniform r would have, and 3/4 of the true
  # one, which the extra 2% of its bound cannot hide.
  true = method.certifier().operator_norm
  uniform = method.place.norms(np.ones(4)).bound("l2", "l2")
  for wrong in (uniform, 0.75 * true):
    assert wrong < 0.9 * true
    rate = failure_rate(method, direction, distance, operator_norm=wrong)
    assert rate > LIMIT


# The release of r.


def importance(method, rows):
  x, y = arrays()
  return method.importance(x[rows], y[rows])


def test_one_example_moves_the_sum_by_at_most_the_clip_norm():
  method = build(PRIVATE)
  rows = np.arange(64)
  whole = importance(method, rows)
  moves = [
    np.linalg.norm(whole - importance(method, np.delete(rows, row)))
    for row in range(0, 64, 7)
  ]
  clip_norm = PRIVATE.redistribution.release_clip_norm
  assert max(moves) <= clip_norm * (1 + 1e-9)
  assert min(moves) > 0.99 * clip_norm  # far below the gradients' own norms
  loose = importance(build(PRIVATE.changed(release_clip_norm=1e6)), rows)
  assert np.linalg.norm(loose) > 10 * clip_norm


def test_r_follows_from_the_noisy_sum_alone():
  method, key = build(PRIVATE), randomness.Key.of(0)
  exact = tf.constant(importance(method, np.arange(64)), tf.float64)
  method.simulate(64, outlet=outlet_lib.Simulation(key))
  method.begin(*arrays(), (0.0, 1.0))
  key = key.child("once", "redistribution", 1)
  released = method.mechanism.add_noise(exact, key).numpy()
  assert method.mechanism.dp_epsilon_at(1e-3) == pytest.approx(1.0)
  relative = np.maximum(released, 0)
  relative = relative / relative.mean() + 1.0
  np.testing.assert_allclose(
    method.redistribution, relative / relative.mean(), rtol=1e-5
  )


def test_release_noise_has_its_law():
  method = build(PRIVATE)
  x, y = arrays()
  exact = importance(method, np.arange(64))
  method.importance = lambda x, y: exact  # saves time; 400 releases of 5
  keys = map(randomness.Key.of, range(400))
  draws = [method.noisy_importance(x, y, key) - exact for key in keys]
  rejects_other_scales(np.ravel(draws), method.mechanism.stddev)


@pytest.mark.parametrize("power", [-2.0, 1.0, 2.0])
def test_redistribution_is_positive_and_sums_to_the_units(power):
  method = build(PRIVATE.changed(power=power))
  for released in ([-5.0, -1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 3.0, -2.0, 9.0]):
    spread = method.redistribution_of(np.array(released))
    assert spread.sum() == pytest.approx(5)
    assert spread.min() > 0
  assert (np.diff(spread[[1, 0, 2, 4]]) * power > 0).all()


# Privacy.


def test_release_and_training_are_composed():
  uniform, private = shared(), shared(PRIVATE)
  statements = [m.privacy_statement() for m in (uniform, private)]
  for statement in statements:
    assert statement.proven.dp_epsilon <= 4.0
    assert statement.proven.dp_epsilon > 3.9
    assert statement.claimed == statement.proven
  # The gradients get more noise, for what the release has spent.
  noise = [m.plan(64).noise_multiplier for m in (uniform, private)]
  assert noise[1] > 1.01 * noise[0]
  expected = privacy.dp_epsilon(
    [privacy.poisson_sgd(noise[1], 1.0, 4), *private.extra_releases()],
    1e-3,
    "rdp",
  )
  assert statements[1].proven.dp_epsilon == pytest.approx(expected)
  assert "1 x noisy redistribution" in statements[1].text()
  assert "noisy redistribution" not in statements[0].text()


def test_uniform_noise_at_h_is_free():
  plain = methods.DPSGD(
    network(),
    methods.DPSGDConfig(
      dp_epsilon=4.0,
      dp_delta=1e-3,
      sampler="full_batch",
      epochs=4,
      accountant="rdp",
    ),
  )
  plain.fit(*arrays(), verbose=0)
  found = shared().privacy_statement().proven
  assert found == plain.privacy_statement().proven


def test_public_data_cost_nothing_and_are_assumed_public():
  x, y = arrays(seed=9)
  method = fitted(given={"public_data": (x, y)})
  expected = build()
  spread = expected.redistribution_of(expected.importance(x, y))
  np.testing.assert_allclose(method.redistribution, spread, rtol=1e-5)
  statement = method.privacy_statement()
  assert "redistribution vector that was given" in statement.text()
  assert statement.proven == shared().privacy_statement().proven


def test_a_resumed_run_keeps_r_and_pays_once(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    fitted(PRIVATE, run_dir=tmp_path, callbacks=[interrupt.StopAfter(2)])
  released = np.load(tmp_path / "redistribution.npy")
  again = fitted(PRIVATE, run_dir=tmp_path, resume=True)
  np.testing.assert_allclose(
    again.redistribution, again.redistribution_of(released), rtol=1e-5
  )
  assert again.run_record["redistribution_releases"] == 1
  assert again.run_record["steps"] == 4
  other = PRIVATE.changed(release_dp_epsilon=2.0)
  with pytest.raises(ValueError, match=r"_dp_epsilon: 1\.0 -> 2\.0"):
    fitted(other, run_dir=tmp_path, resume=True)


def test_a_release_lost_in_a_crash_is_paid_for_again(tmp_path, monkeypatch):
  def crash(*_):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(papers.SoundSecureSGD, "noisy_importance", crash)
    with pytest.raises(KeyboardInterrupt):
      fitted(PRIVATE, run_dir=tmp_path)
  method = fitted(PRIVATE, run_dir=tmp_path, resume=True)
  ledger = privacy.read_ledger(tmp_path / "ledger.jsonl")
  assert ledger.releases["redistribution"].count == 2
  assert "2 x noisy redistribution" in method.privacy_statement().text()
  assert method.privacy_statement().proven.dp_epsilon <= 4.0


# Files.


@pytest.mark.parametrize("config", [BASE, PRIVATE], ids=["uniform", "private"])
def test_file_predicts_certifies_and_states_the_same(tmp_path, config):
  method = shared(config)
  method.save(tmp_path / "model.keras")
  loaded = tf.keras.models.load_model(tmp_path / "model.keras")
  x, y = arrays()
  np.testing.assert_array_equal(loaded(x), method(x))
  np.testing.assert_array_equal(loaded.redistribution, method.redistribution)
  assert loaded.privacy_statement() == method.privacy_statement()
  assert loaded.certifier() == method.certifier()
  both = (method, loaded)
  rows = [m.certifier(**FEW).certify(m, x[:3], y[:3], seed=0) for m in both]
  rows = [[dataclasses.replace(r, seconds=0.0) for r in part] for part in rows]
  assert rows[0] == rows[1]
  assert {row.kind for row in rows[0]} == {"proven"}
  with pytest.raises(ValueError, match="has been trained"):
    loaded.fit(x, y, verbose=0)


# Uses.


def images(count=48, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.random((count, 8, 8, 1), "float32")
  return x, rng.integers(0, 3, count)


def test_a_convolutional_network_with_dropout_can_be_trained():
  net = models.secure_sgd_mnist((8, 8, 1), 3)
  method = papers.SoundSecureSGD(net, PRIVATE)
  before = [weight.numpy() for weight in net.trainable_variables]
  method.fit(*images(), verbose=0)
  for old, new in zip(before, net.trainable_variables):
    assert np.abs(old - new).max() > 0
  assert method.redistribution.shape == (8, 8, 32)
  certificate = method.certifier("linf", **FEW)
  assert len(certificate.certify(method, images()[0][:2])) == 2


def test_a_denoiser_is_trained_and_the_classifier_stays(tmp_path):
  x, y = images()
  head = models.mlp((8, 8, 1), 3, hidden=(6,))
  frozen = [weight.numpy() for weight in head.weights]
  denoiser = models.convolutional_denoiser((8, 8, 1), filters=4)
  start = [weight.numpy() for weight in denoiser.weights]
  joined = models.denoised_classifier(denoiser, head)
  with pytest.raises(ValueError, match=r"frozen weight .* public_weights"):
    papers.SoundSecureSGD(joined, BASE).fit(x, y, verbose=0)
  method = papers.SoundSecureSGD(joined, BASE, public_weights="of a test")
  method.fit(x, y, verbose=0)
  copies = [w for w in joined.weights if w.name.startswith("classifier_")]
  assert len(copies) == len(frozen)
  for old, copy, own in zip(frozen, copies, head.weights):
    np.testing.assert_array_equal(old, copy)
    np.testing.assert_array_equal(old, own)
  assert all(
    np.abs(old - new).max() > 0 for old, new in zip(start, denoiser.weights)
  )
  # End to end: the noise is behind the denoiser's first layer, and the two
  # together are what is smoothed.
  noise = np.random.default_rng(0).normal(size=(48, 8, 8, 4)).astype("float32")
  first = denoiser.get_layer("denoiser_first")
  behind = tf.keras.Model(first.output, denoiser.output)
  expected = head(behind(first(x) + noise))
  found = method.logits_with_noise(x, hidden_noise=noise)
  np.testing.assert_allclose(found, expected, atol=1e-4)
  certificate = method.certifier()
  norms = method.place.norms(method.hidden_stddev().numpy())
  assert certificate.operator_norm / certificate.scale == pytest.approx(
    norms.bound("l2", "l2"), rel=1e-4
  )
  method.save(tmp_path / "model.keras")
  loaded = tf.keras.models.load_model(tmp_path / "model.keras")
  np.testing.assert_array_equal(loaded(x), method(x))
  assert loaded.certifier() == certificate
  text = method.privacy_statement().text()
  assert "initial weights are declared public: of a test" in text


# Bad input.


@pytest.mark.parametrize(
  ("given", "message"),
  [
    ({"redistribution": -R}, ">= 0"),
    ({"redistribution": 2 * R}, "received a sum of 10"),
    ({"redistribution": np.ones([5, 1])}, r"shape \(5,\)"),
    ({"redistribution": [0.0, 1, 1, 1, 2]}, "without noise"),
    ({"redistribution": R, "public_data": arrays()}, "received both"),
    ({"public_data": (1, 2, 3)}, r"to be \(x, y\)"),
  ],
)
def test_bad_public_sources(given, message):
  with pytest.raises(ValueError, match=message):
    build(**given)


def test_a_public_r_and_a_private_one_exclude_each_other():
  with pytest.raises(ValueError, match="would release another"):
    build(PRIVATE, redistribution=R)


def test_nothing_is_released_where_the_plan_or_the_data_do_not_fit(tmp_path):
  folder = tmp_path / "run"
  config = PRIVATE.changed(release_dp_epsilon=50.0)
  with pytest.raises(ValueError, match="dp_epsilon"):
    fitted(config, run_dir=folder)
  x, y = arrays()
  with pytest.raises(ValueError, match="public_x"):
    fitted(given={"public_data": (x + 5, y)}, run_dir=folder)
  assert not folder.exists()


def test_networks_that_leave_no_certificate_are_refused():
  layers = tf.keras.layers
  with pytest.raises(ValueError, match=r"LSTM|noise_after"):
    build(
      net=tf.keras.Sequential(
        [layers.Input((6, 1)), layers.LSTM(4), layers.Dense(3)]
      )
    )
  inputs = tf.keras.Input((6,))
  hidden = layers.Dense(6)(inputs)
  with pytest.raises(ValueError, match="only way from the input"):
    build(
      net=tf.keras.Model(
        inputs, layers.Dense(3)(layers.Add()([hidden, inputs]))
      )
    )


def test_presets_are_registered():
  for name in ("mnist_sound", "mnist_5k_sound", "mnist_5k_denoiser_sound"):
    config = methods.preset("secure_sgd", name)
    assert config.variant == "sound"
    found = methods.build("secure_sgd", network(), config)
    assert type(found) is papers.SoundSecureSGD
