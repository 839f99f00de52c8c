"""PixelDP: its loss, its projections, its guarantees, saving, bad input."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_privrob import attacks
from tf_privrob import certify
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import noise_place
from tf_privrob.methods import registry
from tf_privrob.papers.pixeldp import method as pixeldp
from tf_privrob.papers.pixeldp import projection

pytestmark = pytest.mark.usefixtures("checked_once")

_layers = tf.keras.layers
SHAPE, CLASSES = (8, 8, 1), 3
BASE = papers.PixelDPConfig(
  batch_size=16,
  epochs=1.0,
  optimizer="sgd",
  learning_rate=0.1,
  learning_rate_schedule="constant",
  seed=0,
)


def network(seed=0):
  init = tf.keras.initializers.HeNormal
  return tf.keras.Sequential(
    [
      _layers.Input(SHAPE),
      _layers.Conv2D(
        4, 3, 2, "same", activation="relu", kernel_initializer=init(seed)
      ),
      _layers.Conv2D(5, 2, 2, activation="tanh", kernel_initializer=init(7)),
      _layers.Flatten(),
      _layers.Dense(CLASSES, kernel_initializer=init(seed + 1)),
    ]
  )


PRIVATE = papers.PrivatePixelDPConfig(
  batch_size=16,
  epochs=0.5,
  learning_rate=0.1,
  seed=0,
  dp_epsilon=50.0,
  dp_delta=1e-3,
  noise_multiplier=1.0,
  accountant="rdp",
)


def make(net=None, **changes):
  return papers.PixelDP(net or network(), BASE.changed(**changes))


def make_private(**changes):
  return papers.PrivatePixelDP(network(), PRIVATE.changed(**changes))


def arrays(count=64, seed=0):
  """Three bright corners: easy to learn, also under noise."""
  rng = np.random.default_rng(seed)
  y = rng.integers(0, CLASSES, count)
  x = rng.uniform(0, 0.2, (count, *SHAPE)).astype("float32")
  for row, label in enumerate(y):
    top, left = divmod(int(label), 2)
    x[row, 4 * top : 4 * top + 4, 4 * left : 4 * left + 4] += 0.8
  return x, y


def prepared(method):
  method.simulate(64)
  return method


# The noise.


def test_noise_of_the_construction_golden():
  layer = papers.NoiseLayer()
  assert layer.noise_scale == pytest.approx(0.2537, abs=5e-5)
  laplace = papers.NoiseLayer(noise="laplace", construction_size=0.3)
  assert laplace.noise_scale == pytest.approx(0.3)
  assert layer.parseval_loops == 10
  assert papers.NoiseLayer(construction_size=0.03).parseval_loops == 3


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize(
  ("factor", "accepted"), [(1, True), (2 / 3, False), (1.5, False)]
)
def test_drawn_noise_has_the_scale_of_the_config(noise, factor, accepted):
  """Read off a network whose rest is linear in the hidden layer."""
  net = tf.keras.Sequential(
    [_layers.Input((6,)), _layers.Dense(6), _layers.Dense(6)]
  )
  method = make(net, noise=noise, construction_size=0.4 * factor)
  net.layers[1].set_weights([np.eye(6), np.zeros(6)])
  x = tf.zeros([400, 6])
  drawn = method.noisy_logits(x, 3) - method(x)
  scale = 0.4 * (certify.classic_multiplier(1, 0.05) if noise[0] == "g" else 1)
  law = {"gaussian": stats.norm, "laplace": stats.laplace}[noise](scale=scale)
  p_value = stats.kstest(np.ravel(drawn), law.cdf).pvalue
  assert (p_value > 1e-3) == accepted


def test_call_is_the_network_without_noise():
  method, (x, _) = make(), arrays(5)
  np.testing.assert_array_equal(method(x), method.network(x))
  np.testing.assert_array_equal(method(x), method(x))
  np.testing.assert_array_equal(
    method.logits_with_noise(x, None, None), method(x)
  )
  assert np.any(method.noisy_logits(x, 1) != method(x))
  np.testing.assert_array_equal(
    method.noisy_logits(x, 1), method.noisy_logits(x, 1)
  )


def test_attacks_can_average_over_the_noise():
  method, (x, y) = make(), arrays(4)
  target = attacks.eot(method.noisy_logits, 3)
  found = attacks.PGD(0.1, steps=2)(target, tf.constant(x), tf.constant(y), 0)
  assert np.abs(found - x).max() == pytest.approx(0.1, rel=1e-4)


# Training.


@pytest.mark.parametrize("position", noise_place.POSITIONS)
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("noise_after", [0, 1, 2])
def test_loss_is_the_mean_over_fresh_draws(copies, noise_after, position):
  """By hand: every copy of every example has noise of its own."""
  method = prepared(
    make(
      augmentation_multiplicity=copies,
      noise_after=noise_after,
      noise_position=position,
    )
  )
  x, y = arrays(4)
  seed = tf.constant([5, 6])
  losses, metrics = method.objective.example_losses(
    method.context, tf.constant(x), y, seed
  )
  place = method.place
  draw = tf.random.stateless_normal(
    [4 * copies, *place.noise_shape],
    randomness.fold_in(seed, 7),
    stddev=method.config.layer.noise_scale,
  ).numpy()
  for row in range(4):
    values = []
    for copy in range(copies):
      hidden = place.before(x[row : row + 1]) + draw[row * copies + copy]
      logits = place.after(hidden).numpy()[0]
      values.append(np.log(np.exp(logits).sum()) - logits[y[row]])
    assert float(losses[row]) == pytest.approx(np.mean(values), rel=1e-4)
  assert metrics["correct"].shape == (4,)


def test_unclipped_sum_is_the_plain_gradient():
  method = prepared(make())
  x, y = arrays(6)
  mask, seed = tf.constant([1.0, 1, 0, 1, 1, 1]), tf.constant([1, 2])
  found = method.unclipped_gradients((tf.constant(x), y), mask, seed)
  with tf.GradientTape() as tape:
    losses, _ = method.objective.example_losses(
      method.context, tf.constant(x), y, seed
    )
    total = tf.reduce_sum(mask * losses)
  wanted = tape.gradient(total, method.network.trainable_variables)
  for a, b in zip(found.gradients, wanted):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  assert float(found.count) == 5
  assert method.unclipped_gradients.sensitivity() == math.inf


def test_private_gradients_are_clipped_as_one_over_all_draws():
  method = prepared(
    make_private(l2_clip_norm=1e-3, augmentation_multiplicity=2)
  )
  x, y = arrays(1)
  batch = (tf.constant(x), tf.constant(y))
  found = method.clipped_gradients(batch, tf.ones([1]), tf.constant([1, 2]))
  norm = float(tf.linalg.global_norm(found.gradients))
  assert 0.995e-3 < norm <= 1e-3
  assert method.clipped_gradients.sensitivity("add_or_remove_one") == 1e-3


def test_training_learns_under_noise_and_keeps_the_norm():
  x, y = arrays(256)
  method = make(epochs=12, construction_size=0.03, learning_rate=0.3)
  method.fit(x, y, validation_data=(x, y), verbose=0)
  probs = tf.nn.softmax(method.noisy_logits(x, 1))
  assert np.mean(np.argmax(probs, axis=1) == y) > 0.9
  assert method.place.norms().bound("l2", "l2") <= 1.01


def test_ramp_by_hand():
  found = [float(pixeldp.noise_ramp(step)) for step in (0, 1000, 9209, 9211)]
  assert found[0] == pytest.approx(0.1)
  assert found[1] == pytest.approx(1 - 0.99975**1000, rel=1e-3)
  assert found[2] == pytest.approx(0.9, rel=1e-3)
  assert found[3] == 1.0
  assert float(pixeldp.noise_ramp(421)) == pytest.approx(0.1)
  assert float(pixeldp.noise_ramp(10**7)) == 1.0


def test_ramp_scales_the_noise_of_training():
  """At step 0 the noise is a tenth of the full one, from the same draw."""
  x, seed = tf.zeros([4, *SHAPE]), tf.constant([1, 2])

  def noise(ramp):
    net = tf.keras.Sequential(
      [_layers.Input(SHAPE), _layers.Flatten(), _layers.Dense(CLASSES)]
    )
    net.layers[-1].set_weights([np.eye(64)[:, :CLASSES], np.zeros(CLASSES)])
    method = prepared(make(net, noise_after=0, noise_ramp=ramp))
    return method.training_logits(x, seed).numpy()

  np.testing.assert_allclose(noise(True), 0.1 * noise(False), rtol=1e-4)
  assert np.abs(noise(False)).max() > 0.1


# Projections.


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("attack_norm", certify.NORMS)
@pytest.mark.parametrize("noise_after", [1, 2])
def test_normalised_kernels_have_norm_one(noise, attack_norm, noise_after):
  net = network()
  net.layers[0].kernel.assign(3 * net.layers[0].kernel)
  net.layers[1].kernel.assign(3 * net.layers[1].kernel)
  place = noise_place.find(net, noise_after)
  hidden = "l2" if noise == "gaussian" else "l1"
  assert place.norms().bound(attack_norm, hidden) > 1.5
  projection.Projection(place, "normalise", attack_norm, hidden).start()
  norms = [
    certify.linear_map(layer).norms().bound(p, hidden)
    for layer, p in zip(net.layers, (attack_norm, hidden))
  ][:noise_after]
  np.testing.assert_allclose(norms, 1.0, rtol=0.02)
  # A ReLU between them changes no norm, so the product is the chain's.
  assert place.norms().bound(attack_norm, hidden) <= 1.03


def test_small_kernels_are_left_alone():
  net = network()
  net.layers[0].kernel.assign(1e-3 * net.layers[0].kernel)
  kernel = net.layers[0].kernel.numpy()
  place = noise_place.find(net, 1)
  projection.Projection(place, "normalise", "l2", "l2").start()
  np.testing.assert_array_equal(net.layers[0].kernel, kernel)


def test_parseval_step_by_hand():
  net = network()
  kernel = net.layers[0].kernel.numpy().astype(float)
  place = noise_place.find(net, 1)
  projection.Projection(place, "parseval", "l2", "l2", loops=2)()
  rows = 2 * kernel.reshape(9, 4).T  # ceil(3 / 2) = 2 patches on either axis
  for _ in range(2):
    rows = (1 + 3e-4) * rows - 3e-4 * rows @ rows.T @ rows
  np.testing.assert_allclose(
    net.layers[0].kernel, rows.T.reshape(kernel.shape) / 2, rtol=1e-5
  )


def test_parseval_converges_to_a_true_bound_of_one():
  """Its fixed point has s_max = 1, and the real convolution at most that."""
  net = network()
  place = noise_place.find(net, 1)
  project = tf.function(
    projection.Projection(place, "parseval", "l2", "l2", loops=100)
  )
  for _ in range(150):
    project()
  rows = 2 * net.layers[0].kernel.numpy().reshape(9, 4)
  assert np.linalg.norm(rows, 2) == pytest.approx(1, abs=1e-3)
  assert place.norms().bound("l2", "l2") <= 1 + 1e-3


def test_no_projection_leaves_the_norm_and_the_certificate_pays():
  net = network()
  net.layers[0].kernel.assign(3 * net.layers[0].kernel)
  kernel = net.layers[0].kernel.numpy()
  method = prepared(make(net, projection="none"))
  method.after_update()
  np.testing.assert_array_equal(net.layers[0].kernel, kernel)
  exact = certify.linear_map(net.layers[0]).norms().bound("l2", "l2")
  assert exact > 1.5
  assert method.certifier().operator_norm == pytest.approx(exact)


def test_projection_is_post_processing_of_the_update():
  """It is a function of the weights: the same weights, the same result."""
  nets = [network(), network()]
  for net in nets:
    place = noise_place.find(net, 1)
    found = projection.Projection(place, "normalise", "l2", "l2")
    found.start()
    net.layers[0].kernel.assign(2 * net.layers[0].kernel)
    found()
  np.testing.assert_array_equal(
    nets[0].layers[0].kernel, nets[1].layers[0].kernel
  )


# Guarantees.


def test_without_privacy_nothing_is_claimed_nor_proven():
  x, y = arrays()
  method = make()
  with pytest.raises(ValueError, match="trained model"):
    method.privacy_statement()
  method.fit(x, y, verbose=0)
  statement = method.privacy_statement()
  assert (statement.claimed, statement.proven) == (None, None)
  assert "claimed none / proven none known" in statement.text()
  assert "hides no training example" in statement.caveats[0]
  assert not statement.assumptions


def test_with_privacy_it_is_dp_sgd():
  x, y = arrays()
  method = make_private()
  method.fit(x, y, verbose=0)
  shared = {field.name for field in dataclasses.fields(methods.DPSGDConfig)}
  values = {key: value for key, value in vars(PRIVATE).items() if key in shared}
  plain = methods.DPSGD(network(), methods.DPSGDConfig(**values))
  assert method.plan(64) == plain.plan(64)
  statement = method.privacy_statement()
  wanted = privacy.PrivacyStatement.for_dp_sgd(
    1.0, 0.25, 2, 1e-3, accountant="rdp", facts=method.run_facts
  )
  assert statement.proven == wanted.proven
  assert 1 < statement.proven.dp_epsilon < 50


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("noise_after", [0, 1, 2])
def test_certificates_are_proven_rows_in_every_norm(noise, noise_after):
  x, y = arrays(3)
  method = make(noise=noise, noise_after=noise_after, construction_size=0.01)
  for norm in certify.NORMS:
    subject = method.certifier(
      norm, num_selection=25, num_estimation=50, confidence=0.9
    )
    rows = subject.certify(method, x, y, seed=0)
    assert {row.kind for row in rows} == {"proven"}
    assert {row.norm for row in rows} == {norm}
    assert max(row.radius for row in rows) > 0
  place = "hidden" if noise_after else "input"
  assert subject.method == f"{noise}_{place}_tight"


def test_certificate_takes_the_trained_norm_not_the_assumed_one():
  """A row's radius shrinks as the kernel grows, other things equal."""
  net = network()
  method = make(net)
  before = method.certifier()
  net.layers[0].kernel.assign(4 * net.layers[0].kernel)
  after = method.certifier()
  assert after.operator_norm == pytest.approx(4 * before.operator_norm)
  assert after.radius(0.9, 0.1) == pytest.approx(before.radius(0.9, 0.1) / 4)


