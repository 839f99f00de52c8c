"""Settings of DPAL / StoBatch in the paper's and the released code's form."""

from __future__ import annotations

import dataclasses
from typing import Optional  # flags read these annotations on Python 3.9

from tf_privrob import data
from tf_privrob import losses
from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.papers.dpal import functional

VARIANTS = ("paper", "released_code")
ATTACKS = ("bim", "mim", "pgd")


@dataclasses.dataclass(frozen=True)
class DPALConfig:
  """Settings of DPAL (Algorithm 1); nothing here is proven to be private.

  Attributes:
    variant: "paper", or "released_code": adversarial examples without input
      noise, crafted against a network without hidden noise and batch
      statistics, the code's autoencoder, and its reduced feature budget.
    dp_epsilon_features: eps_1, claimed for the autoencoder.
    dp_epsilon_labels: eps_2, claimed for the labels.
    sensitivity: Delta_R of Lemma 2 read literally ("paper"), or with patches
      and one feature map ("released_code", as in the published experiments).
    batch_size: m, of the benign batch and of the adversarial one; a multiple
      of 3, one third for each attack.
    batch_order: "random" (Algorithm 1), "sequential" (released MNIST code) or
      "partition" (StoBatch's stochastic choice among fixed batches).
    steps: T, training steps.
    adversarial_weight: xi of Eq. 9.
    attack_steps: T_mu of each attack.
    max_attack_eps: mu_t is uniform below it, one draw a step.
    label_loss: "taylor", or Eq. 11 read literally ("paper").
    label_noise: how the noise on the labels enters: "paper",
      "released_mnist" or "released_cifar10".
    optimizer: of the classifier, "adam" or "sgd".
    learning_rate: of the classifier.
    feature_learning_rate: of the autoencoder, trained by Adam.
    weight_decay: on the last hidden layer's kernel.
    input_clip: of the perturbed input, in the released code only.
    copied_channels: one draw of input noise a pixel, copied to its channels.
    psi: the noise of verified inference is psi times smaller than in training.
    num_draws: of verified inference.
    confidence: of verified inference.
    eval_every: steps between two validations.
    checkpoint_every: steps between checkpoints.
    seed: None, for a model that is released: noise, sampling and initial
      weights come from the operating system and are stored nowhere. A number
      is for an experiment that is repeated: the guarantee then holds only
      against those who neither know nor guess it.
  """

  variant: str = "paper"
  dp_epsilon_features: float = 1.9
  dp_epsilon_labels: float = 0.1
  sensitivity: str = "released_code"
  batch_size: int = 2400
  batch_order: str = "random"
  steps: int = 4002
  adversarial_weight: float = 1.5
  attack_steps: int = 10
  max_attack_eps: float = 1.0
  label_loss: str = "taylor"
  label_noise: str = "paper"
  optimizer: str = "adam"
  learning_rate: float = 1e-4
  feature_learning_rate: float = 1e-4
  weight_decay: float = 0.0
  input_clip: Optional[float] = None
  copied_channels: bool = False
  psi: float = 2.0
  num_draws: int = 2000
  confidence: float = 0.95
  eval_every: int = 50
  checkpoint_every: int = 20
  seed: Optional[int] = None

  def __post_init__(self):
    randomness.check_seed(self.seed)
    if self.variant == "sound":
      raise ValueError(
        "The sound variant has settings of its own: use SoundDPALConfig with"
        " SoundDPAL, or --method=dpal --preset=mnist_sound."
      )
    validate.one_of(VARIANTS, variant=self.variant)
    validate.positive(
      dp_epsilon_features=self.dp_epsilon_features,
      dp_epsilon_labels=self.dp_epsilon_labels,
      max_attack_eps=self.max_attack_eps,
      learning_rate=self.learning_rate,
      feature_learning_rate=self.feature_learning_rate,
      psi=self.psi,
    )
    validate.non_negative(
      adversarial_weight=self.adversarial_weight,
      weight_decay=self.weight_decay,
    )
    validate.positive_int(
      batch_size=self.batch_size,
      steps=self.steps,
      attack_steps=self.attack_steps,
      num_draws=self.num_draws,
      eval_every=self.eval_every,
      checkpoint_every=self.checkpoint_every,
    )
    validate.open_probability(confidence=self.confidence)
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
    validate.one_of(losses.taylor.LABEL_FORMS, label_loss=self.label_loss)
    validate.one_of(losses.taylor.NOISE_FORMS, label_noise=self.label_noise)
    validate.one_of(("adam", "sgd"), optimizer=self.optimizer)

  @property
  def claimed_dp_epsilon(self) -> float:
    """Eps_1 + eps_2."""
    return self.dp_epsilon_features + self.dp_epsilon_labels

  @classmethod
  def presets(cls) -> dict[str, DPALConfig]:
    """Paper and released code; `mnist` is the paper's for a small machine."""
    cifar10 = cls(
      dp_epsilon_features=4.0,
      dp_epsilon_labels=6.0,
      batch_size=1800,
      steps=16801,
      attack_steps=3,
      optimizer="sgd",
      learning_rate=5e-2,
      feature_learning_rate=5e-2,
      weight_decay=0.004,
      psi=10.0,
      num_draws=1000,
    )
    cifar10_released = dataclasses.replace(
      cifar10,
      variant="released_code",
      batch_size=1851,
      batch_order="sequential",
      max_attack_eps=0.5,
      label_noise="released_cifar10",
      copied_channels=True,
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
        batch_size=1200,
        steps=120,
        learning_rate=2e-3,
        feature_learning_rate=1e-4,
        eval_every=20,
      ),
      "cifar10_paper": cifar10,
      "cifar10_released": cifar10_released,
      "cifar10_stobatch": dataclasses.replace(
        cifar10_released, batch_order="partition"
      ),
    }
