"""Auto-PGD: projected gradient steps whose size adapts to each example."""

from __future__ import annotations

import dataclasses
from typing import ClassVar
from typing import NamedTuple

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.attacks import base
from tf_privrob.attacks import gradient
from tf_privrob.attacks import norms
from tf_privrob.attacks import objectives
from tf_privrob.attacks import randomness


def checkpoints(steps: int) -> list[int]:
  """Steps after which the step size is looked at: ceil(p_j steps).

  p_1 = 0.22 and p_{j+1} = p_j + max(p_j - p_{j-1} - 0.03, 0.06) (Section 3.2);
  in hundredths, so that no rounding moves one.
  """
  before, share, found = 0, 22, set()
  while share <= 100:
    found.add(-(-share * steps // 100))
    before, share = share, share + max(share - before - 3, 6)
  return sorted(found)


@dataclasses.dataclass(frozen=True, repr=False)
class APGD(gradient.PGD):
  """PGD with momentum and halving steps (Croce and Hein 2020, Algorithm 1).

  With z = project(x_k + eta * steepest(grad_k)),

    x_{k+1} = project(x_k + momentum (z - x_k)
                      + (1 - momentum) (x_k - x_{k-1})),   x_1 = z,

  from eta = 2 attack_eps. At a checkpoint w_j (`checkpoints`) an example's eta
  is halved, and it goes back to its best point, if one of two holds:

  1. the objective rose in fewer than rho (w_j - w_{j-1}) of the steps since
     the last checkpoint;
  2. eta was not halved there and the best objective is the same as then.

  Every example has an eta of its own, so that one with a small radius is not
  hurried by others. Returned is the best point of all, by success and then by
  margin. In l_1 the steps are those of `norms.L1Ball.move`; the authors' l_1
  attack (2021), which adapts how many coordinates a step moves, is another.

  Attributes:
    steps: Number of steps; each is one forward and one backward pass, and one
      more at the start.
    step_size: The first eta; None: 2 attack_eps.
    keep_best: Always True.
    momentum: The paper's alpha.
    rho: Share of rising steps that lets eta stand.
  """

  steps: int = 100
  keep_best: bool = True
  momentum: float = 0.75
  rho: float = 0.75

  name = "apgd"
  first_factor: ClassVar[float] = 2.0

  def __post_init__(self):
    super().__post_init__()
    validate.probability(momentum=self.momentum, rho=self.rho)
    if not self.keep_best:
      raise ValueError(
        "Expected keep_best=True: this attack goes back to its best point."
      )

  def _walk(self, model, ball, label, x_adv, seed):
    """All steps from one start."""
    size = self.step_size
    size = self.first_factor * ball.radius if size is None else size
    size = tf.cast(size, ball.center.dtype)
    ones = tf.ones(tf.shape(label), size.dtype)
    size = norms.per_example(ones, ball.center) * size
    marks = checkpoints(self.steps)
    windows = [0] * (self.steps + 1)
    for before, mark in zip([0, *marks], marks):
      windows[mark] = mark - before
    windows = tf.constant(windows, tf.float32)

    def look(x, number):
      grad, logits = self._gradient(
        model, x, label, randomness.fold(seed, number)
      )
      value = objectives.value(self.loss, logits, label, self.targeted)
      return _Point(x, grad, tf.cast(value, tf.float32)), (
        x,
        self._score(logits, label),
      )

    def body(number, here, previous, top, state, found):
      z = self.project(ball, here.x + ball.move(here.grad, here.x, state.size))
      weight = tf.where(number == 1, 1.0, self.momentum)
      weight = tf.cast(weight, here.x.dtype)
      moved = here.x + weight * (z - here.x)
      moved += (1 - weight) * (here.x - previous)
      after, candidate = look(self.project(ball, moved), number)
      found = base.worse(found, candidate)
      rose = tf.cast(after.value > here.value, tf.float32)
      top = _where(after.value > top.value, after, top)
      state = state._replace(rises=state.rises + rose)
      previous = here.x
      # At a checkpoint; elsewhere the window is 0 and nothing is decided.
      window = windows[number]
      stuck = ~state.halved & (top.value <= state.top_value)
      halve = (window > 0) & ((state.rises < self.rho * window) | stuck)
      here = _where(halve, top, after)
      previous = _pick(halve, top.x, previous)
      state = _State(
        size=_pick(halve, state.size / 2, state.size),
        rises=tf.where(window > 0, 0.0, state.rises),
        halved=tf.where(window > 0, halve, state.halved),
        top_value=tf.where(window > 0, top.value, state.top_value),
      )
      return number + 1, here, previous, top, state, found

    first, found = look(x_adv, 0)
    zeros = tf.zeros_like(first.value)
    state = _State(size, zeros, tf.cast(zeros, tf.bool), first.value)
    *_, found = tf.while_loop(
      lambda number, *_: number <= self.steps,
      body,
      (1, first, first.x, first, state, found),
      parallel_iterations=1,
    )
    return found


class _Point(NamedTuple):
  """A point, the gradient there and the objective."""

  x: tf.Tensor
  grad: tf.Tensor
  value: tf.Tensor


class _State(NamedTuple):
  """What is remembered since the last checkpoint, one entry per example."""

  size: tf.Tensor
  rises: tf.Tensor
  halved: tf.Tensor
  top_value: tf.Tensor


def _pick(choice: tf.Tensor, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
  """`first` for the examples where `choice`, else `second`."""
  wide = tf.reshape(choice, [-1] + [1] * (first.shape.rank - 1))
  return tf.where(wide, first, second)


def _where(choice: tf.Tensor, first: _Point, second: _Point) -> _Point:
  return _Point(*(_pick(choice, *pair) for pair in zip(first, second)))
