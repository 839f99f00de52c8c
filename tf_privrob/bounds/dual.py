"""The dual bound of Wong and Kolter: linear relaxations, pulled back."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar
from typing import NamedTuple

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.bounds import domain
from tf_privrob.bounds import interval
from tf_privrob.bounds import program as program_lib
from tf_privrob.bounds import projection

NORMS = ("l1", "l1_median")
# Float64 rounds off far less of a sum of products, even through many layers.
_ALLOWANCE = 2.0**-30


@dataclasses.dataclass(frozen=True)
class Dual(domain.Domain):
  """Bounds from the dual of a linear relaxation (Wong and Kolter 2018).

  With l and u the bounds of the values before a ReLU, the unit is replaced by
  the band d z <= relu(z) <= d (z - l), d = u / (u - l), where l < 0 < u (the
  set I); by z where l >= 0 and by 0 where u <= 0. A row c of coefficients of
  the outputs is pulled back to the input: nu <- W^T nu through an affine layer,
  nu <- d nu through a ReLU. Then for all inputs within r_i of x_i

    <c, z> <= <nu_1, x> + sum <nu, b> + sum_i r_i |nu_1i| - sum_I l max(nu, 0)
    <c, z> >= <nu_1, x> + sum <nu, b> - sum_i r_i |nu_1i| + sum_I l max(-nu, 0)

  with nu of a ReLU taken before it, that is times d. A box cut to a value range
  is such a box with another centre. l and u come from the same formula, layer
  by layer with c = e_k; the worst-case logits from c = e_j - e_y.

  With `intersect` every bound is cut by that of `Interval`, so that it is never
  worse. The published bound, `intersect=False`, can be: of -relu(z) on [-1, 1]
  it says at most 1/2 where intervals say 0. As d changes with attack_eps,
  nothing makes sure that a larger ball has larger bounds.

  Only ReLU networks: Dense, Conv2D and the other affine layers, sums, ReLU.

  "l1_median" estimates l and u from random projections (Wong et al. 2018; see
  `projection`), at a cost that does not grow with the width of the layers. An
  estimate can be too small: then `is_bound` is False, and nothing that rests
  on it is verified. It does not intersect.

  Memory: batch x units of a layer x the widest layer before it, less with
  `rows_at_once` where no gradient is wanted.

  Attributes:
    norm: "l1" (exact) or "l1_median" (an estimate).
    projections: k, how many Cauchy vectors the estimate draws.
    seed: of the draws; an int or a shape-[2] integer tensor, to be replaced at
      every training step: dataclasses.replace(dual, seed=step_seed).
    intersect: cut by interval bounds.
    rows_at_once: units of a layer bounded together; None: all.
    arithmetic: "float32", or "outward" for certificates; see `Domain`.
  """

  norm: str = "l1"
  projections: int = 50
  seed: int | tf.Tensor = 0
  intersect: bool = True
  rows_at_once: int | None = None
  arithmetic: str = "float32"

  name: ClassVar[str] = "dual"

  def __post_init__(self):
    super().__post_init__()
    validate.one_of(NORMS, norm=self.norm)
    validate.positive_int(projections=self.projections)
    validate.boolean(intersect=self.intersect)
    if self.rows_at_once is not None:
      validate.positive_int(rows_at_once=self.rows_at_once)
    if self.arithmetic == "outward" and not self.is_bound:
      raise ValueError(
        "Expected arithmetic='float32' with norm='l1_median': an estimate is"
        " not a bound, however it is rounded. Use norm='l1' to certify."
      )

  @property
  def is_bound(self) -> bool:
    """Whether the guarantee holds: for exact norms only."""
    return self.norm == "l1"

  def check(self, network):
    """Refuses activations other than ReLUs too."""
    _check_relus(program_lib.read(network))

  def _output_bounds(self, program, box):
    return self._units(self._prepared(program, box), len(program.steps))

  def _maximum(self, program, box, rows):
    walk = self._prepared(program, box)
    found = walk.pull_back(len(program.steps), rows)[1]
    if self.is_bound and self.intersect:
      found = tf.minimum(found, self._interval()._maximum(program, box, rows))
    return found

  def _interval(self) -> interval.Interval:
    return interval.Interval(arithmetic=self.arithmetic)

  def _prepared(self, program, box) -> _Walk:
    """The walk with a band for every ReLU, in order."""
    _check_relus(program)
    walk = _Walk(program, box, {}, {}, [])
    if not self.is_bound:
      walk.bands.update(
        projection.relu_bounds(program, box, self.projections, self.seed)
      )
      return walk
    elements, slacks = self._interval().run(program, box)
    walk = walk._replace(slacks=slacks, boxes=elements)
    for index, step in enumerate(program.steps):
      if step.is_activation:
        walk.bands[index] = self._units(walk, step.inputs[0])
    return walk

  def _units(self, walk, value):
    """Lower and upper bounds of all units of a value."""
    shape = walk.program.shape(value)
    low = high = None
    if walk.boxes:
      centre, radius = walk.boxes[value]
      low, high = centre - radius, centre + radius
      if _interval_is_exact(walk.program, value):
        return low, high
    found = self._rows_of(walk, value, math.prod(shape))
    found = [tf.reshape(end, [-1, *shape]) for end in found]
    if low is not None and self.intersect:
      return tf.maximum(low, found[0]), tf.minimum(high, found[1])
    return tuple(found)

  def _rows_of(self, walk, value, size):
    """Bounds of <e_k, value> for every k, [batch, size]."""
    dtype = walk.box.centre.dtype
    shape = walk.program.shape(value)
    count = min(self.rows_at_once or size, size)
    if count == size:
      rows = tf.reshape(tf.eye(size, dtype=dtype), [1, size, *shape])
      return walk.pull_back(value, rows)

    def some(first):
      # Rows beyond the last unit are zero, and are thrown away.
      rows = tf.one_hot(first + tf.range(count), size, dtype=dtype)
      return walk.pull_back(value, tf.reshape(rows, [1, count, *shape]))

    ends = tf.map_fn(
      some,
      tf.range(0, size, count),
      fn_output_signature=(dtype, dtype),
      parallel_iterations=1,
    )
    batch = tf.shape(walk.box.centre)[0]
    return [
      tf.reshape(tf.transpose(end, [1, 0, 2]), [batch, -1])[:, :size]
      for end in ends
    ]


class _Walk(NamedTuple):
  """A network, its box and what is known of its ReLUs.

  Attributes:
    program: the steps.
    box: of the inputs.
    bands: by ReLU step, the bounds of what it is given.
    slacks: by step, what rounding adds to its outputs.
    boxes: interval bounds of all values, or none.
  """

  program: program_lib.Program
  box: domain.Box
  bands: dict
  slacks: dict
  boxes: list

  def pull_back(self, value: int, rows: tf.Tensor):
    """Bounds [batch, m] of <row, value> for rows [batch or 1, m, *shape]."""
    pending = {value: rows}
    middle = low = high = size = tf.zeros([], rows.dtype)
    for index in reversed(range(value)):
      if index + 1 not in pending:
        continue
      nu = pending.pop(index + 1)
      step = self.program.steps[index]
      if index in self.slacks:
        slack = domain.contract(tf.abs(nu), self.slacks[index])
        low, high = low - slack, high + slack
      if step.is_affine:
        bias = step.operation.bias(nu.dtype)
        if bias is not None:
          bias = tf.broadcast_to(bias, step.shape)[tf.newaxis]
          middle += domain.contract(nu, bias)
          if self.slacks:
            size += domain.contract(tf.abs(nu), tf.abs(bias))
        nu = domain.pull(step.operation, nu)
      elif step.is_activation:
        slope, below = projection.relu_band(*self.bands[index])
        nu *= slope[:, tf.newaxis]
        high -= domain.contract(tf.nn.relu(nu), below)
        low += domain.contract(tf.nn.relu(-nu), below)
      for source in step.inputs:
        pending[source] = pending[source] + nu if source in pending else nu
    nu = pending[0]
    middle += domain.contract(nu, self.box.centre)
    spread = domain.contract(tf.abs(nu), self.box.radius)
    low, high = middle - spread + low, middle + spread + high
    if self.slacks:
      size += domain.contract(tf.abs(nu), tf.abs(self.box.centre))
      size = _ALLOWANCE * (size + tf.abs(low) + tf.abs(high))
      low, high = low - size, high + size
    return low, high


def _interval_is_exact(program: program_lib.Program, value: int) -> bool:
  """Whether one map at most mixes values between the input and this one."""
  mixed = 0
  while value:
    step = program.steps[value - 1]
    if not step.is_affine:
      return False
    mixed += step.operation.mixes
    (value,) = step.inputs
  return mixed <= 1


def _check_relus(program: program_lib.Program) -> None:
  for step in program.steps:
    if step.is_activation and step.operation.slope != 0:
      raise ValueError(
        "Expected a network of affine layers and ReLUs for Dual, received"
        f" activation {step.operation.name!r} in layer {step.layer!r}. Use"
        " Interval or HybridZonotope."
      )
