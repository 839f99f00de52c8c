"""Hybrid zonotopes: errors that remember which input they come from."""

from __future__ import annotations

import dataclasses
from typing import ClassVar
from typing import NamedTuple

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.bounds import domain

RELUS = ("box", "switch", "smooth")
_SMOOTHING = 1e-4


class Element(NamedTuple):
  """All c + beta * b + sum_k e_k E_k with b, e_k in [-1, 1].

  Attributes:
    centre: c, [batch, *shape].
    free: beta >= 0, the uncorrelated radius, of the same shape.
    errors: the E_k, [batch * k, *shape]: one for each coordinate of the input.
  """

  centre: tf.Tensor
  free: tf.Tensor
  errors: tf.Tensor


@dataclasses.dataclass(frozen=True)
class HybridZonotope(domain.ForwardDomain):
  """The hybrid zonotope of DiffAI (Mirman, Gehr and Vechev 2018).

  At the input there is one error term r_i e_i for each coordinate and no free
  radius. An affine map acts on the centre and on every error term, with |W| on
  beta: a network without activations is bounded exactly. With l and u the
  bounds of a unit, a ReLU leaves it alone where l >= 0, makes it 0 where
  u <= 0, and otherwise follows one of three rules:

  * "box": c' = beta' = u/2, and the unit's error terms are dropped;
  * "switch": box where |l| > u; elsewhere the error terms stay, c' = c + |l|/2
    and beta' = beta + |l|/2, since relu(z) - z is in [0, |l|];
  * "smooth": t times the first plus 1 - t times the second, t = |l| / (u + |l|
    + 1e-4).

  max(z, s z) is s z + (1 - s) relu(z). Every other activation gives the box
  from f(l) to f(u). Differences of logits are bounded on the difference of
  elements, so that what two logits have in common cancels.

  Bounds grow with attack_eps for "box". For the two others they need not: where
  a centre in a deeper layer passes 0, "switch" falls from [l, u + |l|] to
  [0, u].

  Memory: batch x inputs x the widest layer.

  Attributes:
    relu: "box", "switch" or "smooth".
    elide: see `ForwardDomain`; it spares the free radius of the last layer.
    arithmetic: "float32", or "outward" for certificates; see `Domain`.
  """

  relu: str = "box"
  elide: bool = True
  arithmetic: str = "float32"

  name: ClassVar[str] = "zonotope"

  def __post_init__(self):
    super().__post_init__()
    validate.one_of(RELUS, relu=self.relu)

  def start(self, box):
    """One error term a coordinate."""
    shape = box.radius.shape[1:]
    size = shape.num_elements()
    radius = tf.broadcast_to(box.radius, tf.shape(box.centre))
    errors = tf.linalg.diag(tf.reshape(radius, [-1, size]))
    errors = tf.reshape(errors, [-1, *shape])
    return Element(box.centre, tf.zeros_like(box.centre), errors)

  def affine(self, operation, element):
    """W on the centre and on all errors, |W| on the free radius."""
    return Element(
      operation.apply(element.centre),
      operation.absolute(element.free),
      operation.linear(element.errors),
    )

  def activation(self, operation, element):
    """One of the three rules for ReLUs; a box for other functions."""
    found = self.box(element)
    low, high = found.centre - found.radius, found.centre + found.radius
    if operation.slope is None:
      low, high = operation.function(low), operation.function(high)
      return Element(
        (high + low) / 2, (high - low) / 2, tf.zeros_like(element.errors)
      )
    relu = self._relu(element, low, high)
    slope = operation.slope
    if not slope:
      return relu
    parts = zip(element, relu)
    return Element(*(slope * old + (1 - slope) * new for old, new in parts))

  def _relu(self, element, low, high):
    below = tf.nn.relu(-low)  # |l| where the unit is unstable
    above = tf.nn.relu(high)
    # How much of the unit is boxed: all, nothing, or the share t.
    if self.relu == "box":
      boxed = tf.ones_like(low)
    elif self.relu == "switch":
      boxed = tf.cast(below > above, low.dtype)
    else:
      boxed = below / (above + below + _SMOOTHING)
    boxed = tf.where(low >= 0, tf.zeros_like(low), boxed)
    boxed = tf.where(high <= 0, tf.ones_like(low), boxed)
    below = tf.where(high <= 0, tf.zeros_like(low), below)
    kept = 1 - boxed
    return Element(
      boxed * above / 2 + kept * (element.centre + below / 2),
      boxed * above / 2 + kept * (element.free + below / 2),
      self._scaled(element.errors, kept),
    )

  def _scaled(self, errors, factor):
    grouped = self._grouped(errors, factor)
    return tf.reshape(grouped * factor[:, tf.newaxis], tf.shape(errors))

  def _grouped(self, errors, like):
    """Errors with an axis of examples, [batch, k, *shape]."""
    shape = tf.shape(like)
    return tf.reshape(errors, tf.concat([shape[:1], [-1], shape[1:]], 0))

  def add(self, elements):
    """All parts add up: the error terms are those of the same inputs."""
    return Element(*(tf.add_n(parts) for parts in zip(*elements)))

  def widen(self, element, slack):
    """A larger free radius."""
    return element._replace(free=element.free + slack)

  def box(self, element):
    """Radius beta + sum_k |E_k|."""
    grouped = self._grouped(tf.abs(element.errors), element.centre)
    radius = element.free + tf.reduce_sum(grouped, 1)
    return domain.Box(element.centre, radius)

  def maximum(self, element, rows):
    """<row, c> + <|row|, beta> + sum_k |<row, E_k>|."""
    errors = self._grouped(element.errors, element.centre)
    together = tf.einsum("bmn,bkn->bmk", rows, errors)
    return (
      domain.contract(rows, element.centre)
      + domain.contract(tf.abs(rows), element.free)
      + tf.reduce_sum(tf.abs(together), -1)
    )
