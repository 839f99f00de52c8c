"""Noise on a fixed grid, so that certificates hold in floating point.

In float32 the last bits of x + noise tell where x was: a classifier that reads
them gets contradictory radii (Voracek and Hein 2023). Here the noise is added
in float64 and the sum is rounded to a grid that does not depend on x:

  u = h round((x + scale N) / h),  h a power of two, scale / 1024 < h <= scale /
  512, coordinate by coordinate.

**Theorem.** Let N be real noise of the law, with real arithmetic, and Q the
rounding to the grid (and to float32). For every function f on grid points,
f(Q(x + scale N)) is a function of x + scale N alone. So the theorems about
smoothing with real noise hold for f(Q(.)), whatever bits f looks at. The u that
are drawn here differ from Q(x + scale N) with probability at most `slack`, so
that every expected score in [0, 1] is off by at most that much.

**Proof of the slack.** Couple the noise n that is computed with the real N of
which its words are the leading bits. Then u differs from Q(x + scale N) only if
a border between two cells of the grid lies between both sums, so that x + scale
N is within e of a border, e the distance of the sums. In units of the scale,

  e <= ERROR + 2^-52 |x| + value_error + t.

* ERROR: the rounding of logarithm, tangent and root, each taken to be right
  within 8 units in the last place (NumPy's are within 4), of products and sums,
  and the 53 bits of the angle. |N| is at most 8.6 for normal noise and 36.8 for
  Laplace noise, but for a probability of 2^-53.
* t: the 53 bits of the uniform number V in (0, 1] behind the radius or the
  size. Where 2^-(j+1) < V <= 2^-j they move it by at most 2^(j-52).

Borders are h apart, so that a density of this mass has P(within e of a border)
<= 2 e (mass / h + variation). For a constant e that is below 2.1 e / h: the
mass is 1, the variation 0.8 or 1, and 1 / h at least 512. On level j the mass
is 2^-(j+1) and the variation at most 2.4 2^-j (normal noise: the density of one
coordinate outside the circle of V is highest on it, 0.4 V), so that t adds at
most 2^-51 (1 / h + 5). There are 53 levels; below them V has probability 2^-53.
On level 0 of normal noise the radius can be as small as its error: where 1 - V
is about 2^-i, t is at most 2^(i/2-52) and the variation 1.9 2^(-i/2), which
adds up to less than one more level. In all: at most TRUNCATION. QED
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Union

import numpy as np

from tf_privrob import randomness

LAWS = {
  "gaussian": randomness.Key.normal,
  "laplace": randomness.Key.laplace,
}
_CELLS = 512  # of the grid, at least, in one scale
_ERROR = 2.0**-43
TRUNCATION = 2.0**-34

Scale = Union[float, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class GridNoise:
  """Noise of one law for values of one shape; see the module.

  Attributes:
    distribution: "gaussian" or "laplace".
    scale: Standard deviation, or b of Lap(b): one number, or one for each
      coordinate.
    shape: Shape of the values of one example.
  """

  distribution: str
  scale: Scale
  shape: tuple[int, ...]

  @functools.cached_property
  def spacing(self) -> np.ndarray:
    """h: one number, or one for each coordinate."""
    return np.exp2(np.floor(np.log2(np.asarray(self.scale) / _CELLS)))

  def draw(
    self, value: np.ndarray, key: randomness.Key, count: int
  ) -> np.ndarray:
    """`count` noisy copies of a value, float32 points of the grid.

    Args:
      value: float32 or float64, of `shape`.
      key: Key of these draws alone.
      count: Number of copies.
    """
    sums = LAWS[self.distribution](key, count * math.prod(self.shape))
    sums = sums.reshape(count, *self.shape)
    # In units of the grid, a power of two: dividing by it is exact.
    sums *= self.scale / self.spacing
    sums += np.asarray(value, np.float64) / self.spacing
    np.rint(sums, out=sums)
    sums *= self.spacing
    return sums.astype(np.float32)

  def slack(self, value: np.ndarray, value_error: float = 0.0) -> float:
    """How far the law of `draw` is from that of real noise, at most.

    Args:
      value: What noise is added to.
      value_error: How far each of its coordinates may be from the real value
        that the certificate is about.
    """
    rounding = 2.0**-52 * np.abs(np.asarray(value, np.float64))
    error = _ERROR * np.asarray(self.scale) + rounding + value_error
    return min(1.0, float(np.sum(2.1 * error / self.spacing + TRUNCATION)))
