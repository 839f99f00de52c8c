"""Speed of PGD beside cleverhans and foolbox, in one run.

  python -m benchmarks.attacks [--json=path] [--peers_python=path]

The same images, weights and settings for all (PGD-40 in l_inf, 256 images of
MNIST's shape, two networks of two convolutions, two threads), one warm-up, then
alternating repeats. cleverhans runs in this process, foolbox (PyTorch) in one
of its own. The mean loss of the examples shows that all did the same work.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import numpy as np
import tensorflow as tf

from benchmarks import table
from tf_privrob import attacks

_THREADS = 2
_IMAGES = 256
_SETTINGS = {"attack_eps": 0.3, "step_size": 0.01, "steps": 40}
_PEERS_PYTHON = ".venv-peers/bin/python"
NETWORKS = ("strided", "pooled")


def build(network: str) -> tf.keras.Model:
  """Returns one of two small CNNs: downsampling by stride or by pooling."""
  layers = tf.keras.layers
  if network == "strided":
    convs = [
      layers.Conv2D(16, 4, 2, padding="same", activation="relu"),
      layers.Conv2D(32, 4, 2, padding="same", activation="relu"),
    ]
  else:
    convs = [
      layers.Conv2D(32, 3, activation="relu"),
      layers.MaxPooling2D(),
      layers.Conv2D(64, 3, activation="relu"),
      layers.MaxPooling2D(),
    ]
  model = tf.keras.Sequential(
    [layers.Input((28, 28, 1)), *convs, layers.Flatten(), layers.Dense(10)]
  )
  rng = np.random.default_rng(0)
  for variable in model.trainable_variables:
    shape = variable.shape.as_list()
    scale = np.sqrt(2 / np.prod(shape[:-1])) if len(shape) > 1 else 0.01
    variable.assign(rng.normal(0, scale, shape))
  return model


def _ours(model, x, y):
  attack = attacks.PGD(**_SETTINGS, random_start=False)
  run = attack.compile(model)
  return lambda: run(x, y, 0).numpy()


def _cleverhans(model, x, y):
  from cleverhans.tf2.attacks import projected_gradient_descent

  x, y = tf.constant(x), tf.constant(y)
  return lambda: projected_gradient_descent.projected_gradient_descent(
    model,
    x,
    _SETTINGS["attack_eps"],
    _SETTINGS["step_size"],
    _SETTINGS["steps"],
    np.inf,
    clip_min=0.0,
    clip_max=1.0,
    y=y,
    rand_init=False,
  ).numpy()


class _Foolbox:
  """The peer process: one line in, one run, its seconds out."""

  def __init__(self, python, folder, network, model, x, y):
    inputs, self._outputs = folder / "inputs.npz", folder / "outputs.npy"
    weights = model.get_weights()
    named = {f"kernel{i}": kernel for i, kernel in enumerate(weights[::2])}
    named.update({f"bias{i}": bias for i, bias in enumerate(weights[1::2])})
    np.savez(inputs, x=x, y=y, **named)
    script = pathlib.Path(__file__).with_name("peers_foolbox.py")
    options = {**_SETTINGS, "threads": _THREADS, "network": network}
    self._process = subprocess.Popen(
      [python, script, inputs, self._outputs, json.dumps(options)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )
    self.versions = json.loads(self._line())

  def _line(self) -> str:
    line = self._process.stdout.readline()
    if not line:
      raise RuntimeError(
        f"The foolbox process ended with code {self._process.wait()}, see its"
        " message above. Build its environment anew: make bench-peers."
      )
    return line

  def run(self) -> float:
    """Runs the attack once and returns the seconds that it took."""
    self._process.stdin.write("run\n")
    self._process.stdin.flush()
    return float(self._line())

  def examples(self) -> np.ndarray:
    """Returns the adversarial examples of the last run."""
    return np.load(self._outputs)

  def close(self) -> None:
    """Ends the process."""
    self._process.stdin.close()
    self._process.wait(timeout=60)


def _timed(function):
  begin = time.perf_counter()
  function()
  return time.perf_counter() - begin


def measure(network: str, repeats: int, peers_python: str | None) -> list[dict]:
  """Times all libraries on one network; returns one row per library."""
  model = build(network)
  rng = np.random.default_rng(1)
  x = rng.random((_IMAGES, 28, 28, 1), np.float32)
  y = np.argmax(model(x), axis=1)
  ours, peer = _ours(model, x, y), _cleverhans(model, x, y)
  examples = {"tf_privrob": ours(), "cleverhans": peer()}
  runs = {
    "tf_privrob": lambda: _timed(ours),
    "cleverhans": lambda: _timed(peer),
  }
  with tempfile.TemporaryDirectory() as folder:
    foolbox = None
    if peers_python:
      foolbox = _Foolbox(
        peers_python, pathlib.Path(folder), network, model, x, y
      )
      foolbox.run()
      examples["foolbox"] = foolbox.examples()
      runs["foolbox"] = foolbox.run
    seconds = {name: [] for name in runs}
    for _ in range(repeats):
      for name, run in runs.items():
        seconds[name].append(run())
    if foolbox:
      foolbox.close()
  return [
    _row(network, name, seconds, model, examples[name], y) for name in runs
  ]


def _row(network, name, seconds, model, x_adv, y) -> dict:
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x_adv))
  best = {key: _IMAGES / min(values) for key, values in seconds.items()}
  median = _IMAGES / float(np.median(seconds[name]))
  return {
    "network": network,
    "library": name,
    "images/s": round(best[name], 1),
    "median": round(median, 1),
    "ours is faster by": round(best["tf_privrob"] / best[name], 2),
    "mean loss": round(float(np.mean(losses)), 2),
  }


def run(repeats: int, peers_python: str) -> list[dict]:
  """Measures both networks, prints the table and returns its rows."""
  python = peers_python if pathlib.Path(peers_python).is_file() else None
  if python is None:
    print(f"foolbox skipped: no {peers_python}; make bench-peers builds it.")
  rows = []
  for network in NETWORKS:
    rows += measure(network, repeats, python)
  table.show(
    f"PGD-{_SETTINGS['steps']}, l_inf, {_IMAGES} images of 28x28,"
    f" {_THREADS} threads (best of {repeats})",
    rows,
  )
  return rows


def main() -> None:
  """Command line."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--json", help="file for the results")
  parser.add_argument("--peers_python", default=_PEERS_PYTHON)
  parser.add_argument("--repeats", type=int, default=7)
  flags = parser.parse_args()
  tf.config.threading.set_intra_op_parallelism_threads(_THREADS)
  tf.config.threading.set_inter_op_parallelism_threads(_THREADS)
  rows = run(flags.repeats, flags.peers_python)
  if flags.json:
    table.write_json(flags.json, rows)


if __name__ == "__main__":
  main()
