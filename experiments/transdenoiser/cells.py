"""What `experiments.transdenoiser` runs: scales, recipes and cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import Optional

from experiments.grid import engine as grid

DATASETS = ("digits", "mnist", "mnist_5k", "cifar10")
DP_DELTA = 1e-5
PUBLIC_SHARE = 0.5  # of the training images, for the frozen classifier
ATTACKS = ("fgsm", "ifgsm", "mim", "madry")
PUBLIC = "public"
EVERY_PART = ("certify", "attack")


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
    swept: whether that is done for the budgets after the first one, too.
    parts: what is measured: "certify", "attack", or both.
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
  swept: bool = True
  parts: tuple[str, ...] = EVERY_PART
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
    public_augmentation: of its training images.
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
  public_augmentation: str = "shift"


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
      if not (first or (recipe.has_budget and recipe.swept)):
        continue
      budget = dp_epsilon if recipe.has_budget else None
      parts = ["train", "certify", *(f"attack-{norm:g}" for norm in norms)]
      wanted = ("train", *recipe.parts)
      parts = [part for part in parts if part.split("-")[0] in wanted]
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
  if hasattr(config, "changed"):
    config = config.changed(**changes)
  else:
    config = dataclasses.replace(config, **changes)
  most = max(num_train // 4, 1)
  if recipe.method == "dpal":
    most -= most % 3  # a third of a batch for each attack
  return dataclasses.replace(config, batch_size=min(config.batch_size, most))


_QUIET = 0.1  # input noise of the paper's attacked models of CIFAR-10
_SLOW = 50  # steps that share one S_min where it takes seconds to compute
_LONG = ("paper", "paper_norm")  # hours of training


def _trans(label: str, preset: str, **changes) -> Recipe:
  """A denoiser that TransDenoiser or one of its heirs trains."""
  return Recipe(label, "transdenoiser", preset, changes, "smooth_denoiser")


def _but(recipe: Recipe, **fields) -> Recipe:
  return dataclasses.replace(recipe, **fields)


def _kept(label: str, preset: str, refresh: int, **changes) -> Recipe:
  """TransDenoiser, but for S_min, which several steps share."""
  label = f"{label}, S_min of every {refresh} steps"
  return _trans(label, preset, refresh_every=refresh, **changes)


def _denoisers(size: str, refresh: int, **changes) -> dict[str, Recipe]:
  """TransDenoiser, its ablations, its heir, and the reference without privacy.

  Args:
    size: "mnist", "mnist_5k" or "cifar10": a family of presets.
    refresh: steps that share one S_min, where a recipe is not Algorithm 1.
    **changes: to all settings but those of TransDenoiser and of sepdp, whose
      length is what their budgets pay for, or that of their presets.
  """
  paper, once = f"{size}_paper", {"has_budget": False}
  first = {"swept": False}
  return {
    "paper": _but(_trans("TransDenoiser", paper), **first),
    "paper_kept": _kept("TransDenoiser", paper, refresh),
    "paper_once": _but(
      _kept(
        "TransDenoiser without the factor T",
        paper,
        refresh,
        amplification="none",
      ),
      **first,
    ),
    "paper_mixed": _but(
      _kept(
        "TransDenoiser, M of the mean beside xi of the sum",
        paper,
        refresh,
        units="mixed",
      ),
      **first,
    ),
    "paper_norm": _but(
      _kept(
        "TransDenoiser, layer-normalised denoiser with dropout",
        paper,
        max(refresh, _SLOW),
      ),
      denoiser="paper_denoiser_dropout",
      **first,
    ),
    "inp_0.1": _but(
      _kept(
        "TransDenoiser, input noise 0.1", paper, refresh, input_stddev=_QUIET
      ),
      **first,
    ),
    "nodp": _but(_trans("nodp", f"{size}_nodp", **changes), **once),
    "sepdp": _trans("sepdp", f"{size}_sepdp"),
    "sound": _trans(
      "sound, through the classifier", f"{size}_sound", **changes
    ),
    "sound_mse": _trans("sound, squared error", f"{size}_sound_mse", **changes),
    "stability": _but(
      _trans("denoised smoothing, stability", f"{size}_stability", **changes),
      **once,
    ),
    "mse_then_stability": _but(
      _trans(
        "denoised smoothing, squared error, then stability",
        f"{size}_mse_then_stability",
        **changes,
      ),
      **once,
    ),
  }


def _secure_sgd(preset: str, few: int, **changes) -> dict[str, Recipe]:
  """SecureSGD in its sound form: from scratch, and as a denoiser.

  Args:
    preset: of the one from scratch.
    few: images certified, since noise is inside the network.
    **changes: to the settings of both.
  """
  own = {"certificate": "own", "num_images": few}
  return {
    "secure_sgd_sct": Recipe(
      "SecureSGD from scratch, sound",
      "secure_sgd",
      preset,
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
  }


def _recipes(size: str, few: int, refresh: int, **changes) -> dict[str, Recipe]:
  """All methods of the paper's figures on MNIST.

  Args:
    size: "mnist" or "mnist_5k": a family of presets.
    few: images certified where noise is inside the network.
    refresh: see `_denoisers`.
    **changes: see `_denoisers`.
  """
  stobatch = Recipe(
    "StoBatch",
    "dpal",
    size,
    {"batch_order": "partition"},
    network="dpal_mnist_bn",
    certificate="own",
    num_images=few,
    value_range=(-1.0, 1.0),
  )
  return {
    **_denoisers(size, refresh, **changes),
    **_secure_sgd(f"{size}_sound", few, **changes),
    "stobatch": stobatch,
  }


def _in_colour(few: int, refresh: int, **changes) -> dict[str, Recipe]:
  """The same on CIFAR-10, without StoBatch.

  The paper certifies models of input noise 0.25 and attacks others of 0.1.

  Args:
    few: images certified where noise is inside the network.
    refresh: steps that share one S_min: computing it takes seconds.
    **changes: to all settings, whose length is else what their budget pays for.
  """
  every = _denoisers("cifar10", refresh, **changes)
  names = ("nodp", "sepdp", "sound", "stability")
  found = {
    name: _but(every[name], swept=False, changes=changes) for name in names
  }
  paper = _kept("TransDenoiser", "cifar10_paper", refresh, **changes)
  found["paper_kept"] = _but(paper, swept=False)
  found["norm"] = _but(
    found["sepdp"],
    label="sepdp, layer-normalised denoiser with dropout",
    denoiser="paper_denoiser_dropout",
  )
  quiet = {}
  for name in ("nodp", "sepdp", "paper_kept"):
    label = f"{found[name].label}, input noise {_QUIET}"
    less = {**found[name].changes, "input_stddev": _QUIET}
    quiet[f"{name}_0.1"] = _but(
      found[name], label=label, changes=less, parts=("attack",), swept=True
    )
    found[name] = _but(found[name], parts=("certify",))
  quiet["inp_0.1"] = _but(quiet.pop("paper_kept_0.1"), parts=EVERY_PART)
  return {
    **found,
    **quiet,
    **_secure_sgd("mnist_sound", few, **changes),
  }


SCALES = {
  "smoke": Scale(
    dp_epsilons=(3.0,),
    recipes=_recipes("mnist_5k", 10, 10, epochs=2.0),
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
    recipes={
      name: recipe
      for name, recipe in _recipes("mnist", 50, 50, epochs=5.0).items()
      if name not in _LONG
    },
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
    recipes=_recipes("mnist", 100, 20),
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
_CIFAR = {
  "classifier": "vgg_cifar10_narrow",
  "public_augmentation": "shift4_flip",
}
_CIFAR_SCALES = {
  "smoke": dataclasses.replace(
    SCALES["smoke"],
    **_CIFAR,
    recipes=_in_colour(10, 10, epochs=0.05),
    public_epochs=1,
    num_images=10,
    draws=100,
    num_attacked=10,
    attack_steps=2,
    eot_draws=2,
    verdict_draws=10,
  ),
  "small": dataclasses.replace(
    SCALES["small"],
    **_CIFAR,
    recipes=_in_colour(50, 200, epochs=5.0),
    public_epochs=10,
  ),
  "full": dataclasses.replace(
    SCALES["full"],
    **_CIFAR,
    recipes=_in_colour(100, 200),
    public_epochs=40,
    attack_norms=(0.25, 0.5, 1.0, 2.0),
    draws=1_000,
  ),
}


def scale_of(name: str, dataset: str) -> Scale:
  """The sizes of a scale; images in colour have recipes of their own."""
  return (_CIFAR_SCALES if dataset == "cifar10" else SCALES)[name]
