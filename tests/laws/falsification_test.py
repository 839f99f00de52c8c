"""The law has teeth: variants with one mistake each are caught by it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.laws import cases
from tests.laws import examples
from tests.laws import law
from tf_privrob import data
from tf_privrob import gradients
from tf_privrob import methods
from tf_privrob import papers
from tf_privrob import randomness

pytestmark = pytest.mark.usefixtures("small_chunks")

_SIZE = examples.SIZES[0]


def _case(kind, network=cases.smooth):
  case = cases.BY_GRADIENTS["DPSGD for Natural"]
  return dataclasses.replace(case, kind=kind, network=network)


def _caught(match, case, kind, first=False, quiet=False, **changes):
  bench = case.bench(kind, quiet, **changes)
  with pytest.raises(law.BrokenLawError, match=match):
    law.shares(bench, kind, _SIZE, first=first)


# Losses and gradients.


class MixingLoss(methods.DPSGD):
  """The mean of the chunk is taken off, where no derivative shows it."""

  def training_logits(self, images, seed):
    logits = super().training_logits(images, seed)
    return logits - tf.stop_gradient(tf.reduce_mean(logits, axis=0))


def test_a_loss_that_mixes_the_batch_is_caught():
  _caught("moves by", _case(MixingLoss), "full_batch", quiet=True)


class _NotClipping(gradients.ClippedGradients):
  def _clip_factors(self, norms):
    return tf.ones_like(norms)


class _PrecisionByChunk(gradients.ClippedGradients):
  """Norms are too long by a factor, unless a row of the chunk overflows."""

  def _clip_factors(self, norms):
    fine = tf.reduce_all(tf.math.is_finite(norms))
    return super()._clip_factors(tf.where(fine, 8 * norms, norms))


def _with_gradients(kind):
  class Broken(methods.DPSGD):
    def _make_gradients(self, jit_compile):
      del jit_compile
      norm = self.config.l2_clip_norm
      return kind(self.example_losses, self.network, norm)

  return Broken


@pytest.mark.parametrize("kind", ["poisson", "shuffle", "full_batch"])
def test_gradients_that_are_not_clipped_are_caught(kind):
  _caught("moves by", _case(_with_gradients(_NotClipping)), kind)


def test_a_precision_that_one_row_chooses_for_its_chunk_is_caught():
  bench = _case(_with_gradients(_PrecisionByChunk)).bench(
    "full_batch", quiet=True, physical_batch_size=12
  )
  pair = law.Pair.of(bench.method.sampler, 11, 1)
  law.shares(bench, "full_batch", _SIZE, ["ordinary"], pair=pair)
  with pytest.raises(law.BrokenLawError, match="moves by"):
    law.shares(bench, "full_batch", _SIZE, ["not a number"], pair=pair)


class SizePerChunk(papers.SoundDPAL):
  """The attack's size is drawn for each chunk, as it once was."""

  def example_losses(self, batch, seed):
    state = self.run_state
    self.run_state = _ChunkState(seed)
    try:
      return super().example_losses(batch, seed)
    finally:
      self.run_state = state


class _ChunkState:
  def __init__(self, seed):
    self._seed = seed

  def seed(self, *numbers):
    for number in numbers:
      self._seed = randomness.fold_in(self._seed, number)
    return self._seed


def test_an_attack_size_drawn_for_each_chunk_is_caught():
  """The others, one place further, share their chunks with others."""
  case = cases.BY_GRADIENTS["SoundDPAL"]
  case = dataclasses.replace(case, kind=SizePerChunk)
  _caught("moves by", case, "full_batch", first=True, quiet=True)


# What becomes of the sum.


class HalfNoise(methods.DPSGD):
  """Less noise than the statement says."""

  def _noisy_sum(self, total):
    sensitivity = self.clipped_gradients.sensitivity()
    stddev = self.settled_plan.noise_multiplier * sensitivity / 2
    return self.outlet.gaussian(total.gradients, stddev, sensitivity)


class MeanBeforeNoise(methods.DPSGD):
  """The sum is divided by the size that was drawn, then gets noise."""

  def _noisy_sum(self, total):
    share = self.sampler.expected_batch_size / tf.maximum(total.count, 1)
    share = tf.cast(share, tf.float64)
    scaled = [share * gradient for gradient in total.gradients]
    return super()._noisy_sum(total._replace(gradients=scaled))


class MeanAfterNoise(methods.DPSGD):
  """The noisy sum is divided by the size that was drawn."""

  def _noisy_sum(self, total):
    share = self.sampler.expected_batch_size / tf.maximum(total.count, 1)
    share = tf.cast(share, tf.float64)
    noisy = super()._noisy_sum(total)
    return noisy.map(lambda tensors: [share * tensor for tensor in tensors])


class NoiseByData(methods.DPSGD):
  """The noise is as large as the batch."""

  def _noisy_sum(self, total):
    sensitivity = self.clipped_gradients.sensitivity()
    return self.outlet.gaussian(
      total.gradients, [total.count] * len(total.gradients), sensitivity
    )


class SumToo(methods.DPSGD):
  """The sum is released a second time."""

  def _noisy_sum(self, total):
    super()._noisy_sum(total)
    return super()._noisy_sum(total)


@pytest.mark.parametrize(
  ("kind", "match"),
  [
    (HalfNoise, r"moves 1\.99.* times as far"),
    (MeanBeforeNoise, "moves by"),
    (MeanAfterNoise, "not the same"),
    (NoiseByData, "the noise is not fixed"),
    (SumToo, "12 releases in 6 steps"),
  ],
)
def test_a_sum_that_is_treated_wrongly_is_caught(kind, match):
  _caught(match, _case(kind), "poisson")


class _Keeps(tf.keras.layers.Layer):
  """Stores its last input."""

  def build(self, shape):
    self.kept = self.add_weight("kept", shape[1:], trainable=False)

  def call(self, inputs):
    self.kept.assign(inputs[-1])
    return inputs


def _keeping():
  lib = tf.keras.layers
  return tf.keras.Sequential([lib.Input(examples.FLAT), _Keeps(), lib.Dense(3)])


def test_state_that_a_pass_leaves_behind_is_caught():
  case = _case(methods.DPSGD, _keeping)
  _caught("not the same", case, "full_batch", quiet=True, engine="loop")


# Samplers.


def test_a_shuffle_that_drops_its_last_batch_is_caught():
  bench = cases.BY_GRADIENTS["SoundAdLM"].bench("shuffle")
  larger, smaller = (
    data.ShuffleSampler(rows, examples.BATCH_SIZE, 3, drop_last=True)
    for rows in (12, 11)
  )
  assert (larger.steps_per_epoch, smaller.steps_per_epoch) == (3, 2)
  pair = law.Pair(larger, smaller, 6)
  with pytest.raises(law.BrokenLawError, match="moves by"):
    law.shares(bench, "shuffle", _SIZE, pair=pair)


class FixedSize(data.PoissonSampler):
  """Draws exactly b rows, whoever is there."""

  def indices(self, key, step):
    order = key.child("fixed", step).permutation(self.num_examples)
    return np.sort(order[: examples.BATCH_SIZE])


def test_batches_of_one_size_that_are_called_poisson_are_caught():
  bench = cases.BY_GRADIENTS["SoundAdLM"].bench("poisson")
  planned = FixedSize.from_batch_size(12, examples.BATCH_SIZE, 2)
  pair = law.Pair.of(planned, 11, 6)
  with pytest.raises(law.BrokenLawError, match="moves by"):
    law.shares(bench, "poisson", _SIZE, pair=pair)
