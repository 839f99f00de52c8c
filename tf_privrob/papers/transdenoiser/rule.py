"""The rule of Algorithm 1: how much noise a gradient still needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob.papers.transdenoiser import missing_noise
from tf_privrob.papers.transdenoiser.s_min import slices
from tf_privrob.papers.transdenoiser.s_min import transformation


class Rule:
  """Lines 12 to 23 of Algorithm 1, slice by slice.

  An object of its own, so that Keras saves nothing of it.

  Args:
    denoiser: what is trained.
    config: a `TransDenoiserConfig`.
    plan: of the training.
    step: the number of the present step, a variable.

  Attributes:
    slices: variables of each slice.
    proofs: that S_min is 0 whatever the data are, where it is known.
    tally: sums over the steps, see `TransDenoiser.nonprivate_tally`.
    kept: S_min as it was computed last, in units of `smallest`.
  """

  def __init__(self, denoiser: tf.keras.Model, config, plan, step: tf.Variable):
    reading = config.reading
    self._config, self._plan, self._step = config, plan, step
    self.slices = slices.layer_slices(denoiser, reading.num_slices)
    self.proofs = [None] * len(self.slices)
    self._transformation = None
    if config.variant == "paper":
      self._transformation = transformation.PerturbationTransformation(
        denoiser, self.slices, reading.max_slice_size
      )
      self.proofs = self._transformation.proofs
    count = len(self.slices)
    self.tally = tf.Variable(tf.zeros([3, count], tf.float64), trainable=False)
    self.kept = tf.Variable(tf.zeros([count], tf.float64), trainable=False)

  @property
  def amplification(self) -> float:
    """T of "T S_min": the planned steps, the planned passes, or 1."""
    steps = self._plan.steps
    choices = {
      "steps": float(steps),
      "epochs": steps / self._plan.sampler.num_examples * self._batch_size,
      "none": 1.0,
    }
    return choices[self._config.reading.amplification]

  @property
  def _batch_size(self) -> float:
    return self._plan.sampler.expected_batch_size

  @property
  def constant(self) -> bool:
    """Whether the scale of the noise cannot depend on the data."""
    if self._config.variant != "paper":
      return self._config.variant == "sepdp"
    return self._config.reading.noise_per == "batch" and all(self.proofs)

  def describe(self) -> list[dict[str, Any]]:
    """Size of each slice, and why it is singular, in words."""
    return [
      {
        "parameters": sum(int(np.prod(v.shape)) for v in part),
        "proof": proof and proof.text,
      }
      for part, proof in zip(self.slices, self.proofs)
    ]

  # In a step.

  def gram(self, batch, coefficients: tf.Tensor) -> list[tf.Tensor]:
    """sum_i a_i^2 A_i A_i^T over the non-negative cases, slice by slice.

    Zeros at a step that uses the S_min of an earlier one.
    """
    sizes = [
      size
      for size, proof in zip(self._transformation.sizes, self.proofs)
      if proof is None
    ]
    if self._config.reading.refresh_every == 1 or not sizes:
      return self._transformation.partial(batch[0], coefficients)
    return tf.cond(
      self._is_due(),
      lambda: self._transformation.partial(batch[0], coefficients),
      lambda: [tf.zeros([size, size], tf.float64) for size in sizes],
    )

  def smallest(self, total: slices.SlicedSum) -> tf.Tensor:
    """S_min(M_t) over C^2 (Lemma 4), slice by slice.

    In the units of xi_up, unless they are "mixed": see `Reading`.
    """
    scale = self._config.l2_clip_norm**2
    if self._config.reading.units != "sum":
      scale *= self._batch_size**2

    def computed():
      count = tf.cast(total.members[0], tf.int64)
      return self._transformation.smallest_of(total.statistics, count) / scale

    if self._config.reading.refresh_every == 1:
      return computed()
    found = tf.cond(self._is_due(), computed, self.kept.read_value)
    return tf.identity(self.kept.assign(found))

  def extra_stddev(self, total: slices.SlicedSum) -> tf.Tensor:
    """sigma_bar of line 16, slice by slice; counts what it was."""
    config, smallest = self._config, self.smallest(total)
    found, plain = (
      missing_noise.extra_stddev(
        smallest,
        config.input_stddev,
        config.reading.xi_low,
        config.xi_up,
        factor,
      )
      for factor in (self.amplification, 1.0)
    )
    self.tally.assign_add(
      tf.stack(
        [
          tf.cast(smallest <= 0, tf.float64),
          1 - (found / config.xi_up) ** 2,
          1 - (plain / config.xi_up) ** 2,
        ]
      )
    )
    return found

  def stddevs(self, total: slices.SlicedSum) -> tf.Tensor:
    """The scale of this step's noise, in units of xi, slice by slice.

    Two draws of a group each, both added to the sum of all, are one draw of the
    root of their squares.
    """
    upper = self._config.xi_up * tf.ones([len(self.slices)], tf.float64)
    extra = self.extra_stddev(total)
    has_member = tf.cast(total.members > 0, tf.float64)
    if self._config.reading.noise_per == "batch":
      return tf.where(total.members[1] > 0, upper, extra)
    return tf.sqrt((extra * has_member[0]) ** 2 + (upper * has_member[1]) ** 2)

  def _is_due(self) -> tf.Tensor:
    """Whether S_min is computed at this step."""
    return self._step % self._config.reading.refresh_every == 0
