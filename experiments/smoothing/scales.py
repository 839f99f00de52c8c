"""The scales of `experiments.smoothing`: which recipes, how much of each."""

from __future__ import annotations

import math

from experiments.smoothing import cells as smoothing_cells

Recipe = smoothing_cells.Recipe
Scale = smoothing_cells.Scale

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
_RELEASED = {"l2_clip_norm": 0.1, "redistribution_steps": 100, "epochs": 6.0}


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
    stddevs=smoothing_cells.STDDEVS,
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
    stddevs=smoothing_cells.STDDEVS,
    recipes=_recipes("mnist", 100),
    num_images=500,
    draws=(10_000, 100_000),
    attacked=("dp_smooth", "scattering", "pixeldp", "secure_sgd"),
  ),
}
