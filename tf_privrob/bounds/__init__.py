"""Sound bounds of what a network makes of all inputs near a given one.

A domain is a frozen dataclass. `worst_case_logits(network, x, y, attack_eps,
value_range)` bounds how far every other logit can rise above that of y, and
`output_bounds(network, x, attack_eps, value_range)` the outputs themselves, for
all inputs of an l_inf ball; both are batched and differentiable with respect to
the weights. `Interval` costs two forward passes and is what one trains with;
`HybridZonotope` remembers which input an error comes from; `Dual` pulls linear
relaxations back. `certify.VerifiedBound` makes certificates of them.
"""

from tf_privrob.bounds.domain import Domain
from tf_privrob.bounds.dual import Dual
from tf_privrob.bounds.interval import Interval
from tf_privrob.bounds.zonotope import HybridZonotope

__all__ = [
  "Domain",
  "Dual",
  "HybridZonotope",
  "Interval",
]
