"""Settings of SecureSGD as published, and of its sound heir."""

from __future__ import annotations

import dataclasses
from typing import Optional  # flags read these annotations on Python 3.9

from tf_privrob import validate
from tf_privrob.methods import dp_sgd

VARIANTS = ("paper", "released_code")
HISTORY = ("2019", "2020", "2021")
REDISTRIBUTIONS = ("uniform", "private")


@dataclasses.dataclass(frozen=True)
class MeasuredRedistribution:
  """How the published forms measure r on raw training data.

  Attributes:
    total: what r adds up to. None: the number of hidden units, which the theory
      needs; the MNIST code has 256 * 32.
    power: r = |mean sign gradient| to this power; 2 in the CIFAR-10 code.
    throwaway_steps: of the training before r is measured, which is thrown away.
    batches: of raw training data that r is measured on.
  """

  total: Optional[float] = None
  power: float = 1.0
  throwaway_steps: int = 4000
  batches: int = 10

  def __post_init__(self):
    if self.total is not None:
      validate.positive(total=self.total)
    validate.positive(power=self.power)
    validate.non_negative_int(throwaway_steps=self.throwaway_steps)
    validate.positive_int(batches=self.batches)


@dataclasses.dataclass(frozen=True)
class ClaimedRobustness:
  """The noise at h of the published forms, and the sizes claimed from it.

  Attributes:
    attack_norm_bound: A, which the noise at h is multiplied with.
    robust_dp_epsilon: of the noise at h, for changes of the input.
    robust_dp_delta: with it.
    claimed_dp_delta: in the formula of the claimed size: 1e-5 in the MNIST
      code, 0.05 in the CIFAR-10 code.
    num_draws: votes of the claimed size.
  """

  attack_norm_bound: float = 0.2
  robust_dp_epsilon: float = 4.0
  robust_dp_delta: float = 1e-5
  claimed_dp_delta: float = 1e-5
  num_draws: int = 2000

  def __post_init__(self):
    validate.positive(
      attack_norm_bound=self.attack_norm_bound,
      robust_dp_epsilon=self.robust_dp_epsilon,
    )
    validate.open_probability(
      robust_dp_delta=self.robust_dp_delta,
      claimed_dp_delta=self.claimed_dp_delta,
    )
    validate.positive_int(num_draws=self.num_draws)


@dataclasses.dataclass(frozen=True)
class SecureSGDConfig(dp_sgd.BudgetConfig):
  """Settings of SecureSGD (Phan et al. 2019); see `papers.SecureSGD`.

  Of DP-SGD's settings, `noise_multiplier`, `l2_clip_norm`, `batch_size`,
  `learning_rate`, (dp_epsilon, dp_delta) and `epochs` are the code's; training
  ends where the moments accountant, as the code uses it, reaches the budget.

  Attributes:
    variant: "paper": each example's gradient is clipped, over all variables,
      and batches are Poisson samples; the noise at h has the variance stddev^2
      r. "released_code": the mean gradient of a shuffled batch is clipped, each
      kernel on its own, biases not at all; the noise at h has the standard
      deviation stddev r.
    noise_history: which state of the released code: "2019" (gradient noise
      noise_multiplier C^2, hidden noise stddev^2 taken as standard deviation),
      "2020" (gradient noise (noise_multiplier C)^2) or "2021" (noise_multiplier
      C / batch size, and the standard deviation itself).
    redistribution: how r is measured, where none is given.
    robustness: the noise at h, and the sizes claimed from it.
  """

  dp_epsilon: float = 1.0
  noise_multiplier: Optional[float] = 4.0
  l2_clip_norm: float = 1e-3
  batch_size: int = 125
  epochs: float = 4500.0
  learning_rate: float = 0.1
  checkpoint_every: int = 20
  variant: str = "paper"
  noise_history: str = "2021"
  redistribution: MeasuredRedistribution = MeasuredRedistribution()
  robustness: ClaimedRobustness = ClaimedRobustness()

  def __post_init__(self):
    super().__post_init__()
    if self.variant == "sound":
      raise ValueError(
        "The sound variant has settings of its own: use SoundSecureSGDConfig"
        " with SoundSecureSGD, or --method=secure_sgd --preset=mnist_sound."
      )
    validate.one_of(VARIANTS, variant=self.variant)
    validate.one_of(HISTORY, noise_history=self.noise_history)
    validate.instance(
      MeasuredRedistribution, redistribution=self.redistribution
    )
    validate.instance(ClaimedRobustness, robustness=self.robustness)
    if self.variant == "paper" and self.noise_history != "2021":
      raise ValueError(
        f"Expected noise_history='2021' for variant='paper', received"
        f" {self.noise_history!r}: it is the released code's history."
      )
    if self.variant == "released_code" and self.sampler != "poisson":
      raise ValueError(
        f"Expected no sampler={self.sampler!r} for variant='released_code',"
        " whose batches are shuffled whatever it says."
      )
    if self.augmentation != "none" or self.augmentation_multiplicity != 1:
      raise ValueError(
        f"Expected augmentation='none' and augmentation_multiplicity=1, which"
        f" SecureSGD has, received {self.augmentation!r} and"
        f" {self.augmentation_multiplicity!r}. SoundSecureSGD takes both."
      )
    if self.variant == "released_code" and self.ema_decay:
      raise ValueError(
        f"Expected ema_decay=0 for variant='released_code', received"
        f" {self.ema_decay!r}: the code keeps the last weights."
      )
    if not self.noise_multiplier:
      raise ValueError(
        f"Expected noise_multiplier={self.noise_multiplier!r} > 0: SecureSGD's"
        " is a constant of the code, 4 on MNIST."
      )

  @property
  def gradient_stddev(self) -> float:
    """Of the noise on the update, in the units of a mean gradient."""
    noise, clip = self.noise_multiplier, self.l2_clip_norm
    if self.noise_history == "2019":
      return noise * clip**2
    if self.noise_history == "2020":
      return (noise * clip) ** 2
    return noise * clip / self.batch_size

  def hidden_stddev(self, stddev: float) -> float:
    """What the code draws with, where the theory has `stddev`."""
    return stddev if self.noise_history == "2021" else stddev**2

  @classmethod
  def presets(cls) -> dict[str, SecureSGDConfig]:
    """The MNIST settings of the code at its three stages, and the paper's."""
    released = cls(variant="released_code").changed(total=256 * 32)
    before = {"noise_multiplier": 5.0}
    return {
      "mnist_paper": cls(),
      "mnist_released": released,
      "mnist_released_2020": dataclasses.replace(
        released, noise_history="2020", **before
      ),
      "mnist_released_2019": dataclasses.replace(
        released, noise_history="2019", **before
      ),
    }


