"""What `experiments.smoothing` runs: scales, recipes and cells.

A cell is one piece of work with one result file: a training, the certificates
of a model under one noise and number of draws, or attacks inside its radii.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any
from typing import Optional

from experiments.grid import engine as grid

DATASETS = ("digits", "fashion_mnist", "mnist", "mnist_5k", "usps")
DP_DELTA = 1e-6
STDDEVS = (0.25, 0.5, 1.0)
# Of the published figures: their certified accuracies fall to zero where the
# largest radius of so many draws is.
PUBLISHED_DRAWS = 10_000


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How a model is trained.

  Attributes:
    label: in tables and figures.
    method: its registered name.
    preset: its settings.
    changes: to the settings.
    network: by name.
    stddev_field: the setting that takes the smoothing noise; None: training
      does not know it, and one model serves all of them.
    stddev_factor: the setting is so many times the smoothing noise.
    by_stddev: further changes for one smoothing noise.
    certificate: "smoothing"; "own": the method's certifier, in l_2; "claimed":
      l_inf sizes that the method claims, and proven ones, all attacked;
      "rules": PixelDP's bound beside the tight one, in l_2.
    num_images: with certificates; None: those of the scale.
    draws: numbers of estimation draws; None: those of the scale.
  """

  label: str
  method: str
  preset: Optional[str]
  changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  network: str = "tutorial_cnn_tanh"
  stddev_field: Optional[str] = "smoothing_stddev"
  stddev_factor: float = 1.0
  by_stddev: Mapping[float, Mapping[str, Any]] = dataclasses.field(
    default_factory=dict
  )
  certificate: str = "smoothing"
  num_images: Optional[int] = None
  draws: Optional[tuple[int, ...]] = None


@dataclasses.dataclass(frozen=True)
class Scale:
  """How much is done.

  Attributes:
    dp_epsilons: budgets, at DP_DELTA.
    stddevs: smoothing noises.
    recipes: by the name that cells have.
    num_images: test images with certificates, evenly spread.
    draws: numbers of estimation draws, each a cell.
    attacked: recipes whose radii are attacked from inside.
    num_attacked: right and certified images under attack.
    attack_steps: of EOT-PGD.
    eot_draws: of the smoothing noise at every step.
    verdict_draws: whose majority says whether the class changed.
    holdout: so many training images are kept out and take the place of the test
      images, for choosing settings; 0: the test images themselves.
  """

  dp_epsilons: tuple[float, ...]
  stddevs: tuple[float, ...]
  recipes: Mapping[str, Recipe]
  num_images: int
  draws: tuple[int, ...]
  attacked: tuple[str, ...] = ()
  num_attacked: int = 200
  attack_steps: int = 20
  eot_draws: int = 16
  verdict_draws: int = 1_000
  holdout: int = 0


@dataclasses.dataclass(frozen=True)
class Cell(grid.Cell):
  """One model and what is done with it.

  Attributes:
    recipe: its name.
    dp_epsilon: the proven budget, at DP_DELTA.
    trained_for: the smoothing noise it was trained for, if any.
    part: "train", "certify-<stddev>-<draws>", "attack-<stddev>",
      "claimed" or "rules".
  """

  recipe: str
  dp_epsilon: float
  trained_for: Optional[float]
  part: str

  @property
  def model(self) -> str:
    """The sub-folder that the cells of one trained model share."""
    name = f"{self.recipe}-{self.dp_epsilon:g}"
    if self.trained_for is None:
      return name
    return f"{name}-{self.trained_for:g}"

  @property
  def kind(self) -> str:
    """Neither the budget nor the noise changes the time."""
    words = self.part.split("-")
    return "-".join([f"{self.recipe}/{words[0]}", *words[2:]])

  @property
  def stddev(self) -> float:
    """The smoothing noise of a "certify" or "attack" cell."""
    return float(self.part.split("-")[1])

  @property
  def draws(self) -> int:
    """Estimation draws of a "certify" cell."""
    return int(self.part.split("-")[2])


