"""Synthetic halfspaces with a margin: the instances of the paper's theorems.

Ghazi, Kumar, Manurangsi and Nguyen, "Robust and Private Learning of
Halfspaces" (2021). Every instance is realizable with margin gamma: y <w*, x> >=
gamma for a unit vector w*, and |x| <= 1. A seed stands for one hidden w* and
one sequence of examples: the first n of it are the data set of size n, so that
a larger data set contains the smaller ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

TRAIN, FRESH = 0, 1  # streams of examples
_HIDDEN = 2  # stream of w*
_CHUNK = 256  # rows that one generator makes
_UNIT = 1.01  # length of the packing's points, over gamma


@dataclasses.dataclass(frozen=True)
class Easy:
  """x = gamma y e_1 + sqrt(1 - gamma^2) u, u a uniform unit vector, u_1 = 0.

  The margin of w* = e_1 is gamma for every example, and |x| = 1.
  """

  dimension: int
  gamma: float

  def __post_init__(self):
    _check(self.gamma, self.dimension, 2)

  def direction(self, seed: int) -> np.ndarray:
    """W*, the same for all seeds: the learners have no favourite direction."""
    del seed
    return np.eye(1, self.dimension)[0]

  def draw(
    self, count: int, seed: int, stream: int = TRAIN
  ) -> tuple[np.ndarray, np.ndarray]:
    """X [count, d] and y = 1 or -1 [count], float32."""
    features = np.empty((count, self.dimension), np.float32)
    labels = np.empty(count, np.float32)
    for rows, rng in _chunks(count, seed, stream, self.dimension):
      y = _signs(rng)
      u = rng.standard_normal((_CHUNK, self.dimension), np.float32)
      u[:, 0] = 0
      norms = np.linalg.norm(u, axis=1, keepdims=True)
      u *= math.sqrt(1 - self.gamma**2) / norms
      u[:, 0] = self.gamma * y
      features[rows], labels[rows] = _fit(u, rows), _fit(y, rows)
    return features, labels


@dataclasses.dataclass(frozen=True)
class Blocks:
  """The mixture of Theorem 3 (section 2.2): T^2 problems in separate blocks.

  T = gamma* / gamma. Block i has d' = d / T^2 coordinates and a hidden mean
  m^(i) in [-1, 1]^d'. An example is in a uniformly random block; there, s in
  {-1, 1}^d' has independent coordinates with mean m^(i), conditioned on

    <s, m^(i)> >= gamma* sqrt(d') |m^(i)|,

  and x = y s / sqrt(d'). The halfspace w* = (1 / T) sum_i m^(i) / |m^(i)| has
  norm 1 and margin gamma* / T = gamma. The means have random signs and sizes
  uniform in [2 gamma* - 1, 1] (from 0, if gamma* is below 1/2), brought to a
  root mean square of gamma*, where about one draw in two passes the condition.

  (The text says d' = d / T; blocks of d / T^2 are what it counts with: T^2
  sqrt(d') = sqrt(d) / gamma up to a constant.)

  Attributes:
    dimension: d, a multiple of T^2.
    gamma: gamma* over a whole number.
    block_margin: gamma*.
  """

  dimension: int
  gamma: float
  block_margin: float = 0.5

  def __post_init__(self):
    _check(self.gamma, self.dimension, 2)
    ratio = self.block_margin / self.gamma
    if abs(ratio - round(ratio)) > 1e-9 or round(ratio) < 1:
      raise ValueError(
        f"Expected block_margin={self.block_margin} to be a whole multiple of"
        f" gamma={self.gamma}."
      )
    if self.dimension % self.num_blocks:
      raise ValueError(
        f"Expected dimension={self.dimension} to be a multiple of"
        f" (block_margin / gamma)^2 = {self.num_blocks}."
      )

  @property
  def num_blocks(self) -> int:
    """T^2."""
    return round(self.block_margin / self.gamma) ** 2

  def means(self, seed: int) -> np.ndarray:
    """The hidden means, [T^2, d']."""
    rng = np.random.default_rng([seed, _HIDDEN, 0, self.dimension])
    shape = (self.num_blocks, self.dimension // self.num_blocks)
    found = rng.uniform(max(0.0, 2 * self.block_margin - 1), 1, shape)
    found *= rng.choice([-1, 1], shape)
    scale = np.sqrt(np.mean(found**2, axis=1, keepdims=True))
    return np.clip(self.block_margin * found / scale, -1, 1)

  def direction(self, seed: int) -> np.ndarray:
    """W*."""
    means = self.means(seed)
    parts = means / np.linalg.norm(means, axis=1, keepdims=True)
    return parts.ravel() / math.sqrt(self.num_blocks)

  def draw(
    self, count: int, seed: int, stream: int = TRAIN
  ) -> tuple[np.ndarray, np.ndarray]:
    """X [count, d] and y = 1 or -1 [count], float32."""
    means = self.means(seed)
    size = means.shape[1]
    features = np.zeros((count, self.num_blocks, size), np.float32)
    labels = np.empty(count, np.float32)
    for rows, rng in _chunks(count, seed, stream, self.dimension):
      y, block = _signs(rng), rng.integers(self.num_blocks, size=_CHUNK)
      s = self._conditioned(means[block], rng)
      s *= y[:, None] / math.sqrt(size)
      features[np.arange(rows.start, rows.stop), _fit(block, rows)] = _fit(
        s, rows
      )
      labels[rows] = _fit(y, rows)
    return features.reshape(count, self.dimension), labels

  def _conditioned(self, means: np.ndarray, rng) -> np.ndarray:
    """Rows of signs with these means, drawn again until they pass."""
    found = np.empty(means.shape, np.float32)
    size = means.shape[1]
    least = self.block_margin * math.sqrt(size) * np.linalg.norm(means, axis=1)
    left = np.arange(len(means))
    while len(left):
      chances = (1 + means[left]) / 2
      signs = np.where(rng.random(chances.shape) < chances, 1.0, -1.0)
      passed = np.sum(signs * means[left], axis=1) >= least[left]
      found[left[passed]] = signs[passed]
      left = left[~passed]
    return found


@dataclasses.dataclass(frozen=True)
class Packing:
  """The points of Theorem 2 (section 2.1): x = 1.01 gamma y w, w hidden.

  A halfspace v has margin 1.01 gamma <v, w> on all examples: robust risk 0 or
  1. No halfspace serves two vectors w that are far enough from each other.
  """

  dimension: int
  gamma: float

  def __post_init__(self):
    _check(_UNIT * self.gamma, self.dimension, 2)

  def direction(self, seed: int) -> np.ndarray:
    """W, uniform on the sphere."""
    rng = np.random.default_rng([seed, _HIDDEN, 0, self.dimension])
    found = rng.standard_normal(self.dimension)
    return found / np.linalg.norm(found)

  def draw(
    self, count: int, seed: int, stream: int = TRAIN
  ) -> tuple[np.ndarray, np.ndarray]:
    """X [count, d] and y = 1 or -1 [count], float32."""
    labels = np.empty(count, np.float32)
    for rows, rng in _chunks(count, seed, stream, self.dimension):
      labels[rows] = _fit(_signs(rng), rows)
    point = _UNIT * self.gamma * self.direction(seed)
    return labels[:, None] * point.astype(np.float32), labels

  def cosine(self, radius: float) -> float:
    """<v, w> of the halfspaces v whose margin is `radius`."""
    return radius / (_UNIT * self.gamma)


def robust_risk(
  weights: np.ndarray, features: np.ndarray, labels: np.ndarray, radius: float
) -> float:
  """Share of examples that an l_2 perturbation of `radius` can turn.

  The nearest point of the hyperplane is |<w, x>| / |w| away, so these are,
  exactly, the examples with y <w, x> <= radius |w|. Radius 0 is the error
  without perturbations; an example on the hyperplane counts as wrong.
  """
  weights = np.asarray(weights, np.float64)
  margins = labels * (features @ weights)
  return float(np.mean(margins <= radius * np.linalg.norm(weights)))


def _check(gamma: float, dimension: int, least: int) -> None:
  if not 0 < gamma < 1:
    raise ValueError(f"Expected a margin in (0, 1), received {gamma}.")
  if dimension < least:
    raise ValueError(
      f"Expected at least {least} dimensions, received {dimension}."
    )


def _chunks(count: int, seed: int, stream: int, dimension: int) -> Iterator:
  """Slices of at most _CHUNK rows, with a generator for each."""
  for number, start in enumerate(range(0, count, _CHUNK)):
    rows = slice(start, min(start + _CHUNK, count))
    yield rows, np.random.default_rng([seed, stream, number, dimension])


def _signs(rng: np.random.Generator) -> np.ndarray:
  return rng.choice(np.float32([-1, 1]), _CHUNK)


def _fit(made: np.ndarray, rows: slice) -> np.ndarray:
  """The first of a chunk: as many as there are rows."""
  return made[: rows.stop - rows.start]
