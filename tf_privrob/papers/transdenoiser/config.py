"""Settings of TransDenoiser as published, and of its sound heir."""

from __future__ import annotations

import dataclasses
import math

from tf_privrob import validate
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import trainer

VARIANTS = ("paper", "nodp", "sepdp")
AMPLIFICATIONS = ("steps", "epochs", "none")
INPUT_NOISES = ("fresh", "fixed")
UNITS = ("sum", "mean", "mixed")
NOISE_PER = ("group", "batch")
SLICE_CLIPPING = ("per_slice", "flat")
OBJECTIVES = ("mse", "stability", "mse_then_stability", "classification")
# Passes over the data that no budget pays for: it is the budget that ends a
# training of so many.
AS_PAID = 10_000.0


@dataclasses.dataclass(frozen=True)
class Reading:
  """How Algorithm 1 is read where the paper leaves it open, or says it twice.

  Attributes:
    xi_low: below it the input noise is not counted. The paper names no value;
      0 counts all of it.
    amplification: what T in "T S_min" is: "steps" (Theorems 2 and 3, Lemma 2;
      the default, since the claim rests on them), "epochs" (the header of
      Algorithm 1), both as planned, or "none", which leaves the factor out.
    input_noise: "fresh" at every step (Algorithm 1, line 7, inside the loop;
      the default), or "fixed": drawn once for each example (appendix G).
    units: of M_t beside xi_up. "sum": xi_up is the noise multiplier of the sum
      of gradients, which the accountant needs, and so M_t = sum A A^T, the
      covariance of the sum (the default). "mean": M_t = sum A A^T / B^2, as
      printed for mini-batches, that of the mean gradient, and xi_up is on the
      mean, too, where noise of 2.0 lets nothing be learnt. "mixed": M_t of the
      mean beside xi_up of the sum, both as printed: what the input noise saves
      is then B^2 times too small.
    noise_per: "group": each of the two groups gets a draw of its own, if it
      has members (lines 17 and 22, the default); "batch": one draw a step, of
      the larger scale, also for an empty batch.
    slice_clipping: "per_slice": each slice is clipped to C (appendix L, the
      default); "flat": all of them together.
    num_slices: 1, 2 (first layer, others) or more: first layer, last layer, and
      the layers in between in equal numbers.
    max_slice_size: parameters of a slice for which S_min is computed.
    refresh_every: steps for which an S_min is used once it is computed. 1 is
      Algorithm 1; more is ours, to save time, and the statement says so.
  """

  xi_low: float = 0.0
  amplification: str = "steps"
  input_noise: str = "fresh"
  units: str = "sum"
  noise_per: str = "group"
  slice_clipping: str = "per_slice"
  num_slices: int = 3
  max_slice_size: int = 2000
  refresh_every: int = 1

  def __post_init__(self):
    validate.one_of(AMPLIFICATIONS, amplification=self.amplification)
    validate.one_of(INPUT_NOISES, input_noise=self.input_noise)
    validate.one_of(UNITS, units=self.units)
    validate.one_of(NOISE_PER, noise_per=self.noise_per)
    validate.one_of(SLICE_CLIPPING, slice_clipping=self.slice_clipping)
    validate.non_negative(xi_low=self.xi_low)
    validate.positive_int(
      num_slices=self.num_slices,
      max_slice_size=self.max_slice_size,
      refresh_every=self.refresh_every,
    )


