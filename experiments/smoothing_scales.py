"""The scales of `experiments.smoothing`: which recipes, how much of each."""

from __future__ import annotations

import math

from experiments import smoothing_cells

Recipe = smoothing_cells.Recipe
Scale = smoothing_cells.Scale

# PixelDP's noise is L sqrt(2 ln(1.25 / 0.05)) behind layers of norm 1.
_PIXELDP = 1 / math.sqrt(2 * math.log(1.25 / 0.05))
# SecureSGD's is a multiple of a norm of its kernel; a third of that multiple is
# what the noise is worth at the input of this network, about.
_SECURE_SGD = 3.0


def _recipes(size: str, few: int, **changes) -> dict[str, Recipe]:
  """The flagship and its rivals, each with the settings of its preset.

  Args:
    size: "mnist" or "mnist_5k": a family of presets.
    few: images certified for methods with noise inside, which take longer.
    **changes: to all settings.
  """
  own = {"certificate": "own", "num_images": few, "draws": (1_000,)}
  return {
    "dp_smooth": Recipe("DPSmooth", "dp_smooth", size, changes),
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
  "full": Scale(
    dp_epsilons=(3.0, 1.0),
    stddevs=smoothing_cells.STDDEVS,
    recipes=_recipes("mnist", 100),
    num_images=500,
    draws=(10_000, 100_000),
    attacked=("dp_smooth", "scattering", "pixeldp", "secure_sgd"),
  ),
}
