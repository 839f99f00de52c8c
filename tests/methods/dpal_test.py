import dataclasses
import math
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_privrob import attacks
from tf_privrob import certify
from tf_privrob import data
from tf_privrob import layers
from tf_privrob import mechanisms
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob.methods import dpal_config

_layers = tf.keras.layers
_SHAPE, _CLASSES, _M = (6, 6, 1), 3, 6
_RANGE = (-1.0, 1.0)
_BASE = methods.DPALConfig(
  dp_epsilon_features=200.0,
  dp_epsilon_labels=5.0,
  batch_size=_M,
  steps=4,
  attack_steps=2,
  max_attack_eps=0.5,
  learning_rate=0.05,
  feature_learning_rate=0.01,
  num_draws=20,
  eval_every=2,
  checkpoint_every=1,
)
_RELEASED = {
  "variant": "released_code",
  "label_noise": "released_mnist",
  "adversarial_weight": 1.0,
  "input_clip": 1.2,
}


def _arrays(count=24, seed=0, shape=_SHAPE):
  rng = np.random.default_rng(seed)
  x = rng.uniform(*_RANGE, (count, *shape)).astype("float32")
  return x, rng.integers(0, _CLASSES, count)


def _dense(units, activation=None, seed=0):
  init = tf.keras.initializers.GlorotUniform(seed)
  return _layers.Dense(units, activation, kernel_initializer=init)


def _conv_network(standardize=False, seed=0):
  init = tf.keras.initializers.GlorotUniform(seed)
  bias = tf.keras.initializers.RandomUniform(-0.2, 0.2, seed)
  between = [layers.BatchStandardization()] if standardize else []
  return tf.keras.Sequential(
    [
      _layers.Input(_SHAPE),
      _layers.Conv2D(
        2,
        3,
        2,
        "same",
        activation="relu",
        kernel_initializer=init,
        bias_initializer=bias,
      ),
      *between,
      _layers.Flatten(),
      _dense(5, seed=seed + 1),
      layers.BoundedActivation(1.0),
      _dense(_CLASSES, seed=seed + 2),
    ]
  )


def _flat_network(seed=0):
  return tf.keras.Sequential(
    [
      _layers.Input(_SHAPE),
      _layers.Flatten(),
      _dense(4, "relu", seed),
      _dense(5, "tanh", seed + 1),
      _dense(_CLASSES, None, seed + 2),
    ]
  )


def _method(network=None, **changes):
  if network is None:
    network = _conv_network(changes.get("variant") == "released_code")
  return methods.DPAL(network, dataclasses.replace(_BASE, **changes))


def _fit(method, **kwargs):
  method.fit(*_arrays(), value_range=_RANGE, verbose=0, **kwargs)
  return method


def _ready(method, key=(3, 4), step=0):
  """A method whose steps can be taken one by one, by plain SGD."""
  method.compile(tf.keras.optimizers.SGD(method.config.learning_rate))
  method.prepare(method.plan(24), _SHAPE, _RANGE, _CLASSES)
  method.feature_optimizer = tf.keras.optimizers.SGD(
    method.config.feature_learning_rate
  )
  method.set_session(np.array(key), step)
  return method


def _draws(method):
  """All that is drawn once: input, features, labels, crafting."""
  return [
    method.autoencoder.input_noise.noise.numpy(),
    method.autoencoder.hidden_noise.noise.numpy(),
    method.label_noise.numpy(),
    method.crafting_noise.noise.numpy(),
  ]


def _weights(method):
  return np.concatenate([w.ravel() for w in method.network.get_weights()])


def _batch(seed=7):
  x, y = _arrays(2 * _M, seed)
  return tuple(map(tf.constant, (x[:_M], y[:_M], x[_M:], y[_M:])))


# One step, once more and naively.


