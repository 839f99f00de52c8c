"""One number per example, higher where membership is more likely."""

from __future__ import annotations

import dataclasses
from typing import Callable

import numpy as np
from scipy import special

from tf_privrob import validate
from tf_privrob.membership import outputs as outputs_lib

_SOURCES = {
  "benign": "benign",
  "adversarial": "adversarial",
  "verified": "worst_case",
}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Scores:
  """Scores of members and non-members; higher is more likely a member.

  Attributes:
    name: Name of the score.
    members: [n], floats.
    nonmembers: [m].
    member_labels: [n], classes; None where no strategy needs them.
    nonmember_labels: [m].
  """

  name: str
  members: np.ndarray
  nonmembers: np.ndarray
  member_labels: np.ndarray | None = None
  nonmember_labels: np.ndarray | None = None

  def __post_init__(self):
    for part in ("member", "nonmember"):
      values = _checked(getattr(self, f"{part}s"), f"{part}s of {self.name}")
      object.__setattr__(self, f"{part}s", values)
      labels = getattr(self, f"{part}_labels")
      if labels is not None:
        labels = np.asarray(labels)
        if labels.shape != values.shape or labels.dtype.kind not in "iu":
          raise ValueError(
            f"Expected {part}_labels to be {len(values)} whole numbers, one a"
            f" score, received shape {labels.shape} of {labels.dtype}."
          )
        object.__setattr__(self, f"{part}_labels", labels)
    if (self.member_labels is None) != (self.nonmember_labels is None):
      raise ValueError(
        "Expected labels of both members and non-members, or of neither."
      )

  def take(self, member_rows, nonmember_rows) -> Scores:
    """The scores of some members and some non-members."""
    labels = (None, None)
    if self.member_labels is not None:
      labels = (
        self.member_labels[member_rows],
        self.nonmember_labels[nonmember_rows],
      )
    return Scores(
      self.name,
      self.members[member_rows],
      self.nonmembers[nonmember_rows],
      *labels,
    )

  def __repr__(self) -> str:
    return (
      f"Scores({self.name!r}, {len(self.members)} members,"
      f" {len(self.nonmembers)} non-members)"
    )


def _checked(values, name: str) -> np.ndarray:
  values = np.asarray(values)
  if values.ndim != 1 or not len(values):
    raise ValueError(
      f"Expected one score for each of the {name}, received shape"
      f" {values.shape}."
    )
  if values.dtype.kind in "iub":
    values = values.astype(np.float64)
  if values.dtype.kind != "f":
    raise ValueError(
      f"Expected floating-point scores of the {name}, received {values.dtype}."
    )
  if not np.isfinite(values).all():
    bad = int(np.flatnonzero(~np.isfinite(values))[0])
    raise ValueError(
      f"Expected finite scores, received {values[bad]} for example {bad} of the"
      f" {name}. A model that returns NaN has nothing to infer from."
    )
  return values


def _confidence(logits, labels, log_probabilities: bool) -> np.ndarray:
  """softmax(z)_y in float32, where many saturate at exactly 1."""
  if log_probabilities:
    return np.exp(_of(logits, labels)).astype(np.float32)
  shifted = logits.astype(np.float32)
  weights = np.exp(shifted - shifted.max(axis=1, keepdims=True))
  return _of(weights, labels) / weights.sum(axis=1)


def _margin(logits, labels, log_probabilities: bool) -> np.ndarray:
  """Log of p_y / sum_{j != y} p_j: z_y - log sum_{j != y} exp z_j."""
  del log_probabilities
  others = logits.astype(np.float64)
  own = _of(others, labels).copy()
  others[np.arange(len(others)), labels] = -np.inf
  return own - special.logsumexp(others, axis=1)


def _loss(logits, labels, log_probabilities: bool) -> np.ndarray:
  """Minus the cross-entropy: log p_y = -log(1 + exp(-margin))."""
  return -np.logaddexp(0, -_margin(logits, labels, log_probabilities))


def _correct(logits, labels, log_probabilities: bool) -> np.ndarray:
  """1 where the class of the largest logit is y, else 0."""
  del log_probabilities
  return (np.argmax(logits, axis=1) == labels).astype(np.float64)


def _verified_correct(logits, labels, log_probabilities: bool) -> np.ndarray:
  """1 where all bounds of z_j - z_y, j != y, are below 0."""
  del log_probabilities
  own = np.arange(logits.shape[1]) == labels[:, None]
  return (own | (logits < 0)).all(axis=1).astype(np.float64)


def _of(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
  return values[np.arange(len(values)), labels]


_FUNCTIONS: dict[str, Callable] = {
  "confidence": _confidence,
  "margin": _margin,
  "loss": _loss,
  "correct": _correct,
}
NAMES = tuple(
  f"{source}_{kind}"
  for kind in _FUNCTIONS
  for source in _SOURCES
  if (source, kind) != ("verified", "loss")
)


def score(outputs: outputs_lib.Outputs, name: str) -> Scores:
  """Scores of a kind.

  With logits z on the benign input, on the adversarial example, or the
  verified worst-case logits ("benign", "adversarial", "verified"):

  * `*_confidence`: p_y = softmax(z)_y, the score of Eqs. 17, 18 and 20 of Song
    et al. 2019, in float32 as published. Many confidences are exactly 1 there.
  * `*_margin`: log p_y - log sum_{j != y} p_j in float64: the same order where
    p_y has not saturated, and an order where it has.
  * `*_loss`: log p_y in float64, minus the cross-entropy.
  * `*_correct`: 1 where the prediction is y: the gap between training and test
    accuracy. "verified": where it is proven so.

  Args:
    outputs: Outputs of the model.
    name: One of `NAMES`.

  Raises:
    ValueError: Unknown name, or outputs that were not made.
  """
  validate.one_of(NAMES, score=name)
  source, kind = name.rsplit("_", 1)
  function = _FUNCTIONS[kind]
  if (source, kind) == ("verified", "correct"):
    function = _verified_correct
  labels = (outputs.member_labels, outputs.nonmember_labels)
  found = (
    function(logits, truth, outputs.log_probabilities and source != "verified")
    for logits, truth in zip(outputs.need(_SOURCES[source]), labels)
  )
  return Scores(name, *found, *labels)


def available(outputs: outputs_lib.Outputs) -> tuple[str, ...]:
  """Names of the scores that these outputs allow."""
  return tuple(
    name
    for name in NAMES
    if getattr(outputs, _SOURCES[name.rsplit("_", 1)[0]]) is not None
  )
