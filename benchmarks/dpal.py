"""One DPAL step against the sum of its parts.

python -m benchmarks.dpal [--json=dpal.json]

The parts (crafting by three attacks, one step of the autoencoder, one of the
classifier) are compiled and timed one by one, in turn with the whole step, in
one process; the best of several rounds counts. Plain gradient passes of the
network without any noise stand beside them.
"""

from __future__ import annotations

import time

from absl import app
from absl import flags

from tf_privrob import papers

_NETWORK = flags.DEFINE_string("network", "dpal_mnist_bn", "By name.")
_BATCH = flags.DEFINE_integer("batch_size", 2400, "m.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "The best of them counts.")
_JSON = flags.DEFINE_string("json", None, "Where to write the results.")


def _candidates(network_name: str, batch_size: int) -> dict:
  import dataclasses

  import tensorflow as tf

  from tf_privrob import methods
  from tf_privrob import models

  shape = (28, 28, 1)
  network = models.by_name(network_name, shape, 10, seed=0)
  config = methods.preset("dpal", "mnist")
  config = dataclasses.replace(config, batch_size=batch_size)
  model = papers.DPAL(network, config)
  model.simulate(10 * batch_size, (-1.0, 1.0))
  x = tf.random.stateless_uniform([batch_size, *shape], [0, 0], -1.0, 1.0)
  y = tf.random.stateless_uniform([batch_size], [0, 1], 0, 10, tf.int64)

  def plain():
    with tf.GradientTape() as tape:
      tape.watch(x)
      logits = network(x)
      loss = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
    return tape.gradient(loss, x)

  return {
    "one gradient pass of the network": tf.function(plain),
    "crafting": tf.function(lambda: model.craft(x)),
    "autoencoder": tf.function(lambda: model.train_features(x, x)),
    "classifier": tf.function(lambda: model.train_classifier(x, y, x, y)),
    "whole step": tf.function(lambda: model.train_step((x, y, x, y))),
  }


def main(argv) -> None:
  """Prints seconds, and the whole over the sum."""
  del argv
  from benchmarks import table

  candidates = _candidates(_NETWORK.value, _BATCH.value)
  best = dict.fromkeys(candidates, float("inf"))
  for step in candidates.values():
    step()
  for _ in range(_ROUNDS.value):
    for name, step in candidates.items():
      started = time.perf_counter()
      step()
      best[name] = min(best[name], time.perf_counter() - started)
  parts = best["crafting"] + best["autoencoder"] + best["classifier"]
  rows = [{"part": name, "seconds": value} for name, value in best.items()]
  rows.append({"part": "sum of the three parts", "seconds": parts})
  rows.append(
    {"part": "whole over sum (ratio)", "seconds": best["whole step"] / parts}
  )
  rows.append(
    {
      "part": "examples a second",
      "seconds": 2 * _BATCH.value / best["whole step"],
    }
  )
  title = f"DPAL step, {_NETWORK.value}, batch {_BATCH.value} + {_BATCH.value}"
  table.show(title, rows)
  if _JSON.value:
    table.write_json(_JSON.value, {"title": title, "rows": rows})


if __name__ == "__main__":
  app.run(main)
