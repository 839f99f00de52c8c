"""Where the word "proven" may stand: the table that the tests go through.

`COMBINATIONS` has every method with every sampler (and variant) for which
`tests/laws/neighbours_test.py` runs the real sampler and the real step on
neighbouring data sets and finds no larger change than the accounted one. A
statement about anything else, a user's own subclass among them, says "none
known": nobody has tried it.
"""

from __future__ import annotations

from typing import Any

from tf_privrob import privacy
from tf_privrob.models import untouched

_BY_CLIPPED_GRADIENTS = (
  "DPSGD",
  "DPSmooth",
  "PixelDP",
  "SecureSGD",
  "SoundAdLM",
  "SoundDPAL",
  "SoundSecureSGD",
  "SoundTransDenoiser",
  "TransDenoiser",
)
# With private=True they refuse shuffled batches.
_ROBUST = (
  "AdversarialTraining",
  "DiffAI",
  "DistributionalTraining",
  "DualTraining",
  "IBP",
  "NaturalTraining",
  "Trades",
)
COMBINATIONS = frozenset(
  [
    *((name, "poisson") for name in (*_BY_CLIPPED_GRADIENTS, *_ROBUST)),
    *((name, "full_batch") for name in (*_BY_CLIPPED_GRADIENTS, *_ROBUST)),
    *((name, "shuffle") for name in _BY_CLIPPED_GRADIENTS),
    ("Halfspaces", "poisson"),
    ("PureHalfspaces", "full_batch"),
  ]
)
_ROOMS = ("tf_privrob.methods.", "tf_privrob.papers.")

NOT_TRIED = (
  "No finite figure is known: {name} with sampler {sampler!r} is not among the"
  " combinations that were tried on neighbouring data sets."
)
LESS_NOISE = (
  "No finite figure is known: a release had less noise than is accounted, none,"
  " or noise whose scale was not fixed before the data were seen."
)
CHANGED = (
  "No finite figure is known: the weights are not those that the training"
  " released. Whatever changed them may have looked at private data."
)
LOGS = (
  "No finite figure is known: callbacks saw what was computed on private data"
  " without noise (nonprivate_logs=True), and whatever they decided may tell of"
  " it."
)
ENDED = (
  "No finite figure is known: an error ended the training, and one example may"
  " have caused it."
)


def tried(model: Any, sampler: str) -> bool:
  """Whether the tests run this very class with this sampler on neighbours."""
  kind = type(model)
  return (
    untouched.lives_in(kind, _ROOMS)
    and (kind.__name__, sampler) in COMBINATIONS
  )


def stands(model: Any) -> bool:
  """Whether what is accounted may be called proven so far, while training."""
  record, facts = model.run_record, model.run_facts
  facts_against = ("ended_by_error", "foreign_weights", "nonprivate_logs")
  contradicted = any(record.get(fact) for fact in facts_against)
  known = facts.weights_known and not contradicted
  return known and tried(model, record.get("sampler", ""))


def _accounted(found: privacy.PrivacyStatement) -> float:
  """The noise multiplier of the steps, as the statement accounts it."""
  parameters = found.releases[0]["parameters"] if found.releases else {}
  return parameters.get("noise_multiplier", 0.0)


def complete(
  model: Any, found: privacy.PrivacyStatement
) -> privacy.PrivacyStatement:
  """Takes the proven figure away where what it rests on was not seen."""
  record = model.run_record
  reasons = []
  if found.proven is not None:
    if not tried(model, found.sampler):
      name = type(model).__name__
      reasons.append(NOT_TRIED.format(name=name, sampler=found.sampler))
    drawn = record.get("outlet_multiplier")
    if drawn is None or drawn < _accounted(found) * (1 - 1e-9):
      reasons.append(LESS_NOISE)
    if record.get("nonprivate_logs"):
      reasons.append(LOGS)
    if record.get("ended_by_error"):
      reasons.append(ENDED)
    if record.get("foreign_weights") or not model.has_released_weights:
      reasons.append(CHANGED)
  return found.unproven(*reasons) if reasons else found
