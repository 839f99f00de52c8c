"""The scales of `experiments.smoothing`: which recipes, how much of each."""

from __future__ import annotations

from experiments import smoothing_cells

Recipe = smoothing_cells.Recipe
Scale = smoothing_cells.Scale


def _recipes(preset: str, **changes) -> dict[str, Recipe]:
  """The flagship and its rivals: one length, batch and network for all."""
  return {
    "dp_smooth": Recipe("DPSmooth", "dp_smooth", preset, changes),
    "dp_sgd": Recipe("DP-SGD", "dp_sgd", preset, changes, stddev_field=None),
  }


SCALES = {
  "smoke": Scale(
    dp_epsilons=(3.0,),
    stddevs=(0.5,),
    recipes=_recipes("mnist_5k", epochs=6.0),
    num_images=40,
    draws=(1_000,),
    attacked=("dp_smooth",),
    num_attacked=20,
    attack_steps=5,
    eot_draws=4,
    verdict_draws=200,
  ),
  "full": Scale(
    dp_epsilons=(3.0, 1.0),
    stddevs=smoothing_cells.STDDEVS,
    recipes=_recipes("mnist"),
    num_images=500,
    draws=(10_000, 100_000),
    attacked=("dp_smooth",),
  ),
}
