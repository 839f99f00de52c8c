"""What cryptographic noise costs: the outlet's, beside Philox and none.

python -m benchmarks.noise [--json=noise.json]

One private step with three kinds of noise, round after round in turn on the
same network and batch: none, TensorFlow's Philox (what the steps used to have),
and the outlet's AES-256 in counter mode. A row shows the best round. The target
is that cryptographic noise makes a step at most 5 % longer than Philox did, for
networks of up to a million weights.
"""

from __future__ import annotations

import time

import tensorflow as tf
from absl import app
from absl import flags

from benchmarks import table
from tf_privrob import gradients
from tf_privrob import mechanisms
from tf_privrob import models
from tf_privrob import randomness
from tf_privrob.methods import outlet

_BATCH = flags.DEFINE_integer("batch", 512, "Examples in a step.")
_ROUNDS = flags.DEFINE_integer("rounds", 30, "Rounds over all kinds.")
_OUTPUT = flags.DEFINE_string("json", None, "Where to write the results.")
_TARGET = 1.05
_KINDS = ("none", "philox", "outlet")


def networks() -> dict[str, tf.keras.Model]:
  """By name: 26 thousand and a million weights."""
  shape = (28, 28, 1)
  return {
    "tutorial": models.tutorial_cnn(shape, 10, seed=0),
    "mlp": models.mlp(shape, 10, hidden=(1000, 200), seed=0),
  }


def step_of(network: tf.keras.Model, kind: str):
  """A function that makes one private step on random images."""
  x = tf.random.stateless_uniform([_BATCH.value, 28, 28, 1], [0, 1])
  y = tf.random.stateless_uniform([_BATCH.value], [0, 2], 0, 10, tf.int32)

  def losses(batch, seed):
    del seed
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
      batch[1], network(batch[0], training=True)
    )

  clipped = gradients.ClippedGradients(losses, network, l2_clip_norm=1.0)
  way_out = outlet.Simulation(randomness.Key.of(None))
  noise, number = mechanisms.GaussianMechanism(1.0, 1.1), tf.Variable(0)

  def philox(sums):
    sizes = [tensor.shape.num_elements() for tensor in sums]
    seed = tf.random.experimental.stateless_fold_in([1, 2], number)
    parts = tf.split(noise.sample([sum(sizes)], seed), sizes)
    return [t + tf.reshape(p, t.shape) for t, p in zip(sums, parts)]

  @tf.function
  def step():
    sums = clipped((x, y)).gradients
    if kind == "philox":
      sums = philox(sums)
    elif kind == "outlet":
      sums = way_out.gaussian(sums, 1.1, 1.0).tensors
    for variable, update in zip(network.trainable_variables, sums):
      variable.assign_sub(1e-6 * update)
    number.assign_add(1)
    return number

  return step


def main(argv) -> None:
  """Prints milliseconds and ratios."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
  rows = []
  for name, network in networks().items():
    steps = {kind: step_of(network, kind) for kind in _KINDS}
    best = dict.fromkeys(_KINDS, float("inf"))
    for number in range(_ROUNDS.value + 2):
      for kind, step in steps.items():
        started = time.perf_counter()
        step().numpy()
        if number > 1:  # the first ones trace
          best[kind] = min(best[kind], time.perf_counter() - started)
    rows.append(
      {
        "network": name,
        "weights": network.count_params(),
        **{f"{kind}, ms": round(1e3 * best[kind], 2) for kind in _KINDS},
        "outlet / philox": round(best["outlet"] / best["philox"], 3),
        "outlet / none": round(best["outlet"] / best["none"], 3),
        "at most": _TARGET,
      }
    )
  table.show(f"A private step, batch {_BATCH.value}, by its noise", rows)
  if _OUTPUT.value:
    table.write_json(_OUTPUT.value, {"rows": rows})


if __name__ == "__main__":
  app.run(main)
