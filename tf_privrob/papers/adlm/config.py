"""Settings of the Adaptive Laplace Mechanism and of its sound heir."""

from __future__ import annotations

import dataclasses
from typing import Optional  # flags read these annotations on Python 3.9

from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import relevance

VARIANTS = ("paper", "released_code")
NOISES = ("per_step", "once")
RELEVANCE_MECHANISMS = ("gaussian", "laplace")


@dataclasses.dataclass(frozen=True)
class AdLMConfig:
  """Settings of AdLM (Phan et al. 2017); nothing here is proven private.

  Attributes:
    variant: "paper": the noise on the labels enters the mean loss once;
      "released_code": K times, once for each class, as in the MNIST code.
    dp_epsilon_relevance: claimed for the relevance map.
    dp_epsilon_features: claimed for the perturbed inputs.
    dp_epsilon_labels: claimed for the perturbed loss.
    noise: when the input noise is drawn: "once" (one perturbed objective, as
      the paper argues and the CIFAR-10 code does), or "per_step" (the MNIST
      code). The noise on the labels is drawn once.
    input_sensitivity: of the first layer; None: 2 x positions x patch of the
      network's first layer, 2 * 14 * 14 * 25 = 9,800 on MNIST.
    input_clip: the perturbed input is clipped to +- this.
    relevance_form: how the map is normalised, "mnist" or "cifar10".
    relevance_examples: the map averages over so many training examples.
    relevance_stabiliser: of the epsilon rule.
    relevance_steps: training steps of the relevance network, without privacy,
      if none is given.
    batch_size: m, of every batch; the noise is divided by it.
    steps: T.
    learning_rate: of Adam.
    eval_every: steps between two validations.
    checkpoint_every: steps between checkpoints.
    seed: None, for a model that is released: noise, sampling and initial
      weights come from the operating system and are stored nowhere. A number
      is for an experiment that is repeated: the guarantee then holds only
      against those who neither know nor guess it.
  """

  variant: str = "paper"
  dp_epsilon_relevance: float = 0.075
  dp_epsilon_features: float = 0.075
  dp_epsilon_labels: float = 0.15
  noise: str = "per_step"
  input_sensitivity: Optional[float] = None
  input_clip: float = 10.0
  relevance_form: str = "mnist"
  relevance_examples: int = 2000
  relevance_stabiliser: float = 1.0
  relevance_steps: int = 400
  batch_size: int = 1800
  steps: int = 80001
  learning_rate: float = 3e-4
  eval_every: int = 165
  checkpoint_every: int = 20
  seed: Optional[int] = None

  def __post_init__(self):
    randomness.check_seed(self.seed)
    if self.variant == "sound":
      raise ValueError(
        "The sound variant has settings of its own: use SoundAdLMConfig with"
        " SoundAdLM."
      )
    validate.one_of(VARIANTS, variant=self.variant)
    validate.one_of(NOISES, noise=self.noise)
    validate.one_of(
      relevance.NORMALISATIONS, relevance_form=self.relevance_form
    )
    validate.positive(
      dp_epsilon_relevance=self.dp_epsilon_relevance,
      dp_epsilon_features=self.dp_epsilon_features,
      dp_epsilon_labels=self.dp_epsilon_labels,
      input_clip=self.input_clip,
      relevance_stabiliser=self.relevance_stabiliser,
      learning_rate=self.learning_rate,
    )
    if self.input_sensitivity is not None:
      validate.positive(input_sensitivity=self.input_sensitivity)
    validate.positive_int(
      relevance_examples=self.relevance_examples,
      relevance_steps=self.relevance_steps,
      batch_size=self.batch_size,
      steps=self.steps,
      eval_every=self.eval_every,
      checkpoint_every=self.checkpoint_every,
    )

  @property
  def claimed_dp_epsilon(self) -> float:
    """The sum of the three budgets."""
    return (
      self.dp_epsilon_relevance
      + self.dp_epsilon_features
      + self.dp_epsilon_labels
    )

  @property
  def label_noise(self) -> str:
    """The form of `losses.label_noise_term`."""
    return "paper" if self.variant == "paper" else "released_mnist"

  @classmethod
  def presets(cls) -> dict[str, AdLMConfig]:
    """The MNIST code's settings, and the same for an hour on a few cores."""
    return {
      "mnist_paper": cls(),
      "mnist_released": cls(variant="released_code"),
      "mnist_small": cls(steps=600, learning_rate=1e-3, eval_every=50),
    }


@dataclasses.dataclass(frozen=True)
class SoundAdLMConfig(dp_sgd.BudgetConfig):
  """Settings of SoundAdLM: those of DP-SGD and of its relevance map.

  The budget (dp_epsilon, dp_delta) is that of map and training together.

  Attributes:
    relevance_mechanism: "gaussian" clips each example's relevances in the l2
      norm, "laplace" in the l1 norm and is pure DP; Gaussian noise is smaller.
    relevance_dp_epsilon: of the release of the map on its own.
    relevance_clip_norm: in that norm. Only its ratio to the relevances counts;
      far below them, all examples have an equal say.
    relevance_stabiliser: of the epsilon rule. Networks without training have
      small activations, of which AdLM's 1 would leave nothing.
    relevance_power: a feature is scaled by its relevance, min-max scaled to
      [0, 1], to this power.
    relevance_floor: and by no less than this.
  """

  relevance_mechanism: str = "gaussian"
  relevance_dp_epsilon: float = 0.3
  relevance_clip_norm: float = 1e-4
  relevance_stabiliser: float = 0.01
  relevance_power: float = 0.5
  relevance_floor: float = 0.1

  def __post_init__(self):
    super().__post_init__()
    validate.one_of(
      RELEVANCE_MECHANISMS, relevance_mechanism=self.relevance_mechanism
    )
    validate.positive(
      relevance_dp_epsilon=self.relevance_dp_epsilon,
      relevance_clip_norm=self.relevance_clip_norm,
      relevance_stabiliser=self.relevance_stabiliser,
      relevance_power=self.relevance_power,
    )
    validate.probability(relevance_floor=self.relevance_floor)

  @property
  def variant(self) -> str:
    """Of AdLM."""
    return "sound"

  @classmethod
  def presets(cls) -> dict[str, SoundAdLMConfig]:
    """DP-SGD's own, with a relevance map paid from the same budget."""
    return {
      f"{name}_sound": settings for name, settings in super().presets().items()
    }
