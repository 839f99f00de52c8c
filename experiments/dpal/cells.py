"""What `experiments.dpal` runs: scales, budgets and cells.

A cell is one piece of work with one result file: the training of a method at a
total budget, its accuracy under attacks of one size, its radii, or its radii at
images that one attack has changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import Optional

from experiments.grid import engine as grid

# Data sets and whose settings they take: networks, budgets and grids.
FAMILIES = {
  "mnist_5k": "mnist",
  "mnist": "mnist",
  "fashion_mnist": "mnist",
  "usps": "mnist",
  "digits": "mnist",
  "cifar10": "cifar10",
}
METHODS = {
  "dpal": "DPAL",
  "adlm": "AdLM",
  "dp_sgd": "DP-SGD",
  "sound_dpal": "SoundDPAL",
  "secure_sgd": "SecureSGD, released code",
  "pixeldp": "PixelDP, not private",
  # In the paper all models have one design; AdLM does better with fewer bounded
  # units, DP-SGD with a smaller network.
  "adlm_same": "AdLM on DPAL's network",
  "dp_sgd_same": "DP-SGD on DPAL's network",
  "pixeldp_linf": "PixelDP for l_inf, not private",
}
# Methods for whose budget no proof is known: their figures are claims.
CLAIMED_ONLY = ("dpal", "adlm", "secure_sgd", "adlm_same")
NO_BUDGET = ("pixeldp", "pixeldp_linf")
# Methods that draw noise for every prediction.
NOISY = ("dpal", "secure_sgd", *NO_BUDGET)
ATTACKS = {"fgsm": "FGSM", "bim": "I-FGSM", "mim": "MIM", "pgd": "Madry"}
SIZES = (0.1, 0.2)  # mu_a of Figures 2 and 4-7, inputs in [-1, 1]
RADII = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)  # mu_a of Figures 3, 8 and 9
RADII_METHODS = ("dpal", "sound_dpal", "secure_sgd", *NO_BUDGET)
DP_DELTA = 1e-5
_MNIST_TOTALS = tuple(round(0.2 * i, 1) for i in range(1, 11))


@dataclasses.dataclass(frozen=True)
class Scale:
  """How much of the paper's work is done.

  Attributes:
    totals: budgets of Figures 2 and 4-7.
    radii_total: the budget of Figures 3, 8 and 9.
    train: preset and changed settings of each method; the others are not run.
    num_attacked: test images under each attack, also those with radii there.
    attack_steps: of I-FGSM, MIM and Madry.
    eot_draws: of DPAL's noise, at every step of an attack.
    verdict_draws: of DPAL's noise; their majority is the prediction.
    num_radii: test images with radii.
    num_draws: of verified inference.
    num_selection: draws of a proven radius that choose the class.
    num_estimation: and those that bound its probability.
    form: of DPAL's CIFAR-10 network: "3x3", or "narrow" with a quarter of its
      filters.
  """

  totals: tuple[float, ...]
  radii_total: float
  train: Mapping[str, tuple[str, Mapping[str, Any]]]
  num_attacked: int
  attack_steps: int
  eot_draws: int
  verdict_draws: int
  num_radii: int
  num_draws: int
  num_selection: int
  num_estimation: int
  form: str = "3x3"


_SMOKE = {
  "num_attacked": 60,
  "attack_steps": 5,
  "eot_draws": 4,
  "verdict_draws": 25,
  "num_radii": 40,
  "num_draws": 300,
  "num_selection": 25,
  "num_estimation": 1_000,
}
_SMALL = {
  "num_attacked": 200,
  "attack_steps": 10,
  "eot_draws": 8,
  "verdict_draws": 50,
  "num_radii": 200,
  "num_draws": 2_000,
  "num_selection": 50,
  "num_estimation": 5_000,
}
# The paper's 10,000 images and 100 steps would take months with EOT.
_FULL = {
  "num_attacked": 1_000,
  "attack_steps": 40,
  "eot_draws": 10,
  "verdict_draws": 100,
  "num_radii": 1_000,
  "num_draws": 2_000,
  "num_selection": 100,
  "num_estimation": 10_000,
}
# DP-SGD on a network this large needs wide batches. None of the four was
# searched for on CIFAR-10.
_CIFAR_ADLM = {"relevance_form": "cifar10"}
_CIFAR_SGD = {"learning_rate": 1.0, "l2_clip_norm": 1.0, "ema_decay": 0.99}
_CIFAR_SOUND = {**_CIFAR_SGD, "augmentation_stddev": 0.25, "clip": 12.0}
# PixelDP's construction bound in the paper. SecureSGD's released clip of 0.001
# needs days; with this one its step learns. Both on MNIST only.
_PIXELDP = {"construction_size": 0.1}
_PIXELDP_LINF = {**_PIXELDP, "attack_norm": "linf"}
_SECURE_SGD = {"l2_clip_norm": 0.1, "throwaway_steps": 100, "epochs": 6.0}
# A smoke test sees the machinery at work, no more.
_CIFAR_TINY = {"batch_size": 30, "steps": 3}
_CIFAR_SHORT = {"batch_size": 64, "epochs": 0.004}
# The paper's m and T_mu on a network that two cores can train.
_CIFAR_NARROW = {"batch_size": 1800, "steps": 2000}

SCALES = {
  ("smoke", "mnist"): Scale(
    totals=(0.2, 2.0),
    radii_total=2.0,
    train={
      "dpal": ("mnist_5k", {"steps": 40, "attack_steps": 2}),
      "adlm": (
        "mnist_small",
        {"steps": 60, "learning_rate": 3e-3, "relevance_steps": 40},
      ),
      "dp_sgd": ("mnist_5k", {"epochs": 10}),
      "sound_dpal": ("mnist_5k_sound", {"epochs": 6}),
      "secure_sgd": ("mnist_released", _SECURE_SGD),
      "pixeldp": ("mnist_5k", {**_PIXELDP, "epochs": 5}),
      "adlm_same": (
        "mnist_small",
        {"steps": 60, "learning_rate": 3e-3, "relevance_steps": 40},
      ),
      "dp_sgd_same": ("mnist_5k", {"epochs": 2}),
      "pixeldp_linf": ("mnist_5k", {**_PIXELDP_LINF, "epochs": 5}),
    },
    **_SMOKE,
  ),
  ("small", "mnist"): Scale(
    totals=(0.2, 1.0, 2.0),
    radii_total=2.0,
    train={
      "dpal": ("mnist", {"steps": 200, "attack_steps": 5}),
      "adlm": ("mnist_small", {"steps": 300}),
      "dp_sgd": ("mnist", {"epochs": 15}),
      "sound_dpal": ("mnist_sound", {"epochs": 8}),
      "secure_sgd": ("mnist_released", _SECURE_SGD),
      "pixeldp": ("mnist", {**_PIXELDP, "epochs": 3}),
      "adlm_same": ("mnist_small", {"steps": 300}),
      "dp_sgd_same": ("mnist", {"epochs": 15}),
      "pixeldp_linf": ("mnist", {**_PIXELDP_LINF, "epochs": 3}),
    },
    **_SMALL,
  ),
  ("full", "mnist"): Scale(
    totals=_MNIST_TOTALS,
    radii_total=2.0,
    train={
      "dpal": ("mnist_paper", {}),
      "adlm": ("mnist_paper", {}),
      "dp_sgd": ("mnist", {}),
      "sound_dpal": ("mnist_sound", {}),
      "secure_sgd": ("mnist_released", _SECURE_SGD),
      "pixeldp": ("mnist", _PIXELDP),
      "adlm_same": ("mnist_paper", {}),
      "dp_sgd_same": ("mnist", {}),
      "pixeldp_linf": ("mnist", _PIXELDP_LINF),
    },
    **_FULL,
  ),
  ("smoke", "cifar10"): Scale(
    totals=(4.0,),
    radii_total=4.0,
    train={
      "dpal": ("cifar10_narrow", _CIFAR_TINY),
      "adlm_same": (
        "mnist_small",
        {**_CIFAR_ADLM, **_CIFAR_TINY, "relevance_steps": 3},
      ),
      "dp_sgd_same": ("mnist", {**_CIFAR_SGD, **_CIFAR_SHORT}),
      "sound_dpal": ("mnist_sound", {**_CIFAR_SOUND, **_CIFAR_SHORT}),
      "pixeldp_linf": ("mnist", {**_PIXELDP_LINF, **_CIFAR_SHORT}),
    },
    **{
      **_SMOKE,
      "num_attacked": 5,
      "num_radii": 3,
      "num_draws": 100,
      "num_estimation": 100,
      "form": "narrow",
    },
  ),
  ("small", "cifar10"): Scale(
    totals=(2.0, 4.0, 6.0, 8.0, 10.0),
    radii_total=4.0,
    train={
      "dpal": ("cifar10_narrow", {}),
      "adlm_same": ("mnist_small", {**_CIFAR_ADLM, **_CIFAR_NARROW}),
      "dp_sgd_same": (
        "mnist",
        {**_CIFAR_SGD, "batch_size": 1800, "epochs": 40},
      ),
      "sound_dpal": (
        "mnist_sound",
        {**_CIFAR_SOUND, "batch_size": 1800, "epochs": 20},
      ),
      "pixeldp_linf": ("mnist", {**_PIXELDP_LINF, "epochs": 10}),
    },
    **_SMALL,
    form="narrow",
  ),
  ("full", "cifar10"): Scale(
    totals=(2.0, 4.0, 6.0, 8.0, 10.0),
    radii_total=4.0,
    train={
      "dpal": ("cifar10_paper", {}),
      "adlm": ("mnist_paper", {**_CIFAR_ADLM, "steps": 16801}),
      "adlm_same": ("mnist_paper", {**_CIFAR_ADLM, "steps": 16801}),
      "dp_sgd_same": (
        "mnist",
        {**_CIFAR_SGD, "batch_size": 4096, "epochs": 100},
      ),
      "sound_dpal": (
        "mnist_sound",
        {**_CIFAR_SOUND, "batch_size": 4096, "epochs": 100},
      ),
      "pixeldp_linf": ("mnist", _PIXELDP_LINF),
    },
    **_FULL,
  ),
}
SCALE_NAMES = ("smoke", "small", "full")


@dataclasses.dataclass(frozen=True)
class Cell(grid.Cell):
  """One method at one total budget, and what is done with it.

  Attributes:
    method: one of METHODS.
    total: the budget; claimed for CLAIMED_ONLY (of SecureSGD at most claimed:
      its accountant says what of it was spent), proven at DP_DELTA otherwise;
      None without one.
    part: "train", "linf-<size>", "radii" or "attacked-<attack>".
  """

  method: str
  total: Optional[float]
  part: str

  @property
  def model(self) -> str:
    """The sub-folder that the cells of one trained model share."""
    if self.total is None:
      return self.method
    return f"{self.method}-{self.total:g}"

  @property
  def kind(self) -> str:
    """Neither the budget nor the size of an attack changes the time."""
    return f"{self.method}/{self.part.split('-')[0]}"

  @property
  def attack(self) -> str:
    """Of an "attacked-<attack>" cell, one of ATTACKS."""
    return self.part.split("-")[1]

  @property
  def attack_eps(self) -> float:
    """Of a "linf-<size>" cell."""
    return float(self.part.split("-")[1])


def cells(scale: Scale) -> list[Cell]:
  """All cells in the order they run: model by model, training first."""
  attacks = [f"linf-{size:g}" for size in SIZES]
  radii = ["radii", *(f"attacked-{name}" for name in ATTACKS)]
  found = []
  for total in sorted({*scale.totals, scale.radii_total}):
    for method in scale.train:
      parts = attacks if total in scale.totals else []
      if total == scale.radii_total and method in RADII_METHODS:
        parts = [*parts, *radii]
      if parts and method not in NO_BUDGET:
        found += [Cell(method, total, part) for part in ("train", *parts)]
  for method in NO_BUDGET:
    if method in scale.train:
      parts = ("train", *attacks, *radii)
      found += [Cell(method, None, part) for part in parts]
  return found


def dpal_budgets(family: str, total: float) -> tuple[float, float]:
  """(dp_epsilon_features, dp_epsilon_labels), split as the released code."""
  if family == "mnist":
    return round(total - 0.1, 10), 0.1
  step = total - 2  # eps_1 = 1 + 2g/3, eps_2 = 1 + g/3
  return 1 + 2 * step / 3, 1 + step / 3


def adlm_budgets(family: str, total: float) -> tuple[float, float, float]:
  """(relevance, features, labels) in the proportions of AdLM's code."""
  shares = (0.25, 0.25, 0.5) if family == "mnist" else (0.1, 0.6, 0.3)
  return tuple(share * total for share in shares)


