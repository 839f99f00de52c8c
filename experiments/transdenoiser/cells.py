"""What `experiments.transdenoiser` runs: scales, recipes and cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import Optional

from experiments.grid import engine as grid

DATASETS = ("digits", "mnist", "mnist_5k")
DP_DELTA = 1e-5
PUBLIC_SHARE = 0.5  # of the training images, for the frozen classifier
ATTACKS = ("fgsm", "ifgsm", "mim", "madry")
PUBLIC = "public"


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How a model is trained.

  Attributes:
    label: in tables and figures.
    method: its registered name.
    preset: its settings.
    changes: to the settings.
    denoiser: by name, in front of the public classifier; None: `network`.
    network: by name, trained from scratch.
    certificate: "smoothing", or "own": from noise inside the network.
    has_budget: whether it is trained anew for each dp_epsilon.
    value_range: of its inputs; radii and attacks are in units of [0, 1].
    num_images: with certificates; None: those of the scale.
  """

  label: str
  method: str
  preset: Optional[str]
  changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  denoiser: Optional[str] = None
  network: Optional[str] = None
  certificate: str = "smoothing"
  has_budget: bool = True
  value_range: tuple[float, float] = (0.0, 1.0)
  num_images: Optional[int] = None


# What a denoiser has to improve on: the public classifier, smoothed as it is.
ALONE = Recipe("the public classifier alone", "none", None)
SMOOTHING_STDDEV = 0.25  # of the paper's certificates


@dataclasses.dataclass(frozen=True)
class Scale:
  """How much is done.

  Attributes:
    dp_epsilons: budgets at DP_DELTA. All parts are run for the first one; for
      the others certificates, and attacks of `swept_norm`.
    recipes: by the name that cells have.
    classifier: network of the frozen classifier, by name.
    public_epochs: of its training.
    num_images: test images with certificates, evenly spread.
    draws: estimation draws of a certificate.
    attack_norms: l_2 sizes of the attacks.
    swept_norm: the one of the accuracy against the budget.
    num_attacked: test images under attack.
    attack_steps: of each iterated attack.
    eot_draws: of the noise at each step of an attack through the denoiser.
    verdict_draws: whose majority is the prediction.
  """

  dp_epsilons: tuple[float, ...]
  recipes: Mapping[str, Recipe]
  public_epochs: int
  num_images: int
  draws: int
  attack_norms: tuple[float, ...]
  swept_norm: float
  num_attacked: int
  attack_steps: int
  eot_draws: int
  verdict_draws: int
  classifier: str = "residual_mnist"


@dataclasses.dataclass(frozen=True)
class Cell(grid.BudgetCell):
  """One model and what is done with it.

  The recipe may be PUBLIC, the budget is at DP_DELTA, and the part is "train",
  "certify" or "attack-<l_2 size>".
  """

  @property
  def attack_norm(self) -> float:
    """Of an "attack" cell."""
    return float(self.part.split("-")[1])

  @property
  def training(self) -> Cell:
    """What must be done before; the public classifier comes first of all."""
    if self.part == "train":
      return Cell(PUBLIC, None, "train")
    return super().training

  @property
  def kind(self) -> str:
    """Neither the budget nor the size of an attack changes the time."""
    part = self.part.split("-")[0]
    return f"{self.recipe}/{part}"


def cells(scale: Scale) -> list[Cell]:
  """All cells: the public classifier, the models one by one."""
  found = [Cell(PUBLIC, None, part) for part in ("train", "certify")]
  for dp_epsilon in scale.dp_epsilons:
    first = dp_epsilon == scale.dp_epsilons[0]
    norms = scale.attack_norms if first else (scale.swept_norm,)
    for name, recipe in scale.recipes.items():
      if not (first or recipe.has_budget):
        continue
      budget = dp_epsilon if recipe.has_budget else None
      parts = ["train", "certify", *(f"attack-{norm:g}" for norm in norms)]
      found += [Cell(name, budget, part) for part in parts]
  return found