def test_certified_radius_survives_a_gradient_attack():
  """The smoothed vote stays put where the loss grows fastest."""
  x, y = arrays(256)
  method = make(epochs=6, construction_size=0.05, learning_rate=0.3)
  method.fit(x, y, verbose=0)
  subject = method.certifier(num_estimation=200, confidence=0.99)
  rows = [
    row for row in subject.certify(method, x[:6], seed=0) if row.radius > 0
  ]
  assert len(rows) >= 4
  start = tf.constant(x[[row.index for row in rows]])
  radius = tf.constant([[[[row.radius]]] for row in rows], tf.float32)
  label = tf.constant([row.prediction for row in rows])
  moved = start
  for step in range(3):
    with tf.GradientTape() as tape:
      tape.watch(moved)
      logits = method.noisy_logits(tf.repeat(moved, 50, axis=0), step)
      loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.repeat(label, 50), logits
      )
    gradient = tape.gradient(loss, moved)
    length = tf.norm(gradient, axis=[1, 2], keepdims=True)
    moved = start + radius * gradient / length
  for row, image in zip(rows, moved):
    noisy = method.noisy_logits(tf.repeat(image[None], 1000, axis=0), 9)
    counts = np.bincount(np.argmax(noisy, axis=1), minlength=CLASSES)
    assert counts.argmax() == row.prediction


