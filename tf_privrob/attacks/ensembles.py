"""Several attacks as one: the per-example worst case."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tf_privrob.attacks import base
from tf_privrob.attacks import objectives
from tf_privrob.attacks import randomness

_SCORE = -3  # Folded into the seed for the comparison of the members.


@dataclasses.dataclass(frozen=True, repr=False)
class Ensemble(base.Attack):
  """Runs every member and keeps, per example, the worst outcome.

  "Worst" is success first, then margin, judged by the attacked function
  itself (all members under the same draw of a randomised one). The members
  may use other norms, radii and losses; they must agree on the value range and
  on targeted or not.
  """

  attacks: tuple[base.Attack, ...]

  name = "ensemble"

  def __post_init__(self):
    if not self.attacks:
      raise ValueError(
        "Expected at least one attack in the ensemble, got none."
      )
    for attribute in ("value_range", "targeted"):
      values = {getattr(attack, attribute) for attack in self.attacks}
      if len(values) > 1:
        raise ValueError(
          f"Expected all attacks of an ensemble to share {attribute}, received"
          f" {sorted(values)}. Build one ensemble for each."
        )

  @property
  def in_graph(self) -> bool:
    """Whether every member may be called inside a tf.function."""
    return all(attack.in_graph for attack in self.attacks)

  @property
  def value_range(self) -> tuple[float, float]:
    """The members' value range."""
    return self.attacks[0].value_range

  @property
  def targeted(self) -> bool:
    """Whether `y` holds targets."""
    return self.attacks[0].targeted

  def __call__(self, logits_fn, x, y, seed, attack_eps=None):
    """Runs all members; see `Attack.__call__`. Needs labels in `y`."""
    if y is None:
      raise ValueError(
        "Expected labels in y: an ensemble compares its members by them."
      )
    if tf.executing_eagerly():
      base.check_inputs(self, logits_fn, x, y)
    x = tf.convert_to_tensor(x)
    seed = randomness.as_seed(seed)
    model = randomness.seeded(logits_fn)
    label = tf.cast(y, tf.int32)
    best = None
    for number, attack in enumerate(self.attacks):
      member_seed = randomness.fold(seed, number)
      x_adv = attack(logits_fn, x, y, member_seed, attack_eps)
      logits = model(x_adv, randomness.fold(seed, _SCORE))
      scores = objectives.score(logits, label, self.targeted)
      candidate = (x_adv, scores)
      best = candidate if best is None else base.worse(best, candidate)
    return best[0]


def ensemble(attacks: Sequence[base.Attack]) -> Ensemble:
  """Returns the attack that is, per example, the worst of `attacks`."""
  return Ensemble(tuple(attacks))
