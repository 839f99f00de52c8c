"""Ctrl-C in the middle of a training."""

import tensorflow as tf


class StopAfter(tf.keras.callbacks.Callback):
  """Raises KeyboardInterrupt once so many steps were taken."""

  def __init__(self, steps):
    super().__init__()
    self._left = steps

  def on_train_batch_end(self, batch, logs=None):
    self._left -= 1
    if not self._left:
      raise KeyboardInterrupt