def registered_name(method: str) -> str:
  """The name of `methods.build` for one of METHODS."""
  if method == "sound_dpal":
    return "dpal"
  return method.removesuffix("_same").removesuffix("_linf")


def settings(cell: Cell, scale: Scale, family: str, num_train: int):
  """The method's settings for a cell and a training set of this size."""
  from tf_privrob import methods

  preset, changes = scale.train[cell.method]
  name = registered_name(cell.method)
  config = methods.preset(name, preset)
  if hasattr(config, "changed"):  # also settings inside of these
    config = config.changed(**changes)
  else:
    config = dataclasses.replace(config, **changes)
  if cell.method == "dpal":
    features, labels = dpal_budgets(family, cell.total)
    budget = {"dp_epsilon_features": features, "dp_epsilon_labels": labels}
    most = num_train // 6 * 3  # two batches, thirds of each
  elif name == "adlm":
    names = ("relevance", "features", "labels")
    shares = adlm_budgets(family, cell.total)
    budget = {f"dp_epsilon_{n}": share for n, share in zip(names, shares)}
    budget["relevance_examples"] = min(config.relevance_examples, num_train)
    most = num_train
  elif cell.method in NO_BUDGET:
    budget, most = {}, num_train
  else:
    budget = {"dp_epsilon": cell.total, "dp_delta": DP_DELTA}
    most = max(num_train // 4, 1)
  if cell.method == "sound_dpal":
    budget["moments"] = dataclasses.replace(
      config.moments, dp_epsilon=min(0.1, cell.total / 10)
    )
  return dataclasses.replace(
    config, **budget, batch_size=min(config.batch_size, most)
  )
