"""A training step of every robust trainer beside a natural one.

python -m benchmarks.robust [--json=robust.json]

The real `train_step` of each method on one network and one batch, compiled,
in turn and in one process; the best of several rounds counts, and only the
ratios are worth quoting. A PGD step with k inner steps is to cost at most
k + 2 natural ones, an IBP step at most 2.5; the dual is reported.
"""

from __future__ import annotations

import os
import time

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from absl import app
from absl import flags

from benchmarks import table
from tf_privrob import methods
from tf_privrob import models

_BATCH = flags.DEFINE_integer("batch", 100, "Images of a step.")
_ROUNDS = flags.DEFINE_integer("rounds", 20, "The best of them counts.")
_STEPS = flags.DEFINE_integer("steps", 10, "k of PGD, TRADES and WRM.")
_PROJECTIONS = flags.DEFINE_integer("projections", 10, "Of the dual.")
_JSON = flags.DEFINE_string("json", None, "Also write the figures here.")
_SHAPE, _CLASSES, _IBP_TARGET = (28, 28, 1), 10, 2.5


def trainers() -> dict:
  """Objectives and the most natural steps that a step may cost."""
  k, projections = _STEPS.value, _PROJECTIONS.value
  return {
    "natural": (methods.Natural(), None),
    f"PGD, k {k}": (methods.Adversarial(attack_steps=k), k + 2),
    f"TRADES, k {k}": (methods.Trades(attack_steps=k), None),
    f"WRM, k {k}": (methods.WRM(attack_steps=k), None),
    "IBP": (methods.IBP(), _IBP_TARGET),
    "DiffAI, Box": (methods.DiffAI(), None),
    f"dual, {projections} projections": (
      methods.DualLoss(norm="l1_median", projections=projections),
      None,
    ),
  }


def step_of(objective: methods.Objective):
  """A function that makes one training step on random images."""
  network = models.by_name("ibp_small", _SHAPE, _CLASSES, seed=0)
  config = methods.TrainingConfig(batch_size=_BATCH.value, objective=objective)
  method = methods.Trainer(network, config)
  method.simulate(10 * _BATCH.value)
  rng = np.random.default_rng(0)
  batch = (
    tf.constant(rng.random((1, _BATCH.value, *_SHAPE), "float32")),
    tf.constant(rng.integers(_CLASSES, size=(1, _BATCH.value))),
    tf.ones([1, _BATCH.value]),
  )
  run = tf.function(method.train_step, autograph=False)
  return lambda: run(batch)["nonprivate/loss"].numpy()


def main(argv) -> None:
  """Prints milliseconds and ratios."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
  tf.get_logger().setLevel("ERROR")  # each method traces its own step
  load = round(os.getloadavg()[0], 2)
  found = trainers()
  steps = {name: step_of(found[name][0]) for name in found}
  for run in steps.values():
    run()
  best = dict.fromkeys(steps, float("inf"))
  for _ in range(_ROUNDS.value):
    for name, run in steps.items():
      started = time.perf_counter()
      run()
      best[name] = min(best[name], time.perf_counter() - started)
  rows = [
    {
      "trainer": name,
      "ms": round(1e3 * spent, 1),
      "times natural": round(spent / best["natural"], 2),
      "at most": found[name][1],
    }
    for name, spent in best.items()
  ]
  table.show(f"A training step, ibp_small, batch {_BATCH.value}", rows)
  print(f"Load of the machine before the first round: {load}.")
  if _JSON.value:
    table.write_json(_JSON.value, {"load": load, "rows": rows})


if __name__ == "__main__":
  app.run(main)
