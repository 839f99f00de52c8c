"""What an evaluation measured: metrics.json.

Accuracies come with two-sided Clopper-Pearson intervals at 95%, in which they
lie; where a file has none, it follows from the count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Optional

from tf_privrob import binomial
from tf_privrob.records.schema import Count
from tf_privrob.records.schema import Interval
from tf_privrob.records.schema import OPTIONAL
from tf_privrob.records.schema import Record
from tf_privrob.records.schema import require_within
from tf_privrob.records.schema import Share
from tf_privrob.records.schema import Size


def _interval(entry, count: int | None) -> Interval | None:
  """The record's own interval, or the exact one where it has only a count."""
  require_within(entry.interval, accuracy=entry.accuracy)
  if entry.interval is None and count:
    return binomial.interval(round(entry.accuracy * count), count)
  return entry.interval


@dataclasses.dataclass(frozen=True)
class Accuracy(Record):
  """A share of correct examples, of how many, and its 95% interval."""

  accuracy: Share
  count: Optional[Count] = None
  interval: Optional[Interval] = None

  def __post_init__(self):
    self._settle("interval", _interval(self, self.count))


@dataclasses.dataclass(frozen=True)
class Asked(Record):
  """One attack at one size that was asked for, with all that it depends on.

  The draws are those of a model with noise inside: at every step of the attack,
  and of the majority that judges. None: there is no such noise.
  """

  attack_eps: Size
  name: str = "attack"
  norm: str = "linf"
  steps: Optional[Count] = None
  count: Optional[Count] = None
  seed: Optional[int] = None
  eot_draws: Optional[Count] = None
  verdict_draws: Optional[Count] = None

  @property
  def triple(self) -> tuple[str, str, float]:
    """Which attack it is, however hard it tries."""
    return self.name, self.norm, self.attack_eps


@dataclasses.dataclass(frozen=True)
class AttackResult(Record):
  """Accuracy left by one attack at one size."""

  accuracy: Share
  attack_eps: Size
  name: str = "attack"
  norm: str = "linf"
  steps: Optional[Count] = None
  restarts: Optional[Count] = None
  count: Optional[Count] = None
  interval: Optional[Interval] = None
  warnings: tuple[str, ...] = ()
  seconds: Optional[float] = None
  seed: Optional[int] = None
  eot_draws: Optional[Count] = None
  verdict_draws: Optional[Count] = None

  def __post_init__(self):
    self._settle("interval", _interval(self, self.count))

  @property
  def asked(self) -> Asked:
    """What it is the result of."""
    names = [field.name for field in dataclasses.fields(Asked)]
    return Asked(**{name: getattr(self, name) for name in names})


class OfRadii(Record):
  """A record of radii, whose field `kind` says what they rest on.

  It is "proven" where a theorem supports every radius and "claimed" where only
  a paper says so; whatever else a file says, or leaves out, is a claim.
  """

  def _settle_kind(self) -> None:
    self._settle("kind", "proven" if self.proven else "claimed")

  @property
  def proven(self) -> bool:
    """Whether a theorem supports every radius."""
    return self.kind == "proven"

  @property
  def word(self) -> str:
    """Says certified of proven radii only; a claimed one is called claimed."""
    return "certified" if self.proven else "claimed"


@dataclasses.dataclass(frozen=True)
class CurvePoint(Record):
  """Share of examples that are correct with a radius of at least `radius`."""

  radius: Size
  accuracy: Share
  interval: Optional[Interval] = None


@dataclasses.dataclass(frozen=True)
class Radii(OfRadii):
  """Radii over a set of examples, of a smoothed classifier or the network.

  Radii of confidence 1 are found without randomness and are of the network
  itself. `condition` is what those of a seed depend on; it stands beside them.
  """

  curve: tuple[CurvePoint, ...]
  kind: Optional[str] = "claimed"
  smoothing_stddev: Optional[float] = None
  norm: str = "l2"
  method: Optional[str] = None
  model: Optional[str] = None
  num_selection: Optional[Count] = None
  num_estimation: Optional[Count] = None
  confidence: Optional[Share] = None
  condition: str = ""
  count: Optional[Count] = None
  abstained: Optional[Count] = None
  mean_radius: Optional[float] = None
  seconds: Optional[float] = None

  def __post_init__(self):
    if not self.curve:
      raise ValueError("expected at least one point in curve, received none")
    points = (
      dataclasses.replace(point, interval=_interval(point, self.count))
      for point in self.curve
    )
    self._settle("curve", tuple(sorted(points, key=lambda p: p.radius)))
    self._settle_kind()

  def of_rows(self, kinds: Iterable[str]) -> Radii:
    """As the rows say as well: one claimed radius makes the curve a claim."""
    proven = {self.kind, *kinds} == {"proven"}
    return dataclasses.replace(self, kind="proven" if proven else "claimed")

  @property
  def deterministic(self) -> bool:
    """Whether the radii hold for the network itself, with certainty."""
    return self.confidence == 1

  @property
  def subject(self) -> str:
    """What the radii are about."""
    return "the network itself" if self.deterministic else "smoothed classifier"


@dataclasses.dataclass(frozen=True)
class Metrics(Record):
  """The whole of metrics.json.

  Attributes:
    weights: Hash of the weights that were evaluated.
    dataset: Name of the data set whose test part they were evaluated on.
    data: Hash of that test part.
    clean: Accuracy without an attack.
    attacks: Results, in the order in which they came.
    certified: Radii, proven or claimed.
    smoothed: What versions before called `certified`.
    commands: That measured it.
    asked: Attacks that were asked for, the newest of each size.
    certifying: Inputs that were to be certified and are not yet; None: none.
    attacked: Whether no attack that was asked for is missing.
    complete: Whether nothing is missing that was asked for.
  """

  weights: Optional[str] = None
  dataset: Optional[str] = None
  data: Optional[str] = None
  clean: Optional[Accuracy] = None
  attacks: tuple[AttackResult, ...] = ()
  certified: Optional[Radii] = None
  smoothed: Optional[Radii] = dataclasses.field(default=None, metadata=OPTIONAL)
  commands: tuple[str, ...] = ()
  asked: tuple[Asked, ...] = ()
  certifying: Optional[Count] = None
  attacked: bool = True
  complete: bool = True

  def __post_init__(self):
    self._settle("certified", self.certified or self.smoothed)
    self._settle("smoothed", None)

  @property
  def missing(self) -> tuple[Asked, ...]:
    """Attacks that were asked for and have no result."""
    found = {row.asked for row in self.attacks}
    return tuple(asked for asked in self.asked if asked not in found)

  def with_result(self, row: AttackResult) -> Metrics:
    """With this result in the place of one of the same attack and size."""
    others = (r for r in self.attacks if r.asked.triple != row.asked.triple)
    return dataclasses.replace(self, attacks=(*others, row))
