"""A run trained again with canary gradients in it: `methods.planted`."""

from __future__ import annotations

import dataclasses
import math

from tf_privrob import validate
from tf_privrob.runs.audit import source as audit_source


def check(source: audit_source.Source) -> None:
  """Refuses a run that canaries cannot take part in."""
  from tf_privrob import methods

  kind = methods.class_of(source.method, source.config)
  sampler = source.record.get("sampler")
  if not issubclass(kind, methods.DPSGD) or sampler not in (
    "poisson",
    "full_batch",
  ):
    raise ValueError(
      "Expected a run of DP-SGD or an heir, with Poisson or full batches, for"
      f" --kind=planted: each canary must come and go alone. Received"
      f" {source.method} with sampler {sampler!r}. Use --kind=step."
    )
  if not source.noise_multiplier:
    raise ValueError(
      "Expected a run with noise for --kind=planted, received one without: it"
      " states no figure that one training could refute. Use --kind=step."
    )


def train(source: audit_source.Source, num_canaries: int | None, seed: int):
  """Trains the run's method on the run's data once more, with canaries in it.

  Noise, sampling probability, divisor and steps are the run's; nothing of this
  training is written down but what the canaries showed. Its randomness comes
  from the operating system, `seed` is that of coins and coordinates.

  Args:
    source: what the run was made of.
    num_canaries: None: `privacy.canaries_in_one_training`, as far as there are
      weights.
    seed: see above.

  Returns:
    The canaries, with what was seen of them, and the method.
  """
  from tf_privrob import privacy
  from tf_privrob.methods import planted

  stated = source.statement.proven or source.statement.claimed
  budget = {"dp_epsilon": 1.01 * stated.dp_epsilon} if stated else {}
  method = source.build(
    seed=None, noise_multiplier=source.noise_multiplier, **budget
  )
  dataset, steps = source.dataset, source.record["steps"]
  weights = sum(
    math.prod(variable.shape) for variable in method.network.trainable_variables
  )
  if num_canaries is None:
    wanted = privacy.canaries_in_one_training(
      source.noise_multiplier, source.sampling_prob, steps, stated.dp_delta
    )
    num_canaries = min(wanted, weights)
  validate.positive_int(num_canaries=num_canaries)
  method.planted = planted.Planted(num_canaries, seed)
  planned = method.plan

  def plan(num_examples, input_shape=None):
    found = planned(num_examples, input_shape)
    return dataclasses.replace(found, steps=min(found.steps, steps))

  method.plan = plan
  method.fit(dataset.x_train, dataset.y_train, value_range=dataset.value_range)
  return method.planted, method
