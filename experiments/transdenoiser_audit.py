"""Two-world audits of one step of TransDenoiser: with one record, or without.

The adversary knows all other records, the weights before the step and the
settings, and sees the weights after it. Every record takes part in the step,
so that the claim is that of one Gaussian release with noise multiplier xi_up.
All tests look at the size of the update alone, against a threshold fixed on
other runs.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from experiments import transdenoiser_cells

_SIDE = 4
_RECORDS = 200
_CLIP = 4.0


@dataclasses.dataclass(frozen=True)
class Case:
  """An audited setting.

  Attributes:
    label: for tables.
    canary: what the record does, in words.
    make: function of nothing: the method, and the records, the canary last.
  """

  label: str
  canary: str
  make: object


def audit_cell(cell, scale) -> dict:
  """One audit as a result of the experiment."""
  started = time.monotonic()
  case = CASES[cell.part]
  result = run(case, scale.audit_runs)
  return {
    "label": case.label,
    "canary": case.canary,
    **result,
    "seconds": round(time.monotonic() - started, 2),
  }


def run(case: Case, runs: int, seed: int = 0) -> dict:
  """Rates of the test, what they show, and what is claimed and proven."""
  from tf_privrob import privacy

  method, records = case.make()
  step = Step(method, len(records))
  worlds = {
    "without": np.arange(len(records)) < len(records) - 1,
    "with": np.ones(len(records), bool),
  }

  def sizes(world, first):
    return np.array(
      [
        step.update_size(records, worlds[world], seed + number)
        for number in range(first, first + runs)
      ]
    )

  pilot = {world: sizes(world, 0) for world in worlds}
  threshold, side = _best_threshold(pilot["without"], pilot["with"])
  alarms = {
    world: int((side * (sizes(world, runs * (2 + i)) - threshold) > 0).sum())
    for i, world in enumerate(worlds)
  }
  statement = method.privacy_statement()
  dp_delta = transdenoiser_cells.DP_DELTA
  return {
    "runs": runs,
    "caught": alarms["with"],
    "false_alarms": alarms["without"],
    "audited": privacy.dp_epsilon_lower_bound(
      alarms["with"], alarms["without"], runs, dp_delta
    ),
    "claimed": statement.claimed and dataclasses.asdict(statement.claimed),
    "proven": statement.proven and dataclasses.asdict(statement.proven),
  }


def _best_threshold(without, with_it) -> tuple[float, int]:
  """Where the pilot runs are told apart best, and the side of the alarm."""
  places = np.sort(np.concatenate([without, with_it]))
  middles = (places[1:] + places[:-1]) / 2
  gaps = [(with_it > m).mean() - (without > m).mean() for m in middles]
  best = int(np.argmax(np.abs(gaps)))
  return float(middles[best]), 1 if gaps[best] > 0 else -1


class Step:
  """The first step of a training, again and again with fresh randomness."""

  def __init__(self, method, count: int):
    import tensorflow as tf

    shape = method.network.input_shape[1:]
    method.compile(tf.keras.optimizers.SGD(1.0))
    plan = method.plan(count, shape)
    method._plan = plan
    method.prepare(plan, shape, (0.0, 1.0), method.network.output_shape[-1])
    method.count_steps(1, 1)
    self._method = method
    self._scale = plan.sampler.expected_batch_size
    self._start = [w.numpy() for w in method.network.trainable_variables]
    self._run = tf.function(method.train_step)

  def update_size(self, records, present, seed: int) -> float:
    """|noisy sum of clipped gradients| / clip norm, of a fresh step."""
    import tensorflow as tf

    method = self._method
    words = np.random.SeedSequence([17, seed]).generate_state(2)
    method.set_session(words.view(np.int32), 0)
    variables = method.network.trainable_variables
    for variable, value in zip(variables, self._start):
      variable.assign(value)
    self._run(
      (
        tf.constant(records[np.newaxis]),
        tf.zeros([1, len(records)], tf.int64),
        tf.constant(present[np.newaxis], tf.float32),
      )
    )
    moved = [v - s for v, s in zip(variables, self._start)]
    return float(tf.linalg.global_norm(moved)) * self._scale


def _linear_network():
  """One linear layer as denoiser: its remainder is never negative."""
  import tensorflow as tf

  from tf_privrob import models

  inputs = tf.keras.Input((_SIDE,))
  init = tf.keras.initializers.GlorotUniform(1)
  outputs = tf.keras.layers.Dense(_SIDE, kernel_initializer=init)(inputs)
  return models.denoised_classifier(
    tf.keras.Model(inputs, outputs), _classifier(_SIDE)
  )


def _classifier(size: int):
  import tensorflow as tf

  return tf.keras.Sequential(
    [tf.keras.layers.Input((size,)), tf.keras.layers.Dense(2)]
  )
