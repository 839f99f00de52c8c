"""Settings of TransDenoiser as published, and of its sound heir."""

from __future__ import annotations

import dataclasses

from tf_privrob import validate
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import trainer

VARIANTS = ("paper", "nodp", "sepdp")
AMPLIFICATIONS = ("steps", "epochs", "none")
INPUT_NOISES = ("fresh", "fixed")
UNITS = ("paper", "sum", "mean")
NOISE_PER = ("group", "batch")
SLICE_CLIPPING = ("per_slice", "flat")
OBJECTIVES = ("mse", "stability", "classification")


@dataclasses.dataclass(frozen=True)
class TransDenoiserConfig(dp_sgd.BudgetConfig):
  """Settings of TransDenoiser (Algorithm 1) and of its ablations.

  The paper leaves several things open or says them twice in different ways;
  each is a setting here. Of DP-SGD's settings `noise_multiplier` is `xi_up`.

  Attributes:
    variant: "paper"; "nodp": no noise on the gradients; "sepdp": noise of
      constant scale xi_up, the input noise counts for nothing.
    input_stddev: sigma, of the noise at the input; the certificate's, too.
    xi_up: the gradient noise that the claim needs, over the clipping norm.
    xi_low: below it the input noise is not counted. The paper names no value;
      0 counts all of it.
    amplification: what T in "T S_min" is: "steps" (Theorems 2 and 3, Lemma 2;
      the default, since the claim rests on them), "epochs" (the header of
      Algorithm 1), or "none", which leaves the factor out.
    input_noise: "fresh" at every step (Algorithm 1, line 7, inside the loop;
      the default), or "fixed": drawn once for each example (appendix G).
    units: of M_t beside xi_up. "paper": M_t = sum A A^T / B^2, that of a mean
      gradient, while xi_up is the noise multiplier of the sum, which the
      accountant needs (the default: both as printed); "sum": both of the sum;
      "mean": both of the mean, where noise of 2.0 lets nothing be learnt.
    noise_per: "group": each of the two groups gets a draw of its own, if it
      has members (lines 17 and 22, the default); "batch": one draw a step, of
      the larger scale, also for an empty batch.
    slice_clipping: "per_slice": each slice is clipped to C (appendix L, the
      default); "flat": all of them together.
    num_slices: 1, 2 (first layer, others) or more: first layer, last layer, and
      the layers in between in equal numbers.
    max_slice_size: parameters of a slice for which S_min is computed.
  """

  dp_epsilon: float = 1.0
  batch_size: int = 128
  epochs: float = 20.0
  learning_rate: float = 0.1
  accountant: str = "rdp"
  variant: str = "paper"
  input_stddev: float = 0.25
  xi_up: float = 2.0
  xi_low: float = 0.0
  amplification: str = "steps"
  input_noise: str = "fresh"
  units: str = "paper"
  noise_per: str = "group"
  slice_clipping: str = "per_slice"
  num_slices: int = 3
  max_slice_size: int = 2000

  def __post_init__(self):
    super().__post_init__()
    if self.variant == "sound":
      raise ValueError(
        "The sound variant has settings of its own: use"
        " SoundTransDenoiserConfig with SoundTransDenoiser, or"
        " --method=transdenoiser --preset=mnist_sound."
      )
    validate.one_of(VARIANTS, variant=self.variant)
    validate.one_of(AMPLIFICATIONS, amplification=self.amplification)
    validate.one_of(INPUT_NOISES, input_noise=self.input_noise)
    validate.one_of(UNITS, units=self.units)
    validate.one_of(NOISE_PER, noise_per=self.noise_per)
    validate.one_of(SLICE_CLIPPING, slice_clipping=self.slice_clipping)
    validate.positive(input_stddev=self.input_stddev, xi_up=self.xi_up)
    validate.non_negative(xi_low=self.xi_low)
    validate.positive_int(
      num_slices=self.num_slices, max_slice_size=self.max_slice_size
    )
    if self.xi_low > self.xi_up:
      raise ValueError(
        f"Expected xi_low={self.xi_low!r} <= xi_up={self.xi_up!r}: below xi_low"
        " the input noise is not counted, from xi_up on it is enough."
      )
    if self.noise_multiplier is not None:
      raise ValueError(
        f"Expected noise_multiplier=None, received {self.noise_multiplier!r}:"
        " TransDenoiser's is xi_up; variant='nodp' trains without noise."
      )
    if self.augmentation != "none" or self.augmentation_multiplicity != 1:
      raise ValueError(
        "Expected augmentation='none' and augmentation_multiplicity=1, which"
        f" TransDenoiser has, received {self.augmentation!r} and"
        f" {self.augmentation_multiplicity!r}. SoundTransDenoiser takes copies."
      )

  @classmethod
  def presets(cls) -> dict[str, TransDenoiserConfig]:
    """For `models.smooth_denoiser`; the paper states sigma and xi_up only.

    S_min of a batch takes seconds, so "paper" has smaller batches, and fewer
    steps than its claimed budget would allow.
    """
    common = {"optimizer": "adam", "learning_rate": 5e-3, "l2_clip_norm": 1.0}
    paper = cls(batch_size=64, epochs=1.0, **common)
    sepdp = cls(variant="sepdp", batch_size=512, epochs=12.0, **common)
    few = {"batch_size": 64, "epochs": 5.0}
    found = {
      "mnist_paper": paper,
      "mnist_sepdp": sepdp,
      "mnist_nodp": dataclasses.replace(sepdp, variant="nodp"),
      "mnist_5k_paper": dataclasses.replace(paper, batch_size=32),
      "mnist_5k_sepdp": dataclasses.replace(sepdp, **few),
    }
    found["mnist_5k_nodp"] = dataclasses.replace(
      found["mnist_5k_sepdp"], variant="nodp"
    )
    return found