@dataclasses.dataclass(frozen=True)
class TransDenoiserConfig(dp_sgd.BudgetConfig):
  """Settings of TransDenoiser (Algorithm 1) and of its ablations.

  Of DP-SGD's settings `noise_multiplier` is `xi_up`. The budget ends the
  training: "paper" where the claimed figure reaches it, "sepdp" where the
  proven one does, which is larger, since one example moves all slices.

  Attributes:
    variant: "paper"; "nodp": no noise on the gradients; "sepdp": noise of
      constant scale xi_up, the input noise counts for nothing.
    input_stddev: sigma, of the noise at the input; the certificate's, too.
    xi_up: the gradient noise that the claim needs, over the clipping norm.
    reading: of what the paper leaves open.
  """

  dp_epsilon: float = 1.0
  batch_size: int = 128
  epochs: float = 20.0
  learning_rate: float = 0.1
  accountant: str = "rdp"
  variant: str = "paper"
  input_stddev: float = 0.25
  xi_up: float = 2.0
  reading: Reading = Reading()

  def __post_init__(self):
    super().__post_init__()
    if self.variant == "sound":
      raise ValueError(
        "The sound variant has settings of its own: use"
        " SoundTransDenoiserConfig with SoundTransDenoiser, or"
        " --method=transdenoiser --preset=mnist_sound."
      )
    validate.one_of(VARIANTS, variant=self.variant)
    validate.positive(input_stddev=self.input_stddev, xi_up=self.xi_up)
    validate.instance(Reading, reading=self.reading)
    if self.reading.xi_low > self.xi_up:
      raise ValueError(
        f"Expected xi_low={self.reading.xi_low!r} <= xi_up={self.xi_up!r}:"
        " below xi_low the input noise is not counted, from xi_up on it is"
        " enough."
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

  def proven_multiplier(self, batch_size: float) -> float:
    """Noise of constant scale xi_up over how far one example moves the sum.

    K slices that are clipped one by one move by sqrt(K) C together.

    Args:
      batch_size: the expected one, for xi_up in units of the mean.
    """
    found = self.xi_up
    if self.reading.slice_clipping == "per_slice":
      found /= math.sqrt(self.reading.num_slices)
    if self.reading.units == "mean":
      found *= batch_size
    return found

  @classmethod
  def presets(cls) -> dict[str, TransDenoiserConfig]:
    """For `models.smooth_denoiser`; the paper states sigma and xi_up only.

    Private ones last as long as their budget: 46,769 steps for "mnist_paper" on
    30,000 images. S_min takes most of the time; "refreshed" spares that.
    """
    paper = cls(
      optimizer="adam",
      learning_rate=5e-3,
      l2_clip_norm=1.0,
      batch_size=64,
      epochs=AS_PAID,
      checkpoint_every=50,
    )
    replace = dataclasses.replace
    long = {
      "paper": paper,
      "paper_refreshed": paper.changed(refresh_every=50),
      "sepdp": replace(paper, variant="sepdp", accountant="pld"),
      "nodp": replace(paper, variant="nodp", epochs=100.0),
    }
    short = {"checkpoint_every": 1, "epochs": 5.0}
    return {
      **{f"mnist_{name}": config for name, config in long.items()},
      **{f"cifar10_{name}": config for name, config in long.items()},
      "mnist_5k_paper": replace(paper, **{**short, "epochs": 1.0}),
      "mnist_5k_sepdp": replace(long["sepdp"], **short),
      "mnist_5k_nodp": replace(long["nodp"], **short),
    }


@dataclasses.dataclass(frozen=True)
class SoundTransDenoiserConfig(dp_sgd.BudgetConfig):
  """Settings of `SoundTransDenoiser`: those of DP-SGD and of the denoiser.

  Attributes:
    input_stddev: of the noise at the input, and of the certificate.
    objective: of an example's K noisy copies z: "mse", the squared error of
      the denoised z; "stability", the cross-entropy of the denoised z to the
      class that the classifier gives the clean x (Salman et al. 2020);
      "mse_then_stability", first the one and then the other; or
      "classification", the cross-entropy to the label.
    mse_share: of the steps, before "stability" in "mse_then_stability".
    augmentation_multiplicity: K noisy copies of an example a step.
  """

  dp_epsilon: float = 1.0
  input_stddev: float = 0.25
  objective: str = "mse"
  mse_share: float = 0.8

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
      "cifar10_sound": sound,
      "cifar10_sound_mse": mse,
      "mnist_5k_sound": dataclasses.replace(sound, **few),
      "mnist_5k_sound_mse": dataclasses.replace(mse, **few),
    }


@dataclasses.dataclass(frozen=True)
class DenoisedSmoothingConfig(trainer.PlainConfig):
  """Settings of `DenoisedSmoothing`, the reference without privacy.

  Attributes:
    input_stddev: of the noise at the input, and of the certificate.
    objective: of an example's K noisy copies: see `SoundTransDenoiserConfig`.
    mse_share: of the steps, before "stability" in "mse_then_stability".
    augmentation_multiplicity: K noisy copies of an example a step.
  """

  sampler: str = "poisson"
  learning_rate: float = 5e-3
  input_stddev: float = 0.25
  objective: str = "stability"
  mse_share: float = 0.8

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
    found = {
      "mnist": cls(batch_size=256, **common),
      "cifar10": cls(batch_size=256, **common),
      "mnist_5k": cls(batch_size=64, **common),
    }
    both = "mse_then_stability"
    return {
      **{f"{name}_stability": config for name, config in found.items()},
      **{
        f"{name}_{both}": dataclasses.replace(config, objective=both)
        for name, config in found.items()
      },
    }


def _check_copies(
  config: SoundTransDenoiserConfig | DenoisedSmoothingConfig,
) -> None:
  """What both require of the noisy copies."""
  validate.positive(input_stddev=config.input_stddev)
  validate.one_of(OBJECTIVES, objective=config.objective)
  validate.open_probability(mse_share=config.mse_share)
  if config.augmentation == "noise":
    raise ValueError(
      "Expected augmentation='none', 'shift' or 'shift_flip', received"
      " 'noise': the copies have noise in any case, set input_stddev."
    )
