"""Settings of trainers on verified bounds: IBP, DiffAI and the dual.

Presets are the settings of the code of Song, Shokri and Mittal (CCS 2019);
mnist_ibp is Gowal et al.'s own. The code scales DiffAI's radius by a counter
that evaluation advances too; here it grows as intended.
"""

from __future__ import annotations

import dataclasses

from tf_privrob import bounds
from tf_privrob import validate
from tf_privrob.bounds import dual
from tf_privrob.bounds import zonotope
from tf_privrob.methods.objectives import robust_config

DOMAINS = ("box", "hybrid_zonotope")


@dataclasses.dataclass(frozen=True)
class VerifiedConfig(robust_config.AttackedConfig):
  """What trainers on worst-case logits share.

  Attributes:
    engine: of private training: "vectorized" (the default) or "loop"; bounds
      use weights outside their layers, which "ghost" cannot clip.
    clip_to_range: cut the ball to the value range.
  """

  clip_to_range: bool = True

  def __post_init__(self):
    super().__post_init__()
    validate.boolean(clip_to_range=self.clip_to_range)
    if self.engine == "ghost":
      raise ValueError(
        "Expected engine=None, 'vectorized' or 'loop', received 'ghost': bounds"
        " use weights outside their layers, where it cannot see them."
      )

  @property
  def natural_weight(self) -> float:
    """The share alpha of the natural loss after warm-up and ramp."""
    raise NotImplementedError

  @property
  def training_domain(self) -> bounds.Domain:
    """What worst-case logits are computed with in training."""
    raise NotImplementedError

  @property
  def sound_domain(self) -> bounds.Domain:
    """What they are certified with."""
    return self.training_domain


@dataclasses.dataclass(frozen=True)
class IBPConfig(VerifiedConfig):
  """Settings of `IBP`.

  Attributes:
    natural_share: kappa, the weight of the natural loss at the end.
    ramp_natural_share: kappa falls from 1 while the radius grows.
    elide: bound differences of logits together with the last layer.
  """

  natural_share: float = 0.5
  ramp_natural_share: bool = True
  elide: bool = True

  def __post_init__(self):
    super().__post_init__()
    robust_config.share(natural_share=self.natural_share)
    validate.boolean(
      ramp_natural_share=self.ramp_natural_share, elide=self.elide
    )

  @property
  def natural_weight(self) -> float:
    """Kappa."""
    return self.natural_share

  @property
  def training_domain(self) -> bounds.Domain:
    """Intervals."""
    return bounds.Interval(elide=self.elide)

  @classmethod
  def presets(cls) -> dict[str, IBPConfig]:
    """Settings of CCS 2019, and of Gowal et al. for MNIST."""
    common = {"optimizer": "adam", "checkpoint_every": 1000}
    return {
      "yale_b_ibp": cls(
        **common,
        learning_rate=1e-4,
        learning_rate_drops="10000:0.1,15000:0.01",
        batch_size=20,
        epochs=20001 * 20 / 1900,
        weight_decay=2e-4,
        attack_eps=8 / 255,
        warmup="500",
        attack_ramp="6500",
      ),
      "fashion_mnist_ibp": cls(
        **common,
        learning_rate=1e-4,
        learning_rate_drops="50000:0.1,65000:0.01",
        batch_size=100,
        epochs=80001 * 100 / 60000,
        weight_decay=1e-4,
        attack_eps=0.1,
        warmup="8000",
        attack_ramp="30000",
      ),
      "mnist_ibp": cls(
        **common,
        learning_rate=1e-3,
        learning_rate_drops="15000:0.1,25000:0.01",
        batch_size=200,
        epochs=60001 * 200 / 60000,
        attack_eps=0.33,
        warmup="2000",
        attack_ramp="10000",
      ),
    }


