"""What the published DPAL and AdLM share: settings, batches of exactly m."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar
from typing import Optional  # flags read these annotations on Python 3.9

from tf_privrob import data
from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.methods import checks
from tf_privrob.methods import method
from tf_privrob.methods import plan as training_plan

VARIANTS = ("paper", "released_code")


@dataclasses.dataclass(frozen=True)
class FunctionalConfig:
  """Settings of a published functional mechanism; none is proven private.

  Attributes:
    variant: "paper" or "released_code".
    dp_epsilon_features: claimed for the perturbed inputs.
    dp_epsilon_labels: claimed for the labels.
    batch_size: m, of every batch; the noise is divided by it.
    steps: T, training steps.
    learning_rate: of the classifier.
    eval_every: steps between two validations.
    checkpoint_every: steps between checkpoints.
    seed: None, for a model that is released: noise, sampling and initial
      weights come from the operating system and are stored nowhere. A number
      is for an experiment that is repeated: the guarantee then holds only
      against those who neither know nor guess it.
  """

  SOUND: ClassVar[str] = ""  # what has the settings of the sound heir

  variant: str = "paper"
  dp_epsilon_features: float = 1.0
  dp_epsilon_labels: float = 1.0
  batch_size: int = 1800
  steps: int = 4000
  learning_rate: float = 1e-4
  eval_every: int = 50
  checkpoint_every: int = 20
  seed: Optional[int] = None

  def __post_init__(self):
    randomness.check_seed(self.seed)
    if self.variant == "sound":
      raise ValueError(
        f"The sound variant has settings of its own: use {self.SOUND}."
      )
    validate.one_of(VARIANTS, variant=self.variant)
    validate.positive(
      dp_epsilon_features=self.dp_epsilon_features,
      dp_epsilon_labels=self.dp_epsilon_labels,
      learning_rate=self.learning_rate,
    )
    validate.positive_int(
      batch_size=self.batch_size,
      steps=self.steps,
      eval_every=self.eval_every,
      checkpoint_every=self.checkpoint_every,
    )


class FixedBatches(method.Method):
  """A method whose noise is made for batches of exactly m, inputs in [-1, 1].

  Guarantee: none.
  """

  def check_value_range(self, value_range: tuple[float, float]) -> None:
    """The sensitivities rest on |x| <= 1."""
    checks.require_unit_range(value_range, type(self).__name__)

  @classmethod
  def has_fixed_batches(cls, config) -> bool:
    """The batches have one size, as the papers have them."""
    del config
    return True

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.FixedPlan:
    """Batches of exactly m."""
    del input_shape
    return training_plan.FixedPlan(
      self.make_sampler(num_examples), self.config.steps, self.config.eval_every
    )

  def make_sampler(self, num_examples: int) -> data.FixedBatchSampler:
    """Batches that are drawn anew in every step."""
    return data.FixedBatchSampler(
      num_examples, self.config.batch_size, "random", paired=False
    )

  def spent_dp_epsilon(self, steps: int) -> None:
    """No finite figure is known."""