class _Naive:
  """Algorithm 1 in plain TensorFlow: matrices, no layer and no helper of ours.

  The first layer is a matrix A(theta_1) on flattened inputs; its adjoint is the
  tied decoder.
  """

  def __init__(self, method):
    self.config = method.config
    self.conv = len(method.network.layers) > 5 or isinstance(
      method.network.layers[0], _layers.Conv2D
    )
    self.released = self.config.variant == "released_code"
    weights = [tf.Variable(w) for w in method.network.get_weights()]
    self.theta_1, self.theta_2 = weights[:2], weights[2:]
    chi = [tf.constant(draw) for draw in _draws(method)]
    self.chi_1, self.chi_2, self.chi_3 = chi[0], chi[1], chi[2]
    self.chi_attack = chi[3]

  def affine(self, x):
    kernel, bias = self.theta_1
    if not self.conv:
      return x @ kernel + bias
    basis = tf.reshape(tf.eye(36), [36, *_SHAPE])
    matrix = tf.reshape(tf.nn.conv2d(basis, kernel, 2, "SAME"), [36, 18])
    out = tf.reshape(x, [-1, 36]) @ matrix
    return tf.reshape(out, [-1, 3, 3, 2]) + bias

  def decode(self, h):
    kernel = self.theta_1[0]
    if not self.conv:
      return h @ tf.transpose(kernel)
    if self.released:
      large = tf.repeat(tf.repeat(h, 2, axis=1), 2, axis=2)
      turned = tf.transpose(kernel, [1, 0, 3, 2])
      return tf.nn.relu(tf.nn.conv2d(large, turned, 1, "SAME"))
    basis = tf.reshape(tf.eye(36), [36, *_SHAPE])
    matrix = tf.reshape(tf.nn.conv2d(basis, kernel, 2, "SAME"), [36, 18])
    out = tf.reshape(h, [-1, 18]) @ tf.transpose(matrix)
    return tf.reshape(out, [-1, *_SHAPE])

  def inputs(self, x):
    return x if self.conv else tf.reshape(x, [-1, 36])

  def standardize(self, h):
    axes = list(range(len(h.shape) - 1))
    mean = tf.reduce_mean(h, axes)
    variance = tf.reduce_mean((h - mean) ** 2, axes)
    return (h - mean) / tf.sqrt(variance + 1e-3)

  def logits(self, x, noise=True, crafting=False):
    x = self.inputs(x)
    x = x + self.chi_attack if crafting else x
    x = x + self.chi_1 if noise else x
    if self.released:
      x = tf.clip_by_value(x, -1.2, 1.2)
    h = self.affine(x)
    h = h if self.released else tf.clip_by_value(h, -1, 1)
    h = h if crafting else h + self.chi_2
    h = tf.nn.relu(h)
    if self.released and not crafting:
      h = self.standardize(h)
    kernel, bias, last_kernel, last_bias = self.theta_2
    h = tf.reshape(h, [len(h), -1]) @ kernel + bias
    h = tf.clip_by_value(h, -1, 1) if self.conv else tf.tanh(h)
    return h @ last_kernel + last_bias

  def attacked(self, x):
    if self.released:
      return self.logits(x, noise=False, crafting=True)
    return self.logits(x)

  def craft(self, sources, key, step):
    fold = tf.random.experimental.stateless_fold_in
    seed = fold(tf.constant(key), tf.constant(step, tf.int64))
    uniform = tf.random.stateless_uniform([], fold(seed, 0))
    size = self.config.max_attack_eps * uniform
    kinds = (attacks.BIM, attacks.MIM, attacks.PGD)
    third = len(sources) // 3
    parts = []
    for i, kind in enumerate(kinds):
      attack = kind(0.5, value_range=_RANGE, steps=2, label_source="model")
      part = sources[i * third : (i + 1) * third]
      attack_seed = fold(fold(seed, 1), i)
      parts.append(attack(self.attacked, part, None, attack_seed, size))
    return float(size), tf.concat(parts, 0)

  def reconstruction(self, x, noise):
    x_bar = self.inputs(x) + (self.chi_1 if noise else 0.0)
    h = self.affine(x_bar)
    if self.released:
      h = self.standardize(tf.nn.relu(h))
    decoded = self.decode(tf.clip_by_value(h, -1, 1) + self.chi_2)
    terms = (0.5 - x_bar) * decoded
    if self.released:
      terms = tf.abs(math.log(2) + terms)
    return tf.reduce_sum(terms) / len(x)

  def label_loss(self, logits, labels):
    """T(z, y) of facts 1.6, term by term; mean over the batch."""
    total = 0.0
    for z, label in zip(logits, labels):
      for k in range(_CLASSES):
        y = 1.0 if int(label) == k else 0.0
        total += tf.maximum(z[k], 0) - z[k] * y + math.log(2)
        total += -tf.abs(z[k]) / 2 + z[k] ** 2 / 8
    return total / len(logits)

  def step(self, batch, key, step):
    x, y, sources, y_adv = batch
    size, x_adv = self.craft(sources, key, step)
    noise = not self.released
    with tf.GradientTape() as tape:
      features = self.reconstruction(x, True)
      features += self.reconstruction(x_adv, noise)
    rate = self.config.feature_learning_rate
    for variable, gradient in zip(
      self.theta_1, tape.gradient(features, self.theta_1)
    ):
      variable.assign_sub(rate * gradient)
    xi, times = self.config.adversarial_weight, 3 if self.released else 1
    with tf.GradientTape() as tape:
      benign = self.label_loss(self.logits(x), y)
      adversarial = self.label_loss(self.logits(x_adv, noise), y_adv)
      loss = (benign + xi * adversarial) / (1 + xi)
      total = loss - times * tf.reduce_sum(self.chi_3 * self.theta_2[2])
      decay = tf.reduce_sum(self.theta_2[0] ** 2) / 2
      total += self.config.weight_decay * decay
    for variable, gradient in zip(
      self.theta_2, tape.gradient(total, self.theta_2)
    ):
      variable.assign_sub(self.config.learning_rate * gradient)
    return size, float(features), float(loss)

  def weights(self):
    return np.concatenate(
      [v.numpy().ravel() for v in (*self.theta_1, *self.theta_2)]
    )