@dataclasses.dataclass(frozen=True)
class DiffAIConfig(VerifiedConfig):
  """Settings of `DiffAI`.

  Attributes:
    domain: "box" or "hybrid_zonotope".
    relu: rule of the zonotope: "box", "switch" or "smooth".
    robust_term_weight: tw, of the robust loss.
    natural_term_weight: sw, of the natural one; their sum divides the loss.
    margin_floor: certified margins beyond it are not asked for.
  """

  domain: str = "box"
  relu: str = "box"
  robust_term_weight: float = 0.2
  natural_term_weight: float = 1.0
  margin_floor: float = 1.0
  clip_to_range: bool = False

  def __post_init__(self):
    super().__post_init__()
    validate.one_of(DOMAINS, domain=self.domain)
    validate.one_of(zonotope.RELUS, relu=self.relu)
    validate.positive(robust_term_weight=self.robust_term_weight)
    validate.non_negative(
      natural_term_weight=self.natural_term_weight,
      margin_floor=self.margin_floor,
    )

  @property
  def natural_weight(self) -> float:
    """The share sw / (sw + tw)."""
    natural = self.natural_term_weight
    return natural / (natural + self.robust_term_weight)

  @property
  def training_domain(self) -> bounds.Domain:
    """Margins on the difference of two logits, without elision."""
    if self.domain == "box":
      return bounds.Interval(elide=False)
    return bounds.HybridZonotope(relu=self.relu, elide=False)

  @classmethod
  def presets(cls) -> dict[str, DiffAIConfig]:
    """Settings of CCS 2019.

    The radius grows with a count of batches that is meant to go from 1/30 of
    it after 21 epochs to all of it after 50. In the released code batches of
    the evaluation before each epoch count too, 50 beside 95 for Yale and 100
    beside 600 for Fashion-MNIST: presets "released" have the ramp that follows,
    as one line, up to 50 and 100 counts.
    """
    common = {
      "optimizer": "adam",
      "learning_rate": 1e-4,
      "epochs": 100.0,
      "warmup": "19e",
      "update_clip_norm": 1.0,
      "checkpoint_every": 1000,
    }
    yale_b = cls(
      **common,
      learning_rate_drops="70e:0.1,85e:0.01",
      batch_size=20,
      attack_eps=0.0314,
      attack_eps_start=0.0314 / 30,
      attack_ramp_start="21e",
      attack_ramp="29e",
    )
    fashion_mnist = cls(
      **common,
      batch_size=100,
      attack_eps=0.1,
      attack_eps_start=0.1 / 30,
      attack_ramp_start="21e",
      attack_ramp="29e",
    )
    return {
      "yale_b_diffai": yale_b,
      "yale_b_diffai_released": _counted_with_evaluation(yale_b, 95, 50),
      "fashion_mnist_diffai": fashion_mnist,
      "fashion_mnist_diffai_released": _counted_with_evaluation(
        fashion_mnist, 600, 100
      ),
    }


def _counted_with_evaluation(
  config: DiffAIConfig, batches: int, evaluated: int
) -> DiffAIConfig:
  """The ramp clip(count - 20 nb, nb, 30 nb) / (30 nb) after 19 epochs.

  Args:
    config: with the ramp that was meant.
    batches: nb, batches of training an epoch.
    evaluated: batches that are counted before each epoch.
  """
  at_19 = 19 * (batches + evaluated) + evaluated - 20 * batches
  left = (30 * batches - at_19) / (batches + evaluated)
  return dataclasses.replace(
    config,
    attack_eps_start=config.attack_eps * at_19 / (30 * batches),
    attack_ramp_start="19e",
    attack_ramp=f"{left:.2f}e",
  )


@dataclasses.dataclass(frozen=True)
class DualConfig(VerifiedConfig):
  """Settings of `DualTraining`.

  Attributes:
    natural_share: alpha, the weight of the natural loss; 0 as published.
    norm: "l1" for exact bounds inside, "l1_median" for estimates from random
      projections, with which nothing is verified while training.
    projections: number of Cauchy vectors.
    intersect: cut exact bounds by intervals; False as published.
  """

  natural_share: float = 0.0
  norm: str = "l1"
  projections: int = 50
  intersect: bool = False

  def __post_init__(self):
    super().__post_init__()
    robust_config.share(natural_share=self.natural_share)
    validate.one_of(dual.NORMS, norm=self.norm)
    validate.positive_int(projections=self.projections)
    validate.boolean(intersect=self.intersect)

  @property
  def natural_weight(self) -> float:
    """Alpha."""
    return self.natural_share

  @property
  def training_domain(self) -> bounds.Domain:
    """The dual, exact or estimated."""
    return bounds.Dual(
      norm=self.norm, projections=self.projections, intersect=self.intersect
    )

  @property
  def sound_domain(self) -> bounds.Domain:
    """The exact dual, whatever was trained with."""
    return bounds.Dual(intersect=self.intersect)

  @classmethod
  def presets(cls) -> dict[str, DualConfig]:
    """Settings of CCS 2019; Yale's radius is the code's, twice the paper's."""
    common = {
      "optimizer": "adam",
      "learning_rate": 1e-4,
      "weight_decay": 5e-4,
      "norm": "l1_median",
      "update_clip_norm": 1.0,
      "checkpoint_every": 1000,
    }
    return {
      "yale_b_dual": cls(
        **common,
        learning_rate_drops="105e:0.5,130e:0.25,155e:0.125,180e:0.0625",
        batch_size=20,
        epochs=181.0,
        attack_eps=0.06275,
        attack_eps_start=1e-4,
        attack_ramp="80e",
        projections=50,
        clip_to_range=False,
      ),
      "fashion_mnist_dual": cls(
        **common,
        learning_rate_drops="35e:0.1,50e:0.01",
        batch_size=30,
        epochs=61.0,
        attack_eps=0.1,
        attack_eps_start=0.003,
        attack_ramp="20e",
        projections=20,
      ),
    }