@dataclasses.dataclass(frozen=True)
class ReleasedRedistribution:
  """Which r the sound heir has, and how it is released.

  Attributes:
    kind: "uniform" (r = 1), or "private": r is released once, under
      differential privacy. A public r is given to `SoundSecureSGD` itself.
    release_dp_epsilon: of that release on its own.
    release_clip_norm: l2 bound on one example's |dL/dh|. Only its ratio to the
      gradients counts; far below them, all have an equal say.
    power: r ~ importance to this power; negative gives important units less
      noise.
    floor: added to the importance, whose mean is 1. With it r > 0, which the
      certificate needs.
  """

  kind: str = "uniform"
  release_dp_epsilon: float = 0.2
  release_clip_norm: float = 1e-4
  power: float = 1.0
  floor: float = 1.0

  def __post_init__(self):
    validate.one_of(REDISTRIBUTIONS, kind=self.kind)
    validate.positive(
      release_dp_epsilon=self.release_dp_epsilon,
      release_clip_norm=self.release_clip_norm,
      floor=self.floor,
    )
    power = self.power
    if isinstance(power, bool) or not isinstance(power, (int, float)):
      raise ValueError(f"Expected power={power!r}, a number.")
    if not abs(power) <= 4:
      raise ValueError(f"Expected |power={power!r}| <= 4.")


@dataclasses.dataclass(frozen=True)
class SoundSecureSGDConfig(dp_sgd.BudgetConfig):
  """Settings of `SoundSecureSGD`: those of DP-SGD, of the noise, and of r.

  The budget (dp_epsilon, dp_delta) is that of r and training together.

  Attributes:
    hidden_noise: standard deviation of the noise at h, r = 1, over the largest
      singular value of the first kernel as it is at the moment. The noise grows
      with the weights, so that training cannot escape it by larger ones.
    redistribution: which r, and how it is released.
    norm: of the certificate, "l2" or "linf" ("l1" works, too).
  """

  hidden_noise: float = 0.25
  redistribution: ReleasedRedistribution = ReleasedRedistribution()
  norm: str = "l2"

  def __post_init__(self):
    super().__post_init__()
    validate.positive(hidden_noise=self.hidden_noise)
    validate.instance(
      ReleasedRedistribution, redistribution=self.redistribution
    )
    validate.one_of(("l1", "l2", "linf"), norm=self.norm)

  @property
  def variant(self) -> str:
    """Of SecureSGD."""
    return "sound"

  @classmethod
  def presets(cls) -> dict[str, SoundSecureSGDConfig]:
    """For `tutorial_cnn_tanh`, and for a denoiser before a classifier."""
    common = {"l2_clip_norm": 0.5, "ema_decay": 0.95}
    return {
      "mnist_sound": cls(
        batch_size=2048, epochs=40, learning_rate=4.0, **common
      ),
      "mnist_5k_sound": cls(
        batch_size=512, epochs=40, learning_rate=2.0, **common
      ),
      "mnist_5k_denoiser_sound": cls(
        batch_size=512,
        epochs=6,
        learning_rate=0.5,
        hidden_noise=0.5,
        **common,
      ),
    }
