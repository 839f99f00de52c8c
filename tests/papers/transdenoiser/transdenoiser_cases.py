"""Small denoisers and data, shared by the tests of TransDenoiser."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import randomness

SIZE, CLASSES, COUNT, BATCH = 6, 3, 96, 48
STEPS = 2 * COUNT // BATCH
PAPER = papers.TransDenoiserConfig(
  dp_epsilon=50.0,
  dp_delta=1e-3,
  batch_size=BATCH,
  epochs=2,
  learning_rate=0.05,
  xi_up=1.5,
  reading=papers.Reading(num_slices=2),
  accountant="rdp",  # cheaper than "pld"
  seed=3,
)
SOUND = papers.SoundTransDenoiserConfig(
  dp_epsilon=50.0,
  dp_delta=1e-3,
  noise_multiplier=1.0,
  batch_size=BATCH,
  epochs=2,
  learning_rate=0.05,
  augmentation_multiplicity=2,
  accountant="rdp",
  seed=3,
)


def arrays(count=COUNT, seed=0):
  """Inputs in [0, 1] and the labels of a simple rule."""
  rng = np.random.default_rng(seed)
  x = rng.random((count, SIZE), "float32")
  return x, (x[:, 0] * CLASSES).astype("int64").clip(0, CLASSES - 1)


def denoiser(kind="tanh"):
  """Dense, activation, dense; "norm" is singular whatever the data are.

  The first layer starts wide, so that the activation bends: a denoiser that is
  almost linear is almost singular.
  """
  layers = tf.keras.layers
  init = tf.keras.initializers.GlorotNormal
  wide = tf.keras.initializers.RandomNormal(stddev=1.5, seed=1)
  inputs = tf.keras.Input((SIZE,))
  hidden = layers.Dense(8, kernel_initializer=wide, name="one")(inputs)
  if kind == "norm":
    hidden = layers.LayerNormalization(scale=False, center=False)(hidden)
  hidden = layers.Activation("tanh")(hidden)
  last = layers.Dense(SIZE, kernel_initializer=init(2), name="two")
  outputs = last(hidden)
  if kind == "norm":
    outputs = layers.LayerNormalization(scale=False, center=False)(outputs)
  return tf.keras.Model(inputs, outputs)


def classifier():
  """A linear one."""
  init = tf.keras.initializers.GlorotNormal(5)
  return tf.keras.Sequential(
    [
      tf.keras.layers.Input((SIZE,)),
      tf.keras.layers.Dense(CLASSES, kernel_initializer=init),
    ]
  )


def method(config=PAPER, kind="tanh", **changes):
  """The method of the settings, not yet trained."""
  config = config.changed(**changes)
  network = models.denoised_classifier(denoiser(kind), classifier())
  return methods.build("transdenoiser", network, config)


def prepared(config=PAPER, kind="tanh", count=COUNT, **changes):
  """The method just before its first step, by SGD with rate 1."""
  found = method(config, kind, **changes)
  found.compile(tf.keras.optimizers.SGD(1.0))
  found.simulate(count)
  return found


def batch(count=BATCH, seed=0, mask=None):
  """A logical batch of one chunk."""
  x, y = arrays(count, seed)
  mask = np.ones(count, "float32") if mask is None else mask
  return (
    tf.constant(x[None]),
    tf.constant(y[None]),
    tf.constant(np.asarray(mask, "float32")[None]),
  )


def total(found, rows):
  """What a logical batch adds to a step, before the noise."""
  return found.clipped_gradients.over_chunks(
    rows[:2], rows[2], found.run_state.seed(1)
  )


class Stepper:
  """The first step again and again, with fresh randomness each time."""

  def __init__(self, found):
    self._method = found
    self._start = [w.numpy() for w in found.network.trainable_variables]
    self._step = tf.function(found.train_step, autograph=False)

  def __call__(self, rows, seed):
    """The sums that were applied, one array a variable."""
    found = self._method
    key = randomness.Key.of(seed)
    found.set_step(key.stateless_seed(), 0)
    found.outlet.restart(key.child("noise"))
    variables = found.network.trainable_variables
    for variable, value in zip(variables, self._start):
      variable.assign(value)
    self._step(rows)
    size = found.sampler.expected_batch_size
    return [
      size * (value - variable.numpy())
      for variable, value in zip(variables, self._start)
    ]
