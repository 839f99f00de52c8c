"""S_min of TransDenoiser's matrix, beside the Jacobian and its SVD.

python -m benchmarks.transformation [--json=transformation.json]

One slice of 1,000 parameters, images of 784 pixels, 64 examples. The naive way
takes `tape.jacobian` example by example (compiled, float64), joins all of F,
1,000 x 50,176, and asks NumPy for its singular values. Two denoisers:

  autoencoder: a dense layer behind a code of 24 numbers, of which ours makes
    use: it forms 24 columns an example.
  residual: the first of two convolutions with a skip, no code: ours has to
    form all 784 columns, as the naive way does, but each from windows around
    its pixel.

Layers outside the slice are frozen. Every candidate runs in a process of its
own, in turn, and both are traced before the clock starts. Added memory is the
process' maximum resident set less that after the tracing call, which sees a
batch of one; "peak MiB" is the maximum itself, TensorFlow included.
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

from tf_privrob import papers

_DENOISERS = flags.DEFINE_list(
  "denoisers", ["autoencoder", "residual"], "Denoisers to measure."
)
_BATCH = flags.DEFINE_integer("batch_size", 64, "Examples.")
_ROUNDS = flags.DEFINE_integer("rounds", 1, "Rounds over all candidates.")
_JSON = flags.DEFINE_string("json", None, "Where to write the results.")
_ONE = flags.DEFINE_string("one", None, "Internal: measure this way only.")

_WAYS = ("tf_privrob", "naive")


def denoiser(name: str):
  """A tanh network; its trainable weights are one slice of 1,000 numbers."""
  import tensorflow as tf

  lib = tf.keras.layers

  def start(seed, **kwargs):
    return {
      "kernel_initializer": tf.keras.initializers.GlorotUniform(seed),
      **kwargs,
    }

  frozen = {"trainable": False}
  inputs = lib.Input((28, 28, 1))
  if name == "autoencoder":
    code = lib.Dense(24, "tanh", **start(1, **frozen))(lib.Flatten()(inputs))
    hidden = lib.Dense(40, "tanh", **start(2))(code)
    outputs = lib.Dense(784, **start(3, **frozen))(hidden)
    outputs = lib.Reshape((28, 28, 1))(outputs)
  else:
    same = {"padding": "same"}
    hidden = lib.Conv2D(20, 7, activation="tanh", **same, **start(1))(inputs)
    outputs = lib.Conv2D(1, 5, **same, **start(2, **frozen))(hidden) + inputs
  model = tf.keras.Model(inputs, outputs, name=name)
  assert sum(map(tf.size, model.trainable_variables)) == 1000
  return model


def _ours(model):
  import numpy as np
  import tensorflow as tf

  transformation = papers.PerturbationTransformation(
    model, [model.trainable_variables]
  )
  smallest = tf.function(transformation.smallest)

  def run(x):
    return float(smallest(x, np.full([len(x), 1], 1 / len(x)))[0])

  def compile_(x):
    transformation.gram(x, np.ones([len(x), 1]))
    shape = [_BATCH.value, *x.shape[1:]]
    smallest.get_concrete_function(
      tf.TensorSpec(shape, tf.float64),
      tf.TensorSpec([_BATCH.value, 1], tf.float64),
    )

  return run, compile_


def _naive(model):
  import numpy as np
  import tensorflow as tf

  tf.keras.backend.set_floatx("float64")
  twin = denoiser(model.name)
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

  def run(x):
    columns = [
      jacobian(tf.constant(x[i : i + 1])).numpy() for i in range(len(x))
    ]
    factor = np.concatenate(columns).T / len(x)
    return float(np.linalg.svd(factor, compute_uv=False)[-1] ** 2)

  return run, lambda x: jacobian(tf.constant(x))


def _peak() -> float:
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _measure(way: str, name: str) -> dict:
  import numpy as np
  import tensorflow as tf

  tf.config.threading.set_intra_op_parallelism_threads(2)
  tf.config.threading.set_inter_op_parallelism_threads(2)
  x = np.random.default_rng(0).random((_BATCH.value, 28, 28, 1))
  run, compile_ = {"tf_privrob": _ours, "naive": _naive}[way](denoiser(name))
  compile_(x[:1])
  before, start = _peak(), time.perf_counter()
  value = run(x)
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
