"""DP-SGD with one mistake each: what audits must catch."""

import numpy as np
import tensorflow as tf

from tf_privrob import gradients
from tf_privrob import methods


class HalfNoise(methods.DPSGD):
  """The noise has half the standard deviation that was accounted for."""

  def _noisy_sum(self, total):
    sensitivity = self.clipped_gradients.sensitivity("add_or_remove_one")
    stddev = self.settled_plan.noise_multiplier * sensitivity / 2
    return self.outlet.gaussian(total.gradients, stddev, sensitivity)


class NoClipping(methods.DPSGD):
  """Gradients are summed as they are."""

  def _make_gradients(self, jit_compile):
    class Unclipped(gradients.UnclippedGradients):
      def sensitivity(inner, neighbouring="add_or_remove_one"):  # noqa: N805
        return self.config.l2_clip_norm

    return Unclipped(self.example_losses, self.network, jit_compile)


class OneDraw(methods.DPSGD):
  """The noise of the first step is used in every step."""

  def prepare(self, plan, shape, value_range, num_classes):
    super().prepare(plan, shape, value_range, num_classes)
    self._drawn = [
      tf.Variable(tf.zeros(variable.shape, tf.float64), trainable=False)
      for variable in self.network.trainable_variables
    ]

  def _noisy_sum(self, total):
    sums, first = total.gradients, self.run_state.step == 0

    def again(noisy):
      for drawn, n, s in zip(self._drawn, noisy, sums):
        drawn.assign(tf.where(first, n - s, drawn))
      return [s + drawn for s, drawn in zip(sums, self._drawn)]

    return super()._noisy_sum(total).map(again)


class WrongDivisor(methods.DPSGD):
  """Noise for the mean is added to it, and divided by the batch size again."""

  def _noisy_sum(self, total):
    size = self.sampler.expected_batch_size
    return (
      super()
      ._noisy_sum(total)
      .map(lambda noisy: _shrunk(noisy, total.gradients, size))
    )


class NoisePerExample(methods.DPSGD):
  """A share of 1 / b for each of b examples: the sum has 1 / sqrt(b) of it."""

  def _noisy_sum(self, total):
    size = int(self.sampler.expected_batch_size)
    sensitivity = self.clipped_gradients.sensitivity("add_or_remove_one")
    share = self.settled_plan.noise_multiplier * sensitivity / size
    released = self.outlet.gaussian(total.gradients, share, sensitivity)
    for _ in range(size - 1):
      released = self.outlet.gaussian(released.tensors, share, sensitivity)
    return released


def _shrunk(noisy, sums, size):
  """The sums with a share of 1 / size of the noise."""
  return [s + (n - s) / size for s, n in zip(sums, noisy)]


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