def draws_of(scale: Scale, recipe: str) -> tuple[int, ...]:
  """Numbers of estimation draws of a recipe."""
  return scale.recipes[recipe].draws or scale.draws


def cells(scale: Scale) -> list[Cell]:
  """All cells, model by model, training first."""
  found = []
  for dp_epsilon in scale.dp_epsilons:
    for stddev in scale.stddevs:
      for name, recipe in scale.recipes.items():
        trained_for = stddev if recipe.stddev_field else None
        draws = draws_of(scale, name)
        parts = ["train", *(f"certify-{stddev:g}-{n}" for n in draws)]
        if name in scale.attacked:
          parts.append(f"attack-{stddev:g}")
        if recipe.certificate in ("claimed", "rules"):
          # One model: neither noise nor a proven budget is chosen by the grid.
          parts = ["train", recipe.certificate]
          if dp_epsilon != scale.dp_epsilons[0]:
            continue
        found += [Cell(name, dp_epsilon, trained_for, part) for part in parts]
  return list(dict.fromkeys(found))  # one training may serve several noises


def settings(cell: Cell, scale: Scale, num_train: int):
  """The method's settings for a cell and a training set of this size."""
  from tf_privrob import methods

  recipe = scale.recipes[cell.recipe]
  config = methods.preset(recipe.method, recipe.preset)
  changes = dict(recipe.changes)
  if hasattr(config, "dp_epsilon"):
    changes.update(dp_epsilon=cell.dp_epsilon, dp_delta=DP_DELTA)
  changes.update(recipe.by_stddev.get(cell.trained_for, {}))
  if recipe.stddev_field:
    changes[recipe.stddev_field] = cell.trained_for * recipe.stddev_factor
  config = config.changed(**changes)
  most = max(num_train // 4, 1)
  return dataclasses.replace(config, batch_size=min(config.batch_size, most))


# The scales.

# PixelDP's noise is L sqrt(2 ln(1.25 / 0.05)) behind layers of norm 1.
_PIXELDP = 1 / math.sqrt(2 * math.log(1.25 / 0.05))
# SecureSGD's is a multiple of a norm of its kernel; a third of that multiple is
# what the noise is worth at the input of this network, about.
_SECURE_SGD = 3.0
# SmoothAdv where the preset's radius, twice the noise, does not serve: less
# where small radii count, slowly where the network would not learn.
_ATTACKS = {
  0.25: {"attack_eps": 0.4},
  1.0: {"attack_eps": 1.25, "attack_warmup": 150},
}
# The released clip of 0.001 needs days; with this one the code's step learns.
_RELEASED = {"l2_clip_norm": 0.1, "throwaway_steps": 100, "epochs": 6.0}


def _short(changes: dict) -> dict:
  """Training without privacy needs less: a quarter of the epochs."""
  if "epochs" not in changes:
    return changes
  return {**changes, "epochs": changes["epochs"] / 4}


def _recipes(size: str, few: int, **changes) -> dict[str, Recipe]:
  """The flagship and its rivals, each with the settings of its preset.

  Args:
    size: "mnist" or "mnist_5k": a family of presets.
    few: images certified for methods with noise inside, which take longer.
    **changes: to all settings.
  """
  own = {"certificate": "own", "num_images": few, "draws": (1_000,)}
  return {
    "dp_smooth": Recipe(
      "DPSmooth", "dp_smooth", size, changes, by_stddev=_ATTACKS
    ),
    "scattering": Recipe(
      "DPSmooth on scattering",
      "dp_smooth",
      "scattering",
      changes,
      "scattering_linear",
    ),
    "dp_sgd": Recipe("DP-SGD", "dp_sgd", size, changes, stddev_field=None),
    "pixeldp": Recipe(
      "PixelDP and DP-SGD",
      "pixeldp",
      f"{size}_private",
      changes,
      stddev_field="construction_size",
      stddev_factor=_PIXELDP,
      **own,
    ),
    "secure_sgd": Recipe(
      "SecureSGD, sound",
      "secure_sgd",
      f"{size}_sound",
      changes,
      stddev_field="hidden_noise",
      stddev_factor=_SECURE_SGD,
      **own,
    ),
    "pixeldp_open": Recipe(
      "PixelDP, not private, L = 0.1",
      "pixeldp",
      size,
      {**_short(changes), "construction_size": 0.1},
      "pixeldp_mnist",
      stddev_field=None,
      certificate="rules",
      num_images=2 * few,
      draws=(2_000,),
    ),
    "secure_sgd_released": Recipe(
      "SecureSGD, released code",
      "secure_sgd",
      "mnist_released",
      _RELEASED,
      "secure_sgd_mnist",
      stddev_field=None,
      certificate="claimed",
      num_images=few,
    ),
  }


def _variant(label: str, network="tutorial_cnn_tanh", **changes) -> Recipe:
  """The flagship at a quarter of its length, with one thing changed."""
  changes = {"epochs": 5.0, **changes}
  return Recipe(label, "dp_smooth", "mnist", changes, network)


# One after the other: what is dropped, doubled or replaced.
_ABLATION = {
  "flagship": _variant("the flagship, 5 epochs"),
  "copies_1": _variant("1 copy", augmentation_multiplicity=1),
  "copies_4": _variant("4 copies", augmentation_multiplicity=4),
  "relu": _variant("ReLU for tanh", "tutorial_cnn"),
  "no_average": _variant("no weight averaging", ema_decay=0.0),
  "batch_512": _variant("batch 512", batch_size=512, learning_rate=2.0),
  "batch_8192": _variant("batch 8,192", batch_size=8192),
  "no_attack": _variant("without SmoothAdv", attack_steps=0),
  "attack_half": _variant("SmoothAdv of half the radius", attack_eps=0.5),
  "stability": _variant(
    "stability for SmoothAdv", attack_steps=0, regularizer="stability"
  ),
  "consistency": _variant(
    "consistency for SmoothAdv",
    attack_steps=0,
    regularizer="consistency",
    regularizer_weight=5.0,
    entropy_weight=0.1,
  ),
  "macer": _variant(
    "MACER for SmoothAdv",
    attack_steps=0,
    regularizer="macer",
    macer_margin=6.0,
    macer_sharpness=4.0,
  ),
  "less_noise": _variant("training noise 0.35", training_stddev=0.35),
  "more_noise": _variant("training noise 0.7", training_stddev=0.7),
  "scattering": _variant(
    "scattering features, without SmoothAdv",
    "scattering_linear",
    attack_steps=0,
  ),
}


SCALES = {
  "smoke": Scale(
    dp_epsilons=(3.0,),
    stddevs=(0.5,),
    recipes=_recipes("mnist_5k", 20, epochs=4.0),
    num_images=40,
    draws=(1_000,),
    attacked=("dp_smooth",),
    num_attacked=20,
    attack_steps=5,
    eot_draws=4,
    verdict_draws=200,
  ),
  "small": Scale(
    dp_epsilons=(3.0,),
    stddevs=STDDEVS,
    recipes=_recipes("mnist", 50, epochs=5.0),
    num_images=100,
    draws=(10_000,),
    attacked=("dp_smooth",),
    num_attacked=50,
  ),
  "ablation": Scale(
    dp_epsilons=(3.0,),
    stddevs=(0.5,),
    recipes=_ABLATION,
    num_images=500,
    draws=(1_000,),
    holdout=5_000,
  ),
  "full": Scale(
    dp_epsilons=(3.0, 1.0),
    stddevs=STDDEVS,
    recipes=_recipes("mnist", 100),
    num_images=500,
    draws=(10_000, 100_000),
    attacked=("dp_smooth", "scattering", "pixeldp", "secure_sgd"),
  ),
}
