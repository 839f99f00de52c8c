"""Interval arithmetic: one centre and one radius a value."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import tensorflow as tf

from tf_privrob.bounds import domain
from tf_privrob.bounds import rounding


@dataclasses.dataclass(frozen=True)
class Interval(domain.ForwardDomain):
  """Interval bound propagation (Gowal et al. 2018).

  Values in [mu - r, mu + r] become

  * behind an affine map, mu' = W mu + b and r' = |W| r, which is exact for
    each output alone;
  * behind a function f that never decreases, the interval from f(mu - r) to
    f(mu + r), which is exact too.

  Worst-case logits with elision (`elide`) are, with mu and r of the values
  before the last dense layer,

    v_j = (w_j - w_y)^T mu + b_j - b_y + |w_j - w_y|^T r, and v_y = 0.

  Without it they are the Box of DiffAI (Mirman et al. 2018): v_j = c_j - c_y +
  beta_j + beta_y, with centre and radius of the logits; never smaller.

  Attributes:
    elide: see above.
    arithmetic: "float32", or "outward" for certificates; see `Domain`.
  """

  elide: bool = True
  arithmetic: str = "float32"

  name: ClassVar[str] = "interval"
  piece_size: ClassVar[int | None] = 125

  def start(self, box):
    """The box itself."""
    return box

  def affine(self, operation, element):
    """W mu + b and |W| r."""
    centre = operation.apply(element.centre)
    return domain.Box(centre, operation.absolute(element.radius))

  def rounded(self, step, inputs):
    """|W| (r + gamma (|mu| + r)) in one product where there is one."""
    if not (step.is_affine and step.operation.terms):
      return super().rounded(step, inputs)
    (element,) = inputs
    size = self.size(element)
    radius = rounding.spread(step.operation, size, element.radius)
    return domain.Box(step.operation.apply(element.centre), radius)

  def activation(self, operation, element):
    """The interval between f(mu - r) and f(mu + r)."""
    low = operation.function(element.centre - element.radius)
    high = operation.function(element.centre + element.radius)
    return domain.Box((high + low) / 2, (high - low) / 2)

  def add(self, elements):
    """Centres and radii add up."""
    centres, radii = zip(*elements)
    return domain.Box(tf.add_n(centres), tf.add_n(radii))

  def widen(self, element, slack):
    """A larger radius."""
    return domain.Box(element.centre, element.radius + slack)

  def box(self, element):
    """The box itself."""
    return element

  def maximum(self, element, rows):
    """<row, mu> + <|row|, r>."""
    size = domain.contract(tf.abs(rows), element.radius)
    return domain.contract(rows, element.centre) + size
