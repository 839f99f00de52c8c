"""Searches the inside of certified balls for inputs of another class."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob.attacks import base
from tf_privrob.attacks import graphs
from tf_privrob.attacks import norms
from tf_privrob.attacks import objectives
from tf_privrob.attacks import randomness
from tf_privrob.certify import certificate

ATTACKS = ("pgd", "apgd", "targeted", "random", "boundary")
OUTSIDE = 4.0  # radii within which a point beyond the boundary is sought
_RIVALS = 3  # classes that the targeted search climbs to
_BISECTIONS = 12
_SHRINK = 1e-6  # first step back from the rim, doubled until it suffices


def lengths(delta: np.ndarray, norm: str) -> np.ndarray:
  """The norm of each row, in float64."""
  flat = np.asarray(delta, np.float64).reshape(len(delta), -1)
  return np.linalg.norm(flat, certificate.ORDERS[norm], axis=1)


def difference(points: np.ndarray, x: np.ndarray) -> np.ndarray:
  """The change from x to points, of float32 values, in float64."""
  return np.asarray(points, np.float64) - np.asarray(x, np.float64)


def inside(
  points: np.ndarray,
  x: np.ndarray,
  radii: np.ndarray,
  norm: str,
  value_range: tuple[float, float] | None = None,
) -> np.ndarray:
  """float32 points strictly inside each row's radius, and in the range.

  Rounding to float32 may push a point over the rim: the norm of what was
  rounded is measured in float64, and the change shrunk until it is smaller
  than the radius. A row whose radius is too small for float32 to move in
  becomes the input itself.
  """
  x = np.asarray(x, np.float32)
  radii = np.asarray(radii, np.float64)
  points = np.asarray(points, np.float32)
  if value_range is not None:
    points = np.clip(points, *np.asarray(value_range, np.float32))
  points = np.where(np.isfinite(points), points, x)
  back = _SHRINK
  while back < 1:
    delta = difference(points, x)
    size = lengths(delta, norm)
    over = size >= radii
    if not over.any():
      return points
    wide = (-1, *[1] * (x.ndim - 1))
    rim = (radii * (1 - back)).reshape(wide)
    if norm == "linf":
      delta = np.clip(delta, -rim, rim)
    else:
      delta = delta * (rim / np.maximum(size, 1e-300).reshape(wide))
    moved = (np.asarray(x, np.float64) + delta).astype(np.float32)
    points = np.where(over.reshape(wide), moved, points)
    back *= 2
  over = lengths(difference(points, x), norm) >= radii
  return np.where(over.reshape(wide), x, points)


class Search:
  """Five searches inside radii that differ from row to row.

  "pgd": projected gradient ascent of the margin. "apgd": `attacks.APGD`, of
  the DLR loss, or of the margin for two classes. "targeted": the same towards
  each of the three strongest other classes at the input, half as many steps
  each: the others climb to the class that is strongest where they are, which
  need not be one that can win. "random": corners or points
  of the sphere, and points of the ball, in turn. "boundary": on the lines from
  the input to the nearest input of another class, and to an adversarial point
  within four radii, the boundary is found by bisection; if it is inside the
  radius, the worst of some points between it and the rim is taken, otherwise
  the point at the rim. A randomised model is attacked through the mean over
  `draws` draws (EOT) of its own noise, fresh at each step.

  Args:
    logits: Function of a batch, or of (batch, seed) for one draw.
    randomised: Whether it takes a seed.
    num_classes: Number of classes.
    norm: Norm of the radii.
    box: The range of values that all points stay in.
    steps: Number of steps of each gradient attack.
    draws: Averaged a step, for a randomised model.
    num_random: Points of the random search.
  """

  def __init__(
    self,
    logits,
    randomised: bool,
    num_classes: int,
    norm: str,
    box: tuple[float, float],
    steps: int,
    draws: int,
    num_random: int,
  ):
    target = attacks.eot(logits, draws) if randomised else logits
    self._model = randomness.seeded(target)
    self._norm, self._box = norm, box
    self._num_random = num_random
    shared = {"norm": norm, "value_range": box, "steps": steps}
    pgd = attacks.PGD(0.0, loss="margin", keep_best=True, **shared)
    apgd = attacks.APGD(
      0.0, loss="dlr" if num_classes > 2 else "margin", **shared
    )
    targeted = attacks.APGD(
      0.0, loss="margin", targeted=True, **{**shared, "steps": -(-steps // 2)}
    )
    self._num_rivals = min(_RIVALS, num_classes - 1)
    self._targeted = targeted.compile(target, split_batch=False)
    self._pgd = pgd.compile(target, split_batch=False)
    self._apgd = apgd.compile(target, split_batch=False)
    self._random = graphs.Traced(self._random_graph)
    self._flip = graphs.Traced(self._flip_graph)
    self._worst = graphs.Traced(self._worst_graph)
    self._rivals = graphs.Traced(self._rivals_graph)

  def points(
    self,
    x: np.ndarray,
    classes: np.ndarray,
    radii: np.ndarray,
    neighbours: np.ndarray,
    seed: Sequence[int],
  ) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """One point per attack and row, and how far the boundary was found.

    Args:
      x: Inputs.
      classes: The classes that the rows state.
      radii: One per row.
      neighbours: An input of another class for each row, or the row itself.
      seed: Two ints.

    Returns:
      Points by the name of the attack; distance of the nearest boundary that
      was found over the radius, inf where none was.
    """
    key = randomness.as_seed(tf.constant(seed, tf.int32))
    seeds = [randomness.fold(key, number) for number in range(9)]
    sizes = radii.astype(np.float32)
    label = tf.constant(classes, tf.int32)
    found = {
      "pgd": self._pgd(x, label, seeds[0], sizes),
      "apgd": self._apgd(x, label, seeds[1], sizes),
      "targeted": self._towards_rivals(x, label, sizes, seeds[6:]),
      "random": self._random(x=x, label=label, radii=sizes, seed=seeds[2]),
    }
    outside = self._pgd(x, label, seeds[3], OUTSIDE * sizes)
    found["boundary"], closest = self._boundary(
      x, label, radii, [neighbours, outside.numpy()], seeds[4:6]
    )
    return {name: np.asarray(value) for name, value in found.items()}, closest

  def worst(self, x, classes, radii, neighbours, seed):
    """Each row's worst point of all attacks, and its margin.

    It is the one with the largest margin, by the same draws for all.
    """
    points, _ = self.points(x, classes, radii, neighbours, seed)
    points, margins = self._worst(
      candidates=np.stack(list(points.values())),
      label=tf.constant(classes, tf.int32),
      seed=randomness.fold(randomness.as_seed(tf.constant(seed, tf.int32)), -1),
    )
    return points.numpy(), margins.numpy()

  def _towards_rivals(self, x, label, sizes, seeds):
    rivals = self._rivals(x=x, label=label, seed=seeds[0])
    found = [
      self._targeted(x, rivals[:, rank], randomness.fold(seeds[1], rank), sizes)
      for rank in range(self._num_rivals)
    ]
    return self._worst(candidates=tf.stack(found), label=label, seed=seeds[2])[
      0
    ]

  def _rivals_graph(self, x, label, seed):
    """The strongest other classes at x, [batch, rivals]."""
    logits = self._model(x, seed)
    own = tf.one_hot(label, logits.shape[-1], on_value=True, off_value=False)
    logits = tf.where(own, logits.dtype.min, logits)
    return tf.math.top_k(logits, self._num_rivals).indices

  def _boundary(self, x, label, radii, ends, seeds):
    candidates, closest = [x], np.full(len(x), np.inf)
    for number, end in enumerate(ends):
      seed = randomness.fold(seeds[0], number)
      share, crossed = (
        np.asarray(value)
        for value in self._flip(x=x, end=end, label=label, seed=seed)
      )
      delta = difference(end, x)
      size = lengths(delta, self._norm)
      reach = np.minimum(radii / np.maximum(size, 1e-300), 1.0)
      near = np.where(crossed, np.minimum(share, reach), reach)
      ratio = np.where(crossed & (size > 0), share * size / radii, np.inf)
      closest = np.minimum(closest, ratio)
      for part in (near, (near + reach) / 2, reach):
        wide = part.reshape(-1, *[1] * (x.ndim - 1))
        candidates.append((x + wide * delta).astype(np.float32))
    worst, _ = self._worst(
      candidates=np.stack(candidates), label=label, seed=seeds[1]
    )
    return worst, closest

  def _margin(self, x, label, seed):
    logits = self._model(x, seed)
    return tf.cast(objectives.margin(logits, label), tf.float32)

  def _worst_graph(self, candidates, label, seed):
    """The point with the largest margin, by the same draws for all; both."""
    best = (candidates[0], self._margin(candidates[0], label, seed))
    for number in range(1, candidates.shape[0]):
      point = candidates[number]
      best = base.worse(best, (point, self._margin(point, label, seed)))
    return best

  def _random_graph(self, x, label, radii, seed):
    ball = norms.ball(self._norm, x, norms.per_example(radii, x), self._box)

    def one(number, best):
      own = randomness.fold(seed, number)
      first, second = randomness.fold(own, 0), randomness.fold(own, 1)
      corner = ball.move(
        tf.random.stateless_normal(tf.shape(x), first), x, ball.radius
      )
      delta = tf.where(number % 2 == 0, corner, ball.uniform(first))
      point = ball.project(x + delta)
      scored = point, self._margin(point, label, second)
      return number + 1, base.worse(best, scored)

    _, best = tf.while_loop(
      lambda number, best: number < self._num_random,
      one,
      (0, (x, tf.fill(tf.shape(label), -math.inf))),
      parallel_iterations=1,
    )
    return best[0]

  def _flip_graph(self, x, end, label, seed):
    """Share of the way to `end` at which the class changes, by bisection."""

    def other(share, number):
      wide = norms.per_example(share, x)
      own = randomness.fold(seed, number)
      return self._margin(x + wide * (end - x), label, own) > 0

    def halve(number, low, high):
      middle = (low + high) / 2
      beyond = other(middle, number)
      low = tf.where(beyond, low, middle)
      return number + 1, low, tf.where(beyond, middle, high)

    ones = tf.ones(tf.shape(label))
    crossed = other(ones, 0)
    _, _, high = tf.while_loop(
      lambda number, *_: number <= _BISECTIONS,
      halve,
      (1, 0 * ones, ones),
      parallel_iterations=1,
    )
    return high, crossed


def nearest_of_another_class(
  x: np.ndarray,
  classes: np.ndarray,
  pool: np.ndarray,
  pool_classes: np.ndarray,
  norm: str,
) -> np.ndarray:
  """For each row the nearest input of `pool` of another class, or itself."""
  found = np.array(x, np.float32)
  for row, (point, own) in enumerate(zip(x, classes)):
    others = pool[(pool_classes != own) & (pool_classes >= 0)]
    if len(others):
      gaps = lengths(difference(others, point[None]), norm)
      found[row] = others[gaps.argmin()]
  return found
