"""What a training run will release, settled before it starts."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tf_privrob import data
from tf_privrob import privacy
from tf_privrob import validate
from tf_privrob.methods import settings

_FINE, _COARSE = 0.1, 0.25  # see privacy.dp_epsilon
_MOST_ROWS = 2**20  # of a chunk
_MOST_STEPS = 10_000_000  # that accounting can count, see privacy.max_steps
_MOST_EPSILON = 1e4  # a budget beyond it is no promise to anybody
_MOST_NOISE = 1e6  # beyond which nothing of the data is left


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
  """Sampler, noise and number of steps: from it follow step and statement.

  Attributes:
    sampler: who takes part in which step.
    noise_multiplier: standard deviation over the sensitivity.
    steps: logical steps of the whole run.
    limit: the step after which the budget is spent; None without privacy.
    extra: releases besides the gradients, paid from the same budget.
  """

  sampler: data.Sampler
  noise_multiplier: float
  steps: int
  limit: int | None
  extra: tuple[privacy.Release, ...] = ()

  @property
  def round_steps(self) -> int:
    """Steps between two validations: an epoch."""
    return self.sampler.steps_per_epoch


@dataclasses.dataclass(frozen=True)
class FixedPlan:
  """Batches of one size and a number of steps, with no budget to count.

  Attributes:
    sampler: batches of exactly m.
    steps: T.
    round_steps: steps between two validations.
    limit: None, since no budget is counted.
    noise_multiplier: 0, since no noise is added to gradients.
  """

  sampler: data.FixedBatchSampler
  steps: int
  round_steps: int
  limit: None = None
  noise_multiplier: float = 0.0


def record(
  plan: TrainingPlan | FixedPlan, steps: int, sessions: int
) -> dict[str, Any]:
  """What `steps` steps of a plan released, for the statement.

  All planned steps are accounted from the first one on: whoever ends a training
  early, a callback or a person, may have looked at what was released so far,
  and a figure for the steps that were taken would then be too small.
  """
  sampler = plan.sampler
  accounted = max(steps, plan.steps)
  return {
    "steps": steps,
    "steps_accounted": accounted,
    "sessions": sessions,
    "noise_multiplier": plan.noise_multiplier,
    "sampler": sampler.kind,
    "sampling_prob": sampler.expected_batch_size / sampler.num_examples,
    "num_examples": sampler.num_examples,
    "participations": sampler.max_participations(0, accounted),
  }


def make(
  config: settings.SGDConfig,
  num_examples: int,
  input_shape: tuple[int, ...],
  extra: tuple[privacy.Release, ...] = (),
) -> TrainingPlan:
  """Settles the plan, or says why the settings cannot be met.

  With a calibrated noise multiplier the budget covers exactly the steps asked
  for. With a given one the steps end where the budget does.
  """
  if config.noise_multiplier != 0:
    validate.dp_delta(config.dp_delta, num_examples)
  sampler = _sampler(config, num_examples, input_shape)
  steps = _steps(config, num_examples)
  noise_multiplier = config.noise_multiplier
  if noise_multiplier is None and config.dp_epsilon > _MOST_EPSILON:
    raise ValueError(
      f"Expected dp_epsilon <= {_MOST_EPSILON:g} to calibrate noise for,"
      f" received {config.dp_epsilon:g}. Lower it, or set noise_multiplier=0 to"
      " train without privacy."
    )
  if noise_multiplier is None:
    noise_multiplier = _calibrate(config, sampler, steps, extra)
    return TrainingPlan(sampler, noise_multiplier, steps, steps, extra)
  if noise_multiplier == 0:
    return TrainingPlan(sampler, 0.0, steps, None, extra)
  if noise_multiplier > _MOST_NOISE:
    raise ValueError(
      f"Expected noise_multiplier <= {_MOST_NOISE:g}, received"
      f" {noise_multiplier:g}: nothing would be learnt. Lower it, or leave it"
      " unset to have it calibrated."
    )
  limit = _affordable(config, sampler, noise_multiplier, extra)
  if limit < 1:
    raise ValueError(
      f"Expected a budget for at least one step, but dp_epsilon="
      f"{config.dp_epsilon} at dp_delta={config.dp_delta} with noise_multiplier"
      f"={noise_multiplier} allows none. Raise noise_multiplier or dp_epsilon,"
      " or leave noise_multiplier unset to have it calibrated."
    )
  return TrainingPlan(
    sampler, noise_multiplier, min(steps, limit), limit, extra
  )


def without_privacy(
  config: settings.SGDConfig,
  num_examples: int,
  input_shape: tuple[int, ...],
) -> TrainingPlan:
  """The same steps without noise on the gradients, and without a budget."""
  sampler = _sampler(config, num_examples, input_shape, drop_last=True)
  return TrainingPlan(sampler, 0.0, _steps(config, num_examples), None)


def _steps(config, num_examples: int) -> int:
  steps = config.epochs
  if config.sampler != "full_batch":
    steps = config.epochs * num_examples / config.batch_size
  if steps > _MOST_STEPS:
    raise ValueError(
      f"Expected at most {_MOST_STEPS:,} steps, received epochs="
      f"{config.epochs:g}, which are {steps:.3g}. Lower epochs, or raise"
      " batch_size."
    )
  return max(1, round(steps))


def _sampler(
  config, num_examples, input_shape, drop_last: bool = False
) -> data.Sampler:
  batch_size = (
    num_examples if config.sampler == "full_batch" else config.batch_size
  )
  validate.batch_size(batch_size, num_examples)
  physical = config.physical_batch_size
  if physical is not None and physical > _MOST_ROWS:
    raise ValueError(
      f"Expected chunks that fit into memory, received physical_batch_size="
      f"{physical}, above {_MOST_ROWS}. Lower it; the result stays the same."
    )
  copies = config.augmentation_multiplicity
  physical = config.physical_batch_size or max(
    1,
    data.default_physical_batch_size(
      input_shape, batch_size, config.sampler != "poisson"
    )
    // copies,
  )
  physical = data.whole_packets(physical)
  if config.sampler == "poisson":
    return data.PoissonSampler.from_batch_size(
      num_examples, batch_size, physical
    )
  if config.sampler == "shuffle":
    return data.ShuffleSampler(
      num_examples, batch_size, physical, drop_last=drop_last
    )
  return data.FullBatchSampler(num_examples, physical)


def release(
  sampler: data.Sampler, noise_multiplier: float, steps: int
) -> privacy.Release:
  """What `steps` steps with this sampler put out."""
  if sampler.kind == "shuffle":
    return privacy.shuffled_sgd(
      noise_multiplier, sampler.max_participations(0, steps)
    )
  prob = sampler.sampling_prob if sampler.kind == "poisson" else 1.0
  return privacy.poisson_sgd(noise_multiplier, prob, steps)


def dp_epsilon(
  config: settings.SGDConfig, plan: TrainingPlan, steps: int
) -> float:
  """What the first `steps` steps cost at the config's dp_delta.

  On the way a coarse figure will do, an upper bound that takes milliseconds.
  """
  if steps == 0 or plan.noise_multiplier == 0:
    return math.inf if steps else 0.0
  released = release(plan.sampler, plan.noise_multiplier, steps)
  accuracy = _FINE if steps == plan.steps else _COARSE
  return privacy.dp_epsilon(
    [released, *plan.extra],
    config.dp_delta,
    config.accountant,
    accuracy=accuracy,
  )


def _calibrate(config, sampler: data.Sampler, steps: int, extra) -> float:
  """The least noise for the budget; a shuffled epoch counts as one release."""
  if sampler.kind == "shuffle":
    epochs = sampler.max_participations(0, steps)
    shift = _epoch_shift()
    return shift * privacy.calibrate_noise_multiplier(
      config.dp_epsilon,
      config.dp_delta,
      1.0,
      epochs,
      config.accountant,
      extra_releases=extra,
    )
  prob = sampler.sampling_prob if sampler.kind == "poisson" else 1.0
  return privacy.calibrate_noise_multiplier(
    config.dp_epsilon,
    config.dp_delta,
    prob,
    steps,
    config.accountant,
    extra_releases=extra,
  )


def _affordable(config, sampler: data.Sampler, noise: float, extra) -> int:
  """The most steps that a given noise multiplier leaves within the budget."""
  budget = (config.dp_epsilon, config.dp_delta)
  if sampler.kind == "shuffle":
    shift = _epoch_shift()
    epochs = privacy.max_steps(
      *budget, noise / shift, 1.0, config.accountant, extra_releases=extra
    )
    return epochs * sampler.steps_per_epoch
  prob = sampler.sampling_prob if sampler.kind == "poisson" else 1.0
  return privacy.max_steps(
    *budget, noise, prob, config.accountant, extra_releases=extra
  )


def _epoch_shift() -> float:
  """How far one example moves a shuffled epoch, in clip norms."""
  return 1 / privacy.shuffled_sgd(1.0, 1).event.noise_multiplier
