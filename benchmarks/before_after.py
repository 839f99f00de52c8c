"""A private step of this checkout beside that of another one.

git worktree add /tmp/before <commit>
python -m benchmarks.before_after --other=/tmp/before [--json=before_after.json]

Both train the same network by `DPSGD.fit`, sampling and noise included, each in
a process of its own, a few steps at a time in turn, so that both meet the
same machine. A row shows medians; above 1, this checkout is the faster one.
"""

from __future__ import annotations

import pathlib
import statistics
import subprocess
import sys
import time

from absl import app
from absl import flags

from benchmarks import networks
from benchmarks import table

_OTHER = flags.DEFINE_string("other", None, "Folder of the other checkout.")
_ROUNDS = flags.DEFINE_integer("rounds", 24, "Turns of each.")
_NETWORK = flags.DEFINE_string("network", None, "Internal: train this one.")
_OUTPUT = flags.DEFINE_string("json", None, "Where to write the results.")
_STEPS = {"tutorial": 12, "conv4": 6, "cifar": 5}  # of a turn
_ROWS, _BATCH, _EPOCHS, _WARM = 10_240, 256, 12, 6
_HERE = pathlib.Path(__file__).resolve().parent.parent
_TARGET = 0.95


class _Trainer:
  """A process that trains, as many steps as it is told to."""

  def __init__(self, checkout: pathlib.Path, network: str):
    self._process = subprocess.Popen(
      [
        sys.executable,
        "-m",
        "benchmarks.before_after",
        f"--network={network}",
        f"--other={checkout}",
      ],
      cwd=_HERE,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )
    self._answer()  # traced and warm

  def _answer(self) -> float:
    line = self._process.stdout.readline()
    if not line:
      raise RuntimeError("A trainer ended before it was done.")
    return float(line)

  def turn(self) -> float:
    """Seconds of one turn."""
    self._process.stdin.write("\n")
    self._process.stdin.flush()
    return self._answer()

  def close(self) -> None:
    self._process.kill()
    self._process.wait()


def train(network: str, checkout: str) -> None:
  """Trains by the checkout's `fit`, waits for a word before every turn."""
  sys.path.insert(0, checkout)
  import numpy as np
  import tensorflow as tf

  from tf_privrob import methods

  rng = np.random.default_rng(0)
  x = rng.random((_ROWS, *networks.SHAPES[network]), np.float32)
  callbacks = sys.modules[tf.keras.callbacks.CallbackList.__module__]
  after, steps, started = callbacks.CallbackList.on_train_batch_end, 0, 0.0

  # Not a callback of the user's: `fit` watches the weights of whoever has one.
  def wait(self, batch, logs=None):
    nonlocal steps, started
    after(self, batch, logs)
    steps += 1
    if steps >= _WARM and (steps - _WARM) % _STEPS[network] == 0:
      print(time.perf_counter() - started, flush=True)
      sys.stdin.readline()
      started = time.perf_counter()

  callbacks.CallbackList.on_train_batch_end = wait
  config = methods.DPSGDConfig(
    noise_multiplier=1.1,
    dp_epsilon=60.0,
    batch_size=_BATCH,
    epochs=_EPOCHS,
    learning_rate=0.01,
  )
  model = tf.keras.Sequential(networks.layers(network))
  labels = rng.integers(0, 10, _ROWS)
  methods.DPSGD(model, config).fit(x, labels, verbose=0)


def compare(network: str, other: pathlib.Path, rounds: int) -> dict:
  """Milliseconds of a step of both, and the ratio of their speeds."""
  trainers = {
    "before": _Trainer(other, network),
    "now": _Trainer(_HERE, network),
  }
  found = {name: [] for name in trainers}
  for number in range(rounds):
    names = list(trainers) if number % 2 else list(reversed(trainers))
    for name in names:
      found[name].append(1e3 * trainers[name].turn() / _STEPS[network])
  for trainer in trainers.values():
    trainer.close()
  ratios = [a / b for a, b in zip(found["before"], found["now"])]
  return {
    "network": network,
    "before, ms": round(statistics.median(found["before"]), 2),
    "now, ms": round(statistics.median(found["now"]), 2),
    "speed now / before": round(statistics.median(ratios), 3),
    "at least": _TARGET,
  }


def main(argv) -> None:
  """Compares all networks, or trains one for a comparison."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
  if _NETWORK.value:
    train(_NETWORK.value, _OTHER.value)
    return
  if not _OTHER.value:
    raise app.UsageError("Expected --other, the folder of another checkout.")
  other = pathlib.Path(_OTHER.value).resolve()
  most = _ROWS // _BATCH * _EPOCHS // max(_STEPS.values()) - 1
  rounds = min(_ROUNDS.value, most)
  rows = [compare(network, other, rounds) for network in _STEPS]
  table.show(f"A private step of fit, batch {_BATCH}", rows)
  if _OUTPUT.value:
    table.write_json(_OUTPUT.value, {"rows": rows})


if __name__ == "__main__":
  app.run(main)
