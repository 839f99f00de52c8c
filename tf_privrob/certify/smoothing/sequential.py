"""Lower bounds at several looks, and when to stop looking."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from scipy import special

from tf_privrob import binomial
from tf_privrob import validate

_FRACTIONS = (1 / 64, 1 / 16, 1 / 4)
_FINAL_SHARE = 0.75


class Look(NamedTuple):
  """Total draws at a look, and the failure probability it may spend."""

  draws: int
  failure_prob: float


class Verdict(NamedTuple):
  """Signed radius (<= 0: no class is certified) and why the work ended."""

  radius: float
  stopped: str


@dataclasses.dataclass(frozen=True)
class Plan:
  """Estimation in one look or, with radii of interest, in up to four.

  Why stopping keeps the statement. Let p be the candidate's true probability
  and L_j the Clopper-Pearson lower bound at look j, from all draws up to
  there, with failure probability a_j. By the union bound P(some L_j > p) <=
  sum_j a_j = failure_prob, so all bounds hold at once with the promised
  confidence and the one in use when the work ends holds too, however that
  moment was chosen. An input abandoned right after selection makes no
  statement. The upper bounds only choose the moment: an error in them costs a
  larger radius, never the statement. The last look keeps 3/4 of the failure
  probability, so a row that runs to its end loses about 0.5% of its radius.

  Stopping rule: no radius of interest lies between what is certified and what
  still seems possible, the radius of an upper bound for p.

  Attributes:
    stddev: Standard deviation of the smoothing noise.
    num_draws: Draws of the last look.
    failure_prob: 1 - confidence.
    radii: Radii of interest; empty: one look, nothing is stopped early.
    block: Looks are rounded up to a multiple of it.
    slack: How far the law of the draws is from that of real noise
      (`grid.GridNoise.slack`); it is taken off every lower bound.
  """

  stddev: float
  num_draws: int
  failure_prob: float
  radii: tuple[float, ...] = ()
  block: int = 1
  slack: float = 0.0

  @property
  def looks(self) -> list[Look]:
    """The looks, in order; their failure probabilities sum to the whole."""
    rounded = {
      math.ceil(self.num_draws * share / self.block) * self.block
      for share in (_FRACTIONS if self.radii else ())
    }
    early = sorted(draws for draws in rounded if draws < self.num_draws)
    final = _FINAL_SHARE if early else 1.0
    each = self.failure_prob * (1 - final) / max(len(early), 1)
    return [
      *(Look(draws, each) for draws in early),
      Look(self.num_draws, self.failure_prob * final),
    ]

  @property
  def largest_radius(self) -> float:
    """What a unanimous vote would give; <= 0: nothing can be certified."""
    last = self.looks[-1]
    lower = binomial.unanimous(last.draws, last.failure_prob)
    return self._radius(max(lower - self.slack, 0.0))

  def hopeless(self, votes: int, draws: int) -> bool:
    """Whether the selection votes put every radius of interest out of reach."""
    if not self.radii:
      return False
    return self._within(self._possible(votes, draws)) == 0

  def verdict(self, votes: int, look: Look) -> Verdict | None:
    """What to return at this look, or None to draw on."""
    lower = binomial.lower(votes, look.draws, look.failure_prob)
    certified = self._radius(max(lower - self.slack, 0.0))
    if look.draws == self.num_draws:
      return Verdict(certified, "")
    reached = self._within(certified)
    if reached < self._within(self._possible(votes, look.draws)):
      return None
    return Verdict(certified, "decided" if reached else "abandoned")

  def _radius(self, probability: float) -> float:
    return self.stddev * float(special.ndtri(probability))

  def _possible(self, votes: int, draws: int) -> float:
    return self._radius(binomial.upper(votes, draws, self.failure_prob))

  def _within(self, radius: float) -> int:
    return sum(radius > 0 and radius >= wanted for wanted in self.radii)


def check_radii(radii: Sequence[float]) -> tuple[float, ...]:
  """Returns radii of interest in increasing order."""
  validate.numbers(validate.non_negative, least=0, radii=radii)
  return tuple(sorted(float(radius) for radius in radii))
