"""Settings of the private halfspaces."""

from __future__ import annotations

import dataclasses
from typing import Optional  # flags read these annotations on Python 3.9

from tf_privrob import randomness
from tf_privrob import validate

COMPOSITIONS = (
  "independent_batches",
  "shared_batch",
  "paper_literal",
  "kesler",
)


@dataclasses.dataclass(frozen=True)
class HalfspacesConfig:
  """Settings of `Halfspaces` (Ghazi et al. 2021, Algorithm 1).

  Attributes:
    dp_epsilon: the budget of all classes together; with "paper_literal" of one
      class alone.
    dp_delta: with it; well below 1 / n.
    noise_multiplier: noise standard deviation over the sensitivity of one
      release. None: the least that keeps all steps within the budget. 0 trains
      without privacy.
    batch_size: expected size of a Poisson batch, p n.
    epochs: passes of each halfspace over the data, on average; T = epochs / p.
    margin: gamma', for inputs of norm 1. From 1 on every example is added at
      every step: a noisy difference of class means.
    composition: how the halfspaces of K classes share the budget:
      "independent_batches", each class has Poisson batches of its own, K T
      releases, accounted together (the default); "shared_batch", one batch and
      one release for all, whose sensitivity is sqrt(K); "paper_literal",
      batches of their own, but noise for one class alone, as the paper has it:
      the budget is then a claim; "kesler", one multiclass perceptron, +x to
      the label's weights and -x to those of the best other class, of
      sensitivity sqrt(2).
    stop_risk: alpha of the stopping test: a halfspace is done when the noisy
      number of violations is below 0.3 alpha p n (line 9). It saves time, no
      budget: all planned steps are accounted. None: all are taken, as in the
      paper's experiments.
    count_weight: of the number of violations beside the sum of examples in the
      one Gaussian release; it adds its square to that of the sensitivity.
    laplace_scale: b of line 8. None: the number is in the Gaussian release. A
      number: it has noise Lap(b) of its own and a halfspace that never stops is
      FAIL, all as Algorithm 1 is printed; with "paper_literal" and a stop_risk.
      The paper's main text has no value for b.
    normalize: scale each input to norm 1. False: only those above it are scaled
      down; an input of norm 0 adds nothing either way.
    unit_weights: scale each class's weights to norm 1 in the end. The paper
      does not say; it changes the prediction. Without it all are divided by
      the largest norm.
    physical_batch_size: rows in memory at a time. None: by device.
    accountant: "pld" or "rdp", for calibration and the proven figure.
    checkpoint_every: steps between checkpoints.
    seed: None, for a model that is released: noise and sampling come from the
      operating system and are stored nowhere. A number is for an experiment
      that is repeated: the guarantee then holds only against those who neither
      know nor guess it.
  """

  dp_epsilon: float = 1.0
  dp_delta: float = 1e-5
  noise_multiplier: Optional[float] = None
  batch_size: int = 500
  epochs: float = 1.0
  margin: float = 0.1
  composition: str = "independent_batches"
  stop_risk: Optional[float] = None
  count_weight: float = 0.1
  laplace_scale: Optional[float] = None
  normalize: bool = True
  unit_weights: bool = False
  physical_batch_size: Optional[int] = None
  accountant: str = "pld"
  checkpoint_every: int = 100
  seed: Optional[int] = None

  def __post_init__(self):
    randomness.check_seed(self.seed)
    validate.positive(
      dp_epsilon=self.dp_epsilon,
      epochs=self.epochs,
      margin=self.margin,
      count_weight=self.count_weight,
    )
    validate.open_probability(dp_delta=self.dp_delta)
    validate.positive_int(
      batch_size=self.batch_size, checkpoint_every=self.checkpoint_every
    )
    if self.physical_batch_size is not None:
      validate.positive_int(physical_batch_size=self.physical_batch_size)
    if self.noise_multiplier is not None:
      validate.non_negative(noise_multiplier=self.noise_multiplier)
    if self.stop_risk is not None:
      validate.open_probability(stop_risk=self.stop_risk)
    validate.boolean(normalize=self.normalize, unit_weights=self.unit_weights)
    validate.one_of(COMPOSITIONS, composition=self.composition)
    validate.one_of(("pld", "rdp"), accountant=self.accountant)
    if self.laplace_scale is not None:
      validate.positive(laplace_scale=self.laplace_scale)
      if self.composition != "paper_literal" or self.stop_risk is None:
        raise ValueError(
          "Expected composition='paper_literal' and a stop_risk with"
          f" laplace_scale={self.laplace_scale!r}, Algorithm 1 as printed,"
          f" received composition={self.composition!r} and"
          f" stop_risk={self.stop_risk!r}. Without laplace_scale the number of"
          " violations is in the Gaussian release."
        )

  @property
  def variant(self) -> str:
    """For config.json and the report."""
    return self.composition if self.laplace_scale is None else "algorithm_1"

  @classmethod
  def presets(cls) -> dict[str, HalfspacesConfig]:
    """Settings by name; `docs/notebook.md` has what they reached."""
    return {
      "mnist": cls(),
      "mnist_literal": cls(composition="paper_literal", accountant="rdp"),
      "mnist_algorithm_1": cls(
        composition="paper_literal", stop_risk=0.5, laplace_scale=10.0
      ),
      "usps": cls(dp_delta=1e-4, batch_size=100),
      "mnist_5k": cls(dp_epsilon=3.0, batch_size=500, epochs=3.0),
    }


