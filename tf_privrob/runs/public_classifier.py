"""Trains a classifier on public data, without privacy and without flags."""

from __future__ import annotations

import time


def train_public_classifier(
  network,
  dataset,
  epochs: int = 8,
  seed: int = 0,
  batch_size: int = 128,
  learning_rate: float = 2e-3,
  augmentation: str = "shift",
  path: str | None = None,
) -> dict:
  """Trains by Keras' own fit: no privacy, on examples that are public.

  Adam, a learning rate that falls to zero along a cosine, images moved by up
  to two pixels. The last weights are kept; the test set chooses nothing.

  Args:
    network: a Keras model that returns logits; its weights are trained.
    dataset: the public one, e.g. from `data.split_public`.
    epochs: passes over the training examples; what does not fill a last batch
      waits for the next pass.
    seed: of the order and the shifts.
    batch_size: examples a step.
    learning_rate: at the start.
    augmentation: one of `data.AUGMENTATIONS` for images, or "none".
    path: the .keras file to write: without the optimizer's state, batch
      normalisation folded into the layers before it, and with hashes of the
      examples, by which a private training knows them.

  Returns:
    seconds, train_loss, test_accuracy and the settings, ready for JSON.
  """
  import tensorflow as tf

  from tf_privrob import data
  from tf_privrob import models
  from tf_privrob import validate

  validate.positive_int(epochs=epochs, batch_size=batch_size)
  validate.positive(learning_rate=learning_rate)
  batch_size = min(batch_size, dataset.num_train)
  steps = dataset.num_train // batch_size
  # Around the network, so that its own file does not hold the optimizer.
  trainer = tf.keras.Model(network.input, network.output)
  trainer.compile(
    tf.keras.optimizers.Adam(
      tf.keras.optimizers.schedules.CosineDecay(learning_rate, epochs * steps)
    ),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
  )
  started = time.monotonic()
  history = trainer.fit(
    batches(dataset, epochs, seed, batch_size, augmentation),
    epochs=epochs,
    steps_per_epoch=steps,
    verbose=0,
    callbacks=[_progress_line(network.name, epochs * steps)],
  )
  seconds = time.monotonic() - started
  if path is not None:
    seen = data.examples_of(dataset)
    models.write_trained(path, models.folded(network), seen)
  _, accuracy = trainer.evaluate(
    dataset.x_test, dataset.y_test, batch_size=500, verbose=0
  )
  return {
    "network": network.name,
    "parameters": network.count_params(),
    "dataset": dataset.name,
    "split": dataset.split,
    "num_train": dataset.num_train,
    "epochs": epochs,
    "batch_size": batch_size,
    "learning_rate": learning_rate,
    "augmentation": augmentation,
    "seed": seed,
    "seconds": round(seconds, 1),
    "train_loss": history.history["loss"][-1],
    "test_accuracy": accuracy,
  }


def batches(dataset, epochs, seed, batch_size, augmentation):
  """Shuffled batches of all epochs, each with a seed of its own."""
  import tensorflow as tf

  from tf_privrob import data

  images = tf.constant(dataset.x_train)
  labels = tf.constant(dataset.y_train)
  background = dataset.value_range[0]  # what comes in where an image moves

  def batch(step, rows):
    x = tf.gather(images, rows) - background
    own_seed = tf.stack([tf.constant(seed, step.dtype), step])
    x = data.augment(x, augmentation, own_seed)
    return x + background, tf.gather(labels, rows)

  order = tf.data.Dataset.range(dataset.num_train).shuffle(
    dataset.num_train, seed=seed, reshuffle_each_iteration=True
  )
  order = order.batch(batch_size, drop_remainder=True).repeat(epochs)
  return order.enumerate().map(batch).prefetch(2)


def _progress_line(label: str, steps: int):
  import tensorflow as tf

  from tf_privrob import progress

  line = progress.Progress(steps, f"Training {label}")

  def after(step, logs):
    del step
    line.update(note=f"loss {logs['loss']:.4f} acc. {logs['accuracy']:.4f}")

  return tf.keras.callbacks.LambdaCallback(on_batch_end=after)
