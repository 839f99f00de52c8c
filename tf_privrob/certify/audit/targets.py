"""What an audit attacks: the very classifier that a certificate is about.

A model that is not known to act row by row is shown one point at a time, in the
search and for the verdict, as it was certified (`certify.alone`).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Union

import numpy as np
import tensorflow as tf

from tf_privrob import binomial
from tf_privrob.certify import alone
from tf_privrob.certify import certifier as certifier_lib
from tf_privrob.certify.noise_layer import noisy_scores
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.certify.smoothing import grid
from tf_privrob.certify.smoothing import votes

_GROUP = 16  # points that vote together
_BATCH = 200
_SCREEN = 0.01  # two-sided level at which selection draws acquit a point


class Deterministic:
  """A classifier without noise: one forward pass decides.

  Args:
    model: Keras model or function from a batch to logits.
    value_range: What inputs can be, if the certificate is about those only.
  """

  randomised = False

  def __init__(
    self, model: Any, value_range: tuple[float, float] | None = None
  ):
    self.value_range = value_range
    self.logits = alone.logits_of(model)
    self._traced = tf.function(self.logits, reduce_retracing=True)

  def judge(
    self, points, classes, indices, failure_prob, seed
  ) -> list[int | None]:
    """The other class at each point, or None where it is the stated one."""
    del indices, failure_prob, seed
    found = np.asarray(self._traced(tf.constant(points))).argmax(axis=1)
    return [
      None if now == stated else int(now) for now, stated in zip(found, classes)
    ]


class Randomised:
  """A smoothed classifier g: argmax over classes of an expected score.

  `logits(x, seed)` is one draw, for gradients. A point is judged by draws of
  its own, disjoint from those of the certificate and of the search:
  `num_selection` of them choose the strongest class j other than the stated
  class c, `num_estimation` further ones test H0: E f_j <= E f_c. It is
  rejected, and g(point) != c stated, with probability at most `failure_prob`
  if it is true:

  * scores that are votes: given the n draws that vote j or c, j's are at most
    Binomial(n, 1/2) under H0; the tail of that is exact;
  * other scores: a lower bound of E f_j above an upper bound of E f_c, each at
    failure_prob / 2.

  A point where c leads the selection draws significantly is let off without
  the test, which only ever acquits.

  Args:
    logits: Function of (x, seed): one draw, differentiable.
    draw: Function of (points, indices, stage, num_draws, seed) to
      score_bounds.Scores, one a point.
    bound: Bound of the certificate, one of score_bounds.BOUNDS.
    num_selection: Draws that choose j.
    num_estimation: Draws that test.
  """

  randomised = True
  value_range = None

  def __init__(
    self,
    logits: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    draw: Callable[..., list[score_bounds.Scores]],
    bound: str,
    num_selection: int,
    num_estimation: int,
  ):
    self.logits = logits
    self._draw = draw
    self._bound = bound
    self._num_selection = num_selection
    self._num_estimation = num_estimation

  def judge(
    self,
    points: np.ndarray,
    classes: Sequence[int],
    indices: Sequence[int],
    failure_prob: float,
    seed: Sequence[int],
  ) -> list[int | None]:
    """The other class at each point where it is significant, else None."""
    first = self._draw(
      points, indices, votes.SELECTION, self._num_selection, seed
    )
    found = [None] * len(points)
    rivals = {}
    for row, (scores, stated) in enumerate(zip(first, classes)):
      rival = self._rival(scores, int(stated))
      if rival is not None:
        rivals[row] = rival
    if not rivals:
      return found
    rows = list(rivals)
    second = self._draw(
      points[rows],
      [indices[row] for row in rows],
      votes.ESTIMATION,
      self._num_estimation,
      seed,
    )
    for row, scores in zip(rows, second):
      if self._beats(scores, rivals[row], int(classes[row]), failure_prob):
        found[row] = rivals[row]
    return found

  def _rival(self, scores: score_bounds.Scores, stated: int) -> int | None:
    """The strongest other class; None if the stated one is clearly ahead."""
    values = np.array(
      scores.votes if self._bound == "clopper_pearson" else scores.means, float
    )
    own, values[stated] = values[stated], -np.inf
    rival = int(values.argmax())
    if self._bound == "clopper_pearson":
      pair = int(own), int(values[rival])
      ahead = own > values[rival]
      return None if ahead and _sure(pair) else rival
    lower, upper = score_bounds.interval(scores, self._bound, _SCREEN)
    return None if lower[stated] > upper[rival] else rival

  def _beats(self, scores, rival: int, stated: int, failure_prob) -> bool:
    if self._bound == "clopper_pearson":
      wins = int(scores.votes[rival])
      losses = int(scores.votes[stated]) + scores.undecided
      p_value = binomial.two_sided_p_value(wins, losses) / 2
      return wins > losses and p_value <= failure_prob
    lower, upper = score_bounds.interval(scores, self._bound, failure_prob / 2)
    return bool(lower[rival] > upper[stated])


Target = Union[Deterministic, Randomised]


def smoothed(
  model: Any,
  x: np.ndarray,
  stddev: float,
  num_selection: int,
  num_estimation: int,
) -> Randomised:
  """The votes of a model under Gaussian noise at its input."""
  logits_fn = alone.logits_of(model)
  num_classes = certifier_lib.num_classes_of(logits_fn, x, None)
  noise = grid.GridNoise("gaussian", stddev, x.shape[1:])
  counters = {}

  def logits(points, seed):
    drawn = tf.random.stateless_normal(tf.shape(points), seed)
    return logits_fn(points + stddev * drawn)

  def draw(points, indices, stage, num_draws, seed):
    key = tuple(seed)
    if key not in counters:
      counters[key] = votes.NoisyVotes(
        logits_fn, noise, num_classes, _BATCH, _GROUP, key
      )
    found = []
    for start in range(0, len(points), _GROUP):
      part = points[start : start + _GROUP]
      own = indices[start : start + _GROUP]
      tallies = counters[key].count(
        part, own, range(len(part)), stage, 0, num_draws
      )
      found += [_votes_only(tally, num_draws) for tally in tallies]
    return found

  return Randomised(
    logits, draw, "clopper_pearson", num_selection, num_estimation
  )


def noisy_inside(
  model: Any,
  x: np.ndarray,
  passes: Sequence[noisy_scores.Pass],
  bound: str,
  batch_size: int | None,
  num_estimation: int,
  num_selection: int = 100,
) -> Randomised:
  """The expected scores of a model with noise inside, which passes draw."""
  _, num_classes = noisy_scores.check_model(model, x[:1])
  mixing = alone.not_row_wise(model, noise=True)
  at = {
    "input": lambda points, noise: model.logits_with_noise(points, noise, None),
    "hidden": lambda points, noise: model.logits_with_noise(
      points, None, noise
    ),
  }
  at = {position: alone.each(run, mixing) for position, run in at.items()}
  samplers = {}

  def logits(points, seed):
    total = 0.0
    for number, item in enumerate(passes):
      hidden = item.position == "hidden"
      shape = model.hidden_noise_shape if hidden else model.input_noise_shape
      own = tf.random.experimental.stateless_fold_in(seed, number)
      noise = item.draw(own, tf.shape(points)[0], tuple(shape))
      total += tf.nn.log_softmax(at[item.position](points, noise))
    return total

  def draw(points, indices, stage, num_draws, seed):
    key = tuple(seed)
    if key not in samplers:
      samplers[key] = noisy_scores.NoisyScores(
        model, num_classes, passes, batch_size, key
      )
    return list(samplers[key].stream(points, indices, stage, num_draws))

  return Randomised(logits, draw, bound, num_selection, num_estimation)


def _votes_only(tally: votes.Tally, num_draws: int) -> score_bounds.Scores:
  shares = tally.counts / num_draws
  return score_bounds.Scores(
    num_draws, shares, 0 * shares, tally.counts.copy(), tally.seconds
  )


def _sure(pair: tuple[int, int]) -> bool:
  return binomial.two_sided_p_value(*pair) <= _SCREEN
