"""The noise layer of PixelDP: its place, its law and its size."""

from __future__ import annotations

import dataclasses
import math

from tf_privrob import certify
from tf_privrob import validate
from tf_privrob.methods import noise_place
from tf_privrob.papers.pixeldp import projection as projection_lib

DISTRIBUTIONS = ("gaussian", "laplace")
_HIDDEN_NORM = {"gaussian": "l2", "laplace": "l1"}


@dataclasses.dataclass(frozen=True)
class NoiseLayer:
  """Settings of the noise inside a network, and of the layers before it.

  Attributes:
    noise: "gaussian" or "laplace", inside the network.
    noise_after: layers with weights before the noise; 0 is the input.
    noise_position: "before_activation" or "after_activation" of the last of
      them.
    attack_norm: "l1", "l2" or "linf", of the changes to be robust against.
    construction_size: L, the size of changes that the noise is made for, if
      the layers before it have norm 1.
    score_dp_epsilon: of the score, for changes of size L. It says nothing of
      the training data.
    score_dp_delta: with it, for Gaussian noise.
    projection: after each step, "normalise" (kernels before the noise divided
      by their norms), "parseval" (PixelDP's own) or "none".
    noise_ramp: noise grows with the steps, full after about 9,200.
  """

  noise: str = "gaussian"
  noise_after: int = 1
  noise_position: str = "before_activation"
  attack_norm: str = "l2"
  construction_size: float = 0.1
  score_dp_epsilon: float = 1.0
  score_dp_delta: float = 0.05
  projection: str = "normalise"
  noise_ramp: bool = False

  def __post_init__(self):
    validate.boolean(noise_ramp=self.noise_ramp)
    validate.one_of(DISTRIBUTIONS, noise=self.noise)
    validate.one_of(noise_place.POSITIONS, noise_position=self.noise_position)
    validate.one_of(certify.NORMS, attack_norm=self.attack_norm)
    validate.one_of(projection_lib.KINDS, projection=self.projection)
    validate.positive(
      construction_size=self.construction_size,
      score_dp_epsilon=self.score_dp_epsilon,
    )
    validate.open_probability(score_dp_delta=self.score_dp_delta)
    validate.non_negative_int(noise_after=self.noise_after)
    if self.projection == "parseval" and (
      self.attack_norm != "l2" or self.noise != "gaussian"
    ):
      raise ValueError(
        "Expected attack_norm='l2' and noise='gaussian' with"
        " projection='parseval', which bounds l2 norms, received"
        f" attack_norm={self.attack_norm!r}, noise={self.noise!r}. Use"
        " projection='normalise'."
      )

  @property
  def hidden_norm(self) -> str:
    """The norm of changes that the noise hides."""
    return _HIDDEN_NORM[self.noise]

  @property
  def noise_scale(self) -> float:
    """Standard deviation, or Laplace scale, of the noise in the network."""
    if self.noise == "laplace":
      return self.construction_size / self.score_dp_epsilon
    return self.construction_size * certify.classic_multiplier(
      self.score_dp_epsilon, self.score_dp_delta
    )

  @property
  def parseval_loops(self) -> int:
    """PixelDP's ceil(100 L) projections a step."""
    return math.ceil(100 * self.construction_size)


PUBLISHED = NoiseLayer()
