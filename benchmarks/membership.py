"""The best threshold of many scores, beside a loop over all thresholds.

python -m benchmarks.membership [--json=membership.json]

The target is 100,000 scores in a second. The loop has fewer, since its cost
grows with their square; the ratio is at the number that both have.
"""

from __future__ import annotations

import time

import numpy as np
from absl import app
from absl import flags

from benchmarks import table
from tf_privrob import membership

_SCORES = flags.DEFINE_integer("scores", 100_000, "Members and others.")
_LOOPED = flags.DEFINE_integer("looped", 4_000, "As many for the loop.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "The best of them counts.")
_JSON = flags.DEFINE_string("json", None, "Also write the figures here.")


def scores_of(count: int) -> membership.Scores:
  """Two normal distributions that overlap."""
  rng = np.random.default_rng(0)
  half = count // 2
  parts = (rng.normal(0.1, 1, half), rng.normal(0, 1, half))
  return membership.Scores("normal", *parts)


def loop(scores: membership.Scores) -> float:
  """The best balanced accuracy, threshold by threshold."""
  members, nonmembers = scores.members, scores.nonmembers
  return max(
    ((members >= t).mean() + (nonmembers < t).mean()) / 2
    for t in np.concatenate([members, nonmembers])
  )


def seconds(run) -> float:
  """The best round."""
  best = float("inf")
  for _ in range(_ROUNDS.value):
    started = time.perf_counter()
    run()
    best = min(best, time.perf_counter() - started)
  return best


def main(argv) -> None:
  """Prints seconds and the ratio."""
  del argv
  many, few = scores_of(_SCORES.value), scores_of(_LOOPED.value)
  found = membership.oracle(few).balanced_accuracy
  np.testing.assert_allclose(found, loop(few), rtol=1e-12)
  ours, looped = (
    seconds(lambda: membership.oracle(few)),
    seconds(lambda: loop(few)),
  )
  rows = [
    {
      "side": "ours, with all intervals",
      "scores": _SCORES.value,
      "seconds": seconds(lambda: membership.oracle(many)),
    },
    {
      "side": "ours, with all intervals",
      "scores": _LOOPED.value,
      "seconds": ours,
    },
    {
      "side": "loop",
      "scores": _LOOPED.value,
      "seconds": looped,
      "times ours": round(looped / ours, 1),
    },
  ]
  table.show("Best threshold", rows)
  if _JSON.value:
    table.write_json(_JSON.value, rows)


if __name__ == "__main__":
  app.run(main)
