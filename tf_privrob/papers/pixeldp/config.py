"""Settings of PixelDP."""

from __future__ import annotations

import dataclasses
import math

from tf_privrob import certify
from tf_privrob import validate
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import noise_place
from tf_privrob.papers.pixeldp import projection as projection_lib

DISTRIBUTIONS = ("gaussian", "laplace")
_HIDDEN_NORM = {"gaussian": "l2", "laplace": "l1"}


@dataclasses.dataclass(frozen=True)
class PixelDPConfig(dp_sgd.BudgetConfig):
  """Settings of `PixelDP`; those of DP-SGD hold with private=True.

  `augmentation_multiplicity` is also the number K of noise draws an example.

  Attributes:
    private: True trains by DP-SGD within the budget; False trains without
      clipping and gradient noise, and promises no privacy.
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

  private: bool = False
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
    super().__post_init__()
    validate.boolean(private=self.private, noise_ramp=self.noise_ramp)
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
    if self.private and self.noise_multiplier == 0:
      raise ValueError(
        "Expected noise_multiplier > 0 or None with private=True, received 0:"
        " nothing would be private. Pass private=False."
      )
    if not self.private and self.noise_multiplier is not None:
      raise ValueError(
        "Expected noise_multiplier=None with private=False, which adds no noise"
        f" to gradients, received {self.noise_multiplier!r}. Pass private=True."
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

  @classmethod
  def presets(cls) -> dict[str, PixelDPConfig]:
    """Settings by name; `docs/notebook.md` has what they reached."""
    plain = {
      "sampler": "shuffle",
      "optimizer": "adam",
      "learning_rate": 1e-3,
      "learning_rate_schedule": "cosine",
    }
    private = {
      "private": True,
      "learning_rate": 4.0,
      "l2_clip_norm": 0.5,
      "ema_decay": 0.95,
    }
    return {
      "mnist": cls(batch_size=128, epochs=12, checkpoint_every=100, **plain),
      "mnist_5k": cls(batch_size=64, epochs=20, checkpoint_every=100, **plain),
      "mnist_private": cls(batch_size=2048, epochs=40, **private),
      "mnist_5k_private": cls(
        batch_size=512, epochs=40, **{**private, "learning_rate": 2.0}
      ),
    }
