"""Settings of trainers on adversarial examples: PGD, TRADES and WRM.

Presets are the settings of the code of Song, Shokri and Mittal (CCS 2019) where
its name begins with a data set of that paper; two more are those of the
methods' own authors.
"""

from __future__ import annotations

import dataclasses
from typing import Optional  # flags read these annotations on Python 3.9

from tf_privrob import validate
from tf_privrob.methods.objectives import robust_config

NORMS = ("l2", "linf")
SCOPES = ("batch", "example")


@dataclasses.dataclass(frozen=True)
class StepsConfig(robust_config.AttackedConfig):
  """What trainers by sign steps in an l_inf ball share.

  Attributes:
    attack_steps: k.
    step_size: of a step; None: step_factor * attack_eps / attack_steps, with
      the radius of the moment.
    step_factor: see `step_size`.
  """

  attack_steps: int = 10
  step_size: Optional[float] = None
  step_factor: float = 2.5

  def __post_init__(self):
    super().__post_init__()
    validate.positive_int(attack_steps=self.attack_steps)
    validate.positive(step_factor=self.step_factor)
    if self.step_size is not None:
      validate.positive(step_size=self.step_size)


@dataclasses.dataclass(frozen=True)
class AdversarialConfig(StepsConfig):
  """Settings of `AdversarialTraining`.

  Attributes:
    natural_share: alpha, the weight of the natural loss; 0 is Madry et al.'s.
    random_start: start at a uniform point of the ball.
    clip_start: bring the start into the value range before the first gradient.
    adversarial_ratio: the share r of the training set that has an adversarial
      loss, always the same examples, chosen by a hash of their content; the
      others have a natural loss (CCS 2019, Table 5).
    domain_adaptation_weight: of the distance of the logits of benign and
      adversarial batches (Table 11); 0: none. Not with private=True.
    mean_divisor: of the distance of mean logits. None: the number of classes.
    covariance_divisor: of that of covariances. None: its square.
  """

  natural_share: float = 0.0
  random_start: bool = True
  clip_start: bool = True
  adversarial_ratio: float = 1.0
  domain_adaptation_weight: float = 0.0
  mean_divisor: Optional[float] = None
  covariance_divisor: Optional[float] = None

  def __post_init__(self):
    super().__post_init__()
    robust_config.share(
      natural_share=self.natural_share,
      adversarial_ratio=self.adversarial_ratio,
    )
    validate.boolean(random_start=self.random_start, clip_start=self.clip_start)
    validate.non_negative(
      domain_adaptation_weight=self.domain_adaptation_weight
    )
    for name in ("mean_divisor", "covariance_divisor"):
      if getattr(self, name) is not None:
        validate.positive(**{name: getattr(self, name)})
    if self.private and self.domain_adaptation_weight:
      raise ValueError(
        "Expected domain_adaptation_weight=0 with private=True, received"
        f" {self.domain_adaptation_weight!r}: means and covariances tie the"
        " examples of a batch together, so that none can be clipped on its own."
      )

  @property
  def needs_whole_batches(self) -> bool:
    """Whether the loss compares the examples of a batch with each other."""
    return self.domain_adaptation_weight > 0

  @classmethod
  def presets(cls) -> dict[str, AdversarialConfig]:
    """Settings of CCS 2019; mnist_pgd is Madry et al.'s own."""
    yale_b = {
      **robust_config.YALE_B,
      "attack_eps": 0.0314,
      "attack_steps": 10,
      "step_factor": 2.0,
      "attack_ramp": "1000",
      "clip_start": False,
    }
    fashion_mnist = {
      **robust_config.FASHION_MNIST,
      "attack_eps": 0.1,
      "attack_steps": 8,
      "step_size": 0.02,
      "clip_start": False,
    }
    # The weight of domain adaptation was not published: that of ATDA.
    adapted = {"domain_adaptation_weight": 1 / 3}
    return {
      "yale_b_pgd": cls(**yale_b),
      "yale_b_pgd_da": cls(**yale_b, **adapted),
      "fashion_mnist_pgd": cls(**fashion_mnist),
      "fashion_mnist_pgd_da": cls(**fashion_mnist, **adapted),
      "cifar10_pgd": cls(
        **robust_config.CIFAR10,
        attack_eps=8 / 255,
        attack_steps=10,
        step_size=2 / 255,
      ),
      "uci_har_pgd": cls(
        **robust_config.UCI_HAR,
        attack_eps=0.05,
        attack_steps=10,
        step_size=0.0125,
      ),
      "mnist_pgd": cls(
        optimizer="adam",
        learning_rate=1e-4,
        batch_size=50,
        epochs=100000 * 50 / 60000,
        reduction="sum",
        attack_eps=0.3,
        attack_steps=40,
        step_size=0.01,
        checkpoint_every=1000,
      ),
    }