@dataclasses.dataclass(frozen=True)
class PureHalfspacesConfig:
  """Settings of `PureHalfspaces`: the exponential mechanism on a public net.

  Attributes:
    dp_epsilon: the budget of all classes together; dp_delta is 0.
    margin: gamma', for inputs of norm 1: what counts as an error.
    net_cosine: inner product with a wanted direction that a vector of the net
      should have; below gamma' / gamma no vector of it may be free of errors.
    net_success: probability that the net has such a vector, for any one
      direction that does not depend on the net; of K classes each has its own.
    net_size: number of public random unit vectors. None: the least that
      net_cosine and net_success ask for.
    max_net_size: larger nets are refused.
    net_seed: of the net and the projection, which are public; nothing private
      depends on it.
    projected_dimensions: k of a public random projection that comes before,
      for inputs of so many dimensions that no net is affordable. None: none.
    normalize: scale each input to norm 1. False: only those above it are scaled
      down; an input of norm 0 adds nothing either way.
    physical_batch_size: rows in memory at a time. None: by device.
    checkpoint_every: as everywhere; there is one step.
    seed: None, for a model that is released: noise and sampling come from the
      operating system and are stored nowhere. A number is for an experiment
      that is repeated: the guarantee then holds only against those who neither
      know nor guess it.
  """

  dp_epsilon: float = 1.0
  margin: float = 0.1
  net_cosine: float = 0.95
  net_success: float = 0.99
  net_size: Optional[int] = None
  max_net_size: int = 2**20
  net_seed: int = 0
  projected_dimensions: Optional[int] = None
  normalize: bool = True
  physical_batch_size: Optional[int] = None
  checkpoint_every: int = 1
  seed: Optional[int] = None

  def __post_init__(self):
    randomness.check_seed(self.seed)
    validate.positive(dp_epsilon=self.dp_epsilon, margin=self.margin)
    validate.positive_int(
      max_net_size=self.max_net_size, checkpoint_every=self.checkpoint_every
    )
    validate.non_negative_int(net_seed=self.net_seed)
    validate.boolean(normalize=self.normalize)
    validate.open_probability(
      net_cosine=self.net_cosine, net_success=self.net_success
    )
    if self.net_size is not None:
      validate.positive_int(net_size=self.net_size)
    if self.projected_dimensions is not None:
      validate.positive_int(projected_dimensions=self.projected_dimensions)
    if self.physical_batch_size is not None:
      validate.positive_int(physical_batch_size=self.physical_batch_size)

  @property
  def variant(self) -> str:
    """For config.json and the report."""
    return "pure"

  @classmethod
  def presets(cls) -> dict[str, PureHalfspacesConfig]:
    """Settings by name."""
    return {"pure": cls(), "pure_projected": cls(projected_dimensions=8)}
