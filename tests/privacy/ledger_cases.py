"""A run and its plan for the tests of the ledger."""

from __future__ import annotations

from tf_privrob import privacy
from tf_privrob.privacy import ledger_file

PARAMETERS = {
  "method": "DPSGD",
  "config": {"learning_rate": 0.1, "momentum": 0.9, "ema": None},
  "num_examples": 1000,
  "value_range": [0.0, 1.0],
}
PLAN = {
  "noise_multiplier": 1.1,
  "l2_clip_norm": 1.0,
  "sampler": {"kind": "poisson", "sampling_prob": 0.01},
}
DIGEST = "0123456789abcdef" * 4


def open_ledger(path, resume=False, max_steps=None, **changes):
  ledger = privacy.Ledger.open(path, {**PARAMETERS, **changes}, resume)
  try:
    ledger.settle(PLAN, max_steps)
  except BaseException:
    ledger.close()
    raise
  return ledger


def note(path, text):
  """What is noted of a statement whose file is written next to the ledger."""
  statement = path.with_suffix(".statement")
  with ledger_file.noting(path, statement, text, anew=False):
    statement.write_text(text)