@pytest.mark.parametrize(
  "changes",
  [
    {},
    {"adversarial_weight": 0.0},
    {"weight_decay": 0.3, "adversarial_weight": 3.0},
    _RELEASED,
  ],
  ids=["paper", "no adversarial", "weights", "released"],
)
def test_steps_are_those_of_a_naive_implementation(changes):
  method = _method(**changes)
  naive = _Naive(method)
  _ready(method)
  start = _weights(method)
  for step in range(3):
    batch = _batch(step)
    found = method.train_step(batch)
    size, features, loss = naive.step(batch, (3, 4), step)
    assert float(found["nonprivate/attack_eps"]) == pytest.approx(size)
    assert float(found["nonprivate/reconstruction"]) == pytest.approx(
      features, rel=1e-4
    )
    assert float(found["nonprivate/loss"]) == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(_weights(method), naive.weights(), atol=2e-5)
  assert np.abs(_weights(method) - start).max() > 1e-2


def test_dense_first_layer_behind_a_flatten():
  method = _method(_flat_network())
  naive = _Naive(method)
  _ready(method)
  for step in range(2):
    method.train_step(_batch(step))
    naive.step(_batch(step), (3, 4), step)
    np.testing.assert_allclose(_weights(method), naive.weights(), atol=2e-5)


@pytest.mark.parametrize("changes", [{}, _RELEASED], ids=["paper", "released"])
def test_logits_are_those_of_a_naive_implementation(changes):
  method = _method(**changes)
  x, _ = _arrays(5)
  np.testing.assert_allclose(method(x), _Naive(method).logits(x), atol=1e-5)


def test_features_are_trained_by_adam_and_the_rest_as_asked():
  method = _method()
  method.compile()
  method.prepare(method.plan(24), _SHAPE, _RANGE, _CLASSES)
  assert isinstance(method.feature_optimizer, tf.keras.optimizers.Adam)
  assert float(method.feature_optimizer.learning_rate) == pytest.approx(0.01)
  assert isinstance(method.optimizer, tf.keras.optimizers.Adam)
  plain = _method(optimizer="sgd")
  plain.compile()
  assert isinstance(plain.optimizer, tf.keras.optimizers.SGD)


def test_the_label_noise_has_no_gradient_below_the_last_kernel():
  """Soundness of Lemma 6: labels reach the layers below without any noise."""

  def after(scale):
    method = _ready(_method())
    method.label_noise.assign(scale * method.label_noise)
    method.train_step(_batch())
    return method.network.get_weights()

  quiet, loud = after(0.0), after(1000.0)
  for i, (a, b) in enumerate(zip(quiet, loud)):
    assert np.array_equal(a, b) == (i != 4)  # the last kernel


# What the released code does in another way.


@pytest.mark.parametrize(("changes", "noisy"), [({}, True), (_RELEASED, False)])
def test_adversarial_examples_carry_input_noise_in_the_paper_only(
  changes, noisy
):
  """What x_adv adds to the loss of the features does not see chi_1, or does."""
  method = _ready(_method(**changes))
  method.feature_optimizer = tf.keras.optimizers.SGD(0.0)
  x, _, first, _ = _batch()
  noise = method.autoencoder.input_noise.noise
  differences = []
  for level in (0.0, 0.5):
    noise.assign(tf.fill(noise.shape, level))
    terms = [float(method.train_features(x, x_adv)) for x_adv in (first, x)]
    differences.append(terms[0] - terms[1])
  same = differences[0] == pytest.approx(differences[1], abs=1e-4)
  assert same != noisy


def test_released_attacks_meet_another_draw_and_no_feature_noise():
  """They are crafted against a stand-in that is never deployed."""
  method = _ready(_method(**_RELEASED))
  sources = _batch()[2]
  _, crafted = method.craft(sources)
  method.autoencoder.input_noise.noise.assign_add(
    5 * tf.ones_like(method.autoencoder.input_noise.noise)
  )
  method.autoencoder.hidden_noise.noise.assign_add(
    5 * tf.ones_like(method.autoencoder.hidden_noise.noise)
  )
  np.testing.assert_array_equal(method.craft(sources)[1], crafted)
  flip = tf.reshape(tf.range(36.0) % 2, [1, *_SHAPE]) * 2 - 1
  method.crafting_noise.noise.assign(flip)
  assert (method.craft(sources)[1].numpy() != crafted.numpy()).any()


def test_the_papers_attacks_meet_the_network_as_deployed():
  method = _ready(_method())
  assert not method.crafting_noise.noise.numpy().any()
  sources = _batch()[2]
  _, crafted = method.craft(sources)
  flip = tf.reshape(tf.range(36.0) % 2, [1, *_SHAPE]) * 2 - 1
  method.autoencoder.input_noise.noise.assign(flip)
  assert (method.craft(sources)[1].numpy() != crafted.numpy()).any()


def test_stand_in_leaves_the_standardisation_in_place():
  method = _ready(_method(**_RELEASED))
  before = method(_arrays()[0]).numpy()
  method.craft(_batch()[2])
  np.testing.assert_array_equal(method(_arrays()[0]), before)


