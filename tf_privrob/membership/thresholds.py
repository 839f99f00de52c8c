"""Strategies with a threshold: chosen on the data, on other data, by class."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tf_privrob import validate
from tf_privrob.membership import inference
from tf_privrob.membership import intervals
from tf_privrob.membership import roc
from tf_privrob.membership import scores as scores_lib

_PUBLISHED = {
  "benign_confidence": "I_B",
  "adversarial_confidence": "I_A",
  "verified_confidence": "I_V",
}


def _named(score: str) -> str:
  return _PUBLISHED.get(score, score.replace("_", " "))


def oracle(
  scores: scores_lib.Scores, confidence: float = 0.95
) -> inference.Inference:
  """The best threshold for the very points it is judged on.

  max over tau of 1/2 + (TPR(tau) - FPR(tau)) / 2 with all observed scores as
  candidates, and 1/2 if none is better: Eqs. 17, 18 and 20 of Song et al. 2019
  as computed there. An upper estimate of what an attacker achieves, who does
  not know which threshold that is; the interval is of the best threshold's
  true accuracy (`intervals.best`).
  """
  threshold = _best(scores)
  return inference.judge(
    scores,
    threshold,
    strategy="oracle",
    label=f"{_named(scores.name)}, oracle threshold (upper estimate)",
    confidence=confidence,
    chosen_here=True,
  )


def fixed(
  scores: scores_lib.Scores,
  threshold: float,
  confidence: float = 0.95,
  **words: str,
) -> inference.Inference:
  """A threshold that is known in advance.

  For the scores `*_correct` it is 1, and the balanced accuracy is 1/2 plus
  half the gap between training and test accuracy.
  """
  label = f"{_named(scores.name)}, threshold {threshold:g} given"
  named = {"strategy": "fixed", "label": label, **words}
  return inference.judge(scores, threshold, confidence=confidence, **named)


def held_out(
  scores: scores_lib.Scores,
  share: float = 0.5,
  seed: int = 0,
  confidence: float = 0.95,
  **words: str,
) -> inference.Inference:
  """A threshold learnt on a share of the points and judged on the others.

  What an attacker achieves who knows the membership of some points.

  Args:
    scores: Scores of all points.
    share: Share of members, and of non-members, that the threshold is learnt
      on.
    seed: Seed of their choice.
    confidence: Confidence of the intervals.
    **words: Another `strategy` and `label`.
  """
  validate.open_probability(share=share)
  rng = np.random.default_rng(seed)
  fit, rest = zip(
    *(
      _parted(rng, np.arange(len(part)), round(share * len(part)))
      for part in (scores.members, scores.nonmembers)
    )
  )
  if not all(map(len, fit + rest)):
    raise ValueError(
      f"Expected share={share!r} to leave at least one member and one"
      f" non-member on either side, received {len(scores.members)} and"
      f" {len(scores.nonmembers)} in all."
    )
  label = f"{_named(scores.name)}, threshold learnt on held-out points"
  named = {"strategy": "held_out", "label": label, **words}
  return inference.judge(
    scores.take(*rest),
    _best(scores.take(*fit)),
    confidence=confidence,
    **named,
  )


def from_shadow(
  scores: scores_lib.Scores,
  shadow_scores: scores_lib.Scores,
  confidence: float = 0.95,
) -> inference.Inference:
  """A threshold learnt on another model, whose members are known.

  Shadow training (Shokri et al. 2017): the attacker trains a model of the same
  kind on own data. Nothing is known of the target's points.
  """
  if scores.name != shadow_scores.name:
    raise ValueError(
      f"Expected one kind of score, received {scores.name!r} and"
      f" {shadow_scores.name!r} of the shadow model."
    )
  return inference.judge(
    scores,
    _best(shadow_scores),
    strategy="from_shadow",
    label=f"{_named(scores.name)}, threshold of a shadow model",
    confidence=confidence,
  )


def class_dependent(
  scores: scores_lib.Scores,
  num_fit: int = 500,
  seed: int = 0,
  confidence: float = 0.95,
) -> inference.Inference:
  """A threshold for each class: "confidence-infer" of Song et al., Table 7.

  For every class, `num_fit` members and as many non-members choose its
  threshold, and all others are judged. The pooled figures are of scores minus
  the class's threshold, which also makes the ROC curve.

  Args:
    scores: Scores with labels.
    num_fit: Members, and non-members, of each class to learn on.
    seed: Seed of their choice.
    confidence: Confidence of the intervals; those of single classes are not
      corrected for their number.
  """
  rows, shifted = [], []
  for label, fit, rest in class_splits(scores, num_fit, seed):
    learnt = _best(scores.take(*fit))
    judged = scores.take(*rest)
    rows.append(class_row(label, judged, learnt, confidence))
    # Infinity calls nobody a member: below all others.
    offset = learnt if math.isfinite(learnt) else _above(scores)
    shifted.append(
      [part - offset for part in (judged.members, judged.nonmembers)]
    )
  members, nonmembers = (np.concatenate(parts) for parts in zip(*shifted))
  return inference.judge(
    scores_lib.Scores(scores.name, members, nonmembers),
    0.0,
    strategy="class_dependent",
    label=f"{_named(scores.name)}, a threshold learnt for each class",
    confidence=confidence,
    per_class=tuple(rows),
  )


def class_row(
  label: int,
  judged: scores_lib.Scores,
  threshold: float,
  confidence: float,
) -> dict[str, Any]:
  """What is told of a single class."""
  n, m = len(judged.members), len(judged.nonmembers)
  caught, alarms = roc.counts_at(judged.members, judged.nonmembers, threshold)
  return {
    "class": int(label),
    "balanced_accuracy": (caught / n + 1 - alarms / m) / 2,
    "interval": list(intervals.balanced(caught, n, alarms, m, confidence)),
    "threshold": threshold,
    "num_members": n,
    "num_nonmembers": m,
  }


def class_splits(labelled, num_fit: int, seed: int):
  """Yields class, rows to learn on and rows to judge, members first.

  Args:
    labelled: `Scores` or `Outputs`, with labels.
    num_fit: Rows of each class and part to learn on.
    seed: Seed of their choice.

  Raises:
    ValueError: A class has too few points to leave one to judge.
  """
  validate.positive_int(num_fit=num_fit)
  labels = (labelled.member_labels, labelled.nonmember_labels)
  if labels[0] is None:
    raise ValueError(
      "Expected scores with labels: strategies by class need the classes of all"
      " points. Pass member_labels and nonmember_labels."
    )
  classes = np.unique(np.concatenate(labels))
  for label in classes:
    smallest = min(int((part == label).sum()) for part in labels)
    if smallest <= num_fit:
      raise ValueError(
        f"Expected more than num_fit={num_fit} members and non-members of every"
        f" class, received {smallest} of class {label}. Pass num_fit="
        f"{max(smallest // 2, 1)} or more points."
      )
  for label in classes:
    rng = np.random.default_rng([seed, int(label)])
    fit, rest = zip(
      *(_parted(rng, np.flatnonzero(part == label), num_fit) for part in labels)
    )
    yield int(label), fit, rest


def _parted(rng, rows: np.ndarray, count: int):
  mixed = rng.permutation(rows)
  return np.sort(mixed[:count]), np.sort(mixed[count:])


def _best(scores: scores_lib.Scores) -> float:
  return roc.best_threshold(roc.curve(scores.members, scores.nonmembers))


def _above(scores: scores_lib.Scores) -> float:
  highest = max(scores.members.max(), scores.nonmembers.max())
  return float(np.nextafter(highest, np.asarray(np.inf, highest.dtype)))
