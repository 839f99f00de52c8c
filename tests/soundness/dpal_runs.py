"""DPAL on small dense networks, repeated with fresh draws."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_privrob import layers
from tf_privrob import mechanisms
from tf_privrob import papers
from tf_privrob import randomness

_layers = tf.keras.layers


def network(inputs, hidden, last, classes, seed=0):
  """Dense, relu; Dense, clipped to [-1, 1]; logits."""
  init = tf.keras.initializers.GlorotUniform
  return tf.keras.Sequential(
    [
      _layers.Input((inputs,)),
      _layers.Dense(hidden, "relu", kernel_initializer=init(seed)),
      _layers.Dense(last, kernel_initializer=init(seed + 1)),
      layers.BoundedActivation(1.0),
      _layers.Dense(classes, kernel_initializer=init(seed + 2)),
    ]
  )


def method(net, **changes):
  """The paper's variant at a claimed total of 0.2, without a session."""
  settings = {
    "dp_epsilon_features": 0.1,
    "dp_epsilon_labels": 0.1,
    "batch_size": 300,
    "attack_steps": 1,
    "optimizer": "sgd",
    "learning_rate": 1.0,
    "seed": 0,
    **changes,
  }
  found = papers.DPAL(net, papers.DPALConfig(**settings))
  found.simulate(2 * found.config.batch_size, (-1.0, 1.0))
  found.set_step(np.array([1, 2]), 0)
  return found


def draw_variables(dpal):
  """chi_1 / m, 2 chi_2 / m and chi_3 / m, with their scales."""
  return [
    (dpal.autoencoder.input_noise.noise, dpal.noise.input_scale),
    (dpal.autoencoder.hidden_noise.noise, dpal.noise.hidden_scale),
    (dpal.label_noise, dpal.noise.label_scale),
  ]


class Training:
  """A training that starts from the same weights each time.

  Initial weights, order of the data, attack sizes and starts are the same in
  every run, and known to an adversary: the paper's proofs rest on the three
  draws alone.
  """

  def __init__(self, dpal, steps):
    self.method = dpal
    key = randomness.Key.of(0)
    self.rows = [dpal.sampler.indices(key, step) for step in range(steps)]
    state = dpal.state_variables()
    start = [variable.numpy() for variable in state]

    def run(x, y, draws):
      for variable, value in zip(state, start):
        variable.assign(value)
      for (variable, _), value in zip(draw_variables(dpal), draws):
        variable.assign(value)
      dpal.set_step(np.array([1, 2]), 0)
      for rows in self.rows:
        benign, sources = np.split(rows, 2)
        dpal.train_step(
          (
            tf.gather(x, benign),
            tf.gather(y, benign),
            tf.gather(x, sources),
            tf.gather(y, sources),
          )
        )
      return [tf.identity(weight) for weight in dpal.network.weights]

    self._run = tf.function(run)
    self._draw = tf.function(self._sample)

  def _sample(self, seed):
    fold_in = randomness.fold_in
    return [
      mechanisms.LaplaceMechanism(scale, 1.0).sample(
        variable.shape, fold_in(seed, stream)
      )
      for stream, (variable, scale) in enumerate(draw_variables(self.method))
    ]

  def draws(self, seed):
    """The three draws of Algorithm 1, line 3."""
    return self._draw(tf.constant([7, seed]))

  def __call__(self, x, y, draws):
    """The weights after training, as float64 arrays."""
    weights = self._run(tf.constant(x), tf.constant(y), draws)
    return [weight.numpy().astype(float) for weight in weights]
