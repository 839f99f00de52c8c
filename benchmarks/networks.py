"""The networks that steps are timed on."""

from __future__ import annotations

SHAPES = {
  "tutorial": (28, 28, 1),
  "conv4": (28, 28, 1),
  "cifar": (32, 32, 3),
}


def layers(network: str) -> list:
  """The layers of a network: the tutorial's, or four 3x3 convolutions."""
  import tensorflow as tf

  lib = tf.keras.layers
  inputs = lib.InputLayer(SHAPES[network])
  if network == "tutorial":
    return [
      inputs,
      lib.Conv2D(16, 8, 2, "same", activation="relu"),
      lib.MaxPooling2D(2, 1),
      lib.Conv2D(32, 4, 2, "valid", activation="relu"),
      lib.MaxPooling2D(2, 1),
      lib.Flatten(),
      lib.Dense(32, activation="relu"),
      lib.Dense(10),
    ]
  return [
    inputs,
    lib.Conv2D(16, 3, 1, "same", activation="relu"),
    lib.Conv2D(16, 3, 2, "same", activation="relu"),
    lib.Conv2D(32, 3, 1, "same", activation="relu"),
    lib.Conv2D(32, 3, 2, "same", activation="relu"),
    lib.Flatten(),
    lib.Dense(64, activation="relu"),
    lib.Dense(10),
  ]
