"""Settings of a method: frozen dataclasses that become flags and JSON."""

from __future__ import annotations

import dataclasses
from typing import Optional  # flags read these annotations on Python 3.9

from tf_privrob import data
from tf_privrob import gradients
from tf_privrob import randomness
from tf_privrob import validate

OPTIMIZERS = ("adam", "sgd")
SCHEDULES = ("constant", "cosine")
SAMPLERS = ("poisson", "shuffle", "full_batch")


@dataclasses.dataclass(frozen=True)
class DPSGDConfig:
  """Settings of DP-SGD.

  Attributes:
    dp_epsilon: the budget of the whole run.
    dp_delta: with it; well below 1 / n.
    noise_multiplier: noise standard deviation over `l2_clip_norm`. None: the
      least that keeps all steps within the budget. If set, training stops
      before the step that would exceed the budget. 0 trains without privacy.
    l2_clip_norm: bound on each example's gradient, over all variables.
    batch_size: expected size of a logical batch; sampling_prob = it / n.
    epochs: passes over the data, on average.
    sampler: "poisson" is what the headline figure is proven for; "shuffle" is
      accounted without amplification.
    optimizer: "sgd" or "adam"; `compile(optimizer=...)` takes any other.
    learning_rate: at the first step.
    learning_rate_schedule: "constant" or "cosine" (to zero at the last step).
    momentum: of SGD.
    ema_decay: 0 keeps the last weights; else the trained weights are their
      exponential moving average.
    augmentation: kind of random copies of an example.
    augmentation_multiplicity: K copies, averaged into one gradient.
    augmentation_stddev: of the "noise" augmentation.
    physical_batch_size: rows in memory at a time, rounded up to a multiple of
      16 (`data.whole_packets`). None: by device.
    engine: how per-example gradients are computed. None: the fastest.
    jit_compile: XLA for the gradients. None: on a GPU only.
    accountant: "pld" or "rdp", for calibration and the proven figure.
    checkpoint_every: steps between checkpoints.
    seed: None, for a model that is released: noise, sampling and initial
      weights come from the operating system and are stored nowhere. A number
      is for an experiment that is repeated: the guarantee then holds only
      against those who neither know nor guess it.
  """

  dp_epsilon: float = 3.0
  dp_delta: float = 1e-5
  noise_multiplier: Optional[float] = None
  l2_clip_norm: float = 1.0
  batch_size: int = 256
  epochs: float = 15.0
  sampler: str = "poisson"
  optimizer: str = "sgd"
  learning_rate: float = 0.25
  learning_rate_schedule: str = "constant"
  momentum: float = 0.0
  ema_decay: float = 0.0
  augmentation: str = "none"
  augmentation_multiplicity: int = 1
  augmentation_stddev: float = 0.25
  physical_batch_size: Optional[int] = None
  engine: Optional[str] = None
  jit_compile: Optional[bool] = None
  accountant: str = "pld"
  checkpoint_every: int = 1
  seed: Optional[int] = None

  def __post_init__(self):
    randomness.check_seed(self.seed)
    validate.positive(
      dp_epsilon=self.dp_epsilon,
      l2_clip_norm=self.l2_clip_norm,
      epochs=self.epochs,
      learning_rate=self.learning_rate,
    )
    validate.open_probability(dp_delta=self.dp_delta)
    validate.positive_int(
      batch_size=self.batch_size,
      augmentation_multiplicity=self.augmentation_multiplicity,
      checkpoint_every=self.checkpoint_every,
    )
    if self.physical_batch_size is not None:
      validate.positive_int(physical_batch_size=self.physical_batch_size)
    if self.noise_multiplier is not None:
      validate.non_negative(noise_multiplier=self.noise_multiplier)
    validate.non_negative(
      augmentation_stddev=self.augmentation_stddev,
      momentum=self.momentum,
      ema_decay=self.ema_decay,
    )
    if max(self.momentum, self.ema_decay) >= 1:
      raise ValueError(
        f"Expected momentum={self.momentum!r} and ema_decay={self.ema_decay!r}"
        " below 1."
      )
    validate.one_of(SAMPLERS, sampler=self.sampler)
    validate.one_of(OPTIMIZERS, optimizer=self.optimizer)
    validate.one_of(
      SCHEDULES, learning_rate_schedule=self.learning_rate_schedule
    )
    validate.one_of(data.AUGMENTATIONS, augmentation=self.augmentation)
    validate.one_of(("pld", "rdp"), accountant=self.accountant)
    if self.jit_compile is not None:
      validate.boolean(jit_compile=self.jit_compile)
    if self.engine is not None:
      validate.one_of(gradients.ENGINES, engine=self.engine)

  @classmethod
  def presets(cls) -> dict[str, DPSGDConfig]:
    """Settings by name; `docs/notebook.md` has what they reached."""
    return {
      "mnist_5k": cls(
        batch_size=512,
        epochs=40,
        learning_rate=2.0,
        l2_clip_norm=0.5,
        ema_decay=0.95,
      ),
      "mnist": cls(
        batch_size=2048,
        epochs=40,
        learning_rate=4.0,
        l2_clip_norm=0.5,
        ema_decay=0.95,
      ),
      "tutorial": cls(
        noise_multiplier=1.3,
        batch_size=250,
        epochs=15,
        learning_rate=0.25,
        l2_clip_norm=1.5,
      ),
    }
