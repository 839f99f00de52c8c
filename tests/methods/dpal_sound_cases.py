"""A tiny SoundDPAL, shared by its tests."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tf_privrob import methods
from tf_privrob import models

_layers = tf.keras.layers
SHAPE, CLASSES, VALUE_RANGE = (6, 6, 1), 3, (-1.0, 1.0)
BASE = methods.SoundDPALConfig(
  noise_multiplier=1.0,
  dp_epsilon=50.0,
  dp_delta=1e-3,
  batch_size=16,
  epochs=1.0,
  accountant="rdp",
  moment_dp_epsilon=1.0,
  adversarial_weight=0.0,  # tests of the attack say so
  attack_steps=2,
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
  return methods.SoundDPAL(
    conv_network() if network is None else network, config
  )


def fit(method, **kwargs):
  method.fit(*arrays(), value_range=VALUE_RANGE, verbose=0, **kwargs)
  return method


def begin(method, run_dir=None):
  """Only what is released before the first step."""
  method.begin(*arrays(), run_dir, False, VALUE_RANGE)


def ready(method, count=64):
  """Prepared for a step by hand, its first layer as it is."""
  method.compile(tf.keras.optimizers.SGD(method.config.learning_rate))
  plan = method.plan(count)
  method._plan = plan
  method.prepare(plan, SHAPE, VALUE_RANGE, CLASSES)
  method.set_session(np.array([3, 4]), 0)
  return method


def weights(network):
  return np.concatenate([w.ravel() for w in network.get_weights()])