def test_standardisation_comes_back_when_an_attack_fails(monkeypatch):
  method = _ready(_method(**_RELEASED))
  before = method(_arrays()[0]).numpy()

  def broken(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(method, "_attacks", [broken] * 3)
  with pytest.raises(KeyboardInterrupt):
    method.craft(_batch()[2])
  np.testing.assert_array_equal(method(_arrays()[0]), before)


def test_released_cifar10_noise_is_a_penalty_and_the_mean_is_over_classes():
  method = _ready(_method(label_noise="released_cifar10", adversarial_weight=0))
  naive = _Naive(method)
  x, y, _, _ = _batch()
  last = method.network.layers[-1].kernel
  start = last.numpy()
  with tf.GradientTape() as tape:
    loss = naive.label_loss(naive.logits(x), y) / _CLASSES
    kernel = naive.theta_2[2]
    total = loss + tf.reduce_mean(tf.abs(naive.chi_3 * kernel))
  expected = tape.gradient(total, kernel)
  found = method.train_classifier(x, y, x, y)
  assert float(found["nonprivate/loss"]) == pytest.approx(float(loss), rel=1e-5)
  np.testing.assert_allclose((start - last.numpy()) / 0.05, expected, atol=1e-4)


# Scales of the draws.


def test_scales_of_the_paper_by_hand():
  noise = _method().noise
  # A patch of 9, 3 x 3 positions; 5 hidden units.
  assert noise.input_scale == pytest.approx(9 * (9 + 2) / (6 * 200))
  assert noise.hidden_scale == pytest.approx(2 * noise.input_scale)
  assert noise.label_scale == pytest.approx(2 * 5 / (6 * 5.0))
  literal = _method(sensitivity="paper").noise
  assert literal.input_scale == pytest.approx(36 * (18 + 2) / (6 * 200))


def test_scales_of_the_released_code_are_golden():
  """Facts 1.5: b = 1.71, 3.41 and 2.05 on MNIST at a total of 2."""
  config = methods.DPALConfig.presets()["mnist_released"]
  network = models.by_name("dpal_mnist_released", (28, 28, 1), 10)
  noise = methods.DPAL(network, config).noise
  assert noise.reconstruction_sensitivity == 4950
  assert noise.input_scale == pytest.approx(1.71, rel=0.02)
  assert noise.hidden_scale == pytest.approx(3.41, rel=0.02)
  assert noise.label_scale == pytest.approx(2.05, rel=0.01)
  shrunk = noise.effective_dp_epsilon_features / noise.dp_epsilon_features
  assert shrunk == pytest.approx(0.611, rel=0.02)


def test_released_code_spends_less_of_the_feature_budget():
  """eps_1' = eps_1 / (1 + m s / (2 Delta) + m / Delta), Delta = 99, m = 6."""
  kernel = tf.keras.initializers.GlorotUniform(seed=0)([3, 3, 1, 2])
  norm = np.linalg.norm(np.reshape(kernel, [9, 2]), 2)
  method = _method(**_RELEASED)
  factor = 1 + 6 * norm / (2 * 99) + 6 / 99
  expected = 99 / (6 * 200) * factor
  assert method.noise.input_scale == pytest.approx(expected)
  assert _method().noise.input_scale == pytest.approx(99 / (6 * 200))


@pytest.mark.parametrize(
  ("factor", "accepted"), [(1.0, True), (2 / 3, False), (1.5, False)]
)
def test_draws_have_the_law_of_their_scales(factor, accepted):
  network = tf.keras.Sequential(
    [
      _layers.Input((60, 60, 1)),
      _layers.Conv2D(4, 5, 2, "same", activation="relu"),
      _layers.AveragePooling2D(15),
      _layers.Flatten(),
      _layers.Dense(400, "tanh"),
      _layers.Dense(10),
    ]
  )
  method = methods.DPAL(
    network, dataclasses.replace(_BASE, variant="released_code", seed=5)
  )
  noise = method.noise
  scales = (noise.input_scale, noise.hidden_scale, noise.label_scale)
  for draw, scale in zip(_draws(method), (*scales, noise.input_scale)):
    p_value = stats.kstest(draw.ravel() / (factor * scale), "laplace").pvalue
    assert (p_value > 1e-3) == accepted


def test_draws_are_independent_of_each_other():
  method = _method(**_RELEASED)
  benign, _, _, crafting = _draws(method)
  assert (benign != crafting).all()
  ratio = _draws(method)[1].ravel()[:18] / benign.ravel()[:18]
  assert ratio.std() > 0.1 * abs(ratio.mean())


def test_copied_channels_leave_colour_without_noise():
  network = tf.keras.Sequential(
    [
      _layers.Input((6, 6, 3)),
      _layers.Conv2D(2, 3, 2, "same", activation="relu"),
      _layers.Flatten(),
      _layers.Dense(5, "tanh"),
      _layers.Dense(_CLASSES),
    ]
  )
  draw = _draws(_method(network, copied_channels=True))[0]
  assert draw.shape == (1, 6, 6, 3)
  np.testing.assert_array_equal(draw[..., 0], draw[..., 2])
  assert (_draws(_method(network))[0][..., 0] != draw[..., 0]).any()


# Crafting.


def test_crafted_examples_stay_in_ball_and_range():
  method = _ready(_method(attack_steps=3, max_attack_eps=0.9))
  craft = tf.function(method.craft)
  sources = _batch()[2]
  reached = []
  for step in range(12):
    method.set_session(np.array([3, 4]), step)
    size, x_adv = (t.numpy() for t in craft(sources))
    assert 0 <= size < 0.9
    assert x_adv.min() >= -1
    assert x_adv.max() <= 1
    gap = np.abs(x_adv - sources).max(axis=(1, 2, 3))
    assert (gap <= size + 1e-6).all()
    reached.append(gap / size)
  assert np.median(reached) > 0.9
  assert craft.experimental_get_tracing_count() == 1


def test_each_attack_has_its_third_and_its_seed():
  method = _ready(_method())
  names = [type(attack).__name__ for attack in method._attacks]
  assert names == ["BIM", "MIM", "PGD"]
  seen = []

  def fake(number):
    def attack(logits_fn, x, y, seed, size):
      seen.append((tuple(seed.numpy()), y, float(size)))
      return x + number

    return attack

  method._attacks = [fake(number) for number in range(3)]
  sources = _batch()[2]
  size, x_adv = method.craft(sources)
  moved = (x_adv - sources).numpy().mean(axis=(1, 2, 3))
  np.testing.assert_allclose(moved, [0, 0, 1, 1, 2, 2], atol=1e-6)
  method.set_session(np.array([3, 4]), 1)
  method.craft(sources)
  assert len({seed for seed, _, _ in seen}) == 6
  assert {labels for _, labels, _ in seen} == {None}
  assert [each for _, _, each in seen[:3]] == [float(size)] * 3


def test_attack_size_is_uniform():
  method = _ready(_method(max_attack_eps=0.8, attack_steps=1))
  craft = tf.function(lambda: method.craft(_batch()[2])[0])
  sizes = []
  for step in range(400):
    method.set_session(np.array([1, 2]), step)
    sizes.append(float(craft()))
  assert stats.kstest(np.array(sizes) / 0.8, "uniform").pvalue > 1e-3
  for wrong in (0.8 * 2 / 3, 0.8 * 1.5):
    assert stats.kstest(np.array(sizes) / wrong, "uniform").pvalue < 1e-6


def test_adversarial_examples_keep_the_true_label():
  """Attacks leave the network's own label, training returns to the true one."""
  method = _ready(_method(adversarial_weight=1e6, max_attack_eps=1e-6))
  x, y, sources, y_adv = _batch()
  first = method.train_step((x, y, sources, y_adv))["nonprivate/loss"]
  method = _ready(_method(adversarial_weight=1e6, max_attack_eps=1e-6))
  other = method.train_step((x, y, sources, (y_adv + 1) % 3))["nonprivate/loss"]
  assert float(first) != pytest.approx(float(other), rel=1e-3)


# Runs.


class _Seen(tf.keras.callbacks.Callback):
  """Attack sizes of all steps, and Ctrl-C after some."""

  def __init__(self, stop_after=None):
    super().__init__()
    self.sizes = []
    self._stop_after = stop_after

  def on_train_batch_end(self, batch, logs=None):
    self.sizes.append(logs["nonprivate/attack_eps"])
    if len(self.sizes) == self._stop_after:
      raise KeyboardInterrupt


def test_steps_are_traced_once_whatever_the_attack_size():
  method, seen = _method(steps=6), _Seen()
  _fit(method, callbacks=[seen], validation_data=_arrays(5, seed=1))
  assert method.train_function.experimental_get_tracing_count() == 1
  assert len(set(seen.sizes)) == 6
  assert method.run_record == {"steps": 6, "sessions": 1}


def test_training_learns_and_keeps_its_draws():
  rng = np.random.default_rng(0)
  x = rng.uniform(-1, 1, (300, *_SHAPE)).astype("float32")
  y = (x[:, :3].mean(axis=(1, 2, 3)) > x[:, 3:].mean(axis=(1, 2, 3))).astype(
    int
  )
  method = _method(
    batch_size=60,
    steps=80,
    eval_every=40,
    max_attack_eps=0.1,
    learning_rate=0.02,
    dp_epsilon_labels=50.0,
  )
  before = _draws(method)
  history = method.fit(
    x, y, value_range=_RANGE, validation_data=(x, y), verbose=0
  ).history
  for a, b in zip(before, _draws(method)):
    np.testing.assert_array_equal(a, b)
  assert history["val_accuracy"][-1] > 0.8
  assert history["nonprivate/loss"][-1] < history["nonprivate/loss"][0]


def test_same_seed_same_run_and_other_seed_other_run():
  first, second, other = (_fit(_method(seed=s, steps=2)) for s in (1, 1, 2))
  np.testing.assert_array_equal(_weights(first), _weights(second))
  for a, b, c in zip(_draws(first), _draws(second), _draws(other)):
    np.testing.assert_array_equal(a, b)
    assert (a != c).all() or not a.any()
  assert np.abs(_weights(first) - _weights(other)).max() > 0


def test_without_a_seed_no_two_draws_are_alike():
  first, second = (_method(seed=None) for _ in range(2))
  for a, b in list(zip(_draws(first), _draws(second)))[:3]:
    assert (a != b).all()


@pytest.mark.parametrize("changes", [{}, _RELEASED], ids=["paper", "released"])
def test_saved_and_loaded(tmp_path, changes):
  method = _fit(_method(seed=123457, steps=2, **changes))
  path = tmp_path / "x.keras"
  method.save(path)
  loaded = tf.keras.models.load_model(path)
  x, _ = _arrays()
  np.testing.assert_array_equal(
    loaded.predict(x, verbose=0), method.predict(x, verbose=0)
  )
  for a, b in zip(_draws(method), _draws(loaded)):
    np.testing.assert_array_equal(a, b)
  assert loaded.config == dataclasses.replace(method.config, seed=None)
  assert loaded.privacy_statement() == method.privacy_statement()
  assert loaded.certifier() == method.certifier()
  with zipfile.ZipFile(path) as archive:
    assert "123457" not in archive.read("config.json").decode()
  with pytest.raises(ValueError, match="trained for 2 steps"):
    _fit(loaded)


def test_interrupted_run_goes_on_with_its_draws(tmp_path):
  """Without a seed: the draws can only come from the run folder."""
  stopped = _method(seed=None, steps=5)
  with pytest.raises(KeyboardInterrupt):
    _fit(stopped, run_dir=tmp_path, callbacks=[_Seen(stop_after=3)])
  resumed = _method(seed=None, steps=5)
  assert (_draws(resumed)[0] != _draws(stopped)[0]).all()
  seen = _Seen()
  _fit(resumed, run_dir=tmp_path, resume=True, callbacks=[seen])
  for a, b in zip(_draws(stopped), _draws(resumed)):
    np.testing.assert_array_equal(a, b)
  assert len(seen.sizes) == 2
  assert resumed.run_record == {"steps": 5, "sessions": 2}
  assert privacy.read_ledger(tmp_path / "ledger.jsonl").steps == 5
  assert int(resumed.feature_optimizer.iterations) in (4, 5)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"dp_epsilon_features": 100.0}, "input_scale"),
    ({"dp_epsilon_labels": 6.0}, "label_scale"),
    ({"batch_order": "partition"}, "order: 'random' -> 'partition'"),
    ({"batch_size": 9}, "input_scale"),
  ],
)
def test_resume_with_other_settings_is_refused(tmp_path, changes, message):
  with pytest.raises(KeyboardInterrupt):
    _fit(_method(), run_dir=tmp_path, callbacks=[_Seen(stop_after=1)])
  with pytest.raises(ValueError, match=message):
    _fit(_method(**changes), run_dir=tmp_path, resume=True)


