"""Settings of DPAL / StoBatch in the paper's and the released code's form."""

from __future__ import annotations

import dataclasses
from typing import ClassVar
from typing import Optional  # flags read these annotations on Python 3.9

from tf_privrob import data
from tf_privrob import losses
from tf_privrob import validate
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.papers.dpal import fixed_batches
from tf_privrob.papers.dpal import functional
from tf_privrob.papers.dpal import sizes

ATTACKS = ("bim", "mim", "pgd")


@dataclasses.dataclass(frozen=True)
class Inference:
  """Settings of verified inference (Eq. 13-16), whose sizes are claimed.

  Attributes:
    psi: the noise is psi times smaller than in training (appendix J).
    num_draws: n, of independent noise an input.
    confidence: of an input's bounds.
    bound: "hoeffding" (the paper), "clopper_pearson" on votes (the released
      code), or another one of a mean; None: that of the variant.
    rows: what a row of theta_1 is in Delta_r^h: "kernel", one tap of the
      kernel, or "matrix", the weights that an input value meets anywhere.
  """

  psi: float = 2.0
  num_draws: int = 2000
  confidence: float = 0.95
  bound: Optional[str] = None
  rows: str = "kernel"

  def __post_init__(self):
    validate.positive(psi=self.psi)
    validate.positive_int(num_draws=self.num_draws)
    validate.open_probability(confidence=self.confidence)
    if self.bound is not None:
      validate.one_of(score_bounds.BOUNDS, bound=self.bound)
    validate.one_of(sizes.ROWS, rows=self.rows)


PUBLISHED = Inference()


@dataclasses.dataclass(frozen=True)
class DPALConfig(fixed_batches.FunctionalConfig):
  """Settings of DPAL (Algorithm 1); nothing here is proven to be private.

  Attributes:
    variant: "paper", or "released_code": adversarial examples without input
      noise, crafted against a network without hidden noise and batch
      statistics under the label of the clean input, the code's autoencoder,
      and its reduced feature budget.
    dp_epsilon_features: eps_1, claimed for the autoencoder.
    dp_epsilon_labels: eps_2, claimed for the labels.
    batch_size: m, of the benign batch and of the adversarial one; a multiple
      of 3, one third for each attack.
    sensitivity: Delta_R of Lemma 2 read literally ("paper"), or with patches
      and one feature map ("released_code", as in the published experiments).
    batch_order: "random" (Algorithm 1), "sequential" (released MNIST code) or
      "partition" (StoBatch's stochastic choice among fixed batches).
    augmentation: of both batches, in every step.
    adversarial_weight: xi of Eq. 9.
    attack_steps: T_mu of each attack; each step is mu_t / T_mu long.
    max_attack_eps: mu_t is uniform below it, one draw a step.
    label_loss: "taylor", or Eq. 11 read literally ("paper"); summed over the
      classes.
    label_noise: how the noise on the labels enters: "paper",
      "released_mnist" or "released_cifar10", which also takes the mean over
      the classes.
    optimizer: of the classifier, "adam" or "sgd".
    feature_learning_rate: of the autoencoder, trained by Adam.
    weight_decay: on the last hidden layer's kernel.
    input_clip: of the perturbed input, in the released code only.
    copied_channels: one draw of input noise a pixel, copied to its channels.
    inference: verified inference.
  """

  SOUND: ClassVar[str] = (
    "SoundDPALConfig with SoundDPAL, or --method=dpal --preset=mnist_sound"
  )

  dp_epsilon_features: float = 1.9
  dp_epsilon_labels: float = 0.1
  batch_size: int = 2400
  steps: int = 4002
  sensitivity: str = "released_code"
  batch_order: str = "random"
  augmentation: str = "none"
  adversarial_weight: float = 1.5
  attack_steps: int = 10
  max_attack_eps: float = 1.0
  label_loss: str = "taylor"
  label_noise: str = "paper"
  optimizer: str = "adam"
  feature_learning_rate: float = 1e-4
  weight_decay: float = 0.0
  input_clip: Optional[float] = None
  copied_channels: bool = False
  inference: Inference = PUBLISHED

  def __post_init__(self):
    super().__post_init__()
    validate.positive(
      max_attack_eps=self.max_attack_eps,
      feature_learning_rate=self.feature_learning_rate,
    )
    validate.non_negative(
      adversarial_weight=self.adversarial_weight,
      weight_decay=self.weight_decay,
    )
    validate.positive_int(attack_steps=self.attack_steps)
    validate.boolean(copied_channels=self.copied_channels)
    if self.input_clip is not None:
      validate.positive(input_clip=self.input_clip)
    if self.batch_size % len(ATTACKS):
      raise ValueError(
        f"Expected batch_size={self.batch_size} to be a multiple of"
        f" {len(ATTACKS)}: each of {', '.join(ATTACKS)} attacks its own part."
      )
    validate.one_of(functional.SENSITIVITIES, sensitivity=self.sensitivity)
    validate.one_of(data.fixed.ORDERS, batch_order=self.batch_order)
    validate.one_of(data.AUGMENTATIONS, augmentation=self.augmentation)
    validate.one_of(losses.taylor.LABEL_FORMS, label_loss=self.label_loss)
    validate.one_of(losses.taylor.NOISE_FORMS, label_noise=self.label_noise)
    validate.one_of(("adam", "sgd"), optimizer=self.optimizer)
    validate.instance(Inference, inference=self.inference)

  @property
  def claimed_dp_epsilon(self) -> float:
    """Eps_1 + eps_2."""
    return self.dp_epsilon_features + self.dp_epsilon_labels

  @classmethod
  def presets(cls) -> dict[str, DPALConfig]:
    """Paper and released code; `mnist` is the paper's for a small machine.

    `cifar10_narrow` is `cifar10_paper` for two cores, with fewer steps on a
    network with a quarter of the filters.
    """
    cifar10_released = cls(
      variant="released_code",
      dp_epsilon_features=4.0,
      dp_epsilon_labels=6.0,
      batch_size=1851,
      steps=16801,
      batch_order="sequential",
      attack_steps=3,
      max_attack_eps=0.5,
      label_noise="released_cifar10",
      optimizer="sgd",
      learning_rate=5e-2,
      feature_learning_rate=5e-2,
      weight_decay=0.004,
      copied_channels=True,
      inference=Inference(psi=10.0, num_draws=1000),
    )
    cifar10 = dataclasses.replace(
      cifar10_released,
      variant="paper",
      batch_size=1800,
      batch_order="random",
      augmentation="shift_flip_contrast",
      max_attack_eps=1.0,
      label_noise="paper",
      # Of a sum over ten classes, where the code takes their mean.
      learning_rate=5e-3,
      weight_decay=0.04,
      copied_channels=False,
      inference=Inference(psi=10.0),
    )
    return {
      "mnist": cls(steps=400, learning_rate=1e-3),
      "mnist_paper": cls(),
      "mnist_released": cls(
        variant="released_code",
        batch_size=2499,
        batch_order="sequential",
        adversarial_weight=1.0,
        attack_steps=100,
        label_noise="released_mnist",
        input_clip=10.0,
      ),
      "mnist_5k": cls(
        batch_size=1200, steps=120, learning_rate=2e-3, eval_every=20
      ),
      "cifar10_paper": cifar10,
      "cifar10_narrow": dataclasses.replace(cifar10, steps=2000),
      "cifar10_released": cifar10_released,
      "cifar10_stobatch": dataclasses.replace(
        cifar10_released, batch_order="partition"
      ),
    }
