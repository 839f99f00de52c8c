"""Many halfspaces in one program, beside a plain NumPy loop; and what grows.

python -m benchmarks.halfspaces [--json=halfspaces.json] [--plot=growth.svg]

20 trials of 10 classes on random data of MNIST's size, with the 5 margins and 6
noise scales of the paper's grid, for a share of an epoch. The loop trains one
halfspace after the other, as one would write the algorithm down: batch,
violations, sum, noise. An update is one step of one halfspace of one setting.
Then one thing at a time grows (examples, dimensions, classes) over a whole
epoch; the plot has time against size, and the table the exponent of a fit.
"""

from __future__ import annotations

import time

from absl import app
from absl import flags

from tf_privrob import papers

_BATCHES = flags.DEFINE_list("batch_sizes", ["1", "10", "100", "500"], "B.")
_SECONDS = flags.DEFINE_float("seconds", 5.0, "Of each loop, about.")
_JSON = flags.DEFINE_string("json", None, "Where to write the results.")
_PLOT = flags.DEFINE_string(
  "plot", "runs/bench/halfspaces.svg", "Where to draw the growth."
)
_MARGINS = (1.0, 0.1, 0.01, 0.001, 0.0001)
_STDDEVS = (5.0, 3.0, 1.5, 1.0, 0.8, 0.6)
_STEPS = {1: 480, 10: 120, 100: 24, 500: 12}


def _data(count: int = 60_000, dimension: int = 784, classes: int = 10):
  import numpy as np

  rng = np.random.default_rng(0)
  x = rng.random((count, dimension), np.float32)
  x /= np.linalg.norm(x, axis=1, keepdims=True)
  return x, rng.integers(0, classes, count)


def _loop(x, y, batch_size: int, seconds: float) -> float:
  """Updates a second of halfspaces that are trained one by one."""
  import numpy as np

  rng = np.random.default_rng(0)
  prob = batch_size / len(x)
  started, updates = time.perf_counter(), 0
  while time.perf_counter() - started < seconds:
    w = np.zeros(x.shape[1], np.float32)
    for _ in range(20):
      # The rows that Poisson sampling would draw, by their number.
      size = rng.binomial(len(x), prob)
      rows = rng.choice(len(x), size, replace=False, shuffle=False)
      batch, signs = x[rows], np.where(y[rows] == 0, 1, -1)
      violated = signs * (batch @ w) <= 0.1 * np.linalg.norm(w)
      w += signs[violated] @ batch[violated]
      w += 1.5 * rng.standard_normal(x.shape[1], np.float32)
      updates += 1
  return updates / (time.perf_counter() - started)


def _ours(x, y, batch_size: int, steps: int) -> float:
  """Seconds of so many steps of all trials, classes and settings."""

  def seconds(number):
    trials = papers.Trials(
      10, batch_size, _MARGINS, _STDDEVS, epochs=number * batch_size / len(x)
    )
    started = time.perf_counter()
    trials.train(x, y)
    return time.perf_counter() - started

  few = max(1, steps // 8)
  short = seconds(few)  # tracing and start-up, which do not grow
  return (seconds(steps) - short) * steps / (steps - few)


def _speed() -> list[dict]:
  x, y = _data()
  rows = []
  for text in _BATCHES.value:
    batch_size = int(text)
    steps = _STEPS.get(batch_size, max(2, 6000 // batch_size))
    ours = _ours(x, y, batch_size, steps)
    updates = 20 * 10 * len(_MARGINS) * len(_STDDEVS) * steps
    plain = _loop(x, y, batch_size, _SECONDS.value)
    rows.append(
      {
        "batch": batch_size,
        "updates/s": updates / ours,
        "NumPy loop": plain,
        "ratio": updates / ours / plain,
        "minutes an epoch, all": ours / steps * (len(x) / batch_size) / 60,
      }
    )
  return rows


def _epoch(count: int, dimension: int, classes: int) -> float:
  """Seconds of an epoch of ten trials with one setting; the best of two."""
  x, y = _data(count, dimension, classes)
  trials = papers.Trials(classes, 100, (0.1,), (1.5,), trials=10)
  found = []
  for _ in range(3):
    started = time.perf_counter()
    trials.train(x, y)
    found.append(time.perf_counter() - started)
  return min(found[1:])


def _growth() -> list[dict]:
  """Time as one thing grows; start-up is in it and bends the small end."""
  import numpy as np

  base = {"count": 8_000, "dimension": 256, "classes": 5}
  rows = []
  for name, sizes in {
    "count": (8_000, 16_000, 32_000),
    "dimension": (256, 512, 1_024),
    "classes": (5, 10, 20),
  }.items():
    times = [_epoch(**{**base, name: size}) for size in sizes]
    slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    rows.append(
      {
        "grows": name,
        **{f"size {i + 1}": size for i, size in enumerate(sizes)},
        **{f"seconds {i + 1}": value for i, value in enumerate(times)},
        "exponent": float(slope),
      }
    )
  return rows


def _draw(rows: list[dict], path: str) -> None:
  import pathlib

  from matplotlib import figure

  made = figure.Figure(figsize=(5, 4), layout="constrained")
  axes = made.subplots()
  for row in rows:
    sizes = [row[f"size {i}"] for i in (1, 2, 3)]
    times = [row[f"seconds {i}"] for i in (1, 2, 3)]
    axes.loglog(
      [size / sizes[0] for size in sizes],
      [value / times[0] for value in times],
      "o-",
      label=f"{row['grows']}: exponent {row['exponent']:.2f}",
    )
  axes.loglog([1, 4], [1, 4], "k:", label="linear")
  axes.set_xlabel("size over the first")
  axes.set_ylabel("seconds over the first")
  axes.legend()
  pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  made.savefig(path)


def main(argv) -> None:
  """Prints two tables and draws the growth."""
  del argv
  from benchmarks import table

  title = "Halfspaces: 20 trials x 10 classes x 30 settings, 60,000 x 784"
  speed = _speed()
  table.show(title, speed)
  growth = _growth()
  table.show("An epoch of 10 trials, batch 100", growth)
  _draw(growth, _PLOT.value)
  if _JSON.value:
    table.write_json(
      _JSON.value, {"title": title, "rows": speed, "growth": growth}
    )


if __name__ == "__main__":
  app.run(main)
