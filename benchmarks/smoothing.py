"""Randomised smoothing: draws a second beside a plain PyTorch loop.

python -m benchmarks.smoothing [--json=path] [--peers_python=interpreter]

Both sides run the same network, draws and threads, alternating so that other
load on the machine hits both; each figure is the best of its rounds. Ours is
timed end to end, tracing included; PyTorch gets a warm-up and the best of its
batch sizes. Other load slows PyTorch's OpenMP threads more than ours, so only
figures from an idle machine are worth quoting; the load is printed.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time

# PyTorch uses oneDNN on every CPU; TensorFlow leaves it off without AVX512.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from absl import app
from absl import flags

from benchmarks import networks
from benchmarks import table
from tf_privrob import certify
from tf_privrob import data
from tf_privrob import randomness
from tf_privrob.certify.smoothing import grid
from tf_privrob.certify.smoothing import votes

_JSON = flags.DEFINE_string("json", None, "Also write the figures here.")
_PEERS = flags.DEFINE_string(
  "peers_python", ".venv-peers/bin/python", "Interpreter that has PyTorch."
)
_THREADS = flags.DEFINE_integer("threads", 2, "Threads on either side.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds; the best one counts.")
_MEMORY_OF = flags.DEFINE_integer(
  "memory_of", None, "Only print the peak memory of that many draws."
)
_STDDEV = 0.25
_SELECTION = 100
_TARGET = 1.3
_TORCH_BATCHES = (200, 1000)
_STOP_TARGET = 3
_STOP_IMAGES = 20
_STOP_DRAWS = 100_000
_STOP_RADII = ((0.25,), (0.5,), (0.0, 0.25, 0.5, 0.75))
# network, images, draws an image
_WORK = (
  ("tutorial", 100, 100),
  ("tutorial", 40, 1_000),
  ("tutorial", 6, 10_000),
  ("two_conv", 20, 100),
  ("two_conv", 1, 10_000),
)


def ours(model: tf.keras.Model, images: int, draws: int) -> float:
  """Seconds to certify `images` images from scratch."""
  x = np.random.RandomState(0).rand(images, 28, 28, 1).astype(np.float32)
  certifier = certify.RandomizedSmoothing(
    _STDDEV, num_selection=_SELECTION, num_estimation=draws
  )
  started = time.perf_counter()
  rows = certifier.certify(model, x)
  seconds = time.perf_counter() - started
  assert sum(row.num_draws for row in rows) == images * (_SELECTION + draws)
  return seconds


class TorchPeer:
  """The PyTorch loop in its own process; `missing` says why there is none."""

  def __init__(self, interpreter: str):
    script = os.path.join(os.path.dirname(__file__), "peers_torch_smoothing.py")
    self.missing = ""
    self.version = ""
    if not os.path.exists(interpreter):
      self.missing = f"{interpreter} does not exist (make bench-peers)"
      return
    self._process = subprocess.Popen(
      [interpreter, script],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )

  def seconds(self, name: str, images: int, draws: int, batch: int) -> float:
    """Seconds for the same work."""
    request = {
      "network": name,
      "images": images,
      "selection": _SELECTION,
      "estimation": draws,
      "batch_size": batch,
      "threads": _THREADS.value,
    }
    self._process.stdin.write(json.dumps(request) + "\n")
    self._process.stdin.flush()
    answer = self._process.stdout.readline()
    if not answer:
      raise RuntimeError(f"The PyTorch process died at {request}.")
    answer = json.loads(answer)
    self.version = answer["torch"]
    return answer["seconds"]

  def close(self) -> None:
    """Ends the process."""
    if not self.missing:
      self._process.stdin.close()
      self._process.wait()


def compare(peer: TorchPeer) -> list[dict]:
  """One row a piece of work."""
  rows = []
  for name, images, draws in _WORK:
    model = networks.build(name)
    best, torch_best = float("inf"), {}
    for _ in range(_ROUNDS.value):
      best = min(best, ours(model, images, draws))
      for batch in () if peer.missing else _TORCH_BATCHES:
        spent = peer.seconds(name, images, draws, batch)
        torch_best[batch] = min(torch_best.get(batch, spent), spent)
    forwards = images * (_SELECTION + draws)
    row = {
      "network": name,
      "draws": draws,
      "ours forwards/s": round(forwards / best),
      "ours images/s": round(images / best, 2),
    }
    if torch_best:
      for batch, spent in torch_best.items():
        row[f"torch {batch} forwards/s"] = round(forwards / spent)
      row["times torch's best"] = round(min(torch_best.values()) / best, 2)
    rows.append(row)
  return rows


def profile(name: str) -> list[dict]:
  """Microseconds a draw of the noise, one thread, and of the network."""
  model, batch = networks.build(name), 8 * votes.BLOCK
  noise = grid.GridNoise("gaussian", _STDDEV, (28, 28, 1))
  image, fixed = np.zeros(noise.shape), tf.zeros([batch, *noise.shape])
  classify = tf.function(lambda x: tf.argmax(model(x), axis=1))

  def draw():
    for block in range(8):
      noise.draw(image, randomness.Key.of(block), votes.BLOCK)

  row = {"network": name}
  for stage, step in {
    "noise": draw,
    "network": lambda: classify(fixed).numpy(),
  }.items():
    times = []
    for _ in range(30):
      started = time.perf_counter()
      step()
      times.append(time.perf_counter() - started)
    row[f"{stage} us/draw"] = round(1e6 * min(times) / batch, 1)
  return [row]


def trained() -> tuple[tf.keras.Model, np.ndarray, np.ndarray]:
  """A network trained under noise for some seconds, and test images."""
  mnist = data.load("mnist_5k")
  model = networks.build("tutorial")
  noisy = tf.keras.Sequential([tf.keras.layers.GaussianNoise(_STDDEV), model])
  noisy.compile(
    tf.keras.optimizers.Adam(2e-3),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  noisy.fit(mnist.x_train, mnist.y_train, 128, 6, verbose=0)
  rows = slice(None, None, len(mnist.x_test) // _STOP_IMAGES)
  return model, mnist.x_test[rows], mnist.y_test[rows]


def early_stop() -> list[dict]:
  """Forward passes with and without the early stop, for the radii asked.

  "same answers" counts the pairs (image, radius) on whose certification both
  runs agree; the early stop may lose one that the full run barely reaches.
  """
  model, x, y = trained()
  full = certify.RandomizedSmoothing(_STDDEV, num_estimation=_STOP_DRAWS)
  whole = full.certify(model, x, y)
  rows = []
  for radii in _STOP_RADII:
    early = full.for_radii(radii).certify(model, x, y)
    pairs = [
      (a.prediction == b.prediction or not max(a.radius, b.radius) >= radius)
      and (a.radius >= radius) == (b.radius >= radius)
      for a, b in zip(whole, early)
      for radius in radii
    ]
    spent = [sum(row.num_draws for row in run) for run in (whole, early)]
    rows.append(
      {
        "radii": " ".join(f"{radius:g}" for radius in radii),
        "images": len(x),
        "full forwards": spent[0],
        "early forwards": spent[1],
        "times fewer": round(spent[0] / spent[1], 1),
        "same answers": f"{sum(pairs)} of {len(pairs)}",
      }
    )
  return rows


def peak_memory(draws: int) -> int:
  """MiB at the peak of a fresh process that certifies one image."""
  command = [sys.executable, "-m", "benchmarks.smoothing"]
  done = subprocess.run(
    [*command, f"--memory_of={draws}", f"--threads={_THREADS.value}"],
    check=True,
    stdout=subprocess.PIPE,
    text=True,
  )
  return int(done.stdout.split()[-1])


def main(argv) -> None:
  """Runs the comparison and prints it."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
  tf.config.threading.set_intra_op_parallelism_threads(_THREADS.value)
  tf.config.threading.set_inter_op_parallelism_threads(_THREADS.value)
  if _MEMORY_OF.value:
    ours(networks.build("tutorial"), 1, _MEMORY_OF.value)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    return
  load = round(os.getloadavg()[0], 2)
  peer = TorchPeer(_PEERS.value)
  try:
    speed = compare(peer)
  finally:
    peer.close()
  stages = profile("tutorial") + profile("two_conv")
  stops = early_stop()
  memory = [
    {"draws": draws, "peak MiB": peak_memory(draws)}
    for draws in (1_000, 100_000)
  ]
  onednn = os.environ["TF_ENABLE_ONEDNN_OPTS"]
  against = peer.missing or f"PyTorch {peer.version}"
  table.show(
    f"Randomised smoothing, {_THREADS.value} threads, oneDNN={onednn}", speed
  )
  print(f"Load of the machine before the first round: {load}.")
  print(
    f"PyTorch was skipped: {peer.missing}"
    if peer.missing
    else f"Target: at least {_TARGET} times the best of {against}."
  )
  table.show("Where the time goes", stages)
  table.show(f"Early stop, {_STOP_DRAWS:,} draws at most", stops)
  print(f"Target: at least {_STOP_TARGET} times fewer forward passes.")
  table.show("Peak memory of one image", memory)
  if _JSON.value:
    table.write_json(
      _JSON.value,
      {
        "benchmark": "smoothing",
        "tensorflow": tf.__version__,
        "onednn": onednn,
        "load": load,
        "peer": against,
        "threads": _THREADS.value,
        "target": _TARGET,
        "speed": speed,
        "stages": stages,
        "early_stop": stops,
        "memory": memory,
      },
    )


if __name__ == "__main__":
  app.run(main)
