"""The attack contract, and the one loop that all gradient attacks share."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any
from typing import Callable
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.attacks import graphs
from tf_privrob.attacks import norms
from tf_privrob.attacks import objectives
from tf_privrob.attacks import randomness

LABEL_SOURCES = ("model", "iterate", "truth")

# Numbers folded into the seed for what is not a step of the loop.
_START, _LABEL = -1, -2


class Attack(abc.ABC):
  """Maps clean inputs to adversarial ones within a ball and a value range.

  Subclasses are frozen dataclasses with `value_range` and `targeted`.
  """

  name: ClassVar[str]
  in_graph: ClassVar[bool] = True  # May be called inside a tf.function.

  @abc.abstractmethod
  def __call__(
    self,
    logits_fn: Callable,
    x: tf.Tensor,
    y: tf.Tensor | None,
    seed: Any,
    attack_eps: tf.Tensor | None = None,
  ) -> tf.Tensor:
    """Returns adversarial examples of the shape and dtype of `x`.

    Args:
      logits_fn: Keras model or callable from a batch to logits; if it has a
        parameter `seed`, it receives a fresh one at every step.
      x: Clean inputs, floats in `value_range`, batch first.
      y: Sparse labels; the targets of a targeted attack.
      seed: An int or a shape-[2] int tensor.
      attack_eps: What replaces the attack's own radius, so that a training
        step may draw it: a scalar, or one radius per example, of shape [n].
    """

  def compile(
    self,
    logits_fn: Callable,
    jit_compile: bool | None = None,
    split_batch: bool = True,
  ):
    """Returns `fn(x, y, seed, attack_eps=None)`, traced once per shape.

    Args:
      logits_fn: The model or function, as for the attack itself.
      jit_compile: XLA; None uses it on accelerators only, since it slows
        convolutions on CPU down by several times.
      split_batch: On CPU, run pieces of the batch side by side. Pass False for
        a model whose examples see each other (batch statistics). Models that
        take a seed are never split.
    """
    if not self.in_graph:
      return lambda x, y, seed, attack_eps=None: self(
        logits_fn, x, y, seed, attack_eps
      )
    if jit_compile is None:
      jit_compile = bool(tf.config.list_logical_devices("GPU"))
    if split_batch and not randomness.takes_seed(logits_fn):
      model = randomness.seeded(logits_fn)
      logits_fn = graphs.Splittable(lambda x: model(x, None))
    traced = graphs.Traced(
      lambda x, seed, y=None, attack_eps=None: self(
        logits_fn, x, y, seed, attack_eps
      ),
      jit_compile,
    )

    def run(x, y, seed, attack_eps=None):
      tensors = {"x": tf.convert_to_tensor(x)}
      tensors["seed"] = randomness.as_seed(seed)
      if y is not None:
        tensors["y"] = tf.cast(y, tf.int32)
      if attack_eps is not None:
        tensors["attack_eps"] = tf.cast(attack_eps, tensors["x"].dtype)
      return traced(**tensors)

    return run

  def __repr__(self) -> str:
    shown = []
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      main = field.name in ("attack_eps", "norm", "steps")
      if main or value != field.default:
        shown.append(f"{field.name}={value!r}")
    return f"{type(self).__name__}({', '.join(shown)})"


@dataclasses.dataclass(frozen=True, repr=False)
class GradientAttack(Attack):
  """Ascends a loss inside a ball: start, then gradient, step and project.

  Attributes:
    attack_eps: Radius of the ball, in units of the value range.
    norm: "linf", "l2" or "l1".
    value_range: Valid inputs; adversarial examples stay inside.
    targeted: `y` holds the labels to reach, not those to leave.
    loss: "cross_entropy", "margin" or "dlr"; the last two do not fade with a
      saturated softmax.
    label_source: "truth" attacks `y`; "model" attacks the prediction at the
      clean input, fixed for all steps (no label leaking; `y` may be None);
      "iterate" that at every iterate (DPAL, Eq. 10), which pulls an example
      back over the boundary it has crossed. Candidates are compared by the
      former.
  """

  attack_eps: float
  norm: str = "linf"
  value_range: tuple[float, float] = (0.0, 1.0)
  targeted: bool = False
  loss: str = "cross_entropy"
  label_source: str = "truth"

  # What a single-step attack fixes and an iterative one makes a field.
  steps = 1
  step_size = None
  random_start = False
  restarts = 1
  keep_best = False
  step_factor: ClassVar[float] = 1.0  # Default step: factor * radius / steps.

  def __post_init__(self):
    validate.non_negative(attack_eps=self.attack_eps)
    validate.one_of(norms.NORMS, norm=self.norm)
    validate.value_range(self.value_range)
    validate.boolean(targeted=self.targeted)
    validate.one_of(objectives.LOSSES, loss=self.loss)
    validate.one_of(LABEL_SOURCES, label_source=self.label_source)
    if self.targeted and self.label_source != "truth":
      raise ValueError(
        "Expected label_source='truth' with targeted=True: a targeted attack"
        " needs the labels to reach, passed as y."
      )

  # The three pieces of an attack.

  def start(self, ball: norms.Ball, seed: tf.Tensor) -> tf.Tensor:
    """The first iterate: the clean input, or a random point of the ball."""
    if not self.random_start:
      return ball.center
    return ball.project(ball.center + ball.uniform(seed))

  def step(self, ball, x_adv, grad, memory, size):
    """Moves by `size` in the ball's norm; returns the point and the memory."""
    return x_adv + ball.move(grad, x_adv, size), memory

  def project(self, ball: norms.Ball, x_adv: tf.Tensor) -> tf.Tensor:
    """Returns into the ball and the value range."""
    return ball.project(x_adv)

  def memory(self, x: tf.Tensor) -> Any:
    """What `step` carries from one step to the next; nothing by default."""
    del x
    return ()

  # The loop.

  def __call__(self, logits_fn, x, y, seed, attack_eps=None):
    """Runs the attack; see `Attack.__call__`."""
    if tf.executing_eagerly():
      check_inputs(self, logits_fn, x, y)
    x = tf.stop_gradient(tf.convert_to_tensor(x))
    seed = randomness.as_seed(seed)
    radius = self.attack_eps if attack_eps is None else attack_eps
    radius = norms.per_example(tf.cast(radius, x.dtype), x)
    model = randomness.seeded(logits_fn)
    if self.label_source != "truth":
      prediction = model(x, randomness.fold(seed, _LABEL))
      y = tf.argmax(prediction, axis=-1)
    if y is None:
      raise ValueError(
        "Expected labels in y. Pass them, or use label_source='model' to attack"
        " the model's own prediction."
      )
    label = tf.cast(y, tf.int32)
    ball = norms.ball(self.norm, x, radius, self.value_range)
    pieces = graphs.pieces_of(logits_fn, x)
    x_adv = self._worst_of_restarts(model, ball, label, seed, pieces)
    return tf.stop_gradient(tf.ensure_shape(x_adv, x.shape))

  def _worst_of_restarts(self, model, ball, label, seed, pieces):
    def run(number):
      run_seed = randomness.fold(seed, number)
      return self._run(model, ball, label, run_seed, pieces)

    if self.restarts == 1:
      return run(0)[0]

    def restart(number, best):
      return number + 1, worse(best, run(number))

    _, best = tf.while_loop(
      lambda number, best: number < self.restarts,
      restart,
      (0, _nothing(ball.center)),
      parallel_iterations=1,
    )
    return best[0]

  def _run(self, model, ball, label, seed, pieces):
    """One start and its steps; returns the examples and, if known, a score.

    The start is drawn for the whole batch, so that cutting the batch into
    pieces, which walk side by side, does not change what comes out.
    """
    x_adv = self.start(ball, randomness.fold(seed, _START))
    if pieces == 1:
      return self._walk(model, ball, label, x_adv, seed)
    parts = [tf.split(t, pieces) for t in (ball.center, label, x_adv)]
    own = ball.radius.shape.rank > 0  # one radius an example
    radii = tf.split(ball.radius, pieces) if own else [ball.radius] * pieces
    done = [
      self._walk(
        model,
        norms.ball(self.norm, center, radius, self.value_range),
        part_label,
        start,
        seed,
      )
      for center, part_label, start, radius in zip(*parts, radii)
    ]
    return tuple(tf.concat(column, axis=0) for column in zip(*done))

  def _walk(self, model, ball, label, x_adv, seed):
    """All steps from one start."""
    size = self.step_size
    if size is None:
      size = self.step_factor * ball.radius / self.steps
    size = tf.cast(size, ball.center.dtype)

    def body(number, x_adv, memory, best):
      step_seed = randomness.fold(seed, number)
      grad, logits = self._gradient(model, x_adv, label, step_seed)
      if self.keep_best:
        best = worse(best, (x_adv, self._score(logits, label)))
      x_adv, memory = self.step(ball, x_adv, grad, memory, size)
      return number + 1, self.project(ball, x_adv), memory, best

    best = _nothing(ball.center) if self.keep_best else ()
    _, x_adv, _, best = tf.while_loop(
      lambda number, *_: number < self.steps,
      body,
      (0, x_adv, self.memory(ball.center), best),
      parallel_iterations=1,
    )
    if not self.keep_best and self.restarts == 1:
      return (x_adv,)
    logits = model(x_adv, randomness.fold(seed, self.steps))
    last = (x_adv, self._score(logits, label))
    return worse(best, last) if self.keep_best else last

  def _gradient(self, model, x_adv, label, seed):
    """Gradient with respect to the input only: no variable is watched."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(x_adv)
      logits = model(x_adv, seed)
      if self.label_source == "iterate":
        label = tf.argmax(logits, axis=-1, output_type=label.dtype)
      objective = objectives.value(self.loss, logits, label, self.targeted)
    grad = tape.gradient(objective, x_adv)
    if grad is None:
      raise ValueError(
        "Expected logits that depend on x through differentiable operations,"
        " but no gradient reaches x (rounding, argmax, NumPy or stop_gradient"
        " in the model?). Attack it with SPSA, or give the step a surrogate"
        " gradient: docs/attacks.md#zero-gradients."
      )
    return grad, logits

  def _score(self, logits, label):
    scores = objectives.score(logits, label, self.targeted)
    return tf.cast(scores, tf.float32)


def _nothing(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """A candidate that every other one replaces."""
  return x, tf.fill(tf.shape(x)[:1], -np.inf)


def worse(first, second):
  """Keeps, per example, the candidate (x, score) with the higher score."""
  better = second[1] > first[1]
  wide = tf.reshape(better, [-1] + [1] * (second[0].shape.rank - 1))
  return (
    tf.where(wide, second[0], first[0]),
    tf.maximum(first[1], second[1]),
  )


def check_inputs(attack, logits_fn, x, y) -> None:
  """Refuses bad inputs before any work: dtype, range, rank and labels."""
  x = np.asarray(x)
  shape = getattr(logits_fn, "input_shape", None)
  rank = len(shape) if isinstance(shape, tuple) else None
  validate.examples(attack.value_range, rank=rank, x=x)
  if rank is None and x.ndim < 2:
    raise ValueError(
      f"Expected x of rank 2 or more (a batch of examples), received shape"
      f" {x.shape}. Add the batch axis, e.g. x[None]."
    )
  if y is None:
    return
  model = randomness.seeded(logits_fn)
  classes = model(tf.convert_to_tensor(x[:1]), randomness.as_seed(0)).shape[-1]
  validate.labels(classes, count=len(x), y=np.asarray(y))


def eager_arrays(attack, logits_fn, x, y) -> tuple[np.ndarray, np.ndarray]:
  """Returns checked arrays for an attack that runs outside the graph."""
  if not tf.executing_eagerly():
    raise ValueError(
      f"Expected {attack.name} to be called eagerly: cleverhans runs it in"
      " Python. Use BIM, MIM or PGD inside a tf.function or train_step."
    )
  if y is None:
    raise ValueError(f"Expected labels in y for {attack.name}.")
  check_inputs(attack, logits_fn, x, y)
  return np.asarray(x), np.asarray(y)