@pytest.mark.parametrize("order", ["random", "sequential", "partition"])
def test_batches_come_in_the_order_asked_for(order):
  method, seen = _method(batch_order=order, steps=3), []
  step = method.train_step

  def spied(batch):
    tf.py_function(lambda a, b: seen.append((a, b)), [batch[0], batch[2]], [])
    return step(batch)

  method.train_step = spied
  _fit(method)
  x, _ = _arrays()
  sampler = data.FixedBatchSampler(24, _M, order)
  assert method.plan(24).sampler == sampler
  for number, (benign, sources) in enumerate(seen):
    rows = sampler.indices(0, 0, number)
    np.testing.assert_array_equal(benign, x[rows[:_M]])
    np.testing.assert_array_equal(sources, x[rows[_M:]])
  assert len(seen) == 3


def test_moving_statistics_are_those_of_the_trained_weights():
  """`dpal_mnist_bn`: inference then meets what training has just met."""
  init = tf.keras.initializers.GlorotUniform(1)
  network = tf.keras.Sequential(
    [
      _layers.Input(_SHAPE),
      _layers.Conv2D(
        2, 3, 2, "same", activation="relu", kernel_initializer=init
      ),
      _layers.BatchNormalization(momentum=0.0, center=False, scale=False),
      _layers.Flatten(),
      _dense(5, "tanh", 1),
      _dense(_CLASSES, None, 2),
    ]
  )
  method = _ready(_method(network))
  batch = _batch()
  _, x_adv = method.craft(batch[2])
  method.train_step(batch)
  both = tf.concat([batch[0], x_adv], 0)
  hidden = tf.nn.relu(method.autoencoder(both))
  np.testing.assert_allclose(
    network.layers[1].moving_mean, tf.reduce_mean(hidden, [0, 1, 2]), rtol=1e-4
  )
  alone = method(batch[0][:1]).numpy()
  np.testing.assert_allclose(alone, method(batch[0])[:1], atol=1e-5)


