"""The networks that steps and certificates are timed on."""

from __future__ import annotations

_IMAGE = (28, 28, 1)
SHAPES = {
  "tutorial": _IMAGE,
  "conv4": _IMAGE,
  "cifar": (32, 32, 3),
  "two_conv": _IMAGE,
  "strided": _IMAGE,
}


def build(network: str):
  """A network of `layers` as a Keras model."""
  import tensorflow as tf

  return tf.keras.Sequential(layers(network))


def layers(network: str) -> list:
  """The layers of a network.

  The tutorial's of TF Privacy; four 3x3 convolutions, for digits and for colour
  images; the heavier one that smoothing is timed on; the small one of IBP.
  """
  import tensorflow as tf

  lib = tf.keras.layers
  four = [
    lib.Conv2D(16, 3, 1, "same", activation="relu"),
    lib.Conv2D(16, 3, 2, "same", activation="relu"),
    lib.Conv2D(32, 3, 1, "same", activation="relu"),
    lib.Conv2D(32, 3, 2, "same", activation="relu"),
    lib.Flatten(),
    lib.Dense(64, activation="relu"),
  ]
  body = {
    "tutorial": [
      lib.Conv2D(16, 8, 2, "same", activation="relu"),
      lib.MaxPooling2D(2, 1),
      lib.Conv2D(32, 4, 2, "valid", activation="relu"),
      lib.MaxPooling2D(2, 1),
      lib.Flatten(),
      lib.Dense(32, activation="relu"),
    ],
    "conv4": four,
    "cifar": four,
    "two_conv": [
      lib.Conv2D(32, 3, padding="same", activation="relu"),
      lib.MaxPool2D(),
      lib.Conv2D(64, 3, padding="same", activation="relu"),
      lib.MaxPool2D(),
      lib.Flatten(),
      lib.Dense(128, activation="relu"),
    ],
    "strided": [
      lib.Conv2D(16, 4, 2, "same", activation="relu"),
      lib.Conv2D(32, 4, 2, "same", activation="relu"),
      lib.Flatten(),
      lib.Dense(100, activation="relu"),
    ],
  }[network]
  return [lib.InputLayer(SHAPES[network]), *body, lib.Dense(10)]
