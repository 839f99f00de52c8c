"""How a training was run, and what its statement must say because of that."""

from __future__ import annotations

import dataclasses

from tf_privrob import validate
from tf_privrob.privacy import statement

RANDOMNESS = ("operating_system", "seed")

CONDITION = "only against those who do not know the seed"
SEED_CAVEAT = (
  "Proven only against those who neither know nor guess the seed, and only if"
  " no other training on these data had it: two runs may share their noise,"
  " which then cancels."
)
MOVED_CAVEAT = (
  "The run folder was moved or copied after the run began: what another copy of"
  " it released is not in these figures."
)
WEIGHTS_CAVEAT = (
  "It is not known where the initial weights came from. If the private data had"
  " a part in them, no noise covers that, so nothing is proven."
)
CALLBACKS_CAVEAT = (
  "Callbacks saw training metrics without noise; what they did because of them,"
  " such as an early end or another learning rate, is not covered."
)
COPIES_CAVEAT = (
  "The ledger counts the steps of its own folder: a copy that was continued"
  " elsewhere has released more than is stated here."
)

_LEDGER = statement.Assumption(
  "no step is taken unpaid and no noise is used twice, also on resume",
  "tf_privrob.privacy.ledger",
)
_COUNTER = statement.Assumption(
  "every step of this process was counted in memory, and no other process"
  " trained these weights on the data",
  "tf_privrob.methods",
)
_FRESH = statement.Assumption(
  "the initial weights were drawn by fit from the network's own initialisers",
  "tf_privrob.models.fresh",
)
_STREAMS = {
  "operating_system": (
    "noise and sampling come from AES-256 in counter mode, keyed by the"
    " operating system; the key is stored nowhere"
  ),
  "seed": (
    "noise and sampling come from AES-256 in counter mode, keyed by a hash of"
    " the seed, which nobody else knows"
  ),
}
_SIDE_CHANNELS = (
  "Not covered: time, memory and energy, which depend on who takes part in a"
  " step; floating point (proofs are over real numbers, sums and noise are"
  " rounded); whoever can read the memory of the process. Covered: {stream}."
)
_PREPROCESSING = (
  "Costs nothing where each example is changed by itself and by public"
  " constants, such as a declared value range. Not covered: means, vocabularies"
  " or features that were fitted to the private data."
)
_TUNING = (
  "Not covered: settings that were chosen by looking at the private data, or at"
  " models trained on them."
)
_TRUST_MODEL = (
  "Central: whoever trains sees the data; the weights of all steps may be"
  " published."
)


def scalar_of_proven(condition: str) -> str:
  """The name of a proven dp_epsilon where a number stands alone: TensorBoard.

  Args:
    condition: Condition of the statement; it is part of the name.
  """
  words = ["privacy/dp_epsilon_proven", *condition.split()]
  return "_".join(words)


@dataclasses.dataclass(frozen=True)
class RunFacts:
  """What a statement has to know besides the mechanism; plain JSON values.

  The defaults are the least favourable: a method that says nothing about its
  initial weights proves nothing.

  Attributes:
    ledger: Whether a ledger on the disk counted the steps; else a counter in
      memory did.
    randomness: "operating_system", or "seed" for noise that can be repeated.
    fresh_weights: Whether `fit` itself drew the initial weights.
    public_weights: Why initial weights that were not drawn are public, such as
      "trained on CIFAR-100"; "" if that was not declared.
    callbacks_saw_metrics: Whether the user's callbacks got metrics without
      noise.
    moved: Whether the ledger's folder is not where the run began.
  """

  ledger: bool = False
  randomness: str = "seed"
  fresh_weights: bool = False
  public_weights: str = ""
  callbacks_saw_metrics: bool = False
  moved: bool = False

  def __post_init__(self):
    validate.one_of(RANDOMNESS, randomness=self.randomness)
    if self.fresh_weights and self.public_weights:
      raise ValueError(
        "Expected initial weights that were drawn or that are public, received"
        f" fresh_weights=True and public_weights={self.public_weights!r}. Give"
        " one of them."
      )

  @property
  def weights_known(self) -> bool:
    """Whether the initial weights are known not to depend on the data."""
    return self.fresh_weights or bool(self.public_weights)

  @property
  def condition(self) -> str:
    """What stands beside every proven figure."""
    return CONDITION if self.randomness == "seed" else ""

  def coverage(self) -> dict[str, str]:
    """What a statement says of matters beside the mechanism, by field."""
    return {
      "preprocessing": _PREPROCESSING,
      "tuning": _TUNING,
      "trust_model": _TRUST_MODEL,
      "side_channels": _SIDE_CHANNELS.format(stream=_STREAMS[self.randomness]),
    }

  def assumptions(self) -> tuple[statement.Assumption, ...]:
    """What is assumed of counting, randomness and the initial weights."""
    found = [
      _LEDGER if self.ledger else _COUNTER,
      statement.Assumption(
        _STREAMS[self.randomness],
        "tf_privrob.randomness"
        if self.randomness == "operating_system"
        else "tf_privrob.randomness; the secrecy of the seed by the caller",
      ),
    ]
    if self.fresh_weights:
      found.append(_FRESH)
    elif self.public_weights:
      text = f"the initial weights are declared public: {self.public_weights}"
      found.append(statement.Assumption(text, "the caller"))
    return tuple(found)

  def first_caveats(self) -> tuple[str, ...]:
    """Those that come before all others, most important first."""
    found = (
      (self.randomness == "seed", SEED_CAVEAT),
      (self.moved, MOVED_CAVEAT),
      (not self.weights_known, WEIGHTS_CAVEAT),
      (self.callbacks_saw_metrics, CALLBACKS_CAVEAT),
    )
    return tuple(text for applies, text in found if applies)

  def caveats(self) -> tuple[str, ...]:
    """Those that hold in general."""
    return (COPIES_CAVEAT,) if self.ledger else ()
