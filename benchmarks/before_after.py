"""Private steps and certificates of this checkout beside those of another.

git worktree add /tmp/before <commit>
python -m benchmarks.before_after --other=/tmp/before [--json=before_after.json]

Each side has a process of its own, and they work in turn, so that both meet the
same machine. Steps: both train the same network by `DPSGD.fit`, sampling and
noise included, a few steps a turn. Certificates: a turn is a whole
certification, from the model to the last row. A row shows medians; above 1,
this checkout is the faster one.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import subprocess
import sys
import time

from absl import app
from absl import flags

import tf_privrob
from benchmarks import networks
from benchmarks import table

_OTHER = flags.DEFINE_string("other", None, "Folder of the other checkout.")
_ROUNDS = flags.DEFINE_integer("rounds", 24, "Turns of each.")
_WORK = flags.DEFINE_string("work", None, "Internal: what a process does.")
_WHAT = flags.DEFINE_multi_enum(
  "what", ["steps", "certificates"], ["steps", "certificates"], "What to time."
)
_OUTPUT = flags.DEFINE_string("json", None, "Where to write the results.")
_STEPS = {"tutorial": 12, "conv4": 6, "cifar": 5}  # of a turn
_ROWS, _BATCH, _EPOCHS, _WARM = 10_240, 256, 12, 6
_HERE = pathlib.Path(__file__).resolve().parent.parent
_STEP_TARGET, _CERTIFICATE_TARGET = 0.95, 0.9
_CERTIFICATE_ROUNDS = 5
# network, inputs, draws an input
_SMOOTHING = (
  ("tutorial", 6, 10_000),
  ("two_conv", 20, 100),
  ("two_conv", 5, 10_000),
  ("two_conv", 1, 100_000),
)
# domain, inputs, whether the largest radius is looked for
_BOUNDS = (
  ("Interval", 2_560, False),
  ("Interval", 10_000, False),
  ("Interval", 1_000, True),
  ("HybridZonotope", 64, False),
  ("Dual", 16, False),
)


class _Worker:
  """A process that works a turn whenever it is told to."""

  def __init__(self, checkout: pathlib.Path, work: str):
    self._process = subprocess.Popen(
      [
        sys.executable,
        "-m",
        "benchmarks.before_after",
        f"--work={work}",
        f"--other={checkout}",
      ],
      cwd=_HERE,
      env={**os.environ, "TF_PRIVROB_CHECKOUT": str(checkout)},
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )
    self._answer()  # imported, traced and warm

  def _answer(self) -> float:
    line = self._process.stdout.readline()
    if not line:
      raise RuntimeError("A process ended before it was done.")
    return float(line)

  def turn(self) -> float:
    """Seconds of one turn."""
    self._process.stdin.write("\n")
    self._process.stdin.flush()
    return self._answer()

  def close(self) -> None:
    self._process.kill()
    self._process.wait()


def train(network: str) -> None:
  """Trains by the checkout's `fit`, waits for a word before every turn."""
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
  model = networks.build(network)
  labels = rng.integers(0, 10, _ROWS)
  methods.DPSGD(model, config).fit(x, labels, verbose=0)


def certify_with(kind: str, inputs: int, amount: str) -> None:
  """Certifies random images, waits for a word before every turn.

  Args:
    kind: a network of `networks`, or a domain.
    inputs: how many.
    amount: draws an input; for a domain, whether radii are looked for.
  """
  import numpy as np

  from tf_privrob import bounds
  from tf_privrob import certify

  x = np.random.default_rng(0).random((inputs, 28, 28, 1), np.float32)
  if hasattr(bounds, kind):
    model = networks.build("strided")
    certifier = certify.VerifiedBound(
      0.01, getattr(bounds, kind)(), (0.0, 1.0), largest=amount == "True"
    )
  else:
    model = networks.build(kind)
    certifier = certify.RandomizedSmoothing(0.25, num_estimation=int(amount))
  while True:
    started = time.perf_counter()
    certifier.certify(model, x)
    print(time.perf_counter() - started, flush=True)
    if not sys.stdin.readline():
      return


def seconds(work: str, other: pathlib.Path, rounds: int) -> dict[str, list]:
  """Seconds of every turn of both sides."""
  workers = {"before": _Worker(other, work), "now": _Worker(_HERE, work)}
  found = {name: [] for name in workers}
  for number in range(rounds):
    names = list(workers) if number % 2 else list(reversed(workers))
    for name in names:
      found[name].append(workers[name].turn())
  for worker in workers.values():
    worker.close()
  return found


def row(what: str, found: dict[str, list], turns: int, target: float) -> dict:
  """Milliseconds of both, and the ratio of their speeds."""
  ratios = [a / b for a, b in zip(found["before"], found["now"])]
  spent = {
    f"{name}, ms": round(1e3 * statistics.median(times) / turns, 2)
    for name, times in found.items()
  }
  return {
    "work": what,
    **spent,
    "speed now / before": round(statistics.median(ratios), 3),
    "at least": target,
  }


def main(argv) -> None:
  """Compares all work, or does one for a comparison."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
  if not _OTHER.value:
    raise app.UsageError("Expected --other, the folder of another checkout.")
  if _WORK.value:
    home = pathlib.Path(tf_privrob.__file__).parent.parent.resolve()
    if home != pathlib.Path(_OTHER.value).resolve():
      raise RuntimeError(f"The library of {home} was imported.")
    kind, *rest = _WORK.value.split()
    certify_with(kind, int(rest[0]), rest[1]) if rest else train(kind)
    return
  other = pathlib.Path(_OTHER.value).resolve()
  most = _ROWS // _BATCH * _EPOCHS // max(_STEPS.values()) - 1
  tables = {}
  if "steps" in _WHAT.value:
    tables[f"A private step of fit, batch {_BATCH}"] = [
      row(
        network,
        seconds(network, other, min(_ROUNDS.value, most)),
        turns,
        _STEP_TARGET,
      )
      for network, turns in _STEPS.items()
    ]
  if "certificates" in _WHAT.value:
    tables["A certification"] = [
      row(
        f"{kind}, {inputs:,} inputs, {label} {amount}",
        seconds(f"{kind} {inputs} {amount}", other, _CERTIFICATE_ROUNDS),
        1,
        _CERTIFICATE_TARGET,
      )
      for label, work in (("draws", _SMOOTHING), ("largest", _BOUNDS))
      for kind, inputs, amount in work
    ]
  for title, rows in tables.items():
    table.show(title, rows)
  if _OUTPUT.value:
    table.write_json(_OUTPUT.value, tables)


if __name__ == "__main__":
  app.run(main)