# Guarantees.


def test_statement_claims_the_sum_and_proves_nothing():
  statement = _method().privacy_statement()
  assert statement.claimed == privacy.Budget(205.0, 0.0)
  assert statement.proven is None
  assert statement.audited is None
  text = statement.text()
  assert "claimed dp_epsilon=205 at dp_delta=0 / proven none known" in text
  for word in ("Lemma 3", "Lemma 6", "parallel"):
    assert word in text
  assert "standardises" not in text
  assert "standardises" in _method(**_RELEASED).privacy_statement().text()


def _rows(certifier, method, count=3):
  x, y = _arrays(count)
  return list(certifier.stream(method, x, y, seed=1))


def test_certifier_claims():
  method = _method()
  found = method.certifier(attack_eps=0.2)
  assert isinstance(found, certify.VerifiedInference)
  assert found.composition == "paper"
  assert found.bound == "hoeffding"
  assert found.input_scale == method.noise.input_scale
  assert found.hidden_scale == pytest.approx(2 * method.noise.input_scale)
  assert found.input_sensitivity == pytest.approx(0.2 * 36)
  kernel = method.network.layers[0].kernel.numpy()
  row = np.abs(kernel.reshape(9, 2)).sum(axis=1).max()
  assert found.hidden_sensitivity == pytest.approx(math.sqrt(9) * row)
  rows = _rows(found, method)
  assert [row.kind for row in rows] == ["claimed"] * 3
  assert {row.method for row in rows} == {"dpal_paper_sum"}
  assert method.certifier(composition="harmonic").composition == "harmonic"


