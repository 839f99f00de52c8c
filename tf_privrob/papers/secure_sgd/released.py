"""The released SecureSGD code's step, and how it measures r.

Nothing here is private: see `papers.SecureSGD`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import mechanisms
from tf_privrob import randomness
from tf_privrob.mechanisms import heterogeneous
from tf_privrob.methods import hidden_noise
from tf_privrob.methods import noise_place
from tf_privrob.papers.secure_sgd import config as secure_sgd_config


def clip(
  gradients: Sequence[tf.Tensor], l2_clip_norm: float
) -> list[tf.Tensor]:
  """What the code makes of the mean gradient of a batch before its noise.

  Kernels are clipped to C each, biases are left alone.
  """
  return [
    tf.clip_by_norm(g, l2_clip_norm) if len(g.shape) > 1 else g
    for g in gradients
  ]


def sign_redistribution(
  place: noise_place.NoisePlace,
  x: np.ndarray,
  y: np.ndarray,
  power: float = 1.0,
  total: float | None = None,
) -> np.ndarray:
  """R = |mean over examples of sign(dL/dh)|^power, scaled to a sum.

  A function of raw data without any noise: releasing it, or noise of its shape,
  is not private.
  """
  signs = sum(
    np.sign(gradients).sum(axis=0)
    for gradients in hidden_noise.hidden_gradients(place, x, y)
  )
  return hidden_noise.normalised(np.abs(signs / len(x)) ** power, total)


def measure(
  network: tf.keras.Model,
  config: secure_sgd_config.SecureSGDConfig,
  x: np.ndarray,
  y: np.ndarray,
  key: randomness.Key,
) -> np.ndarray:
  """R, flat, and Delta_HGM of a copy that is trained and thrown away.

  The copy is trained without noise at h, by the released step, and r is taken
  from raw batches of the training data.
  """
  rng = np.random.default_rng(key.integer())
  copy = tf.keras.models.clone_model(network)
  copy.set_weights(network.get_weights())
  place = hidden_noise.find(copy)
  optimizer = tf.keras.optimizers.SGD(config.learning_rate)
  variables = copy.trainable_variables
  optimizer.build(variables)

  @tf.function
  def step(images, labels, noise_seed):
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels, copy(images, training=True)
        )
      )
    clipped = clip(tape.gradient(loss, variables), config.l2_clip_norm)
    noise = mechanisms.GaussianMechanism(1.0, config.gradient_stddev)
    fold_in = randomness.fold_in
    noisy = [
      noise.add_noise(gradient, fold_in(noise_seed, number))
      for number, gradient in enumerate(clipped)
    ]
    optimizer.apply_gradients(zip(noisy, variables))

  size = min(config.batch_size, len(x))
  for number in range(int(config.redistribution.throwaway_steps)):
    rows = rng.choice(len(x), size, replace=False)
    step(
      tf.constant(x[rows], tf.float32),
      tf.constant(y[rows], tf.int64),
      tf.constant(key.child("step", number).stateless_seed()),
    )
  count = min(len(x), config.redistribution.batches * size)
  rows = rng.choice(len(x), count, replace=False)
  spread = sign_redistribution(
    place,
    x[rows],
    y[rows],
    config.redistribution.power,
    config.redistribution.total,
  )
  sensitivity = heterogeneous.claimed_sensitivity(
    hidden_noise.first_kernel(place).numpy(), spread
  )
  return np.append(spread.ravel(), sensitivity)
