"""Bounds of networks: speed beside a plain loop, training, the dual's memory.

python -m benchmarks.bounds [--json=path]

(a) Interval bounds of 1,000 images: ours in a tf.function beside the same
layers written down eagerly, one after the other, twice: with lower and upper
ends and the positive and negative parts of the weights, as the method is
usually written, and with centre and radius, as ours does. (b) A training step
on interval bounds beside a standard one. (c) Peak memory of the exact dual by
batch, every size in a process of its own. The sides alternate, so that other
load on the machine hits both; each figure is the best of its rounds, and only
the ratios are worth quoting.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from absl import app
from absl import flags

from benchmarks import networks
from benchmarks import table
from tf_privrob import bounds

_JSON = flags.DEFINE_string("json", None, "Also write the figures here.")
_ROUNDS = flags.DEFINE_integer("rounds", 40, "Rounds; the best one counts.")
_IMAGES = flags.DEFINE_integer("images", 1000, "Images to bound.")
_BATCH = flags.DEFINE_integer("batch", 100, "Images of a training step.")
_SIZES = flags.DEFINE_list(
  "sizes", ["2", "4", "8", "16"], "Batches of the dual."
)
_DUAL_OF = flags.DEFINE_integer(
  "dual_of", None, "Internal: only measure the dual's memory at this batch."
)
_EPS = 0.1
_RANGE = (0.0, 1.0)
_SPEED_TARGET = 3.0
_STEP_TARGET = 2.5


def images(count: int) -> tuple[tf.Tensor, tf.Tensor]:
  """Random images and labels."""
  rng = np.random.default_rng(0)
  x = rng.random((count, 28, 28, 1), "float32")
  return tf.constant(x), tf.constant(rng.integers(10, size=count))


def _apply(layer, value, kernel):
  if isinstance(layer, tf.keras.layers.Conv2D):
    return tf.nn.conv2d(value, kernel, layer.strides, layer.padding.upper())
  return tf.matmul(value, kernel)


def plain_ends(model, x):
  """Lower and upper ends through W+ and W-, eagerly: four maps a layer."""
  low, high = tf.maximum(x - _EPS, 0), tf.minimum(x + _EPS, 1)
  for layer in model.layers:
    if isinstance(layer, tf.keras.layers.Flatten):
      low, high = layer(low), layer(high)
      continue
    plus, minus = tf.nn.relu(layer.kernel), -tf.nn.relu(-layer.kernel)
    low, high = (
      _apply(layer, low, plus) + _apply(layer, high, minus) + layer.bias,
      _apply(layer, high, plus) + _apply(layer, low, minus) + layer.bias,
    )
    low, high = layer.activation(low), layer.activation(high)
  return low, high


def plain_centres(model, x):
  """Centre and radius, eagerly: two maps a layer."""
  low, high = tf.maximum(x - _EPS, 0), tf.minimum(x + _EPS, 1)
  for layer in model.layers:
    if isinstance(layer, tf.keras.layers.Flatten):
      low, high = layer(low), layer(high)
      continue
    centre, radius = (low + high) / 2, (high - low) / 2
    centre = _apply(layer, centre, layer.kernel) + layer.bias
    radius = _apply(layer, radius, tf.abs(layer.kernel))
    low, high = (
      layer.activation(centre - radius),
      layer.activation(centre + radius),
    )
  return low, high


def best_of(sides: dict) -> dict[str, float]:
  """Seconds of each side, the best of alternating rounds after a warm-up."""
  best = {}
  for number in range(_ROUNDS.value + 1):
    for name, run in sides.items():
      started = time.perf_counter()
      np.asarray(run())
      spent = time.perf_counter() - started
      if number:
        best[name] = min(spent, best.get(name, spent))
  return best


def speed() -> list[dict]:
  """Images a second, ours and written down eagerly."""
  model = networks.build("strided")
  x, _ = images(_IMAGES.value)
  ours = tf.function(
    lambda x: bounds.Interval().output_bounds(model, x, _EPS, _RANGE)
  )
  for plain in (plain_ends, plain_centres):
    for one, other in zip(plain(model, x[:50]), ours(x[:50])):
      np.testing.assert_allclose(one, other, atol=1e-4)
  best = best_of(
    {
      "ours": lambda: ours(x)[1],
      "plain, W+ and W-": lambda: plain_ends(model, x)[1],
      "plain, centre and radius": lambda: plain_centres(model, x)[1],
    }
  )
  return [
    {
      "side": name,
      "images/s": round(_IMAGES.value / spent),
      "times ours": round(spent / best["ours"], 2),
    }
    for name, spent in best.items()
  ]


def steps() -> list[dict]:
  """A step on (CE of logits + CE of worst-case logits) / 2, and others."""
  model = networks.build("strided")
  x, y = images(_BATCH.value)
  cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
  optimizer = tf.keras.optimizers.Adam(1e-4)
  optimizer.build(model.trainable_variables)

  def natural():
    return tf.reduce_mean(cross_entropy(y, model(x, training=True)))

  def worst():
    found = bounds.Interval().worst_case_logits(model, x, y, _EPS, _RANGE)
    return tf.reduce_mean(cross_entropy(y, found))

  def step(loss_fn):
    @tf.function
    def run():
      with tf.GradientTape() as tape:
        loss = loss_fn()
      weights = model.trainable_variables
      optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
      return loss

    return run

  best = best_of(
    {
      "standard": step(natural),
      "worst-case logits only": step(worst),
      "logits and worst-case logits": step(lambda: (natural() + worst()) / 2),
    }
  )
  return [
    {
      "step": name,
      "ms": round(1e3 * spent, 1),
      "times standard": round(spent / best["standard"], 2),
    }
    for name, spent in best.items()
  ]


def dual_memory(batch: int) -> float:
  """Peak MiB of this process with worst-case logits of the exact dual."""
  model = networks.build("strided")
  x, y = images(batch)
  run = tf.function(
    lambda: bounds.Dual().worst_case_logits(model, x, y, _EPS, _RANGE)
  )
  np.asarray(run())
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory() -> list[dict]:
  """The same for several batches, each in a fresh process."""
  rows = []
  for size in _SIZES.value:
    done = subprocess.run(
      [sys.executable, "-m", "benchmarks.bounds", f"--dual_of={size}"],
      check=True,
      stdout=subprocess.PIPE,
      text=True,
    )
    row = {"batch": int(size), "MiB": round(float(done.stdout.split()[-1]))}
    if rows:
      more = row["MiB"] - rows[-1]["MiB"]
      row["MiB a further image"] = more / (row["batch"] - rows[-1]["batch"])
    rows.append(row)
  return rows


def main(argv) -> None:
  """Runs the comparisons and prints them."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
  if _DUAL_OF.value:
    print(dual_memory(_DUAL_OF.value))
    return
  load = round(os.getloadavg()[0], 2)
  speeds, training, by_batch = speed(), steps(), memory()
  table.show(f"Interval bounds of {_IMAGES.value:,} images", speeds)
  print(f"Target: at least {_SPEED_TARGET} times a plain loop.")
  table.show(f"Training step, batch {_BATCH.value}", training)
  print(f"Target: at most {_STEP_TARGET} times a standard step.")
  table.show("Peak memory of the exact dual", by_batch)
  print("Target: a further image costs the same at every batch.")
  print(f"Load of the machine before the first round: {load}.")
  if _JSON.value:
    table.write_json(
      _JSON.value,
      {
        "benchmark": "bounds",
        "load": load,
        "speed": speeds,
        "steps": training,
        "dual_memory": by_batch,
      },
    )


if __name__ == "__main__":
  app.run(main)
