"""The likelihood-ratio attack with few reference models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_privrob import validate
from tf_privrob.membership import inference
from tf_privrob.membership import scores as scores_lib
from tf_privrob.membership import thresholds

MODES = ("online", "offline")
# Fewer models than this a point cannot estimate a variance of its own.
_ENOUGH = 64


def lira_scores(
  target_scores: scores_lib.Scores,
  reference_scores: np.ndarray | Sequence[scores_lib.Scores],
  is_in: np.ndarray,
  mode: str = "online",
  global_variance: bool | None = None,
) -> scores_lib.Scores:
  """How much likelier a point's score is where it was a member.

  Carlini et al. 2022, Algorithm 1. For every point, the scores of reference
  models that were trained with it are N(mu_in, v_in), of those without it
  N(mu_out, v_out). The target model's score s becomes

    online:  log N(s; mu_in, v_in) - log N(s; mu_out, v_out),
    offline: (s - mu_out) / sqrt(v_out), whose normal distribution function is
             one minus the p-value "as high without the point"; needs no
             reference model that was trained with it.

  Scores must be about normal: take `benign_margin`, which is log(p / (1 - p))
  of the true class's probability p without rounding.

  Args:
    target_scores: Scores of the model under attack.
    reference_scores: [models, n + m], of each reference model on the same
      points, members of the target first; or such `Scores`.
    is_in: [models, n + m], whether a reference model was trained on a point.
    mode: "online" or "offline".
    global_variance: One variance for all points, from what is left after
      subtracting each point's mean, divided by its degrees of freedom; None:
      where a point has fewer than 64 models of a kind.

  Raises:
    ValueError: Wrong shapes, a point without a model it needs, or too few
      models for a variance.
  """
  validate.one_of(MODES, mode=mode)
  targets = np.concatenate([target_scores.members, target_scores.nonmembers])
  references = _as_matrix(reference_scores, len(targets))
  is_in = np.asarray(is_in)
  if is_in.shape != references.shape or is_in.dtype != bool:
    raise ValueError(
      f"Expected is_in to be bools of shape {references.shape}, one for each"
      f" reference model and point, received {is_in.dtype} of shape"
      f" {is_in.shape}."
    )
  targets = targets.astype(np.float64)
  mean, variance = _normal(references, ~is_in, "without", global_variance)
  if mode == "offline":
    found = (targets - mean) / np.sqrt(variance)
  else:
    found = -_log_density(targets, mean, variance)
    mean, variance = _normal(references, is_in, "with", global_variance)
    found += _log_density(targets, mean, variance)
  n = len(target_scores.members)
  return scores_lib.Scores(
    f"lira_{mode}_{target_scores.name}",
    found[:n],
    found[n:],
    target_scores.member_labels,
    target_scores.nonmember_labels,
  )


def lira(
  target_scores: scores_lib.Scores,
  reference_scores: np.ndarray | Sequence[scores_lib.Scores],
  is_in: np.ndarray,
  mode: str = "online",
  global_variance: bool | None = None,
  share: float = 0.5,
  seed: int = 0,
  confidence: float = 0.95,
) -> inference.Inference:
  """The attack of `lira_scores`, judged.

  Online, a point is called a member where the likelihood ratio is at least 1,
  a threshold known in advance; all points are judged. Offline the threshold is
  learnt on a share of the points (`held_out`), and the others are judged.

  Args:
    target_scores: Scores of the model under attack, best `benign_margin`.
    reference_scores: Those of the reference models, as in `lira_scores`.
    is_in: Who was trained on what, as in `lira_scores`.
    mode: "online" or "offline".
    global_variance: One variance for all points, as in `lira_scores`.
    share: Share of the points to learn an offline threshold on.
    seed: Seed of their choice.
    confidence: Confidence of the intervals.
  """
  scores = lira_scores(
    target_scores, reference_scores, is_in, mode, global_variance
  )
  count = len(reference_scores)
  label = f"LiRA {mode}, {count} reference models"
  if mode == "online":
    words = {"strategy": "lira", "label": f"{label}, likelihood ratio >= 1"}
    return thresholds.fixed(scores, 0.0, confidence, **words)
  return thresholds.held_out(
    scores,
    share,
    seed,
    confidence,
    strategy="lira",
    label=f"{label}, threshold learnt on held-out points",
  )


def _as_matrix(reference_scores, count: int) -> np.ndarray:
  rows = [
    np.concatenate([row.members, row.nonmembers])
    if isinstance(row, scores_lib.Scores)
    else np.asarray(row)
    for row in reference_scores
  ]
  if not rows or any(row.shape != (count,) for row in rows):
    shapes = sorted({row.shape for row in rows})
    raise ValueError(
      f"Expected reference models' scores of the {count} points of the target,"
      f" members first, received {len(rows)} models with shapes {shapes}."
    )
  matrix = np.stack(rows).astype(np.float64)
  if not np.isfinite(matrix).all():
    bad = int(np.flatnonzero(~np.isfinite(matrix).all(axis=1))[0])
    raise ValueError(
      f"Expected finite scores, received NaN or infinity from reference model"
      f" {bad}."
    )
  return matrix


def _normal(values, chosen, word: str, global_variance: bool | None):
  """Mean of the chosen values of each column, and their variance."""
  counts = chosen.sum(axis=0)
  if counts.min() < 1:
    raise ValueError(
      f"Expected for every point a reference model trained {word} it, but"
      f" {int((counts == 0).sum())} points have none, the first is"
      f" {int(np.argmin(counts))}. Train more reference models"
      + (", or use mode='offline'." if word == "with" else ".")
    )
  means = np.where(chosen, values, 0).sum(axis=0) / counts
  squares = np.where(chosen, (values - means) ** 2, 0).sum(axis=0)
  if global_variance is None:
    global_variance = bool(counts.min() < _ENOUGH)
  freedom = (counts - 1).sum() if global_variance else (counts - 1).min()
  if freedom < 1:
    raise ValueError(
      f"Expected at least two reference models trained {word} a point, to"
      f" estimate a variance, received {len(values)} models in all."
    )
  variances = (
    squares.sum() / freedom if global_variance else squares / (counts - 1)
  )
  return means, np.maximum(variances, 1e-12)


def _log_density(values, mean, variance) -> np.ndarray:
  return -0.5 * ((values - mean) ** 2 / variance + np.log(2 * np.pi * variance))
