"""Settings that all robust trainers share, and those of natural training."""

from __future__ import annotations

import dataclasses
from typing import Any
from typing import Optional  # flags read these annotations on Python 3.9

from tf_privrob import validate
from tf_privrob.methods import config as method_config
from tf_privrob.methods.objectives import schedules

REDUCTIONS = ("mean", "sum")

# Optimizer, rates and length of natural, PGD and WRM training in the code of
# Song, Shokri and Mittal (CCS 2019); "sum" because they sum the cross-entropy.
YALE_B = {
  "optimizer": "adam",
  "learning_rate": 1e-4,
  "learning_rate_drops": "10000:0.5,15000:0.1",
  "batch_size": 20,
  "epochs": 20001 * 20 / 1900,
  "reduction": "sum",
  "weight_decay": 2e-4,
  "checkpoint_every": 1000,
}
FASHION_MNIST = {
  "optimizer": "adam",
  "learning_rate": 1e-4,
  "learning_rate_drops": "50000:0.1,65000:0.01",
  "batch_size": 100,
  "epochs": 80001 * 100 / 60000,
  "reduction": "sum",
  "weight_decay": 2e-4,
  "checkpoint_every": 1000,
}
CIFAR10 = {
  "optimizer": "sgd",
  "momentum": 0.9,
  "learning_rate": 0.1,
  "learning_rate_drops": "40000:0.1,60000:0.01",
  "batch_size": 128,
  "epochs": 80001 * 128 / 50000,
  "weight_decay": 2e-4,
  "augmentation": "shift_flip",
  "checkpoint_every": 1000,
}
# Nothing of this was published: chosen here.
UCI_HAR = {
  "optimizer": "adam",
  "learning_rate": 1e-3,
  "batch_size": 50,
  "epochs": 50.0,
  "checkpoint_every": 1000,
}


@dataclasses.dataclass(frozen=True)
class RobustConfig(method_config.DPSGDConfig):
  """What robust trainers share; the budget's settings hold if private=True.

  Moments (`warmup`, ...) are numbers of steps, or epochs as in "20e", or shares
  of the run as in "50%".

  Attributes:
    private: True trains by DP-SGD within the budget, all loss terms of an
      example in one clipped gradient; False trains without clipping and noise,
      and promises no privacy.
    sampler: "shuffle"; with private=True "poisson" or "full_batch".
    augmentation: "none", "shift", "shift_flip" or "shift4_flip".
    learning_rate_drops: "10000:0.5,15000:0.1" is half of learning_rate from
      step 10,000 on and a tenth of it from step 15,000 on.
    reduction: "mean" of the batch's losses, or their "sum", beside which a
      weight decay is weaker.
    weight_decay: w adds w/2 times the squared kernels to the loss; biases and
      normalisation are left alone.
    update_clip_norm: bound on the norm of the batch's gradient, after any
      noise; it has nothing to do with privacy. None: none.
  """

  private: bool = False
  sampler: str = "shuffle"
  optimizer: str = "adam"
  learning_rate: float = 1e-3
  learning_rate_drops: str = ""
  reduction: str = "mean"
  weight_decay: float = 0.0
  update_clip_norm: Optional[float] = None
  batch_size: int = 100
  checkpoint_every: int = 100

  def __post_init__(self):
    super().__post_init__()
    validate.boolean(private=self.private)
    validate.one_of(REDUCTIONS, reduction=self.reduction)
    validate.non_negative(weight_decay=self.weight_decay)
    if self.update_clip_norm is not None:
      validate.positive(update_clip_norm=self.update_clip_norm)
    drops = schedules.parse_drops(self.learning_rate_drops)
    if drops and self.learning_rate_schedule != "constant":
      raise ValueError(
        "Expected learning_rate_schedule='constant' with learning_rate_drops,"
        f" received {self.learning_rate_schedule!r}. Choose one of the two."
      )
    if self.augmentation == "noise":
      raise ValueError(
        "Expected augmentation='none' or shifts, received 'noise', which leaves"
        " the value range that attacks and bounds stay in."
      )
    if not self.private and self.noise_multiplier is not None:
      raise ValueError(
        "Expected noise_multiplier=None with private=False, which adds no noise"
        f" to gradients, received {self.noise_multiplier!r}. Pass private=True."
      )
    if self.private and self.noise_multiplier == 0:
      raise ValueError(
        "Expected noise_multiplier > 0 or None with private=True, received 0:"
        " nothing would be private. Pass private=False."
      )
    if self.private and self.sampler == "shuffle":
      raise ValueError(
        "Expected sampler='poisson' or 'full_batch' with private=True, received"
        " 'shuffle', for which no amplification is proven. Pass"
        " sampler='poisson'."
      )

  @property
  def needs_whole_batches(self) -> bool:
    """Whether the loss compares the examples of a batch with each other."""
    return False

  @property
  def objective(self) -> dict[str, Any]:
    """Loss and schedule: what a resumed run may not change on the way."""
    shared = {f.name for f in dataclasses.fields(method_config.DPSGDConfig)}
    return {k: v for k, v in vars(self).items() if k not in shared}

  def scaled(self, factor: float) -> RobustConfig:
    """The same run, `factor` times as long: epochs and all moments."""
    validate.positive(factor=factor)
    return dataclasses.replace(
      self, epochs=self.epochs * factor, **self._scaled_moments(factor)
    )

  def _scaled_moments(self, factor: float) -> dict[str, Any]:
    drops = schedules.scaled_drops(self.learning_rate_drops, factor)
    return {"learning_rate_drops": drops}


