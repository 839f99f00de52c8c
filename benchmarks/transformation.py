"""S_min of TransDenoiser's matrix, beside the Jacobian and its SVD.

python -m benchmarks.transformation [--json=transformation.json]

One slice of 1,000 parameters, images of 784 pixels, 64 examples. The naive way
takes `tape.jacobian` example by example (compiled, float64), joins all of F,
1,000 x 50,176, and asks NumPy for its singular values. Two denoisers:

  autoencoder: the decoder behind a code of 49 numbers. Both ways know the
    same; ours forms 49 columns an example.
  residual: three convolutions with a skip, no code: ours has to form all 784
    columns, as the naive way does.

Every candidate runs in a process of its own, in turn, and both are compiled
before the clock starts. Peak memory is the process' maximum resident set less
that after the compiling call, which sees a batch of one; "peak MiB" is the
maximum itself.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time

from absl import app
from absl import flags

_DENOISERS = flags.DEFINE_list(
  "denoisers", ["autoencoder", "residual"], "Denoisers to measure."
)
_BATCH = flags.DEFINE_integer("batch_size", 64, "Examples.")
_ROUNDS = flags.DEFINE_integer("rounds", 2, "Rounds over all candidates.")
_JSON = flags.DEFINE_string("json", None, "Where to write the results.")
_ONE = flags.DEFINE_string("one", None, "Internal: measure this way only.")

_WAYS = ("tf_privrob", "naive")


def denoiser(name: str):
  """A tanh network; its trainable weights are one slice of 1,000 numbers."""
  import tensorflow as tf

  lib = tf.keras.layers

  def conv(filters, seed, strides=1, kind=lib.Conv2D, **kwargs):
    return kind(
      filters,
      3,
      strides,
      "same",
      kernel_initializer=tf.keras.initializers.GlorotUniform(seed),
      **kwargs,
    )

  up = {"strides": 2, "kind": lib.Conv2DTranspose, "activation": "tanh"}
  inputs = lib.Input((28, 28, 1))
  if name == "autoencoder":
    code = conv(16, 1, 2, activation="tanh", trainable=False)(inputs)
    code = conv(1, 2, 2, activation="tanh", trainable=False)(code)
    hidden = conv(10, 4, **up)(conv(9, 3, **up)(code))
    outputs = conv(1, 5, use_bias=False)(hidden)
  else:
    hidden = conv(9, 1, activation="tanh")(inputs)
    hidden = conv(10, 2, activation="tanh")(hidden)
    outputs = conv(1, 3, use_bias=False)(hidden) + inputs
  model = tf.keras.Model(inputs, outputs)
  assert sum(map(tf.size, model.trainable_variables)) == 1000
  return model


def _ours(model):
  import numpy as np

  from tf_privrob import gradients

  transformation = gradients.PerturbationTransformation(
    model, [model.trainable_variables]
  )

  def smallest(x):
    coefficients = np.full([len(x), 1], 1 / len(x))
    return float(transformation.smallest(x, coefficients)[0])

  # The tracing call: the loop's body is the same for any batch.
  return smallest, lambda x: transformation.gram(x, np.ones([len(x), 1]))


def _naive(model):
  import numpy as np
  import tensorflow as tf

  from tf_privrob.gradients import mixed

  twin = mixed.in_double_precision(model)
  twin.set_weights(model.get_weights())

  @tf.function
  def jacobian(x):
    with tf.GradientTape() as outer:
      with tf.GradientTape() as inner:
        inner.watch(x)
        loss = tf.reduce_sum((twin(x) - tf.stop_gradient(x)) ** 2)
      slope = tf.reshape(inner.gradient(loss, x), [-1])
    parts = outer.jacobian(slope, twin.trainable_variables)
    return tf.concat([tf.reshape(p, [len(slope), -1]) for p in parts], 1)

  def smallest(x):
    columns = [jacobian(x[i : i + 1]).numpy() for i in range(len(x))]
    factor = np.concatenate(columns).T / len(x)
    return float(np.linalg.svd(factor, compute_uv=False)[-1] ** 2)

  return smallest, jacobian


def _peak() -> float:
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _measure(way: str, name: str) -> dict:
  import numpy as np
  import tensorflow as tf

  tf.config.threading.set_intra_op_parallelism_threads(2)
  tf.config.threading.set_inter_op_parallelism_threads(2)
  x = np.random.default_rng(0).random((_BATCH.value, 28, 28, 1))
  smallest, compile_ = {"tf_privrob": _ours, "naive": _naive}[way](
    denoiser(name)
  )
  compile_(tf.constant(x[:1]))
  before, start = _peak(), time.perf_counter()
  value = smallest(tf.constant(x))
  return {
    "seconds": time.perf_counter() - start,
    "peak_mib": _peak(),
    "added_mib": _peak() - before,
    "smallest": value,
  }


def _run(way: str, name: str) -> dict:
  words = [sys.executable, "-m", "benchmarks.transformation", f"--one={way}"]
  words += [f"--denoisers={name}", f"--batch_size={_BATCH.value}"]
  environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
  done = subprocess.run(
    words, capture_output=True, text=True, check=True, env=environment
  )
  return json.loads(done.stdout.strip().splitlines()[-1])


def _rows(name: str) -> list[dict]:
  best = {}
  for _ in range(_ROUNDS.value):
    for way in _WAYS:
      found = _run(way, name)
      if way not in best or found["seconds"] < best[way]["seconds"]:
        best[way] = found
  ours = best["tf_privrob"]
  return [
    {
      "denoiser": name,
      "way": way,
      "seconds": found["seconds"],
      "this / ours": found["seconds"] / ours["seconds"],
      "added MiB": found["added_mib"],
      "added, this / ours": found["added_mib"] / ours["added_mib"],
      "peak MiB": round(found["peak_mib"]),
      "S_min": found["smallest"],
      "relative difference": abs(found["smallest"] / ours["smallest"] - 1),
    }
    for way, found in best.items()
  ]


def main(argv) -> None:
  """Prints a table."""
  del argv
  if _ONE.value:
    print(json.dumps(_measure(_ONE.value, _DENOISERS.value[0])))
    return
  from benchmarks import table

  title = (
    f"S_min of 1,000 parameters, 784 pixels, {_BATCH.value} examples, 2"
    f" threads, best of {_ROUNDS.value}"
  )
  rows = [row for name in _DENOISERS.value for row in _rows(name)]
  table.show(title, rows)
  if _JSON.value:
    table.write_json(_JSON.value, {"title": title, "rows": rows})


if __name__ == "__main__":
  app.run(main)
