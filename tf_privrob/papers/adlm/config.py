"""Settings of the Adaptive Laplace Mechanism and of its sound heir."""

from __future__ import annotations

import dataclasses
from typing import ClassVar
from typing import Optional  # flags read these annotations on Python 3.9

from tf_privrob import validate
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import relevance
from tf_privrob.papers.dpal import fixed_batches

NOISES = ("per_step", "once")
RELEVANCE_MECHANISMS = ("gaussian", "laplace")


@dataclasses.dataclass(frozen=True)
class AdLMConfig(fixed_batches.FunctionalConfig):
  """Settings of AdLM (Phan et al. 2017); nothing here is proven private.

  Attributes:
    variant: "paper": the noise on the labels enters the mean loss once;
      "released_code": K times, once for each class, as in the MNIST code.
    dp_epsilon_labels: claimed for the perturbed loss.
    learning_rate: of Adam.
    dp_epsilon_relevance: claimed for the relevance map.
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
  """

  SOUND: ClassVar[str] = "SoundAdLMConfig with SoundAdLM"

  dp_epsilon_features: float = 0.075
  dp_epsilon_labels: float = 0.15
  steps: int = 80001
  learning_rate: float = 3e-4
  eval_every: int = 165
  dp_epsilon_relevance: float = 0.075
  noise: str = "once"
  input_sensitivity: Optional[float] = None
  input_clip: float = 10.0
  relevance_form: str = "mnist"
  relevance_examples: int = 2000
  relevance_stabiliser: float = 1.0
  relevance_steps: int = 400

  def __post_init__(self):
    super().__post_init__()
    validate.one_of(NOISES, noise=self.noise)
    validate.one_of(
      relevance.NORMALISATIONS, relevance_form=self.relevance_form
    )
    validate.positive(
      dp_epsilon_relevance=self.dp_epsilon_relevance,
      input_clip=self.input_clip,
      relevance_stabiliser=self.relevance_stabiliser,
    )
    if self.input_sensitivity is not None:
      validate.positive(input_sensitivity=self.input_sensitivity)
    validate.positive_int(
      relevance_examples=self.relevance_examples,
      relevance_steps=self.relevance_steps,
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
    """Paper and MNIST code; `mnist_small` is an hour on a few cores."""
    return {
      "mnist_paper": cls(),
      "mnist_released": cls(variant="released_code", noise="per_step"),
      "mnist_small": cls(steps=600, learning_rate=1e-3, eval_every=50),
    }


@dataclasses.dataclass(frozen=True)
class Relevance:
  """Settings of the relevance map that `SoundAdLM` releases, and of its use.

  Attributes:
    mechanism: "gaussian" clips each example's relevances in the l2 norm,
      "laplace" in the l1 norm and is pure DP; Gaussian noise is smaller.
    dp_epsilon: of the release of the map on its own.
    clip_norm: in that norm. Only its ratio to the relevances counts; far below
      them, all examples have an equal say.
    stabiliser: of the epsilon rule. Networks without training have small
      activations, of which AdLM's 1 would leave nothing.
    power: a feature is scaled by its relevance, min-max scaled to [0, 1], to
      this power.
    floor: and by no less than this.
  """

  mechanism: str = "gaussian"
  dp_epsilon: float = 0.3
  clip_norm: float = 1e-4
  stabiliser: float = 0.01
  power: float = 0.5
  floor: float = 0.1

  def __post_init__(self):
    validate.one_of(RELEVANCE_MECHANISMS, mechanism=self.mechanism)
    validate.positive(
      dp_epsilon=self.dp_epsilon,
      clip_norm=self.clip_norm,
      stabiliser=self.stabiliser,
      power=self.power,
    )
    validate.probability(floor=self.floor)


RELEVANCE = Relevance()


@dataclasses.dataclass(frozen=True)
class SoundAdLMConfig(dp_sgd.BudgetConfig):
  """Settings of SoundAdLM: those of DP-SGD and of its relevance map.

  The budget (dp_epsilon, dp_delta) is that of map and training together.

  Attributes:
    relevance: the map.
  """

  relevance: Relevance = RELEVANCE

  def __post_init__(self):
    super().__post_init__()
    validate.instance(Relevance, relevance=self.relevance)

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
