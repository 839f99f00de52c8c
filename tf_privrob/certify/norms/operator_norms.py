"""How far a part of a network can carry a small change of its input."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from collections.abc import Sequence

from tf_privrob import validate
from tf_privrob.certify import certificate

NORMS = certificate.NORMS
_INVERSE = {"l1": 1.0, "l2": 0.5, "linf": 0.0}  # 1/p


@dataclasses.dataclass(frozen=True)
class OperatorNorms:
  """Upper bounds on ||f||_{p->q}, for p and q in l1, l2, linf.

  ||f||_{p->q} is the largest ||f(a) - f(b)||_q over ||a - b||_p <= 1: the
  sensitivity that noise behind f has to hide, for changes of the input that
  are measured in l_p. Gaussian noise hides l2 changes, Laplace noise l1 ones.
  For a linear f it is the norm of its matrix.

  Attributes:
    table: The nine bounds, p by p and q by q in the order of NORMS.
    input_shape: Shape of one input.
    output_shape: Shape of one output, which noise must have to cover all of it.
  """

  table: tuple[tuple[float, ...], ...]
  input_shape: tuple[int, ...]
  output_shape: tuple[int, ...]

  def __post_init__(self):
    for row in self.table:
      for value in row:
        validate.non_negative(bound=value)

  @classmethod
  def of(
    cls,
    bounds: Mapping[tuple[str, str], float],
    input_shape: Sequence[int],
    output_shape: Sequence[int],
  ) -> OperatorNorms:
    """The table of these bounds, each improved by all the others.

    For vectors of m values ||.||_q <= m^max(0, 1/q - 1/r) ||.||_r, so that a
    bound on s->r is one on every p->q, times two such factors. What is not
    given is derived.
    """
    table = {
      pair: float(bounds.get(pair, math.inf))
      for pair in itertools.product(NORMS, NORMS)
    }
    inputs, outputs = math.prod(input_shape), math.prod(output_shape)
    table = {
      (p, q): min(
        _equivalence(p, s, inputs) * value * _equivalence(r, q, outputs)
        for (s, r), value in table.items()
      )
      for p, q in table
    }
    return cls(
      tuple(tuple(table[p, q] for q in NORMS) for p in NORMS),
      tuple(input_shape),
      tuple(output_shape),
    )

  def bound(self, p: str, q: str) -> float:
    """Upper bound on ||f||_{p->q}."""
    validate.one_of(NORMS, p=p, q=q)
    return self.table[NORMS.index(p)][NORMS.index(q)]

  def then(self, other: OperatorNorms) -> OperatorNorms:
    """Norms of other(f): the least product over the norm in between."""
    if math.prod(self.output_shape) != math.prod(other.input_shape):
      raise ValueError(
        f"Expected {other.input_shape} values, received {self.output_shape}."
      )
    return OperatorNorms.of(
      {
        (p, q): min(self.bound(p, r) * other.bound(r, q) for r in NORMS)
        for p, q in itertools.product(NORMS, NORMS)
      },
      self.input_shape,
      other.output_shape,
    )


def elementwise_norms(
  shape: Sequence[int],
  slope: float = 1.0,
  output_shape: Sequence[int] | None = None,
) -> OperatorNorms:
  """Norms of a function of each value, |f(a) - f(b)| <= slope |a - b|.

  Exact for the identity: ||a||_q <= n^(1/q - 1/p) ||a||_p for q < p. Copying
  values to other places (a reshape, padding with constants) changes nothing.

  Args:
    shape: Shape of one input.
    slope: The Lipschitz constant.
    output_shape: Shape of one output, where it differs from `shape`.
  """
  count = math.prod(shape)
  bounds = {
    (p, q): slope * _equivalence(p, q, count)
    for p, q in itertools.product(NORMS, NORMS)
  }
  return OperatorNorms.of(bounds, shape, output_shape or shape)


def pooling_norms(
  input_shape: Sequence[int],
  output_shape: Sequence[int],
  overlap: float,
  largest_weight: float = 1.0,
) -> OperatorNorms:
  """Norms of a maximum or a mean over windows.

  Every output moves by at most the largest change in its window, and at most
  by `largest_weight` times their sum; a value lies in windows of at most
  `overlap` weight altogether (their number, for a maximum).

  * linf->linf: 1. l1->l1: overlap. l1->linf: largest_weight.
  * l2->l2: |out|^2 <= sum over the window of weight times change^2 (Jensen's
    inequality for a mean; the largest term is one of the sum for a maximum,
    with weight 1), and these weights of a value sum to `overlap`: its root.
  * l1->l2: one value moves outputs w_i with sum w_i <= overlap and w_i <=
    largest_weight, so sum w_i^2 <= overlap largest_weight: its root.
  * l2->linf: by the Cauchy-Schwarz inequality sqrt(largest_weight), as the
    weights of a window sum to 1; 1 for a maximum.
  """
  return OperatorNorms.of(
    {
      ("linf", "linf"): 1.0,
      ("l1", "l1"): overlap,
      ("l2", "l2"): math.sqrt(overlap),
      ("l1", "linf"): largest_weight,
      ("l1", "l2"): math.sqrt(overlap * largest_weight),
      ("l2", "linf"): math.sqrt(largest_weight),
    },
    input_shape,
    output_shape,
  )


def _equivalence(p: str, q: str, count: int) -> float:
  """The least c with ||a||_q <= c ||a||_p for vectors of `count` values."""
  return count ** max(0.0, _INVERSE[q] - _INVERSE[p])