@dataclasses.dataclass(frozen=True)
class TradesConfig(StepsConfig):
  """Settings of `Trades`.

  Attributes:
    beta: weight of the divergence beside the cross-entropy.
    detach_clean: no gradient through the clean side of the divergence, as in
      CCS 2019's code; Zhang et al. let it flow.
    start_stddev: of the noise at the start; at the clean input itself the
      divergence has no gradient.
  """

  beta: float = 1.0
  detach_clean: bool = False
  start_stddev: float = 0.001

  def __post_init__(self):
    super().__post_init__()
    validate.boolean(detach_clean=self.detach_clean)
    validate.non_negative(beta=self.beta)
    validate.positive(start_stddev=self.start_stddev)

  @classmethod
  def presets(cls) -> dict[str, TradesConfig]:
    """Settings of CCS 2019; cifar10_trades_original is Zhang et al.'s."""
    adam = {
      "optimizer": "adam",
      "learning_rate": 1e-4,
      "weight_decay": 5e-4,
      "detach_clean": True,
      "checkpoint_every": 1000,
    }
    cifar10 = {
      **robust_config.CIFAR10,
      "learning_rate_drops": "75e:0.1,90e:0.01,100e:0.001",
      "augmentation": "shift4_flip",
      "attack_steps": 10,
      "step_size": 0.007,
    }
    return {
      "yale_b_trades": cls(
        **adam,
        learning_rate_drops="50%:0.5,75%:0.1,90%:0.01",
        batch_size=20,
        epochs=150.0,
        attack_eps=0.0314,
        attack_steps=10,
        step_size=0.0078,
      ),
      "fashion_mnist_trades": cls(
        **adam,
        learning_rate_drops="60%:0.1,85%:0.01",
        batch_size=100,
        epochs=100.0,
        attack_eps=0.1,
        attack_steps=8,
        step_size=0.02,
      ),
      "cifar10_trades": cls(
        **{**cifar10, "epochs": 100.0}, attack_eps=0.0314, detach_clean=True
      ),
      "cifar10_trades_original": cls(
        **{**cifar10, "epochs": 76.0}, attack_eps=0.031, beta=6.0
      ),
    }


@dataclasses.dataclass(frozen=True)
class WRMConfig(robust_config.RobustConfig):
  """Settings of `DistributionalTraining`.

  Attributes:
    norm: "linf" as in CCS 2019, or "l2" as in Sinha et al.
    attack_steps: k.
    step_scale: a of "linf"; of "l2" 1 / (2 gamma), gamma the price of moving.
    mean_over: of "linf": mean |G| over the "batch", as published, or over each
      "example", which private=True needs.
    label_smoothing: share of the label that goes to all classes alike.
  """

  norm: str = "linf"
  attack_steps: int = 10
  step_scale: float = 1.0
  mean_over: str = "batch"
  label_smoothing: float = 0.0

  def __post_init__(self):
    super().__post_init__()
    validate.one_of(NORMS, norm=self.norm)
    validate.one_of(SCOPES, mean_over=self.mean_over)
    validate.positive_int(attack_steps=self.attack_steps)
    validate.positive(step_scale=self.step_scale)
    robust_config.share(label_smoothing=self.label_smoothing)
    if self.private and self.needs_whole_batches:
      raise ValueError(
        "Expected mean_over='example' with private=True, received 'batch': a"
        " mean over the batch makes one example's attack depend on the others,"
        " so that no example can be clipped on its own."
      )

  @property
  def needs_whole_batches(self) -> bool:
    """Whether the loss compares the examples of a batch with each other."""
    return self.norm == "linf" and self.mean_over == "batch"

  @classmethod
  def presets(cls) -> dict[str, WRMConfig]:
    """Settings of CCS 2019; mnist_wrm_l2 is Sinha et al.'s own."""
    return {
      "yale_b_wrm": cls(
        **robust_config.YALE_B, attack_steps=10, step_scale=1.5
      ),
      "fashion_mnist_wrm": cls(
        **robust_config.FASHION_MNIST, attack_steps=8, step_scale=1.0
      ),
      "cifar10_wrm": cls(
        **robust_config.CIFAR10, attack_steps=10, step_scale=12 / 255
      ),
      "mnist_wrm_l2": cls(
        norm="l2",
        optimizer="adam",
        learning_rate=1e-3,
        batch_size=256,
        epochs=25.0,
        attack_steps=15,
        step_scale=1.3,
        label_smoothing=0.1,
        checkpoint_every=1000,
      ),
    }