@dataclasses.dataclass(frozen=True)
class NaturalConfig(RobustConfig):
  """Settings of `NaturalTraining`; see `RobustConfig`."""

  @classmethod
  def presets(cls) -> dict[str, NaturalConfig]:
    """The natural models beside the robust ones of CCS 2019."""
    return {
      "yale_b_natural": cls(**YALE_B),
      "fashion_mnist_natural": cls(**FASHION_MNIST),
      "cifar10_natural": cls(**CIFAR10),
      "uci_har_natural": cls(**UCI_HAR),
    }


@dataclasses.dataclass(frozen=True)
class AttackedConfig(RobustConfig):
  """What trainers against changes of size attack_eps share.

  Attributes:
    attack_eps: radius of the l_inf ball, in units of the value range.
    warmup: up to this moment only the natural loss counts.
    attack_ramp: moments over which attack_eps grows in a line from
      `attack_eps_start`.
    attack_ramp_start: when; None: at the end of the warm-up.
    attack_eps_start: radius up to there.
  """

  attack_eps: float = 0.1
  warmup: str = "0"
  attack_ramp: str = "0"
  attack_ramp_start: Optional[str] = None
  attack_eps_start: float = 0.0

  def __post_init__(self):
    super().__post_init__()
    validate.non_negative(
      attack_eps=self.attack_eps, attack_eps_start=self.attack_eps_start
    )
    schedules.check(warmup=self.warmup, attack_ramp=self.attack_ramp)
    if self.attack_ramp_start is not None:
      schedules.check(attack_ramp_start=self.attack_ramp_start)
    if self.attack_eps_start > self.attack_eps:
      raise ValueError(
        f"Expected attack_eps_start={self.attack_eps_start!r} <= attack_eps="
        f"{self.attack_eps!r}: the radius grows."
      )

  def _scaled_moments(self, factor: float) -> dict[str, Any]:
    names = ("warmup", "attack_ramp", "attack_ramp_start")
    return {
      **super()._scaled_moments(factor),
      **{n: schedules.scaled(getattr(self, n), factor) for n in names},
    }


def share(**values: float) -> None:
  """Requires 0 <= value <= 1."""
  for name, value in values.items():
    validate.non_negative(**{name: value})
    if value > 1:
      raise ValueError(f"Expected 0 <= {name}={value!r} <= 1.")
