"""Where the word "proven" may stand: the table that the tests go through.

`COMBINATIONS` has every method, with its objective and sampler, for which
`tests/laws/neighbours_test.py` runs the real sampler and the real step on
neighbouring data sets and finds no larger change than the accounted one. A
statement about anything else, a user's own subclass or objective among them,
says "none known": nobody has tried it.
"""

from __future__ import annotations

from typing import Any

from tf_privrob import privacy
from tf_privrob.methods import objective as objective_lib
from tf_privrob.models import untouched

_OBJECTIVES = (
  "Adversarial",
  "DiffAI",
  "DualLoss",
  "IBP",
  "Natural",
  "Smooth",
  "Trades",
  "WRM",
)
_BY_CLIPPED_GRADIENTS = (
  *(f"DPSGD for {name}" for name in _OBJECTIVES),
  "PrivatePixelDP",
  "SecureSGD",
  "SoundAdLM",
  "SoundDPAL",
  "SoundSecureSGD",
  "SoundTransDenoiser",
  "TransDenoiser",
)
COMBINATIONS = frozenset(
  [
    *(
      (name, sampler)
      for name in _BY_CLIPPED_GRADIENTS
      for sampler in ("poisson", "shuffle", "full_batch")
    ),
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

MAY_END = (
  "No finite figure is known: one example may end the training by {operation},"
  " and whether it ended tells of that example."
)

PLANTED = (
  "Canaries took part in this training, for an audit. What was seen of them is"
  " not covered: with the weights it tells exact sums."
)


def tried(model: Any, sampler: str) -> bool:
  """Whether the tests run these very classes on neighbours, so sampled."""
  own = [type(model), *map(type, _objectives(model))]
  return (
    all(untouched.lives_in(kind, _ROOMS) for kind in own)
    and (_name(model), sampler) in COMBINATIONS
  )


def _objectives(model: Any) -> list[objective_lib.Objective]:
  """The objective in the settings; a method with its own loss has none."""
  found = getattr(model.config, "objective", None)
  return [found] if isinstance(found, objective_lib.Objective) else []


def _name(model: Any) -> str:
  """What is trained, as the table has it."""
  names = [type(part).__name__ for part in (model, *_objectives(model))]
  return " for ".join(names)


def stands(model: Any) -> bool:
  """Whether what is accounted may be called proven so far, while training."""
  record, facts = model.run_record, model.run_facts
  facts_against = (
    "ended_by_error",
    "foreign_weights",
    "may_end",
    "nonprivate_logs",
  )
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
      reasons.append(NOT_TRIED.format(name=_name(model), sampler=found.sampler))
    drawn = record.get("outlet_multiplier")
    if drawn is None or drawn < _accounted(found) * (1 - 1e-9):
      reasons.append(LESS_NOISE)
    if record.get("nonprivate_logs"):
      reasons.append(LOGS)
    if record.get("ended_by_error"):
      reasons.append(ENDED)
    if record.get("may_end"):
      name = record["may_end"]
      named = "an operation of an earlier session"
      if isinstance(name, str):
        named = f"the operation {name}"
      reasons.append(MAY_END.format(operation=named))
    if record.get("foreign_weights") or not model.has_released_weights:
      reasons.append(CHANGED)
  return found.unproven(*reasons) if reasons else found