def test_released_certifier_claims_by_its_own_formula():
  method = _method(**_RELEASED)
  found = method.certifier(attack_eps=0.2)
  assert found.composition == "released_v1"
  assert found.bound == "clopper_pearson"
  assert found.inputs_together
  kernel = method.network.layers[0].kernel.numpy()
  norm = np.linalg.norm(kernel.reshape(9, 2), 2)
  assert found.hidden_sensitivity == pytest.approx(9 * norm)
  assert {row.kind for row in _rows(found, method)} == {"claimed"}
  # What is proven rests on inputs that stand alone.
  with pytest.raises(ValueError, match="depend on their own input"):
    _rows(method.proven_certifier(num_estimation=20), method)


@pytest.mark.parametrize("network", [_conv_network, _flat_network])
def test_proven_certifier_proves(network):
  """With the scale that is drawn, b / psi, and not with b."""
  method = _method(network(), psi=4.0)
  found = method.proven_certifier(num_estimation=50, confidence=0.9)
  assert found.scale == pytest.approx(method.noise.input_scale / 4)
  assert found.norm == "linf"
  assert found.position == "input"
  rows = _rows(found, method)
  assert [row.kind for row in rows] == ["proven"] * 3
  assert method.proven_certifier("l1").norm == "l1"


@pytest.mark.parametrize("network", [_conv_network, _flat_network])
def test_one_draw_of_verified_inference(network):
  """Eq. 14: the product of two passes, noise psi times smaller than b, 2b."""
  method = _method(network(), psi=4.0)
  x = tf.constant(_arrays(5)[0])
  fold = tf.random.experimental.stateless_fold_in
  seed = tf.constant([0, 9], tf.int64)

  def draw(scale, shape, stream):
    laplace = mechanisms.LaplaceMechanism(scale / 4, 1.0)
    return laplace.sample([5, *shape], fold(seed, stream))

  on_x = draw(method.noise.input_scale, method.input_noise_shape, 0)
  on_h = draw(2 * method.noise.input_scale, method.hidden_noise_shape, 1)
  naive = _Naive(method)
  inputs = tf.nn.softmax(naive.logits(x + tf.reshape(on_x, x.shape)))
  naive.chi_2 = naive.chi_2 + on_h
  expected = inputs * tf.nn.softmax(naive.logits(x))
  found = method.noisy_logits(x, 9)
  np.testing.assert_allclose(tf.exp(found), expected, rtol=1e-4, atol=1e-6)
  assert (found.numpy() != method.noisy_logits(x, 10).numpy()).all()


def test_input_noise_has_the_shape_of_the_input():
  method = _method(_flat_network())
  assert method.input_noise_shape == _SHAPE
  x = tf.constant(_arrays(2)[0])
  moved = method.logits_with_noise(x, input_noise=0.3 * tf.ones_like(x))
  np.testing.assert_allclose(moved, method(x + 0.3), atol=1e-6)


# Settings.


