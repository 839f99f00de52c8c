"""The pure-DP learner of halfspaces on the packing of Theorem 2.

Theorem 5 on a finite set: one of K public random unit vectors v is drawn with
probability proportional to exp(-dp_epsilon E(v)), where E(v) is the number of
examples with y <v, x> <= gamma'. On the packing all examples are alike, and the
law of a success is known: see `predicted`.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from experiments.halfspaces import instances as halfspaces_instances
from experiments.halfspaces import search as halfspaces_search
from tf_privrob.papers.halfspaces import pure as halfspace_pure

_ROBUST, _TRAINED = 0.9, 0.95  # times gamma: judged at, counted at (gamma')
_COVER = 64  # vectors of the net that have no errors, on average ...
_MOST = 2**20  # ... unless this is all there are
_CAP = 2**12


def predicted(dimension: int, gamma: float) -> float:
  """N * dp_epsilon at which a success has probability 2/3, for a large net.

  With f the share of vectors without errors and g >= f that of those which
  are robust at 0.9 gamma, and t = exp(-dp_epsilon n), a success has
  probability (f + (g - f) t) / (f + (1 - f) t).
  """
  instance = halfspaces_instances.Packing(dimension, gamma)
  none = halfspace_pure.cap_share(dimension, instance.cosine(_TRAINED * gamma))
  robust = halfspace_pure.cap_share(dimension, instance.cosine(_ROBUST * gamma))
  share = halfspaces_search.SHARE
  return math.log((share * (1 - none) - (robust - none)) / none / (1 - share))


def net(dimension: int, gamma: float) -> np.ndarray:
  """Public random unit vectors, float32 [K, d]."""
  cosine = halfspaces_instances.Packing(dimension, gamma).cosine(
    _TRAINED * gamma
  )
  size = min(
    _MOST, math.ceil(_COVER / halfspace_pure.cap_share(dimension, cosine))
  )
  rng = np.random.default_rng([dimension, 11])
  found = rng.standard_normal((size, dimension), np.float32)
  return found / np.linalg.norm(found, axis=1, keepdims=True)


class Study:
  """Risks of the pure learner on the packing, by n and seed."""

  def __init__(self, dimension: int, gamma: float, dp_epsilon: float):
    from tf_privrob import mechanisms

    self._instance = halfspaces_instances.Packing(dimension, gamma)
    self.net = net(dimension, gamma)
    self._mechanism = mechanisms.ExponentialMechanism(
      1.0, dp_epsilon, monotone=True
    )

  def risk(self, n: int, seed: int) -> float:
    """Robust risk at 0.9 gamma of the vector that is selected.

    The noise of a seed is the same for all n: then one n suffices and all
    larger ones do.
    """
    gamma = self._instance.gamma
    features, labels = self._instance.draw(n, seed)
    errors = self._errors(labels[:, None] * features, _TRAINED * gamma)
    words = np.random.SeedSequence([seed, len(self.net)]).generate_state(2)
    index = int(self._mechanism.select(-errors, words.view(np.int32)))
    fresh = self._instance.draw(100, seed, halfspaces_instances.FRESH)
    return halfspaces_instances.robust_risk(
      self.net[index], *fresh, _ROBUST * gamma
    )

  def _errors(self, signed: np.ndarray, margin: float) -> np.ndarray:
    """E(v) of each vector, equal rows counted together."""
    rows, counts = np.unique(signed, axis=0, return_counts=True)
    errors = np.zeros(len(self.net))
    for row, count in zip(rows, counts):
      errors += count * (self.net @ row <= margin)
    return errors


def measure(scale) -> dict:
  """The smallest n for each d and dp_epsilon, of a `halfspaces_rates.Scale`."""
  points, gamma = [], scale.gammas["packing"]
  for number, dp_epsilon in enumerate(scale.pure_dp_epsilons):
    start = None
    # Each budget has seeds of its own: with the same noise n * dp_epsilon
    # would be the same for all of them by construction.
    seeds = range(number * scale.pure_seeds, (number + 1) * scale.pure_seeds)
    for dimension in scale.pure_dimensions:
      study = Study(dimension, gamma, dp_epsilon)
      grid = halfspaces_search.sizes(1, _CAP, scale.pure_factor)
      found = halfspaces_search.smallest_n(study.risk, seeds, grid, start=start)
      start = found.n
      points.append(
        {
          "x": dimension,
          "dp_epsilon": dp_epsilon,
          **dataclasses.asdict(found),
          "censored": found.censored,
          "net_size": len(study.net),
          "predicted": predicted(dimension, gamma) / dp_epsilon,
        }
      )
  return {
    "instance": "packing",
    "learner": "pure",
    "label": "exponential mechanism on a public net",
    "gamma": gamma,
    "points": points,
  }
