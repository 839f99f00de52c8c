import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob import certify
from tf_privrob import gradients
from tf_privrob import methods
from tf_privrob import models
from tf_privrob.losses import smoothing

pytestmark = pytest.mark.usefixtures("checked_once")

SHAPE, CLASSES = (4, 4, 1), 3
BASE = methods.DPSGDConfig(
  dp_epsilon=50.0,
  dp_delta=1e-3,
  noise_multiplier=1.0,
  batch_size=16,
  epochs=2,
  learning_rate=0.5,
  augmentation_multiplicity=3,
  seed=0,
  objective=methods.Smooth(smoothing_stddev=0.3),
)
VARIANTS = {
  "plain": {},
  "stability": {"regularizer": "stability"},
  "consistency": {"regularizer": "consistency"},
  "macer": {"regularizer": "macer", "macer_sharpness": 2.0},
  "smoothadv": {"attack_steps": 2, "attack_eps": 0.5},
  "all": {
    "attack_steps": 1,
    "regularizer": "stability",
    "augmentation": "shift",
    "training_stddev": 0.4,
  },
}


def _arrays(count=64, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.random((count, *SHAPE), "float32")
  return x, (x[:, 0, 0, 0] * CLASSES).astype("int64").clip(0, CLASSES - 1)


def _network():
  return models.mlp(SHAPE, CLASSES, hidden=(5,), activation="tanh")


def _method(network=None, **changes):
  return methods.DPSGD(network or _network(), BASE.changed(**changes))


def _losses(method, images, labels, seed):
  seed = tf.constant(seed)
  return method.objective.example_losses(method.context, images, labels, seed)


def _prepared(**changes):
  method = _method(**changes)
  method.simulate(64)
  return method


@pytest.mark.parametrize(
  "variant",
  [
    # "all" has an attack too.
    pytest.param(name, marks=pytest.mark.slow if name == "smoothadv" else ())
    for name in VARIANTS
  ],
)
def test_one_clipped_gradient_an_example_whatever_the_terms(variant):
  """Fast engine = the sum of clipped gradients of batches of one."""
  method = _prepared(**VARIANTS[variant], l2_clip_norm=0.05)
  images, labels = (tf.constant(a[:4]) for a in _arrays())
  rows = []
  seed = tf.constant([3, 4])

  def alone(batch, _):  # the loss of one example among the same companions
    losses, _ = _losses(method, images, labels, seed)
    index = tf.argmax(tf.reduce_all(batch[0] == images, axis=[1, 2, 3]))
    return tf.gather(losses, index)

  for row in range(4):
    with tf.GradientTape() as tape:
      loss = alone((images[row : row + 1],), None)
    found = tape.gradient(loss, method.network.trainable_variables)
    norm = float(tf.linalg.global_norm(found))
    assert norm > 0.05  # clipping is at work
    rows.append([0.05 / norm * g for g in found])
  expected = [tf.add_n(list(column)) for column in zip(*rows)]
  total = method.clipped_gradients((images, labels), seed=seed)
  for found, want in zip(total.gradients, expected):
    np.testing.assert_allclose(found, want, rtol=2e-3, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_neighbours_move_the_sum_by_at_most_the_clip_norm(variant):
  method = _prepared(**VARIANTS[variant], l2_clip_norm=0.05)
  images, labels = (tf.constant(a[:6]) for a in _arrays())
  seed = tf.constant([1, 2])
  whole = method.clipped_gradients((images, labels), seed=seed).gradients
  for row in range(6):
    mask = 1.0 - tf.one_hot(row, 6)
    without = method.clipped_gradients((images, labels), mask, seed).gradients
    moved = tf.linalg.global_norm([a - b for a, b in zip(whole, without)])
    assert 0.04 < float(moved) <= 0.05


def test_copies_share_one_gradient_not_one_each():
  """Three copies counted as three examples would move the sum thrice."""
  method = _prepared(l2_clip_norm=0.05)
  images, labels = (tf.constant(a[:1]) for a in _arrays())
  total = method.clipped_gradients((images, labels)).gradients
  assert float(tf.linalg.global_norm(total)) <= 0.05

  def each(batch, seed):  # the broken variant
    x = tf.repeat(batch[0], 3, axis=0)
    x += 0.3 * tf.random.stateless_normal(x.shape, seed)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
      tf.repeat(batch[1], 3), method.network(x)
    )

  with pytest.raises(ValueError, match="one loss per example"):
    gradients.ClippedGradients(each, method.network, 0.05)((images, labels))


def test_loss_of_the_copies_by_hand():
  """Zero noise: cross-entropy of the clean example; stability adds nothing."""
  method = _prepared(training_stddev=0.0, regularizer="stability")
  images, labels = (tf.constant(a[:5]) for a in _arrays())
  found, metrics = _losses(method, images, labels, [0, 1])
  logits = method.network(images)
  expected = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  np.testing.assert_allclose(found, expected, rtol=1e-5)
  np.testing.assert_array_equal(
    metrics["correct"], np.argmax(logits, axis=1) == labels.numpy()
  )


@pytest.mark.parametrize(
  ("factor", "accepted"), [(1.0, True), (2 / 3, False), (1.5, False)]
)
def test_noise_of_the_copies_has_the_stated_scale(factor, accepted):
  """A linear network shows the noise of its inputs in its logits."""
  from scipy import stats

  network = tf.keras.Sequential(
    [
      tf.keras.layers.Input(SHAPE),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(CLASSES),
    ]
  )
  method = _method(
    network, augmentation_multiplicity=200, training_stddev=0.7 * factor
  )
  method.simulate(64)
  seen = []
  context = dataclasses.replace(
    method.context,
    network=lambda rows, training: seen.append(network(rows)) or seen[-1],
  )
  method.objective.example_losses(
    context, tf.zeros([5, *SHAPE]), tf.zeros([5], tf.int64), tf.constant([0, 1])
  )
  kernel = network.layers[-1].kernel.numpy()[:, 0]
  values = seen[0][:, 0].numpy().ravel() / (0.7 * np.linalg.norm(kernel))
  assert len(values) == 1000
  p_value = stats.kstest(values, "norm").pvalue
  assert (p_value > 1e-4) == accepted


@pytest.mark.slow
def test_attack_raises_the_loss_of_the_soft_vote():
  """SmoothAdv's examples are worse for the same copies, inside the ball."""
  method = _prepared(attack_steps=4, attack_eps=0.4, regularizer="none")
  images, labels = (tf.constant(a[:16]) for a in _arrays())
  noise = 0.3 * tf.random.stateless_normal([16, 3, *SHAPE], [5, 6])

  def votes(x):
    flat = tf.reshape(x[:, None] + noise, [-1, *SHAPE])
    logits = tf.reshape(method.network(flat), [16, 3, CLASSES])
    return smoothing.soft_vote(logits)

  attack = attacks.PGD(0.4, "l2", steps=4, random_start=False)
  moved = attack(votes, images, labels, tf.constant([0, 1]))
  size = tf.norm(tf.reshape(moved - images, [16, -1]), axis=1)
  assert float(tf.reduce_max(size)) <= 0.4 + 1e-5
  loss = tf.nn.sparse_softmax_cross_entropy_with_logits
  before, after = loss(labels, votes(images)), loss(labels, votes(moved))
  assert np.all(after.numpy() > before.numpy())
  plain = _losses(_prepared(), images, labels, [7, 8])[0]
  adversarial = _losses(method, images, labels, [7, 8])
  assert float(tf.reduce_mean(adversarial[0] - plain)) > 0.01


@pytest.mark.slow
def test_attack_grows_over_the_warmup():
  method = _prepared(attack_steps=1, attack_eps=0.8, attack_warmup=4)
  radii = []
  for step in range(6):
    method.set_step([0, 0], step)
    radius = method.objective.attack_radius(method.context)
    radii.append(float(radius))
  np.testing.assert_allclose(radii, [0.2, 0.4, 0.6, 0.8, 0.8, 0.8], rtol=1e-6)
  whole = _prepared(attack_steps=1, smoothing_stddev=0.3)
  radius = whole.objective.attack_radius(whole.context)
  assert float(radius) == pytest.approx(0.6)


@pytest.mark.parametrize("variant", ["plain", "all"])
def test_trains_states_saves_and_certifies(variant, tmp_path):
  method = _method(**VARIANTS[variant])
  x, y = _arrays()
  method.fit(x, y, run_dir=tmp_path / "run", verbose=0)
  statement = method.privacy_statement()
  assert statement.proven.dp_epsilon <= 50.0
  assert statement.claimed == statement.proven
  method.save(tmp_path / "model.keras")
  loaded = tf.keras.models.load_model(tmp_path / "model.keras")
  np.testing.assert_array_equal(loaded.predict(x, verbose=0), method.predict(x))
  assert loaded.config == dataclasses.replace(method.config, seed=None)
  certifier = loaded.certifier(num_estimation=100)
  assert certifier.smoothing_stddev == 0.3
  rows = certifier.certify(loaded, x[:3], y[:3], seed=0)
  assert {row.kind for row in rows} == {"proven"}


def test_the_budget_does_not_depend_on_copies_or_terms():
  """All of it is one gradient: noise and steps are those of DP-SGD."""
  plans = [
    _method(noise_multiplier=None, dp_epsilon=3.0, **VARIANTS[v]).plan(640)
    for v in VARIANTS
  ]
  config = dataclasses.replace(BASE, noise_multiplier=None, dp_epsilon=3.0)
  plain = methods.DPSGD(_network(), config, objective=methods.Natural())
  plain = plain.plan(640)
  assert {plan.noise_multiplier for plan in plans} == {plain.noise_multiplier}
  assert {plan.steps for plan in plans} == {plain.steps}


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"augmentation": "noise"}, "set training_stddev"),
  ],
)
def test_bad_settings(changes, message):
  with pytest.raises(ValueError, match=message):
    BASE.changed(**changes)


def test_certifier_passes_settings_on_and_refuses_bad_ones():
  method = _method()
  assert method.certifier() == certify.RandomizedSmoothing(0.3)
  with pytest.raises(ValueError, match="confidence=1"):
    method.certifier(confidence=1.0)