def test_presets_are_those_of_paper_and_code():
  presets = methods.DPALConfig.presets()
  paper, released = presets["mnist_paper"], presets["mnist_released"]
  assert paper.claimed_dp_epsilon == released.claimed_dp_epsilon == 2.0
  assert (paper.batch_size, paper.attack_steps) == (2400, 10)
  assert paper.adversarial_weight == 1.5
  assert (released.batch_size, released.steps) == (2499, 4002)
  assert released.attack_steps == 100
  assert released.adversarial_weight == 1.0
  assert released.batch_order == "sequential"
  cifar10 = presets["cifar10_released"]
  assert (cifar10.batch_size, cifar10.steps) == (1851, 16801)
  assert cifar10.max_attack_eps == 0.5
  assert cifar10.copied_channels
  assert presets["cifar10_stobatch"].batch_order == "partition"
  assert dpal_config.ATTACKS == ("bim", "mim", "pgd")


def test_registry_knows_both_classes_of_settings():
  network = _conv_network()
  found = methods.build("dpal", network, methods.preset("dpal", "mnist_5k"))
  assert type(found) is methods.DPAL
  settings = methods.preset("dpal", "mnist_5k_sound")
  assert type(methods.build("dpal", network, settings)) is methods.SoundDPAL
  assert methods.preset("dpal", None) == methods.DPALConfig()
  with pytest.raises(ValueError, match="DPALConfig or SoundDPALConfig"):
    methods.build("dpal", network, methods.DPSGDConfig())


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"dp_epsilon_features": 0.0}, r"dp_epsilon_features=0\.0 > 0"),
    ({"dp_epsilon_features": math.nan}, "dp_epsilon_features=nan > 0"),
    ({"dp_epsilon_labels": -1.0}, r"dp_epsilon_labels=-1\.0 > 0"),
    ({"psi": 0.0}, r"psi=0\.0 > 0"),
    ({"psi": -2.0}, r"psi=-2\.0 > 0"),
    ({"batch_size": 8}, "batch_size=8 to be a multiple of 3: each of bim"),
    ({"batch_size": 0}, "batch_size=0"),
    ({"variant": "sound"}, "use SoundDPALConfig with SoundDPAL"),
    ({"variant": "papr"}, "Did you mean 'paper'"),
    ({"batch_order": "partion"}, "Did you mean 'partition'"),
    ({"label_noise": "released"}, "Did you mean 'released_mnist'"),
    ({"label_loss": "tailor"}, "Did you mean 'taylor'"),
    ({"sensitivity": "code"}, "Did you mean 'released_code'"),
    ({"max_attack_eps": 0.0}, r"max_attack_eps=0\.0 > 0"),
    ({"adversarial_weight": -1.0}, r"adversarial_weight=-1\.0 >= 0"),
    ({"confidence": 1.0}, r"0 < confidence=1\.0 < 1"),
    ({"optimizer": "sdg"}, "Did you mean 'sgd'"),
    ({"input_clip": 0.0}, r"input_clip=0\.0 > 0"),
  ],
)
def test_bad_settings_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(_BASE, **changes)


def _with(**changes):
  x, y = _arrays()
  return {"x": x, "y": y, "value_range": _RANGE, **changes}


def _nan():
  x, _ = _arrays()
  x[5, 0, 0, 0] = np.nan
  return x


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (_with(value_range=(0.0, 255.0)), r"inputs in \[-1, 1\].*\(0\.0, 255\.0\)"),
    (_with(value_range=(-1.5, 1.0)), r"inputs in \[-1, 1\]"),
    (_with(x=2 * _arrays()[0]), r"x_train in \[-1\.0, 1\.0\], received values"),
    (_with(x=_nan()), "NaN or infinity, first in example 5"),
    (_with(x=_arrays(11)[0], y=_arrays(11)[1]), r"at least 12 .* most 5"),
    (_with(x=_arrays(shape=(5, 6, 1))[0]), r"\(6, 6, 1\).*\(5, 6, 1\)"),
    (_with(y=_arrays()[1] + 1), r"labels in \[0, 3\), received max 3"),
  ],
)
def test_bad_data_is_refused_before_the_run_begins(
  arguments, message, tmp_path
):
  with pytest.raises(ValueError, match=message):
    _method().fit(**arguments, run_dir=tmp_path / "run", verbose=0)
  assert not (tmp_path / "run").exists()


def test_data_within_the_range_are_enough():
  """Pixels in [0, 1] are also in [-1, 1]."""
  x, y = _arrays()
  _method(steps=1).fit(np.abs(x), y, value_range=(0.0, 1.0), verbose=0)


def test_other_batch_size_than_calibrated_for_is_refused():
  method = _ready(_method())
  x, y = (tf.constant(a[:3]) for a in _arrays())
  with pytest.raises(ValueError, match=r"batch_size=6, .* received 3"):
    method.train_step((x, y, x, y))


def test_unbounded_last_hidden_layer_is_refused():
  network = tf.keras.Sequential(
    [
      _layers.Input((6,)),
      _layers.Dense(5, "relu"),
      _layers.Dense(4, "relu"),
      _layers.Dense(3),
    ]
  )
  with pytest.raises(ValueError, match=r"last hidden layer .* bounded by 1"):
    _method(network)


def test_second_fit_is_refused():
  method = _fit(_method(steps=1))
  with pytest.raises(ValueError, match="trained for 1 steps"):
    _fit(method)
