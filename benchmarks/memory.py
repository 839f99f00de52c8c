"""Peak memory of one private step against the logical batch.

python -m benchmarks.memory [--json=memory.json]

Every size runs in a process of its own: MNIST shapes, the tutorial's network,
chunks of 256 rows.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

from absl import app
from absl import flags

_SIZES = flags.DEFINE_list("sizes", ["256", "2048", "8192"], "Logical batches.")
_CHUNK = flags.DEFINE_integer("physical_batch_size", 256, "Rows at a time.")
_JSON = flags.DEFINE_string("json", None, "Where to write the results.")
_ONE = flags.DEFINE_integer("one", None, "Internal: measure this size only.")


def _measure(size: int) -> dict:
  import numpy as np
  import tensorflow as tf

  from tf_privrob import data
  from tf_privrob import gradients
  from tf_privrob import models
  from tf_privrob import randomness

  network = models.tutorial_cnn()

  def losses(batch, seed):
    del seed
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
      batch[1], network(batch[0], training=True)
    )

  clipped = gradients.ClippedGradients(losses, network, 1.0)
  sampler = data.FullBatchSampler(size, _CHUNK.value)
  x = np.random.default_rng(0).random((size, 28, 28, 1), "float32")
  y = np.zeros(size, np.int64)
  step = tf.function(clipped.over_chunks)
  key = randomness.Key.of(0)
  for x_chunks, y_chunks, mask in sampler.batches(x, y, key, 0, steps=3):
    step((x_chunks, y_chunks), mask)
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
  return {"logical batch": size, "peak MiB": round(peak)}


def main(argv) -> None:
  """Prints a table of peak memory."""
  del argv
  if _ONE.value:
    print(json.dumps(_measure(_ONE.value)))
    return
  from benchmarks import table

  rows = []
  for size in _SIZES.value:
    words = [sys.executable, "-m", "benchmarks.memory", f"--one={size}"]
    words.append(f"--physical_batch_size={_CHUNK.value}")
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
  title = f"Peak memory of a private step, {_CHUNK.value} rows at a time"
  table.show(title, rows)
  if _JSON.value:
    table.write_json(_JSON.value, {"title": title, "rows": rows})


if __name__ == "__main__":
  app.run(main)
