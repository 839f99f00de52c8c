"""A small trained network on scikit-learn's digits, shared by the room."""

import numpy as np
import pytest
import tensorflow as tf


@pytest.fixture(scope="session")
def digits():
  from sklearn import datasets

  x, y = datasets.load_digits(return_X_y=True)
  return (x / 16).astype(np.float32), y.astype(np.int64)


@pytest.fixture(scope="session")
def network(digits):
  x, y = digits
  init = tf.keras.initializers.GlorotUniform
  layers = tf.keras.layers
  model = tf.keras.Sequential(
    [
      layers.Input((64,)),
      layers.Dense(48, activation="relu", kernel_initializer=init(1)),
      layers.Dense(10, kernel_initializer=init(2)),
    ]
  )
  model.compile(
    tf.keras.optimizers.Adam(5e-3),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  model.fit(x, y, batch_size=64, epochs=8, shuffle=False, verbose=0)
  return model


@pytest.fixture(scope="session")
def batch(digits):
  x, y = digits
  return x[:96], y[:96]


@pytest.fixture(scope="session")
def convnet():
  """An untrained CNN on 12 x 12 images."""
  init = tf.keras.initializers.GlorotUniform
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.Input((12, 12, 1)),
      layers.Conv2D(4, 3, 2, activation="relu", kernel_initializer=init(1)),
      layers.Conv2D(8, 3, activation="relu", kernel_initializer=init(2)),
      layers.Flatten(),
      layers.Dense(5, kernel_initializer=init(3)),
    ]
  )


@pytest.fixture(scope="session")
def images():
  rng = np.random.default_rng(0)
  x = rng.random((12, 12, 12, 1), np.float32)
  return x, rng.integers(0, 5, 12)


def accuracy(model, x, y):
  return float(np.mean(np.argmax(model(x), axis=-1) == y))
