"""DPAL's verified inference: the sizes that its formulas claim."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

import numpy as np

from tf_privrob import validate
from tf_privrob.certify import certificate
from tf_privrob.certify import certifier
from tf_privrob.certify import gate
from tf_privrob.certify.audit import targets as audit_targets
from tf_privrob.certify.noise_layer import noisy_scores
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.certify.smoothing import votes
from tf_privrob.papers.dpal import sizes


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
    num_positions: d^2 of Delta_r^x = mu d^2, see `input_sensitivity`.
    hidden_sensitivity: Delta_r^h, see `paper_hidden_sensitivity`.
    hidden_scale: Scale at h, None for 2b.
    psi: What fresh noise is divided by, and the size is not.
    num_draws: n.
    confidence: 1 - eta; each row states it, none keeps it.
    bound: One of score_bounds.BOUNDS; the paper has "hoeffding", the released
      code "clopper_pearson" (on votes of the product).
    composition: One of COMPOSITIONS.
    attack_eps: mu of Algorithm 1; None: a row's size is the largest mu for
      which it says isRobust.
    dp_eps: The code's dp_eps, for "released_v1" only.
    batch_size: Noisy inputs a forward pass; None chooses by device.
    inputs_together: True puts one draw of `batch_size` inputs into a forward
      pass, for networks that standardise by batch statistics, as the released
      ones do; a row then depends on its neighbours. False refuses those.
  """

  kind = "claimed"
  randomised = True
  norm: ClassVar[str] = "linf"

  input_scale: float
  num_positions: int
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
      hidden_sensitivity=self.hidden_sensitivity,
      psi=self.psi,
      dp_eps=self.dp_eps,
    )
    if self.hidden_scale is None:
      object.__setattr__(self, "hidden_scale", 2.0 * self.input_scale)
    validate.positive(hidden_scale=self.hidden_scale)
    validate.positive_int(
      num_positions=self.num_positions, num_draws=self.num_draws
    )
    validate.open_probability(confidence=self.confidence)
    validate.one_of(score_bounds.BOUNDS, bound=self.bound)
    sizes.check_mu(self.composition, self.attack_eps)
    validate.boolean(inputs_together=self.inputs_together)
    if self.bound == "empirical_bernstein" and self.num_draws < 2:
      raise ValueError(f"Expected num_draws={self.num_draws} >= 2.")
    if self.batch_size is not None:
      validate.positive_int(batch_size=self.batch_size)

  @property
  def method(self) -> str:
    """The name in the rows; it tells the composition."""
    return sizes.COMPOSITIONS[self.composition]

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
      top = self._top_two(scores, self.bound)
      yield certificate.Certificate(
        index=index,
        label=label,
        prediction=top.label,
        radius=float(self.radius(top.p1_lower, top.p2_upper)),
        norm=self.norm,
        abstained=False,
        confidence=self.confidence,
        kind="claimed",
        method=self.method,
        seconds=scores.seconds,
        num_draws=2 * self.num_draws,
      )

  def estimates(
    self,
    model: noisy_scores.NoisyModel,
    x: np.ndarray,
    seed: votes.Seed = None,
    indices: Sequence[int] | None = None,
    bounds: Sequence[str] = ("hoeffding", "clopper_pearson"),
  ) -> dict[str, Estimate]:
    """Draws once; `claimed_radius` then gives any composition and any mu.

    The bound, composition, sensitivities and `attack_eps` of this certifier
    play no part in it. With the same seed and indices `stream` makes the same
    draws.

    Args:
      model: What is certified.
      x: Inputs.
      seed: as for `stream`.
      indices: The inputs' positions in their data set.
      bounds: Of score_bounds.BOUNDS, all read off the same draws.

    Returns:
      An estimate for each of the bounds.
    """
    x, num_classes = noisy_scores.check_model(model, x)
    indices = certifier.check_indices(indices, len(x))
    drawn = list(self._scores(gate.Gate(model), x, num_classes, seed, indices))
    return {
      bound: Estimate(
        *map(np.array, zip(*(self._top_two(one, bound) for one in drawn)))
      )
      for bound in bounds
    }

  def radius(self, p1_lower, p2_upper):
    """`claimed_radius` with this certifier's settings."""
    return sizes.claimed_radius(
      p1_lower,
      p2_upper,
      self.composition,
      input_scale=self.input_scale,
      num_positions=self.num_positions,
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
    top = self._top_two(scores, self.bound)
    return float(self.radius(top.p1_lower, top.p2_upper))

  def _top_two(
    self, scores: score_bounds.Scores, bound: str
  ) -> score_bounds.TopTwo:
    failure_prob = (1 - self.confidence) / len(scores.means)
    return score_bounds.top_two(scores, bound, failure_prob)

  def noise_passes(self) -> list[noisy_scores.Pass]:
    """The two passes of one draw, whose scores are multiplied."""
    return [
      noisy_scores.Pass("hidden", self.hidden_scale / self.psi),
      noisy_scores.Pass("input", self.input_scale / self.psi),
    ]

  def _scores(self, door, x, num_classes, seed, indices):
    sampler = noisy_scores.NoisyScores(
      door.model,
      num_classes,
      self.noise_passes(),
      self.batch_size,
      seed,
      self.inputs_together,
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
