"""A tiny DPAL, and Algorithm 1 once more, naively: shared by its tests."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob import layers
from tf_privrob import papers
from tf_privrob import randomness

_layers = tf.keras.layers
SHAPE, CLASSES, BATCH_SIZE = (6, 6, 1), 3, 6
VALUE_RANGE = (-1.0, 1.0)
BASE = papers.DPALConfig(
  dp_epsilon_features=200.0,
  dp_epsilon_labels=5.0,
  batch_size=BATCH_SIZE,
  steps=4,
  attack_steps=2,
  max_attack_eps=0.5,
  learning_rate=0.05,
  feature_learning_rate=0.01,
  inference=papers.Inference(num_draws=20),
  eval_every=2,
  checkpoint_every=1,
  seed=1,
)
RELEASED = {
  "variant": "released_code",
  "label_noise": "released_mnist",
  "adversarial_weight": 1.0,
  "input_clip": 1.2,
}


def arrays(count=24, seed=0, shape=SHAPE):
  rng = np.random.default_rng(seed)
  x = rng.uniform(*VALUE_RANGE, (count, *shape)).astype("float32")
  return x, rng.integers(0, CLASSES, count)


def dense(units, activation=None, seed=0):
  init = tf.keras.initializers.GlorotUniform(seed)
  # Logits of dead units would be 0, where |z| has no derivative.
  bias = tf.keras.initializers.RandomUniform(-0.2, 0.2, seed)
  return _layers.Dense(
    units, activation, kernel_initializer=init, bias_initializer=bias
  )


def conv_network(standardize=False, seed=0):
  init = tf.keras.initializers.GlorotUniform(seed)
  bias = tf.keras.initializers.RandomUniform(-0.2, 0.2, seed)
  between = [layers.BatchStandardization()] if standardize else []
  return tf.keras.Sequential(
    [
      _layers.Input(SHAPE),
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
      dense(5, seed=seed + 1),
      layers.BoundedActivation(1.0),
      dense(CLASSES, seed=seed + 2),
    ]
  )


def flat_network(seed=0):
  return tf.keras.Sequential(
    [
      _layers.Input(SHAPE),
      _layers.Flatten(),
      dense(4, "relu", seed),
      dense(5, "tanh", seed + 1),
      dense(CLASSES, None, seed + 2),
    ]
  )


def make(network=None, **changes):
  if network is None:
    network = conv_network(changes.get("variant") == "released_code")
  return papers.DPAL(network, dataclasses.replace(BASE, **changes))


def fit(method, **kwargs):
  method.fit(*arrays(), value_range=VALUE_RANGE, verbose=0, **kwargs)
  return method


def ready(method):
  """A method whose steps can be taken one by one, by plain SGD."""
  method.compile(tf.keras.optimizers.SGD(method.config.learning_rate))
  method.simulate(24, VALUE_RANGE)
  method.feature_optimizer = tf.keras.optimizers.SGD(
    method.config.feature_learning_rate
  )
  begin_step(method, 0)
  return method


def seed_of(step):
  """The public seed of a step."""
  return randomness.Key.of(step).stateless_seed()


def begin_step(method, step):
  method.set_step(seed_of(step), step)


def draws(method):
  """All that is drawn once: input, features, labels, crafting."""
  return [
    method.autoencoder.input_noise.noise.numpy(),
    method.autoencoder.hidden_noise.noise.numpy(),
    method.label_noise.numpy(),
    method.crafting_noise.noise.numpy(),
  ]


def weights(method):
  return np.concatenate([w.ravel() for w in method.network.get_weights()])


def pair(seed=7):
  x, y = arrays(2 * BATCH_SIZE, seed)
  return tuple(
    map(
      tf.constant,
      (x[:BATCH_SIZE], y[:BATCH_SIZE], x[BATCH_SIZE:], y[BATCH_SIZE:]),
    )
  )


class Naive:
  """Algorithm 1 in plain TensorFlow: matrices, no layer and no helper of ours.

  The first layer is a matrix A(theta_1) on flattened inputs; its adjoint is the
  tied decoder.
  """

  def __init__(self, method):
    self.config = method.config
    self.conv = isinstance(method.network.layers[0], _layers.Conv2D)
    self.released = self.config.variant == "released_code"
    weights = [tf.Variable(w) for w in method.network.get_weights()]
    self.theta_1, self.theta_2 = weights[:2], weights[2:]
    chi = [tf.constant(draw) for draw in draws(method)]
    self.chi_1, self.chi_2, self.chi_3 = chi[0], chi[1], chi[2]
    self.chi_attack = chi[3]

  def affine(self, x):
    kernel, bias = self.theta_1
    if not self.conv:
      return x @ kernel + bias
    basis = tf.reshape(tf.eye(36), [36, *SHAPE])
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
    basis = tf.reshape(tf.eye(36), [36, *SHAPE])
    matrix = tf.reshape(tf.nn.conv2d(basis, kernel, 2, "SAME"), [36, 18])
    out = tf.reshape(h, [-1, 18]) @ tf.transpose(matrix)
    return tf.reshape(out, [-1, *SHAPE])

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

  def craft(self, sources, step):
    seed = tf.constant(seed_of(step))

    def fold(seed, number):
      return randomness.fold_in(seed, tf.constant(number, tf.int64))

    uniform = tf.random.stateless_uniform([], fold(seed, 0))
    size = self.config.max_attack_eps * uniform
    bim, mim, pgd = tf.split(sources, 3)
    # A step of no length leaves the random start of the third attack.
    start = attacks.PGD(0.5, value_range=VALUE_RANGE, steps=1, step_size=1e-30)(
      self.attacked, pgd, tf.zeros(2, tf.int64), fold(fold(seed, 1), 2), size
    )
    parts = [
      self.iterate(bim, bim, size),
      self.iterate(mim, mim, size, decay=1.0),
      self.iterate(pgd, start, size),
    ]
    return float(size), tf.concat(parts, 0)

  def iterate(self, source, x, size, decay=0.0):
    """Eq. 10 without the noise: T steps of mu / T; the code keeps the label."""
    memory, clean = 0.0, tf.argmax(self.attacked(source), 1)
    for _ in range(self.config.attack_steps):
      with tf.GradientTape() as tape:
        tape.watch(x)
        logits = self.attacked(x)
        label = clean if self.released else tf.argmax(logits, 1)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)
      gradient = tape.gradient(loss, x)
      length = tf.reduce_sum(tf.abs(gradient), [1, 2, 3], keepdims=True)
      memory = decay * memory + tf.math.divide_no_nan(gradient, length)
      x = x + size / self.config.attack_steps * tf.sign(memory)
      x = tf.clip_by_value(x, source - size, source + size)
      x = tf.clip_by_value(x, -1.0, 1.0)
    return x

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
      for k in range(CLASSES):
        y = 1.0 if int(label) == k else 0.0
        total += tf.maximum(z[k], 0) - z[k] * y + math.log(2)
        total += -tf.abs(z[k]) / 2 + z[k] ** 2 / 8
    return total / len(logits)

  def step(self, batch, step):
    x, y, sources, y_adv = batch
    size, x_adv = self.craft(sources, step)
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
