"""The exponential mechanism: a private choice among public candidates."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.mechanisms import mechanism

if TYPE_CHECKING:
  import dp_accounting


@dataclasses.dataclass(frozen=True)
class ExponentialMechanism:
  """Selects index j with probability proportional to exp(exponent score_j).

  The exponent is dp_epsilon / (2 sensitivity), or dp_epsilon / sensitivity if
  `monotone`. The candidates are fixed before the data are seen.

  Guarantee: dp_epsilon-differential privacy if no score changes by more than
  `sensitivity` between neighbours (McSherry and Talwar 2007; Theorem 3.10 of
  Dwork and Roth 2014). With `monotone`, scores must also move one way only:
  under add-or-remove-one, adding a record lowers none of them, or raises none.
  That is a property of the scores (a count of errors has it, a mean does not)
  which nobody can check from one score vector, and replacing a record does not
  have it: the cost of replace-one is then 2 dp_epsilon.

  More is true: between neighbours exponent score_j moves within an interval of
  length dp_epsilon, so log(P(j) / Q(j)) lies in some [t - dp_epsilon, t], t in
  [0, dp_epsilon] (bounded range, Durfee and Rogers 2019). Among all such laws
  the pair on two points with these very ratios is the worst, its dp_delta at x
  is (1 - exp(t - dp_epsilon)) (1 - exp(x - t)) / (1 - exp(-dp_epsilon)), and t
  = (dp_epsilon + x) / 2 makes it largest (Dong, Durfee and Rogers 2020):

    dp_delta(x) = (1 - exp((x - dp_epsilon) / 2))^2 / (1 - exp(-dp_epsilon)).

  Two candidates attain it, so `dp_epsilon_at` is exact for the worst scores.

  It is no additive mechanism (`Mechanism`): no noisy query is released, only an
  index.

  Finite randomness: strictly speaking no finite number of bits gives dp_delta =
  0, since an index that can be drawn on one side may be out of reach on the
  other. From the uniforms of a `Key`, two for each candidate, 106 bits in all,
  index j is out of reach once exponent (best score - score_j) > 78.5, where its
  probability is below 1e-34. With K candidates a selection differs from its law
  by at most K 2^-106 in total variation: given the others, index j wins below
  some number c, and rounding its uniform down to a multiple of 2^-106 moves the
  probability of that by at most 2^-106, for one candidate after another.
  Rounding to float64 moves exponent score_j + G_j, of terms below 79, by at
  most 2^-44 where logarithms are exact to one unit in the last place, and so
  each probability by a factor of at most exp(2^-43). Together

    (dp_epsilon + 2^-42, (1 + exp(dp_epsilon)) K 2^-106)-DP,

  which for K = 2^16 and dp_epsilon = 1 is a dp_delta of 3e-27. One uniform of
  53 bits for each candidate would leave 3e-11.

  Attributes:
    sensitivity: Largest change of any score between neighbours.
    dp_epsilon: The privacy parameter of one selection.
    monotone: Whether all scores move one way when a record is added.
  """

  sensitivity: float
  dp_epsilon: float
  monotone: bool = False

  def __post_init__(self):
    validate.positive(sensitivity=self.sensitivity, dp_epsilon=self.dp_epsilon)
    validate.boolean(monotone=self.monotone)

  @property
  def exponent(self) -> float:
    """The factor of the scores."""
    steps = 1.0 if self.monotone else 2.0
    return self.dp_epsilon / (steps * self.sensitivity)

  def probabilities(self, scores) -> tf.Tensor:
    """The exact law of the index, float64 [..., K], for scores [..., K]."""
    return tf.exp(tf.nn.log_softmax(self._logits(scores), axis=-1))

  def select(
    self, scores, seed: mechanism.Seed, num_draws: int | None = None
  ) -> tf.Tensor:
    """Draws one index for each score vector; the same seed draws the same.

    TensorFlow's generator is not cryptographic and its uniforms have 52 bits: a
    release takes those of a `Key`, by `select_from_uniform`.

    Args:
      scores: Real numbers [..., K], one vector for each selection. Every
        vector of a batch is a release of its own and costs `event()`.
      seed: A whole number or an integer tensor of shape [2].
      num_draws: Independent draws for each vector, each of which costs
        `event()` too; None is one draw, without an axis of its own.

    Returns:
      int64 [...], or [num_draws, ...].

    Raises:
      ValueError: A score is not finite (in a graph, where values are not known
        yet, a tf.errors.InvalidArgumentError when it runs).
    """
    if num_draws is not None:
      validate.positive_int(num_draws=num_draws)
    size = tf.size(self._logits(scores)) * (num_draws or 1)
    uniform = tf.random.stateless_uniform(
      [self.uniforms_needed(size)],
      mechanism.stateless_seed(seed),
      dtype=tf.float64,
    )
    return self.select_from_uniform(scores, uniform, num_draws)

  def uniforms_needed(self, size: mechanism.Size) -> mechanism.Size:
    """Two for each of `size` scores, and for each draw."""
    return 2 * size

  def select_from_uniform(
    self, scores, uniform: mechanism.Uniform, num_draws: int | None = None
  ) -> tf.Tensor:
    """Turns independent uniform numbers into a choice.

    Gumbel-max: argmax_j of exponent score_j + G_j with independent standard
    Gumbel G_j has the law of `probabilities`. G = -log E, E exponential.

    Args:
      scores: Real numbers, as for `select`.
      uniform: `uniforms_needed` numbers in [0, 1), float64. Whoever knows them
        knows more of the scores than the index.
      num_draws: Number of draws, as for `select`.

    Returns:
      As `select`.
    """
    logits = self._logits(scores)
    shape = tf.shape(logits)
    if num_draws is not None:
      validate.positive_int(num_draws=num_draws)
      shape = tf.concat([[num_draws], shape], axis=0)
    shape = tf.concat([[2], shape], axis=0)
    pair = tf.reshape(mechanism.as_uniforms(uniform), shape)
    gumbel = -tf.math.log(_exponential(pair[0], pair[1]))
    return tf.argmax(logits + gumbel, axis=-1)

  def event(self) -> dp_accounting.DpEvent:
    """`LaplaceDpEvent` of noise multiplier 1 / dp_epsilon, which dominates.

    dp_accounting has no event for selection, and 0.4.3 none for randomised
    response, which would cover every pure mechanism. The Laplace mechanism of
    the same dp_epsilon does not cover them all, but it covers this one: with v
    = exp((x - dp_epsilon) / 2) it has dp_delta(x) = 1 - v, and this mechanism
    at most (1 - v)^2 / (1 - exp(-dp_epsilon)), which is no more where v >=
    exp(-dp_epsilon), that is for x >= -dp_epsilon. Below both are 1 - exp(x).
    A pair that is dominated at every x stays so under adaptive composition and
    under Poisson sampling (Zhu, Dong and Wang 2022).
    """
    import dp_accounting

    return dp_accounting.LaplaceDpEvent(1.0 / self.dp_epsilon)

  def dp_epsilon_at(self, dp_delta: float = 0.0) -> float:
    """The exact cost of one selection, on the worst neighbouring scores."""
    if dp_delta:
      validate.open_probability(dp_delta=dp_delta)
    root = math.sqrt(-dp_delta * math.expm1(-self.dp_epsilon))
    return max(0.0, self.dp_epsilon + 2.0 * math.log1p(-root))

  def _logits(self, scores) -> tf.Tensor:
    """Checks scores; exponent (score - max score) <= 0, in float64."""
    if not tf.is_tensor(scores):
      scores = np.asarray(scores)  # in float64; TensorFlow takes float32
    scores = tf.convert_to_tensor(scores)
    if not (scores.dtype.is_floating or scores.dtype.is_integer):
      raise ValueError(
        f"Expected real scores, received dtype {scores.dtype.name}."
      )
    if scores.shape.rank == 0 or 0 in scores.shape:
      raise ValueError(
        "Expected scores of shape [..., K], one score for each of K >= 1"
        f" candidates, received shape {scores.shape}."
      )
    scores = tf.cast(scores, tf.float64)
    if tf.executing_eagerly():
      _check_finite(scores.numpy())
    else:
      scores = tf.debugging.check_numerics(scores, "Expected finite scores")
    best = tf.reduce_max(scores, axis=-1, keepdims=True)
    return self.exponent * (scores - best)


def _exponential(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
  """-log(1 - u), u of 106 bits, to float64 precision at both ends of u.

  The second uniform is what follows the 53 bits of the first. u = 0 becomes
  2^-107: the result is in [2^-107, 73.5], and its negative logarithm, a Gumbel
  number, in [-4.3, 74.2].
  """
  rest = 2.0**-53 * second
  u, one_minus_u = tf.maximum(first + rest, 2.0**-107), (1.0 - first) - rest
  return -tf.where(first < 0.5, tf.math.log1p(-u), tf.math.log(one_minus_u))


def _check_finite(scores: np.ndarray) -> None:
  bad = np.argwhere(~np.isfinite(scores))
  if len(bad):
    index = tuple(int(place) for place in bad[0])
    raise ValueError(
      f"Expected finite scores, received {scores[index]} first at index"
      f" {index[0] if len(index) == 1 else index}. Leave out candidates that"
      " may not be selected; which ones must not depend on the data."
    )
