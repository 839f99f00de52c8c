"""DP-SGD with one mistake each: what audits must catch."""

import numpy as np
import tensorflow as tf

from tf_privrob import gradients
from tf_privrob import methods


class HalfNoise(methods.DPSGD):
  """The noise has half the standard deviation that was accounted for."""

  def _add_noise(self, sums, seed):
    noisy = super()._add_noise(sums, seed)
    return [(s + n) / 2 for s, n in zip(sums, noisy)]


class NoClipping(methods.DPSGD):
  """Gradients are summed as they are."""

  def _make_gradients(self, jit_compile):
    class Unclipped(gradients.UnclippedGradients):
      def sensitivity(inner, neighbouring="add_or_remove_one"):  # noqa: N805
        return self.config.l2_clip_norm

    return Unclipped(self._example_losses, self.network, jit_compile)


class OneDraw(methods.DPSGD):
  """The noise of the first step is used in every step."""

  def _noisy_sum(self, total):
    fold_in = tf.random.experimental.stateless_fold_in
    return self._add_noise(total.gradients, fold_in(self._state.key, 0))


class WrongDivisor(methods.DPSGD):
  """Noise for the mean is added to it, and divided by the batch size again."""

  def _add_noise(self, sums, seed):
    size = self._plan.sampler.expected_batch_size
    noisy = super()._add_noise(sums, seed)
    return [s + (n - s) / size for s, n in zip(sums, noisy)]


class NoisePerExample(methods.DPSGD):
  """A share of 1 / b for each of b examples: the sum has 1 / sqrt(b) of it."""

  def _noisy_sum(self, total):
    size = int(self._plan.sampler.expected_batch_size)
    fold_in = tf.random.experimental.stateless_fold_in
    sums = total.gradients
    for example in range(size):
      noisy = self._add_noise(sums, fold_in(self._state.seed(0), example))
      sums = [s + (n - s) / size for s, n in zip(sums, noisy)]
    return sums


CAUGHT_AT_ONCE = (NoClipping, WrongDivisor, NoisePerExample)


def network(inputs=6, classes=3):
  """One Dense layer."""
  return tf.keras.Sequential(
    [
      tf.keras.layers.Input((inputs,)),
      tf.keras.layers.Dense(
        classes, kernel_initializer=tf.keras.initializers.GlorotUniform(0)
      ),
    ]
  )


def records(count=16, inputs=6, classes=3):
  """Small ones, and last a canary of norm above 2, hence a large gradient."""
  rng = np.random.default_rng(0)
  x = rng.uniform(0, 0.3, (count, inputs)).astype("float32")
  x[-1] = 1.0
  return x, rng.integers(0, classes, count)


def settings(**changes):
  """One step on all records at a proven dp_epsilon of 1."""
  return methods.DPSGDConfig(
    **{
      "dp_epsilon": 1.0,
      "dp_delta": 1e-3,
      "sampler": "full_batch",
      "epochs": 1,
      "l2_clip_norm": 0.1,
      "learning_rate": 1.0,
      "physical_batch_size": 16,
      "batch_size": 8,
      "seed": 1,
      **changes,
    }
  )