def test_save_and_load_keep_predictions_and_certificates(tmp_path):
  x, y = arrays()
  method = make(noise="laplace", attack_norm="l1", noise_after=2)
  method.fit(x, y, verbose=0)
  method.save(tmp_path / "x.keras")
  loaded = tf.keras.models.load_model(tmp_path / "x.keras")
  assert isinstance(loaded, papers.PixelDP)
  np.testing.assert_array_equal(loaded(x), method(x))
  settings = {"num_estimation": 50, "confidence": 0.9}
  assert loaded.certifier(**settings) == method.certifier(**settings)
  first, second = (
    [
      dataclasses.replace(row, seconds=0.0)
      for row in m.certifier(**settings).certify(m, x[:3], seed=2)
    ]
    for m in (method, loaded)
  )
  assert first == second
  assert loaded.privacy_statement() == method.privacy_statement()


# Settings.


@pytest.mark.parametrize("name", registry.presets("pixeldp"))
def test_presets(name):
  config = methods.preset("pixeldp", name)
  assert hasattr(config, "dp_epsilon") == name.endswith("private")
  method = methods.build("pixeldp", models.pixeldp_mnist(), config)
  assert method.hidden_noise_shape == (14, 14, 32)
  assert config.layer.noise_scale == pytest.approx(0.2537, abs=5e-5)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (
      {"projection": "parseval", "attack_norm": "linf"},
      "attack_norm='l2' and noise='gaussian'.*'normalise'",
    ),
    ({"layer": "gaussian"}, r"made by NoiseLayer\(...\)"),
  ],
)
def test_bad_settings(change, message):
  with pytest.raises(ValueError, match=message):
    BASE.changed(**change)


def _layer_norm():
  return tf.keras.Sequential(
    [
      _layers.Input(SHAPE),
      _layers.Flatten(),
      _layers.Dense(4),
      _layers.LayerNormalization(),
      _layers.Dense(CLASSES),
    ]
  )


@pytest.mark.parametrize(
  ("net", "change", "message"),
  [
    (network, {"noise_after": 3}, r"noise_after=3 .* in \[0, 2\]"),
    (_layer_norm, {"noise_after": 2}, "sensitivity is unknown.*noise_after=0"),
    (
      lambda: tf.keras.Sequential([*network().layers, _layers.Softmax()]),
      {},
      "returns logits",
    ),
  ],
)
def test_bad_networks_are_refused_before_training(net, change, message):
  with pytest.raises(ValueError, match=message):
    make(net(), **change)
