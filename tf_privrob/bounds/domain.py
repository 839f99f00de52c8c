"""What every domain answers, and the walk that forward domains share."""

from __future__ import annotations

import abc
import math
import numbers
import warnings
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.bounds import activations
from tf_privrob.bounds import affine
from tf_privrob.bounds import program as program_lib
from tf_privrob.bounds import rounding
from tf_privrob.models import precision

ARITHMETICS = ("float32", "outward")
_MAX_PIECES = 8  # Each piece is a copy of the network in the graph.


class Box(NamedTuple):
  """All values within `radius` of `centre`, coordinate by coordinate."""

  centre: tf.Tensor
  radius: tf.Tensor


class Domain(abc.ABC):
  """A way to bound what a network makes of a box of inputs.

  A domain is a frozen dataclass of its settings. Its methods work eagerly and
  inside a `tf.function`, are differentiable with respect to the weights, and
  treat every example of a batch on its own. Layers behave as at inference:
  batch normalisation by moving statistics, no dropout.

  Formal guarantee, where `is_bound`: let x' be within attack_eps of x in every
  coordinate, and inside value_range if there is one. Then the outputs z(x') of
  the network lie in `output_bounds`, and z_j(x') - z_y(x') is at most
  `worst_case_logits`[j]. With arithmetic="float32" this is true of exact
  numbers only: bounds and network are both rounded, which training does not
  mind. With arithmetic="outward" it is true of the numbers that the network
  computes in float32, summed in any order; see `rounding`.
  """

  name: ClassVar[str]
  piece_size: ClassVar[int | None] = None  # Examples of a part; see `_pieces`.
  arithmetic: str

  def __post_init__(self):
    validate.one_of(ARITHMETICS, arithmetic=self.arithmetic)

  @property
  def is_bound(self) -> bool:
    """Whether the guarantee holds; False for an estimate."""
    return True

  def check(self, network: tf.keras.Model) -> None:
    """Refuses, with the reason, a network that cannot be bounded."""
    program_lib.read(network)

  def output_bounds(
    self,
    network: tf.keras.Model,
    x: tf.Tensor,
    attack_eps: float | tf.Tensor,
    value_range: tuple[float, float] | None = None,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Lower and upper bounds of every output.

    Args:
      network: functional or sequential Keras model.
      x: inputs, with a batch axis.
      attack_eps: radius of the l_inf ball: one number, or one for each input.
      value_range: what inputs can be; the ball is cut to it.
    """
    program = program_lib.read(network)
    box = self._box(program, x, attack_eps, value_range)
    found = [
      self._output_bounds(program, Box(*part)) for part in self._pieces(box)
    ]
    return tuple(_joined(ends) for ends in zip(*found))

  def worst_case_logits(
    self,
    network: tf.keras.Model,
    x: tf.Tensor,
    y: tf.Tensor,
    attack_eps: float | tf.Tensor,
    value_range: tuple[float, float] | None = None,
  ) -> tf.Tensor:
    """Upper bounds of z_j - z_y, [batch, classes]; 0 for y itself.

    A prediction y is verified where all others are below 0. As logits they
    are a loss for training: their cross-entropy is at least that of every
    input in the box.

    Args:
      network: functional or sequential Keras model that returns logits.
      x: inputs, with a batch axis.
      y: classes, one an input.
      attack_eps: radius of the l_inf ball: one number, or one for each input.
      value_range: what inputs can be; the ball is cut to it.
    """
    program = program_lib.read(network)
    box = self._box(program, x, attack_eps, value_range)
    rows = self._rows(program, y, box)
    return _joined(
      [
        self._maximum(program, Box(*part), part_rows)
        for *part, part_rows in self._pieces((*box, rows))
      ]
    )

  @abc.abstractmethod
  def _output_bounds(self, program, box):
    """See `output_bounds`."""

  @abc.abstractmethod
  def _maximum(self, program, box, rows):
    """Upper bounds of the products of rows [batch, m, classes] and outputs."""

  def _pieces(self, tensors) -> list[tuple[tf.Tensor, ...]]:
    """The tensors cut along the batch into parts that run side by side.

    In a graph on a CPU, parts that fit into its cache and keep its cores busy
    are faster (benchmarks/bounds.py); elsewhere, and where the batch is not
    known or has no fitting divisor, there is one part.
    """
    batch, size = tensors[0].shape[0], self.piece_size
    if not (batch and size) or tf.executing_eagerly():
      return [tuple(tensors)]
    count = max(min(batch // size, _MAX_PIECES), 1)
    while batch % count:
      count -= 1
    if count == 1 or tf.config.list_logical_devices("GPU"):
      return [tuple(tensors)]
    return list(zip(*(tf.split(tensor, count) for tensor in tensors)))

  def _box(self, program, x, attack_eps, value_range) -> Box:
    """The l_inf ball cut to the value range."""
    check_radius(attack_eps, value_range)
    if x is None or tuple(x.shape[1:]) != program.input_shape:
      raise ValueError(
        f"Expected a batch of inputs of shape {program.input_shape}, received"
        f" x of shape {None if x is None else tuple(x.shape)}."
      )
    dtype = tf.float64 if self.arithmetic == "outward" else tf.float32
    x = tf.convert_to_tensor(x)
    if tf.executing_eagerly():
      validate.examples(value_range or (-math.inf, math.inf), x=x.numpy())
    x, size = tf.cast(x, dtype), tf.cast(attack_eps, dtype)
    if size.shape.rank:
      size = tf.reshape(size, [-1] + [1] * len(program.input_shape))
    low, high = x - size, x + size
    if value_range is not None:
      low, high = (tf.clip_by_value(end, *value_range) for end in (low, high))
    radius = (high - low) / 2
    if self.arithmetic == "outward":
      # More than what float64 rounds off above, and the cast of x to it.
      radius += 2.0**-50 * (tf.abs(low) + tf.abs(high)) + precision.SMALLEST
    return Box((low + high) / 2, radius)

  def _rows(self, program, y, box) -> tf.Tensor:
    """e_j - e_y for every class j, [batch, classes, classes]."""
    count = program.num_classes
    if y is None:
      raise ValueError(
        "Expected labels y: worst-case logits are differences to the logit of"
        " a class. Pass them, or the prediction, or use output_bounds."
      )
    if count < 2:
      raise ValueError(
        "Expected logits of at least 2 classes, received 1. Return [0, logit]"
        " for a binary classifier with one output."
      )
    y = tf.convert_to_tensor(y)
    if tf.executing_eagerly():
      validate.labels(count, count=int(box.centre.shape[0]), y=y.numpy())
    dtype = box.centre.dtype
    chosen = tf.one_hot(tf.reshape(y, [-1]), count, dtype=dtype)
    return tf.eye(count, dtype=dtype) - chosen[:, tf.newaxis]


class ForwardDomain(Domain):
  """A domain that carries one abstract element from the input to the output.

  A subclass gives the rules: what the element of a box is, and what becomes of
  it in affine maps, activations and sums.

  Attributes:
    elide: bound differences of logits before the dense layers at the end, in
      one with them: <w_j - w_y, h> in place of <w_j, h> - <w_y, h>.
  """

  elide: bool

  def __post_init__(self):
    super().__post_init__()
    validate.boolean(elide=self.elide)

  @abc.abstractmethod
  def start(self, box: Box) -> Any:
    """The element of a box of inputs."""

  @abc.abstractmethod
  def affine(self, operation: affine.Affine, element: Any) -> Any:
    """The element behind an affine map."""

  @abc.abstractmethod
  def activation(self, operation: activations.Activation, element: Any) -> Any:
    """The element behind an activation."""

  @abc.abstractmethod
  def add(self, elements: Sequence[Any]) -> Any:
    """The element of the sum of values."""

  @abc.abstractmethod
  def widen(self, element: Any, slack: tf.Tensor) -> Any:
    """The element of values that may be off by `slack`."""

  @abc.abstractmethod
  def box(self, element: Any) -> Box:
    """The smallest box around an element."""

  @abc.abstractmethod
  def maximum(self, element: Any, rows: tf.Tensor) -> tf.Tensor:
    """Upper bounds [batch, m] of <row, value> for rows [batch, m, units]."""

  def run(
    self,
    program: program_lib.Program,
    box: Box,
    num_steps: int | None = None,
    apart: int = 0,
  ) -> tuple[list[Any], dict[int, tf.Tensor]]:
    """Carries a box through the first `num_steps` steps.

    Args:
      program: the network.
      box: of its inputs.
      num_steps: None: all.
      apart: the first step whose slack is wanted by itself.

    Returns:
      The elements of all values, and by step what "outward" added to them.
    """
    elements, slacks = [self.start(box)], {}
    for index, step in enumerate(program.steps[:num_steps]):
      inputs = [elements[value] for value in step.inputs]
      if self.arithmetic != "outward":
        element = self._exact(step, inputs)
      elif index < apart:
        element = self.rounded(step, inputs)
      else:
        element = self._exact(step, inputs)
        slack = self._slack(step, inputs, element)
        if slack is not None:
          slacks[index] = slack
          element = self.widen(element, slack)
      elements.append(element)
    return elements, slacks

  def rounded(self, step: program_lib.Step, inputs: Sequence[Any]) -> Any:
    """The element behind a step, with what rounding adds to it."""
    element = self._exact(step, inputs)
    slack = self._slack(step, inputs, element)
    return element if slack is None else self.widen(element, slack)

  def _exact(self, step, inputs):
    if step.is_affine:
      return self.affine(step.operation, inputs[0])
    if step.is_activation:
      return self.activation(step.operation, inputs[0])
    return self.add(inputs)

  def _slack(self, step, inputs, element):
    sizes = [self.size(part) for part in inputs]
    return rounding.slack(step, sizes, self.size(element))

  def size(self, element: Any) -> tf.Tensor:
    """The largest size of every value."""
    found = self.box(element)
    return tf.abs(found.centre) + found.radius

  def _output_bounds(self, program, box):
    elements, _ = self.run(program, box, apart=len(program.steps))
    found = self.box(elements[-1])
    return found.centre - found.radius, found.centre + found.radius

  def _maximum(self, program, box, rows):
    tail = len(program.steps)
    while self.elide and tail and _is_tail(program.steps[tail - 1], tail - 1):
      tail -= 1
    # The slacks of the tail need all steps.
    outward = self.arithmetic == "outward"
    elements, slacks = self.run(program, box, None if outward else tail, tail)
    constant = tf.zeros([], rows.dtype)
    for index in reversed(range(tail, len(program.steps))):
      operation = program.steps[index].operation
      bias = operation.bias(rows.dtype)
      if bias is not None:
        constant += tf.reduce_sum(rows * bias, -1)
      if index in slacks:
        constant += contract(tf.abs(rows), slacks[index])
      rows = pull(operation, rows)
    return self.maximum(elements[tail], rows) + constant


def _joined(parts: Sequence[tf.Tensor]) -> tf.Tensor:
  return parts[0] if len(parts) == 1 else tf.concat(parts, 0)


def _is_tail(step: program_lib.Step, before: int) -> bool:
  """Whether a step maps the vector that is the value right before it."""
  is_dense = step.is_affine and len(step.operation.input_shape) == 1
  return is_dense and step.inputs == (before,)


def pull(operation: affine.Affine, rows: tf.Tensor) -> tf.Tensor:
  """Rows [n, m, *outputs] behind a map as rows [n, m, *inputs] before it."""
  lead = [-1 if rows.shape[0] is None else rows.shape[0], rows.shape[1]]
  flat = tf.reshape(rows, [-1, *operation.output_shape])
  return tf.reshape(operation.adjoint(flat), [*lead, *operation.input_shape])


def contract(rows: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
  """<row, value>: rows [n or 1, m, *shape], values [n, *shape] -> [n, m]."""
  size = math.prod(rows.shape[2:])
  rows = tf.reshape(rows, [-1, rows.shape[1], size])
  values = tf.reshape(values, [-1, size])
  if rows.shape[0] == 1:
    return tf.matmul(values, rows[0], transpose_b=True)
  return tf.linalg.matvec(rows, values)


def check_radius(
  attack_eps: float | tf.Tensor, value_range: tuple[float, float] | None
) -> None:
  """Requires a radius >= 0; warns where it is more than half the range."""
  if value_range is not None:
    validate.value_range(value_range)
  if tf.is_tensor(attack_eps) and not hasattr(attack_eps, "numpy"):
    return  # symbolic: not known yet
  if isinstance(attack_eps, numbers.Real):
    validate.non_negative(attack_eps=attack_eps)
  values = np.asarray(attack_eps, float)
  if values.ndim > 1 or not np.all(np.isfinite(values) & (values >= 0)):
    raise ValueError(
      "Expected attack_eps >= 0, one number or one for each input, received"
      f" shape {values.shape}, least {np.min(values, initial=np.inf):g}."
    )
  if value_range is not None:
    half = (value_range[1] - value_range[0]) / 2
    if np.max(values, initial=0.0) > half:
      warnings.warn(
        f"attack_eps={np.max(values):g} is more than half of the value range"
        f" {tuple(value_range)}: every input can become grey. Is it in units of"
        " that range?",
        UserWarning,
        stacklevel=4,
      )
