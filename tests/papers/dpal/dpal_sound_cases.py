"""A tiny SoundDPAL, shared by its tests."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tf_privrob import models
from tf_privrob import papers
from tf_privrob import randomness
from tf_privrob.methods import outlet as outlet_lib

_layers = tf.keras.layers
SHAPE, CLASSES, VALUE_RANGE = (6, 6, 1), 3, (-1.0, 1.0)
STEP_SEED = np.array([3, 4])
BASE = papers.SoundDPALConfig(
  noise_multiplier=1.0,
  dp_epsilon=50.0,
  dp_delta=1e-3,
  batch_size=16,
  epochs=1.0,
  accountant="rdp",
  moments=papers.Moments(dp_epsilon=1.0),
  adversarial_weight=0.0,  # tests of the attack say so
  attack_steps=2,
  seed=0,
)


def arrays(count=64, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.uniform(*VALUE_RANGE, (count, *SHAPE)).astype("float32")
  return x, rng.integers(0, CLASSES, count)


def conv_network(activation="relu", seed=0):
  init = tf.keras.initializers.GlorotUniform
  return tf.keras.Sequential(
    [
      _layers.Input(SHAPE),
      _layers.Conv2D(
        4, 3, 2, activation=activation, kernel_initializer=init(seed)
      ),
      _layers.Flatten(),
      _layers.Dense(5, "tanh", kernel_initializer=init(seed + 1)),
      _layers.Dense(CLASSES, kernel_initializer=init(seed + 2)),
    ]
  )


def flat_network():
  return models.mlp(SHAPE, CLASSES, hidden=(8, 5), activation="tanh")


def make(network=None, **changes):
  config = dataclasses.replace(BASE, **changes)
  return papers.SoundDPAL(
    conv_network() if network is None else network, config
  )


def fit(method, **kwargs):
  method.fit(*arrays(), value_range=VALUE_RANGE, verbose=0, **kwargs)
  return method


class _Keeping(outlet_lib.Simulation):
  """Remembers what was released before the first step."""

  def once(self, name, compute, settings=None):
    self.released, count = super().once(name, compute, settings)
    return self.released, count


def begin(method, seed=0):
  """Only what is released before the first step; returns the moments."""
  outlet = _Keeping(randomness.Key.of(seed))
  method.simulate(64, VALUE_RANGE, outlet)
  method.begin(*arrays(), VALUE_RANGE)
  return outlet.released


def ready(method, count=64):
  """Prepared for a step by hand, its first layer as it is."""
  method.compile(tf.keras.optimizers.SGD(method.config.learning_rate))
  method.simulate(count, VALUE_RANGE)
  method.set_step(STEP_SEED, 0)
  return method


def weights(network):
  return np.concatenate([w.ravel() for w in network.get_weights()])
