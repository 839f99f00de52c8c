"""Tries to refute a mechanism on two neighbouring inputs, by histograms.

As Google's StochasticTester and DP-Sniper (Bichsel et al. 2021) do: samples of
both outputs are sorted into bins, and the union of bins that tells most is the
event whose probabilities DP bounds. Bins and event are settled on pilot
samples, the bound is from others.
"""

from __future__ import annotations

import dataclasses
from typing import Callable

import numpy as np

from tf_privrob import validate
from tf_privrob.privacy.audit import audit

# sample(neighbour, count, seed) gives outputs [count] or [count, d].
Sample = Callable[[bool, int, int], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Refutation(audit.LowerBound):
  """What samples of a mechanism on two neighbouring inputs showed.

  Attributes:
    runs: Number of judged samples of each input.
    caught: How many of the neighbour's are in the event.
    false_alarms: How many of the first input's are in the event.
    edges: The edges between the bins.
    bins: The bins that make up the event.
  """

  runs: int
  caught: int
  false_alarms: int
  edges: tuple[float, ...]
  bins: tuple[int, ...]

  def refutes(self, dp_epsilon: float) -> bool:
    """Whether the mechanism is not dp_epsilon-DP at dp_delta."""
    return self.audited > dp_epsilon


def refute(
  sample: Sample,
  runs: int,
  *,
  pilots: int | None = None,
  num_bins: int = 40,
  dp_epsilon: float | None = None,
  dp_delta: float = 0.0,
  confidence: float = 0.95,
  seed: int = 0,
) -> Refutation:
  """A lower bound on dp_epsilon over the best event that pilots show.

  Outputs of several numbers are seen along the difference of the pilots' means
  and by their distance from one of them: whichever tells more on the pilots.

  Guarantee: with probability at least `confidence` over the judged samples,
  dp_epsilon at dp_delta is at least `audited`, for independent samples.

  Args:
    sample: sample(neighbour, count, seed): so many outputs for one of the two
      inputs, of a mechanism or of a step of a training.
    runs: Judged samples of each input.
    pilots: Samples of each input that settle bins and event; default as many.
    num_bins: Number of bins of the histogram, equally likely in all pilots
      together.
    dp_epsilon: The figure to refute; with too few samples for it the audit is
      refused before any work.
    dp_delta: The dp_delta at which dp_epsilon is bounded.
    confidence: Confidence of the bound.
    seed: Seed of the samples.
  """
  pilots = runs if pilots is None else pilots
  validate.positive_int(runs=runs, pilots=pilots, num_bins=num_bins)
  most = audit.require_reachable(runs, dp_epsilon, dp_delta, confidence)

  def draw(count, stream):
    words = np.random.SeedSequence([31, seed, stream]).generate_state(2)
    return [
      _rows(sample(neighbour, count, int(words[int(neighbour)] >> 1)))
      for neighbour in (False, True)
    ]

  tests = [
    _event(view, values, num_bins, runs, dp_delta, confidence)
    for values in (draw(pilots, 0),)
    for view in _views(values)
  ]
  _, view, edges, bins = max(tests, key=lambda test: test[0])
  false_alarms, caught = (
    int(np.isin(np.searchsorted(edges, view(rows)), bins).sum())
    for rows in draw(runs, 1)
  )
  return Refutation(
    audit.dp_epsilon_lower_bound(
      caught, false_alarms, runs, dp_delta, confidence
    ),
    dp_delta,
    confidence,
    most,
    runs,
    caught,
    false_alarms,
    tuple(edges.tolist()),
    tuple(int(b) for b in bins),
  )


def _rows(values) -> np.ndarray:
  values = np.asarray(values, np.float64)
  if not np.isfinite(values).all():
    raise ValueError("Expected finite outputs, received NaN or infinity.")
  return values.reshape(len(values), -1)


def _views(pilots) -> list[Callable[[np.ndarray], np.ndarray]]:
  """Ways to see an output as one number, from pilot samples."""
  if pilots[0].shape[1] == 1:
    return [lambda rows: rows[:, 0]]
  means = [rows.mean(axis=0) for rows in pilots]
  direction = means[1] - means[0]
  return [
    lambda rows: rows @ direction,
    lambda rows: np.linalg.norm(rows - means[0], axis=1),
  ]


def _event(view, pilots, num_bins, runs, dp_delta, confidence):
  """Bins and the union of them that would show most, on pilot samples."""
  seen = [view(rows) for rows in pilots]
  levels = np.linspace(0, 1, num_bins + 1)[1:-1]
  edges = np.unique(np.quantile(np.concatenate(seen), levels))
  size = len(edges) + 1
  few, many = (
    np.bincount(np.searchsorted(edges, values), minlength=size)
    for values in seen
  )
  # By the likelihood ratio: the best event is a prefix (Neyman-Pearson). Its
  # complement, with the inputs exchanged, is in `dp_epsilon_lower_bound`.
  order = np.argsort(-(many + 0.5) / (few + 0.5), kind="stable")
  scale = runs / len(seen[0])
  found = [(-1.0, view, edges, order[:1])]
  for last in range(1, size):
    counts = [
      min(runs, round(scale * int(c[order[:last]].sum()))) for c in (many, few)
    ]
    bound = audit.dp_epsilon_lower_bound(*counts, runs, dp_delta, confidence)
    found.append((bound, view, edges, np.sort(order[:last])))
  return max(found, key=lambda test: test[0])
