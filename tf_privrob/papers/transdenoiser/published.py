"""TransDenoiser (input noise counted as gradient noise), as published."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_privrob import gradients
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import checks
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.methods import plan as training_plan
from tf_privrob.papers.transdenoiser import config as transdenoiser_config
from tf_privrob.papers.transdenoiser import denoising
from tf_privrob.papers.transdenoiser import fixed_noise
from tf_privrob.papers.transdenoiser import rule as rule_lib
from tf_privrob.papers.transdenoiser.s_min import slices
from tf_privrob.papers.transdenoiser.s_min import transformation

_NON_NEGATIVE = "non_negative"
_CAVEATS = {
  "scale": (
    "The scale of the gradient noise follows from S_min of the private batch,"
    " and the variance of an update shows it."
  ),
  "own_noise": (
    "An example's input noise leaves with the example: the two data sets that a"
    " guarantee compares have noise of different covariance, where Theorem 1"
    " assumes one and the same."
  ),
  "remainder": (
    "That the Taylor remainder is not negative bounds the loss from below, not"
    " its gradient; nothing follows for privacy."
  ),
  "amplification": (
    "T S_min counts the input noise of all {steps} as if each step had it:"
    " fresh noise is not amplified, fixed noise is the same at every step."
  ),
  "groups": (
    "Each group gets a draw of its own if it has a member: one example can"
    " double the variance of an update."
  ),
  "slices": (
    "{count} slices are clipped one by one and all released: one example moves"
    " them by sqrt({count}) clip norms together; the claim counts one."
  ),
  "refresh": (
    "S_min is computed at every {refresh}th step and used until the next one:"
    " Algorithm 1 computes it at each."
  ),
}


@tf.keras.saving.register_keras_serializable("tf_privrob")
class TransDenoiser(denoising.Denoising, dp_sgd.DPSGD):
  """Trains a denoiser under input noise that is counted as gradient noise.

  Algorithm 1. With z_i = x_i + b_i, b_i ~ N(0, sigma^2 I), and the loss l(z) =
  |g(z) - x|^2, the examples of a batch are split by the sign of the remainder
  l(z) - l(x) - b^T grad_x l(x). The gradient of those where it is negative gets
  N(0, xi_up^2); that of the others N(0, sigma_bar^2) with

    sigma_bar^2 = xi_up^2                            if T S sigma^2 < xi_low^2,
                  max(0, xi_up^2 - T S sigma^2)      otherwise,

  S the smallest singular value of M_t = 1/B^2 sum a_i^2 A_i A_i^T, A_i the
  mixed second derivative of the loss, a_i the clipping coefficient; all of it
  for each slice of the parameters on its own.

  Guarantee: none for "paper", unless the noise was constant by construction
  (noise_per="batch", and every slice is singular whatever the data are); then,
  and for "sepdp", that of DP-SGD with the noise multiplier that is left after
  sqrt(K) for K slices clipped one by one. The claimed figure is the moments
  accountant's for noise multiplier xi_up. See `SoundTransDenoiser` for
  guarantees by design. Certificates hold for any weights.

  What S was, and how much noise it saved, is counted in `nonprivate_tally()`.

  Args: see `papers.transdenoiser.denoising.Denoising`.
  """

  config_class = transdenoiser_config.TransDenoiserConfig

  @property
  def _private(self) -> bool:
    return self.config.variant != "nodp"

  @property
  def draws_initial_weights(self) -> bool:
    """Without noise on the gradients it starts from the weights it has."""
    return self._private and super().draws_initial_weights

  # Before the first step.

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.TrainingPlan:
    """Steps while the budget lasts; "nodp" has none.

    Of "paper" it is the claimed figure, of "sepdp" the proven one.
    """
    shape = tuple(input_shape or checks.input_shape(self.network))
    if not self._private:
      return training_plan.without_privacy(self.config, num_examples, shape)
    settings = {
      field.name: getattr(self.config, field.name)
      for field in dataclasses.fields(dp_sgd.BudgetConfig)
    }
    counted = self.config.xi_up
    if self.config.variant == "sepdp":
      full = self.config.sampler == "full_batch"
      size = num_examples if full else self.config.batch_size
      counted = self.config.proven_multiplier(size)
    settings["noise_multiplier"] = counted
    return training_plan.make(
      dp_sgd.BudgetConfig(**settings), num_examples, shape
    )

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Settles the slices and what is known of them, with DP-SGD's part."""
    super().prepare(plan, shape, value_range, num_classes)
    self._run_record["constant_noise"] = self.rule.constant
    self._run_record["slices"] = self.rule.describe()

  def settle_context(self, plan, value_range) -> None:
    """Makes the rule, too, and the noise that is drawn once."""
    super().settle_context(plan, value_range)
    config = self.config
    self._rule = rule_lib.Rule(self.denoiser, config, plan, self.run_state.step)
    self._fixed = fixed_noise.FixedNoise(randomness.Key.of(config.seed))

  def take_run_key(self, key: randomness.Key) -> None:
    """Takes the run's key for input noise that is drawn once."""
    self._fixed.settle(key)

  @property
  def rule(self) -> rule_lib.Rule:
    """How much noise a step gets, in a training that is prepared."""
    return self._rule

  def _make_gradients(self, jit_compile: bool) -> gradients.ClippedGradients:
    config = self.config
    if not self._private:
      return gradients.UnclippedGradients(
        self.example_losses, self.network, jit_compile
      )
    paper = config.variant == "paper"
    return slices.SlicedGradients(
      self.example_losses,
      self.network,
      config.l2_clip_norm,
      self.rule.slices,
      joint=config.reading.slice_clipping == "flat",
      group=_NON_NEGATIVE if paper else None,
      statistics=self.rule.gram if paper else None,
      engine=config.engine,
      jit_compile=jit_compile,
      most_rows=self.sampler.most_rows,
    )

  # A step.

  def example_losses(self, batch, seed):
    """|g(z) - x|^2 (Eq. 1), and the sign of the remainder (line 8)."""
    images = batch[0]
    noisy = images + self.training_noise(images, seed)
    errors = self.denoiser(noisy, training=True) - images
    losses = tf.reduce_sum(errors**2, axis=range(1, errors.shape.rank))
    if self.config.variant != "paper":
      return losses, {}
    remainder = transformation.taylor_remainder(self.denoiser, images, noisy)
    return losses, {_NON_NEGATIVE: remainder >= 0}

  def training_noise(self, images: tf.Tensor, seed) -> tf.Tensor:
    """The b of line 7: fresh from the seed, or always the examples' own."""
    if self.config.reading.input_noise == "fresh":
      return self.input_noise(tf.shape(images), seed)
    return self.config.input_stddev * self._fixed(images)

  def _noisy_sum(self, total) -> outlet_lib.Released:
    """Adds the draws of Algorithm 1 to the sums of both groups."""
    if not self._private:
      return super()._noisy_sum(total)
    sums = [tf.add_n(list(parts)) for parts in zip(*total.gradients)]
    unit, sensitivity = self._noise_unit(), self.clipped_gradients.sensitivity()
    stddevs = unit * self.config.xi_up
    if self.config.variant == "paper":
      # Counts them, also if constant.
      by_slice = unit * self.rule.stddevs(total)
      if not self.rule.constant:
        stddevs = [by_slice[k] for k in self.clipped_gradients.slice_of]
    return self.outlet.gaussian(sums, stddevs, sensitivity)

  def _noise_unit(self) -> float:
    """What xi = 1 is on the sum of gradients."""
    size = self.sampler.expected_batch_size
    unit = self.config.l2_clip_norm
    return unit * size if self.config.reading.units == "mean" else unit

  def _step_metrics(self, total) -> dict[str, tf.Tensor]:
    found = super()._step_metrics(total)
    if self.config.variant == "paper":
      count = tf.maximum(total.count, 1.0)
      found["nonprivate/negative_fraction"] = total.members[1] / count
    return found

  # Guarantees and the run.

  def statement(self) -> privacy.PrivacyStatement:
    """Claimed as the paper computes it; proven where the noise was constant."""
    config, record = self.config, self._run_record
    if not record.get("steps"):
      return super().statement()
    if not self._private:
      return privacy.PrivacyStatement(
        claimed=None,
        proven=None,
        sampler=record["sampler"],
        caveats=(denoising.NOT_PRIVATE,),
      )
    steps = record.get("steps_accounted", record["steps"])
    release = privacy.poisson_sgd(config.xi_up, record["sampling_prob"], steps)
    claimed = privacy.Budget(
      privacy.dp_epsilon([release], config.dp_delta, "rdp"), config.dp_delta
    )
    caveats = tuple(self._caveats())
    if not record["constant_noise"]:
      return privacy.PrivacyStatement(
        claimed=claimed,
        proven=None,
        sampler=record["sampler"],
        caveats=caveats,
      )
    found = privacy.PrivacyStatement.for_dp_sgd(
      facts=self.run_facts,
      noise_multiplier=self._proven_multiplier(),
      sampling_prob=record["sampling_prob"],
      steps=steps,
      dp_delta=config.dp_delta,
      sampler=record["sampler"],
      num_examples=record["num_examples"],
      epochs=record["participations"],
      claimed=claimed,
      extra_caveats=caveats,
    )
    return found.replace(assumptions=(*found.assumptions, *self.assumptions()))

  def _proven_multiplier(self) -> float:
    """Noise over the sensitivity of all slices together."""
    size = self._run_record["sampling_prob"] * self._run_record["num_examples"]
    return self.config.proven_multiplier(size)

  def _caveats(self) -> list[str]:
    """Why claimed is not proven, as far as it applies to these settings."""
    reading, record = self.config.reading, self._run_record
    names = []
    if not record["constant_noise"]:
      names += ["scale", "own_noise", "remainder"]
      if reading.amplification != "none":
        names.append("amplification")
      if reading.noise_per == "group":
        names.append("groups")
      if reading.refresh_every > 1:
        names.append("refresh")
    if reading.slice_clipping == "per_slice" and len(record["slices"]) > 1:
      names.append("slices")
    values = {
      "steps": reading.amplification,
      "count": len(record["slices"]),
      "refresh": reading.refresh_every,
    }
    return [_CAVEATS[name].format(**values) for name in names]

  def nonprivate_tally(self) -> list[dict[str, Any]]:
    """What the input noise saved, slice by slice; computed on private data.

    `zero`: share of steps with S_min = 0; `saving`: mean share of the variance
    xi_up^2 that was left out, `saving_without_T` what would have been without
    the factor T; `proof`: why S_min is 0 whatever the data are, if it is known.
    """
    if "tally" not in self._run_record:
      raise ValueError("Expected a model trained as variant='paper'.")
    names = ("zero", "saving", "saving_without_T")
    steps = self._run_record["steps"]
    rows = zip(self._run_record["slices"], *self._run_record["tally"])
    return [
      {**row, **{name: value / steps for name, value in zip(names, values)}}
      for row, *values in rows
    ]

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """What claim and guarantee depend on."""
    config = self.config
    return {
      **super().ledger_parameters(plan),
      **{name: getattr(config, name) for name in ("variant", "xi_up")},
      "input_stddev": config.input_stddev,
      **dataclasses.asdict(config.reading),
    }

  def spent_dp_epsilon(self, steps: int) -> float | None:
    """The proven figure, where there is one."""
    if not self.rule.constant:
      return None
    plan = dataclasses.replace(
      self.settled_plan, noise_multiplier=self._proven_multiplier()
    )
    return training_plan.dp_epsilon(self.config, plan, steps)

  def count_steps(self, steps: int, sessions: int) -> None:
    """Notes what was released so far, and what S_min was."""
    super().count_steps(steps, sessions)
    if self.config.variant == "paper":
      self._run_record["tally"] = self.rule.tally.numpy().tolist()

  def state_variables(self) -> list[tf.Variable]:
    """Adds the tally, and the S_min that later steps use."""
    return [*super().state_variables(), self.rule.tally, self.rule.kept]
