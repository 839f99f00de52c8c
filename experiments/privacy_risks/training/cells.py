"""What `privacy_risks.training` runs: scales, recipes and cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import Optional

from experiments.grid import engine as grid

# Training examples that the presets' numbers of steps were made for.
PRESET_SIZES = {
  "yale_b": 1_900,
  "fashion_mnist": 60_000,
  "cifar10": 50_000,
  "uci_har": 7_352,
  "mnist": 60_000,
}
ATTACK_STEPS = 20  # of the evaluation; a step is 2.5 * attack_eps / 20
# Trainers in the order of the paper's tables.
LABELS = {
  "natural": "natural",
  "pgd": "PGD",
  "wrm": "WRM (distributional)",
  "trades": "TRADES (difference)",
  "dual": "dual",
  "diffai": "DiffAI (abstract)",
  "ibp": "IBP",
}
_METHODS = {"pgd": "adversarial"}  # the others are called as the trainer is
VERIFIED = ("dual", "diffai", "ibp")


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How a model is trained and at which radius it is evaluated.

  Attributes:
    dataset: by name.
    trainer: a key of LABELS.
    preset: settings of the method to start from.
    network: by name.
    attack_eps: l_inf radius of the evaluation.
    factor: length of the run, in the preset's.
    num_train: the first so many training examples; None: all.
    changes: to the settings, after they were scaled.
    network_settings: e.g. a smaller capacity.
    dp_epsilon: the budget; None: trained without privacy.
    num_verified: examples of each part whose bounds are computed; None: as many
      as the scale says; 0: none.
    label: in tables; by default the trainer's.
  """

  dataset: str
  trainer: str
  preset: str
  network: str
  attack_eps: float
  factor: float = 1.0
  num_train: Optional[int] = None
  changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  network_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  dp_epsilon: Optional[float] = None
  num_verified: Optional[int] = None
  label: str = ""

  @property
  def method(self) -> str:
    """Its registered name."""
    return self.short_name if self.dp_epsilon is None else "dp_sgd"

  @property
  def short_name(self) -> str:
    """The method that the preset is of."""
    return _METHODS.get(self.trainer, self.trainer)

  @property
  def has_bounds(self) -> bool:
    """Whether the trainer has bounds that the network is verified with."""
    return self.trainer in VERIFIED

  @property
  def preset_size(self) -> int:
    """Training examples that the preset's numbers of steps were made for."""
    return next(n for k, n in PRESET_SIZES.items() if self.preset.startswith(k))


@dataclasses.dataclass(frozen=True)
class Scale:
  """How much is done.

  Attributes:
    recipes: by the name that cells have.
    num_attacked: test examples under attack, and training examples, at most,
      both evenly spread; None: all, but of training no more than 10,000.
    num_verified: of each part, by intervals; None: as many as are attacked.
    num_dual: of each part, by the exact dual, whose cost grows with the square
      of the width.
    rows_at_once: units that the exact dual bounds together, for memory.
  """

  recipes: Mapping[str, Recipe]
  num_attacked: Optional[int]
  num_verified: Optional[int]
  num_dual: int
  rows_at_once: int = 64

  @property
  def datasets(self) -> list[str]:
    """Names, each once."""
    return list(dict.fromkeys(r.dataset for r in self.recipes.values()))


@dataclasses.dataclass(frozen=True)
class Cell(grid.BudgetCell):
  """One model and what is done: "train", "clean", "attack" or "verify"."""


def cells(scale: Scale, dataset: Optional[str] = None) -> list[Cell]:
  """All cells, model by model; of one data set, if there is one."""
  found = []
  for name, recipe in scale.recipes.items():
    if dataset in (None, recipe.dataset):
      parts = ["train", "clean", "attack"]
      if recipe.has_bounds and recipe.num_verified != 0:
        parts.append("verify")
      found += [Cell(name, recipe.dp_epsilon, part) for part in parts]
  return found


def settings(recipe: Recipe, num_train: int):
  """The trainer's settings for a training set of this size.

  The run has `factor` times the epochs of the preset. Moments of its schedule
  that are numbers of steps keep their place in the run, also where an epoch has
  more or fewer steps than the preset was made for.
  """
  from tf_privrob import methods

  preset = methods.preset(recipe.short_name, recipe.preset)
  config = preset.scaled(recipe.factor)
  size = recipe.changes.get("batch_size", preset.batch_size)
  share = (num_train / size) / (recipe.preset_size / preset.batch_size)
  config = _moved(config, share)
  if recipe.dp_epsilon is not None:
    config = _private(config, recipe.dp_epsilon)
  return config.changed(**recipe.changes)


def _private(config, dp_epsilon: float):
  """DP-SGD with what it has in common with a training without privacy."""
  from tf_privrob import methods

  shared = {field.name for field in dataclasses.fields(methods.DPSGDConfig)}
  values = {key: value for key, value in vars(config).items() if key in shared}
  return methods.DPSGDConfig(
    **{**values, "sampler": "poisson"}, dp_epsilon=dp_epsilon
  )


def _moved(config, share: float):
  """Moments in steps for epochs that have `share` times as many steps."""
  from tf_privrob.methods.objectives import schedules

  def moved(moment):
    in_steps = moment is not None and str(moment)[-1].isdigit()
    return schedules.scaled(moment, share) if in_steps else moment

  drops = schedules.parse_drops(config.learning_rate_drops)
  changes = {
    "learning_rate_drops": ",".join(
      f"{moved(moment)}:{factor:g}" for moment, factor in drops
    )
  }
  ramp = getattr(config.objective, "ramp", None)
  if ramp is not None:
    names = ("warmup", "length", "start")
    changes["ramp"] = dataclasses.replace(
      ramp, **{name: moved(getattr(ramp, name)) for name in names}
    )
  return config.changed(**changes)


def network(recipe: Recipe, dataset, seed: Optional[int]):
  """A fresh network for a recipe and its data; the seed is public."""
  from tf_privrob import models

  return models.by_name(
    recipe.network,
    dataset.input_shape,
    dataset.num_classes,
    seed,
    **recipe.network_settings,
  )
