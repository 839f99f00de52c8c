"""One certificate: what is promised around one input, and how surely."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tf_privrob import randomness
from tf_privrob import validate

ABSTAIN = -1
ORDERS = {"l1": 1, "l2": 2, "linf": math.inf}  # for numpy.linalg.norm
NORMS = tuple(ORDERS)
KINDS = ("proven", "claimed")
STOPS = ("", "abandoned", "decided")


@dataclasses.dataclass(frozen=True)
class Certificate:
  """The statement made about one input.

  Formal statement of a `proven` row that did not abstain: with probability at
  least `confidence` over the certifier's own randomness, the classifier
  returns `prediction` for every input within `norm` distance `radius` of this
  one. The probability is per input: over m independent rows one must expect
  up to (1 - confidence) m false ones (`certified_accuracy(failure_prob=...)`
  corrects for that). A row that abstained states nothing and can never be
  false. A `claimed` row carries the radius of a formula whose proof does not
  hold for what the code did; it is never counted, nor called, certified.

  Attributes:
    index: Position of the input in its data set.
    label: The true class, or None where it is not known.
    prediction: The class, or ABSTAIN (-1).
    radius: Size of the ball, 0 where nothing beyond the point itself is
      stated.
    norm: "l1", "l2" or "linf".
    abstained: The certifier returned no class.
    confidence: Probability with which the statement holds; 1 when it is
      deterministic.
    kind: "proven" or "claimed".
    method: Name of the certifier, e.g. "randomised_smoothing".
    seconds: Time spent on this input.
    num_draws: Noisy forward passes spent on this input, 0 if deterministic.
    stopped: "" (ran to its end), "abandoned" (stopped early: no radius of
      interest seemed in reach) or "decided" (stopped early: every radius of
      interest in reach had been certified).
    model: First 16 hexadecimal digits of the hash of the model that the row is
      about (`models.model_hash`); "" for a function without a name.
    condition: `randomness.SEEDED` for a row of draws that a seed made, which
      anybody can repeat: a model that knows them has the votes that it wants.
      "" for draws from the operating system, and where nothing is drawn.
    stamp: First 16 hexadecimal digits of a hash of all that made the row,
      settings, inputs and model (`record`); "" for rows of no file.
  """

  index: int
  label: int | None
  prediction: int
  radius: float
  norm: str
  abstained: bool
  confidence: float
  kind: str
  method: str
  seconds: float = 0.0
  num_draws: int = 0
  stopped: str = ""
  model: str = ""
  condition: str = ""
  stamp: str = ""

  def __post_init__(self):
    validate.one_of(NORMS, norm=self.norm)
    validate.one_of(KINDS, kind=self.kind)
    validate.one_of(STOPS, stopped=self.stopped)
    validate.probability(confidence=self.confidence)
    if math.isnan(self.radius) or self.radius < 0:
      raise ValueError(f"Expected radius={self.radius!r} >= 0.")
    if self.abstained != (self.prediction == ABSTAIN):
      raise ValueError(
        f"Expected prediction={ABSTAIN} exactly when abstained, received"
        f" prediction={self.prediction}, abstained={self.abstained}."
      )
    validate.one_of(("", randomness.SEEDED), condition=self.condition)
    for name in ("model", "stamp"):
      value = getattr(self, name)
      if value and not re.fullmatch("[0-9a-f]{16}", value):
        raise ValueError(
          f"Expected {name} to be 16 hexadecimal digits or empty, received"
          f" {value!r}."
        )
    if self.abstained and self.radius > 0:
      raise ValueError(
        f"Expected radius 0 for an abstention, received {self.radius}."
      )

  @property
  def correct(self) -> bool | None:
    """Whether the class is the label; abstaining is wrong; None: no label."""
    return None if self.label is None else self.prediction == self.label

  def to_json(self) -> dict[str, Any]:
    """The JSON form; an infinite radius is the string "inf"."""
    values = dataclasses.asdict(self)
    if math.isinf(self.radius):
      values["radius"] = "inf"
    return values

  @classmethod
  def from_json(cls, values: Mapping[str, Any] | str) -> Certificate:
    """Inverse of `to_json`; also takes the JSON text itself."""
    values = dict(json.loads(values) if isinstance(values, str) else values)
    names = {field.name for field in dataclasses.fields(cls)}
    if set(values) != names:
      raise ValueError(
        f"Expected the fields {sorted(names)} of a certificate, received"
        f" {sorted(values)}."
      )
    return cls(**{**values, "radius": float(values["radius"])})

  def to_csv_row(self) -> list[str]:
    """Values in the order of `csv_fields()`; floats survive a round trip."""
    return [_cell(getattr(self, name)) for name in csv_fields()]

  @classmethod
  def from_csv_row(cls, row: Sequence[str]) -> Certificate:
    """Inverse of `to_csv_row`."""
    if len(row) != len(csv_fields()):
      raise ValueError(
        f"Expected {len(csv_fields())} cells in a certificate row, received"
        f" {len(row)}."
      )
    cells = dict(zip(csv_fields(), row))
    if cells["abstained"] not in ("0", "1"):
      raise ValueError(f"Expected abstained={cells['abstained']!r} in 0, 1.")
    del cells["correct"]
    return cls(
      **{name: _READ.get(name, str)(cell) for name, cell in cells.items()}
    )

  def to_text(self) -> str:
    """One paragraph that says what is promised, and with what probability."""
    subject = f"Input {self.index}"
    if self.label is not None:
      subject += f" (label {self.label})"
    return f"{subject}: {self._statement()}{self._effort()}"

  __str__ = to_text

  def _statement(self) -> str:
    if self.abstained:
      return f"{self.method} abstains; no class and no radius is stated."
    word = "certified" if self.kind == "proven" else "claimed"
    verdict = {True: ", correct", False: ", wrong", None: ""}[self.correct]
    head = (
      f"class {self.prediction}{verdict}, {word} radius {self.radius:.4g} in"
      f" {self.norm} by {self.method}."
    )
    if self.kind == "claimed":
      return (
        f"{head} This is what the method's own formula claims; it is not"
        " proven for what the code did and guarantees nothing."
      )
    surely = (
      "Without randomness,"
      if self.confidence == 1
      else f"With probability at least {self.confidence:.12g} (for this input"
      f" alone, over the certifier's own draws{self._beside()})"
    )
    return (
      f"{head} {surely} the classifier that {self.method} certifies returns"
      f" class {self.prediction} for every input within {self.norm} distance"
      f" {self.radius:.4g}."
    )

  def _beside(self) -> str:
    return f", {self.condition}" if self.condition else ""

  def _effort(self) -> str:
    if not self.stopped:
      return ""
    reason = {
      "abandoned": "no radius of interest seemed in reach",
      "decided": "every radius of interest in reach was certified",
    }[self.stopped]
    return f" Stopped early after {self.num_draws:,} draws: {reason}."


_READ = {  # what a cell holds; the others hold text
  "index": int,
  "label": lambda cell: int(cell) if cell else None,
  "prediction": int,
  "radius": float,
  "abstained": lambda cell: cell == "1",
  "confidence": float,
  "seconds": float,
  "num_draws": int,
}


def csv_fields() -> tuple[str, ...]:
  """Columns of the CSV form; `correct` is derived, for the reader's sake."""
  names = [field.name for field in dataclasses.fields(Certificate)]
  names.insert(names.index("abstained") + 1, "correct")
  return tuple(names)


def _cell(value: Any) -> str:
  if value is None:
    return ""
  if isinstance(value, bool):
    return str(int(value))
  return repr(float(value)) if isinstance(value, float) else str(value)
