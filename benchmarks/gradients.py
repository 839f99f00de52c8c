"""Examples per second of one private step, beside its peers and plain SGD.

python -m benchmarks.gradients [--json=gradients.json] [--networks=tutorial]

Every candidate runs in a process of its own, round after round in turn, so
that all of them meet the same machine; a row shows the best round. The peers:
TF Privacy's DPSequential (plain, with XLA, with oneDNN) and its vectorised
optimizer, and Opacus' ghost clipping from the environment that `make
bench-peers` builds. Plain SGD and ours run with oneDNN, which is faster for
both; TensorFlow leaves it off on processors without AVX-512.
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import subprocess
import sys
import time

from absl import app
from absl import flags

from benchmarks import networks

_NETWORKS = flags.DEFINE_list(
  "networks", ["tutorial", "conv4", "cifar"], "Networks to time."
)
_BATCH = flags.DEFINE_integer("batch_size", 256, "Examples in a step.")
_SECONDS = flags.DEFINE_float("seconds", 4.0, "Time of one round.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds over all candidates.")
_JSON = flags.DEFINE_string("json", None, "Where to write the results.")
_PEERS = flags.DEFINE_string(
  "peers_python", ".venv-peers/bin/python", "Python that has Opacus."
)
_ONE = flags.DEFINE_string("one", None, "Internal: time this candidate only.")

_CANDIDATES = (
  "sgd",
  "tf_privrob",
  "tfp_sequential",
  "tfp_sequential_onednn",
  "tfp_sequential_xla",
  "tfp_vectorized",
  "opacus_ghost",
)
_WITH_ONEDNN = ("sgd", "tf_privrob", "tfp_sequential_onednn")
_HOPELESS = 20  # times slower than ours: one round is enough


def _step(candidate: str, network: str, batch_size: int):
  """A function that takes one step on a fixed batch."""
  import tensorflow as tf

  x = tf.random.stateless_uniform(
    [batch_size, *networks.SHAPES[network]], [0, 1]
  )
  y = tf.random.stateless_uniform([batch_size], [0, 2], 0, 10, tf.int32)
  sparse = tf.keras.losses.SparseCategoricalCrossentropy
  if candidate == "sgd":
    model = tf.keras.Sequential(networks.layers(network))
    model.compile(tf.keras.optimizers.SGD(0.1), sparse(from_logits=True))
    return tf.function(lambda: model.train_step((x, y)))
  if candidate == "tf_privrob":
    return _our_step(network, x, y)
  import tensorflow_privacy

  loss = sparse(from_logits=True, reduction="none")
  if candidate == "tfp_vectorized":
    model = tf.keras.Sequential(networks.layers(network))
    optimizer = tensorflow_privacy.VectorizedDPKerasSGDOptimizer(
      l2_norm_clip=1.0,
      noise_multiplier=1.1,
      num_microbatches=batch_size,
      learning_rate=0.1,
    )

    @tf.function
    def step():
      with tf.GradientTape(persistent=True) as tape:
        losses = loss(y, model(x, training=True))
      optimizer.minimize(losses, model.trainable_variables, tape=tape)
      return losses

    return step
  model = tensorflow_privacy.DPSequential(
    l2_norm_clip=1.0,
    noise_multiplier=1.1,
    use_xla=candidate.endswith("xla"),
    layers=networks.layers(network),
  )
  model.compile(tf.keras.optimizers.SGD(0.1), loss)
  return tf.function(lambda: model.train_step((x, y)))


def _our_step(network: str, x, y):
  """The whole private step: clipped sum, noise, update."""
  import tensorflow as tf

  from tf_privrob import gradients
  from tf_privrob import randomness
  from tf_privrob.methods import outlet

  model = tf.keras.Sequential(networks.layers(network))
  optimizer = tf.keras.optimizers.SGD(0.1)
  optimizer.build(model.trainable_variables)

  def losses(batch, seed):
    del seed
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
      batch[1], model(batch[0], training=True)
    )

  clipped = gradients.ClippedGradients(losses, model, l2_clip_norm=1.0)
  way_out = outlet.Simulation(randomness.Key.of(None))

  @tf.function
  def private_step():
    total = clipped((x, y))
    noisy = way_out.gaussian(total.gradients, 1.1, clipped.sensitivity())
    updates = [gradient / x.shape[0] for gradient in noisy.tensors]
    optimizer.apply_gradients(zip(updates, model.trainable_variables))
    return total.loss

  return private_step


def _time_one(candidate: str, network: str) -> dict:
  import tensorflow as tf

  tf.config.threading.set_intra_op_parallelism_threads(2)
  tf.config.threading.set_inter_op_parallelism_threads(2)
  step = _step(candidate, network, _BATCH.value)
  for _ in range(3):
    step()
  times, end = [], time.perf_counter() + _SECONDS.value
  while time.perf_counter() < end or len(times) < 5:
    start = time.perf_counter()
    tf.nest.flatten(step())[0].numpy()
    times.append(time.perf_counter() - start)
  return {
    "examples_per_second": _BATCH.value / sorted(times)[len(times) // 2],
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
  }


def _run(candidate: str, network: str) -> dict | str:
  """Times a candidate in its own process; a string says why it could not."""
  if candidate == "tfp_vectorized" and network != "tutorial":
    return "skipped: takes more than 10 GiB and 10 s a step"
  arguments = [
    f"--networks={network}",
    f"--batch_size={_BATCH.value}",
    f"--seconds={_SECONDS.value}",
  ]
  if candidate == "opacus_ghost":
    if not pathlib.Path(_PEERS.value).exists():
      return f"skipped: no {_PEERS.value} (make bench-peers builds it)"
    script = pathlib.Path(__file__).with_name("peers_opacus.py")
    words = [_PEERS.value, str(script), *arguments]
  else:
    words = [sys.executable, "-m", "benchmarks.gradients", *arguments]
    words.append(f"--one={candidate}")
  environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
  environment.pop("TF_ENABLE_ONEDNN_OPTS", None)
  if candidate in _WITH_ONEDNN:
    environment["TF_ENABLE_ONEDNN_OPTS"] = "1"
  done = subprocess.run(
    words,
    capture_output=True,
    text=True,
    env=environment,
    check=False,
  )
  if done.returncode:
    last = done.stderr.strip().splitlines()[-1:]
    return f"failed with {done.returncode}: {' '.join(last)}"
  return json.loads(done.stdout.strip().splitlines()[-1])


def _rows(network: str) -> list[dict]:
  best: dict[str, dict | str] = {}
  rate = "examples_per_second"
  for _ in range(_ROUNDS.value):
    for candidate in _CANDIDATES:
      known = best.get(candidate)
      if isinstance(known, str):
        continue
      if known and _HOPELESS * known[rate] < best["tf_privrob"][rate]:
        continue
      found = _run(candidate, network)
      if known is None or isinstance(found, str) or found[rate] > known[rate]:
        best[candidate] = found
  ours = best["tf_privrob"]
  rows = []
  for candidate, found in best.items():
    row = {"network": network, "candidate": candidate}
    if isinstance(found, str):
      row["note"] = found
    else:
      ratio = ours["examples_per_second"] / found["examples_per_second"]
      row["examples/s"] = round(found["examples_per_second"])
      row["ours / this"] = round(ratio, 2)
      row["peak MiB"] = round(found["peak_mib"])
    rows.append(row)
  return rows


def main(argv) -> None:
  """Prints a table for each network."""
  del argv
  if _ONE.value:
    print(json.dumps(_time_one(_ONE.value, _NETWORKS.value[0])))
    return
  from benchmarks import table

  title = f"One step, batch {_BATCH.value}, 2 threads, best of {_ROUNDS.value}"
  rows = []
  for network in _NETWORKS.value:
    found = _rows(network)
    table.show(title, found)
    rows += found
  if _JSON.value:
    table.write_json(_JSON.value, {"title": title, "rows": rows})


if __name__ == "__main__":
  app.run(main)
