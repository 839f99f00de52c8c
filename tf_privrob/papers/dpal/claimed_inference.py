"""DPAL's verified inference: the sizes that its formulas claim."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_privrob import validate
from tf_privrob.certify import certificate
from tf_privrob.certify import certifier
from tf_privrob.certify import gate
from tf_privrob.certify.audit import targets as audit_targets
from tf_privrob.certify.noise_layer import noisy_scores
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.certify.smoothing import votes

# How kappa and phi become one size, and the name in a certificate.
COMPOSITIONS = {
  "paper": "dpal_paper_sum",
  "harmonic": "dpal_harmonic",
  "released_v0": "dpal_released_v0",
  "released_v1": "dpal_released_v1",
}


def kappa(robust_epsilon, input_scale: float, input_sensitivity: float):
  """Size for which Lap(b) at the input is eps_r-DP: b / (Delta_r^x / eps_r)."""
  return np.asarray(robust_epsilon, float)[()] * input_scale / input_sensitivity


def phi(robust_epsilon, hidden_scale: float, hidden_sensitivity: float):
  """The same for Lap(2b) at the hidden layer: 2b / (Delta_r^h / eps_r)."""
  return (
    np.asarray(robust_epsilon, float)[()] * hidden_scale / hidden_sensitivity
  )


def input_sensitivity(attack_eps: float, num_positions: int) -> float:
  """Delta_r^x = mu d^2, d the side of the image: the l1 size of l_inf(mu).

  The paper and the released code count positions, not channels.
  """
  validate.positive(attack_eps=attack_eps)
  validate.positive_int(num_positions=num_positions)
  return float(attack_eps) * num_positions


def paper_hidden_sensitivity(kernel: np.ndarray, hidden_units: int) -> float:
  """Delta_r^h = sqrt(beta) times the largest 1-norm of a row of theta_1.

  Args:
    kernel: theta_1, [..., filters]; a row holds all weights of one input.
    hidden_units: beta. The released code counts the positions of one map.
  """
  validate.positive_int(hidden_units=hidden_units)
  return float(
    math.sqrt(hidden_units) * np.abs(_matrix(kernel)).sum(axis=1).max()
  )


def released_hidden_sensitivity(kernel: np.ndarray, positions: int) -> float:
  """Delta_r^h as coded: the largest singular value of theta_1 x positions.

  The code takes the weights of an initialisation it then throws away. Neither
  this nor the paper's value bounds an l1 change: `linear_norms` does.
  """
  validate.positive_int(positions=positions)
  return float(np.linalg.norm(_matrix(kernel), 2) * positions)


def claimed_radius(
  p1_lower,
  p2_upper,
  composition: str,
  *,
  input_scale: float,
  input_sensitivity: float,
  hidden_sensitivity: float,
  hidden_scale: float | None = None,
  attack_eps: float | None = None,
  dp_eps: float = 1.0,
):
  """The size that one of four formulas claims; none of them is proven.

  With eps_r = ln(p1/p2)/2, the largest one that Eq. 13 allows, kappa and phi:

  * "paper": kappa + phi (Prop. 1, Eq. 16). False: noise of scale kappa
    Delta/eps_r is eps_r/kappa-DP for a change of size 1, not kappa eps_r, so
    that what adds up are the inverses.
  * "harmonic": 1 / (1/kappa + 1/phi), what Lemma 7 supports for the joint
    release, if the sensitivities are true l1 bounds and psi = 1.
  * "released_v0" (June 2020): mu eps_r / (b (1/Delta_x + 2/Delta_h)). It
    divides where Eq. 16 multiplies: less noise, larger claim.
  * "released_v1" (September 2020): (eps_r / dp_eps) b / (Delta_h/2 + Delta_x),
    the harmonic one times 1/dp_eps; some scripts pass dp_eps = 0.005.

  All of them are multiples of mu where Delta_r^x = mu d^2, yet are compared
  with mu itself.

  Args:
    p1_lower: Lower bound of the top class's expected score, float or array.
    p2_upper: Upper bound of the runner-up's.
    composition: One of COMPOSITIONS.
    input_scale: b.
    input_sensitivity: Delta_r^x.
    hidden_sensitivity: Delta_r^h.
    hidden_scale: 2b by default; the released formulas have 2b built in.
    attack_eps: mu, for "released_v0" only.
    dp_eps: The code's dp_eps, for "released_v1" only.

  Returns:
    Sizes >= 0 of the shape of p1_lower; 0 where p1 <= p2.
  """
  validate.one_of(COMPOSITIONS, composition=composition)
  validate.positive(
    input_scale=input_scale,
    input_sensitivity=input_sensitivity,
    hidden_sensitivity=hidden_sensitivity,
    dp_eps=dp_eps,
  )
  if hidden_scale is None:
    hidden_scale = 2 * input_scale
  validate.positive(hidden_scale=hidden_scale)
  robust_epsilon = score_bounds.robust_epsilon(p1_lower, p2_upper)
  if composition == "released_v0":
    _check_attack_eps(attack_eps)
    rate = input_scale * (1 / input_sensitivity + 2 / hidden_sensitivity)
    return attack_eps * robust_epsilon / rate
  if composition == "released_v1":
    rate = input_scale / (hidden_sensitivity / 2 + input_sensitivity)
    return robust_epsilon / dp_eps * rate
  at_input = kappa(1.0, input_scale, input_sensitivity)
  at_hidden = phi(1.0, hidden_scale, hidden_sensitivity)
  if composition == "paper":
    return robust_epsilon * (at_input + at_hidden)
  return robust_epsilon / (1 / at_input + 1 / at_hidden)


@dataclasses.dataclass(frozen=True)
class Estimate:
  """What one pass over the inputs leaves: every formula can be read off it.

  Attributes:
    labels: Top class of each input, [m].
    p1_lower: Lower bound of its expected score, [m].
    p2_upper: Largest upper bound of another class's, [m].
  """

  labels: np.ndarray
  p1_lower: np.ndarray
  p2_upper: np.ndarray


@dataclasses.dataclass(frozen=True)
class ClaimedInference(certifier.Certifier):
  """DPAL's verified inference; every row is `claimed`.

  One draw multiplies two passes (Eq. 14): softmax with fresh Lap(2b/psi) at h
  only, times softmax with fresh Lap(b/psi) at x only, both on top of the noise
  fixed in training (Appendix J). From `num_draws` independent draws an input
  come a lower bound on the top class's expected score and upper bounds on the
  others', each at failure probability (1 - confidence) / K; then eps_r and a
  size (Eq. 16). Unlike in the released code the confidence is honoured, every
  vote comes from fresh noise, and no two inputs share a draw.

  Not a guarantee, whatever the composition: psi > 1 estimates under less noise
  than the size assumes; Delta_r^h is no bound on the l1 change of h; the
  composition may be wrong (see `claimed_radius`); normalisation by batch
  statistics would make an input's score depend on other inputs. The proven
  counterpart is `SingleLayerCertificate`.

  A row never abstains (the paper returns a class always); where p1 <= p2 its
  radius is 0. Rows have norm "linf", the norm of the paper's attacks.

  Attributes:
    input_scale: b = Delta_R / (m eps1), the scale of chi_1 / m.
    input_sensitivity: Delta_r^x, see `input_sensitivity`.
    hidden_sensitivity: Delta_r^h, see `paper_hidden_sensitivity`.
    hidden_scale: Scale at h, None for 2b.
    psi: What fresh noise is divided by, and the size is not.
    num_draws: n.
    confidence: 1 - eta; each row states it, none keeps it.
    bound: One of score_bounds.BOUNDS; the paper has "hoeffding", the released
      code "clopper_pearson" (on votes of the product).
    composition: One of COMPOSITIONS.
    attack_eps: mu, for "released_v0" only.
    dp_eps: The code's dp_eps, for "released_v1" only.
    batch_size: Noisy inputs a forward pass; None chooses by device.
    inputs_together: True puts one draw of `batch_size` inputs into a forward
      pass, for networks that standardise by batch statistics, as the released
      ones do; a row then depends on its neighbours. False refuses those.
  """

  kind = "claimed"
  randomised = True

  input_scale: float
  input_sensitivity: float
  hidden_sensitivity: float
  hidden_scale: float | None = None
  psi: float = 2.0
  num_draws: int = 2000
  confidence: float = 0.95
  bound: str = "hoeffding"
  composition: str = "paper"
  attack_eps: float | None = None
  dp_eps: float = 1.0
  batch_size: int | None = None
  inputs_together: bool = False

  def __post_init__(self):
    validate.positive(
      input_scale=self.input_scale,
      input_sensitivity=self.input_sensitivity,
      hidden_sensitivity=self.hidden_sensitivity,
      psi=self.psi,
      dp_eps=self.dp_eps,
    )
    if self.hidden_scale is None:
      object.__setattr__(self, "hidden_scale", 2.0 * self.input_scale)
    validate.positive(hidden_scale=self.hidden_scale)
    validate.positive_int(num_draws=self.num_draws)
    validate.open_probability(confidence=self.confidence)
    validate.one_of(score_bounds.BOUNDS, bound=self.bound)
    validate.one_of(COMPOSITIONS, composition=self.composition)
    validate.boolean(inputs_together=self.inputs_together)
    if self.bound == "empirical_bernstein" and self.num_draws < 2:
      raise ValueError(f"Expected num_draws={self.num_draws} >= 2.")
    if self.composition == "released_v0" or self.attack_eps is not None:
      _check_attack_eps(self.attack_eps)
    if self.batch_size is not None:
      validate.positive_int(batch_size=self.batch_size)

  @property
  def method(self) -> str:
    """The name in the rows; it tells the composition."""
    return COMPOSITIONS[self.composition]

  def target(self, model, x, draws=None):
    """The expected scores of the model with the noise of both layers."""
    if self.inputs_together:
      raise ValueError(
        "Expected inputs_together=False: with batch statistics an input's class"
        " depends on the inputs beside it, and no row is about one input."
      )
    return audit_targets.noisy_inside(
      model,
      x,
      self.noise_passes(),
      self.bound,
      self.batch_size,
      draws or self.num_draws,
    )

  def settings(self) -> dict[str, Any]:
    """All settings but a `batch_size` that changes nothing."""
    values = super().settings()
    if not self.inputs_together:
      del values["batch_size"]
    return values

  def _stream(self, door, x, y, seed, indices):
    """Yields one claimed row an input; the model is a `NoisyModel`."""
    x, num_classes = noisy_scores.check_model(door.model, x)
    labels = certifier.check_labels(y, num_classes, len(x))
    indices = certifier.check_indices(indices, len(x))
    draws = self._scores(door, x, num_classes, seed, indices)
    for label, index, scores in zip(labels, indices, draws):
      top = self._top_two(scores)
      yield certificate.Certificate(
        index=index,
        label=label,
        prediction=top.label,
        radius=float(self.radius(top.p1_lower, top.p2_upper)),
        norm="linf",
        abstained=False,
        confidence=self.confidence,
        kind="claimed",
        method=self.method,
        seconds=scores.seconds,
        num_draws=2 * self.num_draws,
      )

  def estimate(
    self,
    model: noisy_scores.NoisyModel,
    x: np.ndarray,
    seed: int | Sequence[int] = 0,
    indices: Sequence[int] | None = None,
  ) -> Estimate:
    """Draws once; `claimed_radius` then gives any composition and any mu.

    The composition, sensitivities and `attack_eps` of this certifier play no
    part in it. With the same seed and indices `stream` makes the same draws.
    """
    x, num_classes = noisy_scores.check_model(model, x)
    indices = certifier.check_indices(indices, len(x))
    tops = [
      self._top_two(scores)
      for scores in self._scores(
        gate.Gate(model), x, num_classes, seed, indices
      )
    ]
    labels, p1_lower, p2_upper = zip(*tops)
    return Estimate(np.array(labels), np.array(p1_lower), np.array(p2_upper))

  def radius(self, p1_lower, p2_upper):
    """`claimed_radius` with this certifier's settings."""
    return claimed_radius(
      p1_lower,
      p2_upper,
      self.composition,
      input_scale=self.input_scale,
      input_sensitivity=self.input_sensitivity,
      hidden_sensitivity=self.hidden_sensitivity,
      hidden_scale=self.hidden_scale,
      attack_eps=self.attack_eps,
      dp_eps=self.dp_eps,
    )

  def largest_radius(self, num_classes: int) -> float:
    """The size of an input whose draws all give one class the score 1."""
    first = np.eye(num_classes)[0]
    scores = score_bounds.Scores(
      self.num_draws, first, 0 * first, (self.num_draws * first).astype(int)
    )
    top = self._top_two(scores)
    return float(self.radius(top.p1_lower, top.p2_upper))

  def _top_two(self, scores: score_bounds.Scores) -> score_bounds.TopTwo:
    failure_prob = (1 - self.confidence) / len(scores.means)
    return score_bounds.top_two(scores, self.bound, failure_prob)

  def noise_passes(self) -> list[noisy_scores.Pass]:
    """The two passes of one draw, whose scores are multiplied."""
    return [
      noisy_scores.Pass("hidden", self.hidden_scale / self.psi),
      noisy_scores.Pass("input", self.input_scale / self.psi),
    ]

  def _scores(self, door, x, num_classes, seed, indices):
    sampler = noisy_scores.NoisyScores(
      door.model, num_classes, self.noise_passes(), self.batch_size, seed
    )
    if self.inputs_together:
      draw = sampler.stream_together
    else:
      sampler.pass_gate(
        door,
        x,
        self.num_draws,
        "Pass inputs_together=True to draw for many inputs at once.",
      )
      draw = sampler.stream
    return draw(x, indices, votes.ESTIMATION, self.num_draws)


def _check_attack_eps(attack_eps: float | None) -> None:
  if attack_eps is None:
    raise ValueError(
      "Expected attack_eps, the mu of the attack, for"
      " composition='released_v0', received None."
    )
  validate.positive(attack_eps=attack_eps)


def _matrix(kernel: np.ndarray) -> np.ndarray:
  kernel = np.asarray(kernel, np.float64)
  if kernel.ndim < 2 or not kernel.size:
    raise ValueError(
      f"Expected a kernel [..., filters], received shape {kernel.shape}."
    )
  return kernel.reshape(-1, kernel.shape[-1])
