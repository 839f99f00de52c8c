"""What `experiments.smoothing` runs: scales, recipes and cells.

A cell is one piece of work with one result file: a training, the certificates
of a model under one noise and number of draws, or attacks inside its radii.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import Optional

DATASETS = ("digits", "fashion_mnist", "mnist", "mnist_5k", "usps")
DP_DELTA = 1e-6
STDDEVS = (0.25, 0.5, 1.0)
# Wu et al., "Augment then Smooth" (TMLR 2024), best of their methods at
# dp_epsilon about 3 and DP_DELTA by RDP: average certified radius, and on MNIST
# certified accuracy by radius. The number of draws is inferred: their inference
# script has 10,000 and their training script 100,000 by default, and the area
# under the accuracies is the radius for 10,000 only.
PUBLISHED_DRAWS = 10_000
PUBLISHED = {
  "mnist": {
    "mean_radius": {0.25: 0.748, 0.5: 1.296, 1.0: 1.354},
    "accuracy": {
      0.25: {0.0: 0.980, 0.5: 0.933, 0.7: 0.882},
      0.5: {0.0: 0.970, 0.5: 0.927, 1.0: 0.813, 1.5: 0.498},
      1.0: {0.0: 0.904, 1.0: 0.646, 2.0: 0.263},
    },
  },
  "fashion_mnist": {
    "mean_radius": {0.25: 0.560, 0.5: 0.903, 1.0: 1.102},
    "accuracy": {},
  },
}


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
class Cell:
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
  def name(self) -> str:
    """As in --cells; its result is <name>.json."""
    return f"{self.model}/{self.part}"

  @property
  def stddev(self) -> float:
    """The smoothing noise of a "certify" or "attack" cell."""
    return float(self.part.split("-")[1])

  @property
  def draws(self) -> int:
    """Estimation draws of a "certify" cell."""
    return int(self.part.split("-")[2])

  @property
  def training(self) -> Cell:
    """The cell that trains the model of this one."""
    return dataclasses.replace(self, part="train")


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
