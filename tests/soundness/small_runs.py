"""Data and settings of trainings that take a moment."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tf_privrob import methods
from tf_privrob import models

CONFIG = methods.DPSGDConfig(
  noise_multiplier=1.0, batch_size=16, epochs=1, dp_epsilon=50.0, dp_delta=1e-3
)


class Stop(tf.keras.callbacks.Callback):
  """Interrupts after a step, or raises what it is given."""

  def __init__(self, error=KeyboardInterrupt):
    super().__init__()
    self._error = error

  def on_train_batch_end(self, batch, logs=None):
    raise self._error("stop")


def arrays(count: int = 64, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """Rows of six features, and labels of three classes."""
  rng = np.random.default_rng(seed)
  x = rng.random((count, 6), "float32")
  return x, (x[:, 0] * 3).astype("int64")


def method(network=None, public_weights=None, **changes) -> methods.DPSGD:
  """DP-SGD of one layer, or of a network, with other settings."""
  network = network or models.mlp((6,), 3, hidden=())
  config = dataclasses.replace(CONFIG, **changes)
  return methods.DPSGD(network, config, public_weights=public_weights)


def fit(trained, **kwargs):
  """The method, after its training on the data of this file."""
  trained.fit(*arrays(), verbose=0, **kwargs)
  return trained