@dataclasses.dataclass(frozen=True)
class SoundTransDenoiserConfig(dp_sgd.BudgetConfig):
  """Settings of `SoundTransDenoiser`: those of DP-SGD and of the denoiser.

  Attributes:
    input_stddev: of the noise at the input, and of the certificate.
    objective: of an example's K noisy copies z: "mse", the squared error of
      the denoised z; "stability", the cross-entropy between the classifier's
      answers to the denoised z and to the clean x (Salman et al. 2020); or
      "classification", the cross-entropy to the label.
    augmentation_multiplicity: K noisy copies of an example a step.
  """

  dp_epsilon: float = 1.0
  input_stddev: float = 0.25
  objective: str = "mse"

  def __post_init__(self):
    super().__post_init__()
    _check_copies(self)

  @property
  def variant(self) -> str:
    """Of TransDenoiser."""
    return "sound"

  @classmethod
  def presets(cls) -> dict[str, SoundTransDenoiserConfig]:
    """Settings by name; `docs/notebook.md` has what they reached."""
    sound = cls(
      optimizer="adam",
      learning_rate=5e-3,
      batch_size=1024,
      epochs=20.0,
      l2_clip_norm=0.1,
      ema_decay=0.95,
      augmentation_multiplicity=2,
      objective="classification",
    )
    mse = dataclasses.replace(sound, objective="mse", l2_clip_norm=1.0)
    few = {"batch_size": 256}
    return {
      "mnist_sound": sound,
      "mnist_sound_mse": mse,
      "mnist_5k_sound": dataclasses.replace(sound, **few),
      "mnist_5k_sound_mse": dataclasses.replace(mse, **few),
    }


@dataclasses.dataclass(frozen=True)
class DenoisedSmoothingConfig(trainer.PlainConfig):
  """Settings of `DenoisedSmoothing`, the reference without privacy.

  Attributes:
    input_stddev: of the noise at the input, and of the certificate.
    objective: of an example's K noisy copies: see `SoundTransDenoiserConfig`.
    augmentation_multiplicity: K noisy copies of an example a step.
  """

  sampler: str = "poisson"
  learning_rate: float = 5e-3
  input_stddev: float = 0.25
  objective: str = "stability"

  def __post_init__(self):
    super().__post_init__()
    _check_copies(self)

  @property
  def variant(self) -> str:
    """Of TransDenoiser."""
    return "denoised smoothing"

  @classmethod
  def presets(cls) -> dict[str, DenoisedSmoothingConfig]:
    """After Salman et al. (2020)."""
    common = {"epochs": 10.0, "checkpoint_every": 1}
    return {
      "mnist_stability": cls(batch_size=256, **common),
      "mnist_5k_stability": cls(batch_size=64, **common),
    }


def _check_copies(
  config: SoundTransDenoiserConfig | DenoisedSmoothingConfig,
) -> None:
  """What both require of the noisy copies."""
  validate.positive(input_stddev=config.input_stddev)
  validate.one_of(OBJECTIVES, objective=config.objective)
  if config.augmentation == "noise":
    raise ValueError(
      "Expected augmentation='none', 'shift' or 'shift_flip', received"
      " 'noise': the copies have noise in any case, set input_stddev."
    )
