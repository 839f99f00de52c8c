"""What differential privacy allows a membership attacker at most."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tf_privrob import validate

NEIGHBOURING = ("add_or_remove_one", "replace_one")


@dataclasses.dataclass(frozen=True)
class AdvantageBound:
  """The largest advantage under a guarantee.

  Attributes:
    dp_epsilon: The dp_epsilon of the guarantee.
    dp_delta: The dp_delta of the guarantee.
    advantage: TPR - FPR is at most this.
    assumption: Assumption of the two worlds, in words.
  """

  dp_epsilon: float
  dp_delta: float
  advantage: float
  assumption: str

  @property
  def balanced_accuracy(self) -> float:
    """(1 + advantage) / 2."""
    return (1 + self.advantage) / 2

  def to_json(self) -> dict[str, Any]:
    """The "bound" of membership.json."""
    return {
      **dataclasses.asdict(self),
      "balanced_accuracy": self.balanced_accuracy,
    }


def advantage_bound(
  dp_epsilon: float,
  dp_delta: float,
  neighbouring: str = "add_or_remove_one",
  fixed_size: bool = False,
) -> AdvantageBound:
  """The largest TPR - FPR of any attacker on a differentially private model.

    TPR - FPR <= (e^eps - 1 + 2 delta) / (e^eps + 1)

  under an (eps, delta) = (dp_epsilon, dp_delta) guarantee.

  Proof. Let S be the models for which the attacker says "member" of an example
  z; TPR is the probability of S where z was trained on, FPR where it was not,
  on neighbouring data sets. The guarantee for S, and for its complement with
  the data sets exchanged, reads

    TPR <= e^eps FPR + delta,    1 - FPR <= e^eps (1 - TPR) + delta.

  Their sum is (1 + e^eps)(TPR - FPR) <= e^eps - 1 + 2 delta. Equality is
  reached at TPR = 1 - FPR = (e^eps + delta) / (e^eps + 1), by randomised
  response for delta = 0. Both rates may be averaged over examples, data sets
  and attackers, since the bound is linear in them.

  The rates are probabilities over the training's randomness. What is measured
  on one model may lie above its expectation by chance, and its intervals do
  not count the randomness of the one training.

  The two worlds must differ as the guarantee's neighbours do. Where every
  example is in with a coin of its own, they differ by one example, added or
  removed. Where members are a training set of fixed size and non-members are
  test examples (`fixed_size`), one example replaces another: for a guarantee
  that adds or removes one example these are two steps, with 2 dp_epsilon and
  (1 + e^dp_epsilon) dp_delta in the place of dp_epsilon and dp_delta.

  Args:
    dp_epsilon: >= 0; infinity is no guarantee, and the bound is 1.
    dp_delta: The dp_delta, in [0, 1].
    neighbouring: Relation that the guarantee is for.
    fixed_size: Whether the training set has the same size in both worlds.
  """
  validate.one_of(NEIGHBOURING, neighbouring=neighbouring)
  if dp_epsilon != math.inf:
    validate.non_negative(dp_epsilon=dp_epsilon)
  validate.non_negative(dp_delta=dp_delta)
  if dp_delta > 1:
    raise ValueError(f"Expected 0 <= dp_delta={dp_delta!r} <= 1.")
  if neighbouring == "replace_one" and not fixed_size:
    raise ValueError(
      "Expected fixed_size=True with neighbouring='replace_one': the guarantee"
      " says nothing about a training set with one example more or less."
    )
  epsilon, delta, words = dp_epsilon, dp_delta, "one example added or removed"
  if fixed_size:
    words = "one example replaced"
    if neighbouring == "add_or_remove_one":
      words += ", as one removed and one added"
      delta = _limited_exp(epsilon) * delta + delta
      epsilon = 2 * epsilon
  # Divided by e^eps, which may be too large for a float.
  shrunk = math.exp(-epsilon)
  bound = (1 - shrunk + 2 * min(delta, 1.0) * shrunk) / (1 + shrunk)
  return AdvantageBound(
    float(dp_epsilon), float(dp_delta), min(bound, 1.0), words
  )


def _limited_exp(value: float) -> float:
  return math.exp(min(value, 700.0))