def settings(cell: Cell, scale: Scale, num_train: int):
  """The method's settings for a cell and a training set of this size."""
  from tf_privrob import methods

  recipe = scale.recipes[cell.recipe]
  config = methods.preset(recipe.method, recipe.preset)
  changes = dict(recipe.changes)
  if recipe.method == "dpal":  # its budget is the sum of two
    changes["dp_epsilon_features"] = 0.95 * cell.dp_epsilon
    changes["dp_epsilon_labels"] = 0.05 * cell.dp_epsilon
  elif cell.dp_epsilon is not None:
    changes.update(dp_epsilon=cell.dp_epsilon, dp_delta=DP_DELTA)
  config = dataclasses.replace(config, **changes)
  most = max(num_train // 4, 1)
  if recipe.method == "dpal":
    most -= most % 3  # a third of a batch for each attack
  return dataclasses.replace(config, batch_size=min(config.batch_size, most))


def _recipes(size: str, few: int, **changes) -> dict[str, Recipe]:
  """TransDenoiser, its ablations, its heir, and the paper's baselines.

  Args:
    size: "mnist" or "mnist_5k": a family of presets.
    few: images certified where noise is inside the network.
    **changes: to all settings of denoisers, but those of TransDenoiser as
      published: the length of its training is that of its preset.
  """

  def trans(label, preset, denoiser="smooth_denoiser", **more):
    if not preset.endswith("_paper"):
      more = {**changes, **more}
    return Recipe(label, "transdenoiser", preset, more, denoiser)

  def once(recipe):
    return dataclasses.replace(recipe, has_budget=False)

  own = {"certificate": "own", "num_images": few}
  scratch = "mnist" if size == "mnist" else "mnist_5k"
  return {
    "paper": trans("TransDenoiser", f"{size}_paper"),
    "paper_once": trans(
      "TransDenoiser without the factor T",
      f"{size}_paper",
      amplification="none",
    ),
    "paper_norm": trans(
      "TransDenoiser, layer-normalised denoiser",
      f"{size}_paper",
      "paper_denoiser",
    ),
    "inp_0.1": trans(
      "TransDenoiser, input noise 0.1", f"{size}_paper", input_stddev=0.1
    ),
    "nodp": once(trans("nodp", f"{size}_nodp")),
    "sepdp": trans("sepdp", f"{size}_sepdp"),
    "sound": trans("sound, through the classifier", f"{size}_sound"),
    "sound_mse": trans("sound, squared error", f"{size}_sound_mse"),
    "stability": once(
      trans("denoised smoothing, stability", f"{size}_stability")
    ),
    "secure_sgd_sct": Recipe(
      "SecureSGD from scratch, sound",
      "secure_sgd",
      f"{scratch}_sound",
      {"hidden_noise": 0.75, **changes},
      network="tutorial_cnn_tanh",
      **own,
    ),
    "secure_sgd_prt": Recipe(
      "SecureSGD denoiser, sound",
      "secure_sgd",
      "mnist_5k_denoiser_sound",
      {"hidden_noise": 0.25, **changes},
      denoiser="convolutional_denoiser",
      **own,
    ),
    "stobatch": Recipe(
      "StoBatch",
      "dpal",
      scratch,
      {"batch_order": "partition"},
      network="dpal_mnist_bn",
      value_range=(-1.0, 1.0),
      **own,
    ),
  }


SCALES = {
  "smoke": Scale(
    dp_epsilons=(3.0,),
    recipes=_recipes("mnist_5k", 10, epochs=2.0),
    public_epochs=2,
    num_images=40,
    draws=1_000,
    attack_norms=(1.0,),
    swept_norm=1.0,
    num_attacked=20,
    attack_steps=5,
    eot_draws=4,
    verdict_draws=20,
  ),
  "small": Scale(
    dp_epsilons=(1.0, 3.0),
    recipes=_recipes("mnist", 50, epochs=5.0),
    public_epochs=4,
    num_images=200,
    draws=1_000,
    attack_norms=(1.0, 2.0),
    swept_norm=2.0,
    num_attacked=100,
    attack_steps=10,
    eot_draws=8,
    verdict_draws=50,
  ),
  "full": Scale(
    dp_epsilons=(1.0, 0.5, 2.0, 3.0),
    recipes=_recipes("mnist", 100),
    public_epochs=8,
    num_images=500,
    draws=10_000,
    attack_norms=(0.5, 1.0, 1.5, 2.0, 3.0),
    swept_norm=2.0,
    num_attacked=200,
    attack_steps=20,
    eot_draws=16,
    verdict_draws=100,
  ),
}
