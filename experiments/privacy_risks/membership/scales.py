"""Models of `privacy_risks.membership` at four scales.

Full has the paper's studies with the paper's data sets and sizes, and all of
them on uci_har too, where a training takes minutes on two cores. Reduced has
those on Fashion-MNIST and CIFAR-10 that take more than 15 hours at their size,
on fewer images and narrower networks. Small has its studies on uci_har. Smoke
has everything on 8 x 8 digits, with few training examples so that there is
something to find.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from experiments.privacy_risks.membership import cells as membership_cells
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import scales as robust_training_scales

Model = membership_cells.Model
Models = dict[str, Model]
Recipe = robust_training_cells.Recipe
_SWEPT = ("pgd", "wrm", "trades")  # Figures 5, 8 and 9
_SUBSET = "cifar10-subset_natural"
_SUBSET_RADII = tuple(quarters / 4 / 255 for quarters in range(1, 7))


def _main(recipes: Mapping[str, Recipe], own: bool) -> Models:
  """The models of Tables 2, 3, 4, 8, 9 and 12, and the private ones."""
  models = {}
  for name, recipe in recipes.items():
    parts = ["infer"]
    if recipe.dp_epsilon is not None:
      name = f"{name}-{recipe.dp_epsilon:g}"
      studies = {"private": recipe.dp_epsilon}
    else:
      studies = {"main": 0.0}
      if recipe.trainer in ("natural", "pgd"):
        studies["private"] = 0.0
        parts.append("losses")
      if recipe.trainer in _SWEPT:
        parts.append("radii")
      if recipe.trainer == "pgd":
        parts += ["temperatures", "classes"]
    models[name] = Model(recipe, studies, tuple(parts), own)
  return models


def _join(models: Models, name: str, model: Model) -> None:
  """Adds a model, or its studies to one that is there already."""
  known = models.get(name)
  if known is not None:
    model = dataclasses.replace(
      known, studies={**known.studies, **model.studies}
    )
  models[name] = model


def _changed(recipe: Recipe, label: str, **changes: Any) -> Recipe:
  """Another label, and other settings of the method."""
  return dataclasses.replace(
    recipe, label=label, changes={**recipe.changes, **changes}
  )


def _at_radius(recipe: Recipe, radius: float, step: float | None) -> Recipe:
  """PGD training and evaluation at another radius, its steps in proportion."""
  changes = {"attack_eps": radius}
  if step is not None:
    changes["step_size"] = step * radius / recipe.attack_eps
  moved = dataclasses.replace(recipe, attack_eps=radius)
  return _changed(moved, f"PGD at {radius:.4g}", **changes)


def _pgd_studies(
  models: Models,
  dataset: str,
  shares: Sequence[float],
  radii: Sequence[float],
  retrainings: int,
  step: float | None,
) -> None:
  """Tables 5 and 6 and Figure 2, of PGD beside natural training.

  Args:
    models: with <dataset>-natural and <dataset>-pgd; the others are added.
    dataset: by name.
    shares: of the training set with an adversarial loss, besides 0 and 1.
    radii: besides the usual one.
    retrainings: without some examples, of either trainer.
    step: step_size of the preset; None if it follows the radius by itself.
  """
  natural, pgd = (models[f"{dataset}-{name}"] for name in ("natural", "pgd"))
  radius = pgd.recipe.attack_eps
  _join(
    models,
    f"{dataset}-natural",
    Model(natural.recipe, {"share": 0.0, "radius": 0.0}),
  )
  _join(
    models,
    f"{dataset}-pgd",
    Model(pgd.recipe, {"share": 1.0, "radius": radius}),
  )
  for share in shares:
    recipe = _changed(
      pgd.recipe, f"PGD of a share {share:g}", adversarial_ratio=share
    )
    _join(
      models, f"{dataset}-pgd-share_{share:g}", Model(recipe, {"share": share})
    )
  for other in radii:
    recipe = _at_radius(pgd.recipe, other, step)
    name = f"{dataset}-pgd-radius_{other:.4g}"
    _join(models, name, Model(recipe, {"radius": other}))
  for original in (natural, pgd):
    name = f"{dataset}-{original.recipe.trainer}"
    for number in range(retrainings):
      label = f"{original.recipe.trainer} retrained, {number}"
      recipe = dataclasses.replace(original.recipe, label=label)
      models[f"{name}-without_{number}"] = Model(
        recipe, {"left_out": float(number)}, ("left_out",), original=name
      )


def _capacities(
  models: Models,
  dataset: str,
  networks: Mapping[float, Mapping[str, Any]],
  radii: Sequence[float],
  step: float | None,
) -> None:
  """Figure 3: natural and PGD training by width, at several radii."""
  natural, pgd = (models[f"{dataset}-{name}"] for name in ("natural", "pgd"))
  for width, settings in networks.items():
    recipes = {f"{dataset}-natural": natural.recipe}
    for radius in radii:
      recipe, name = pgd.recipe, f"{dataset}-pgd"
      if radius != recipe.attack_eps:
        recipe = _at_radius(recipe, radius, step)
        name += f"-radius_{radius:.4g}"
      recipes[name] = recipe
    for name, recipe in recipes.items():
      if dict(settings) != dict(recipe.network_settings):
        name += f"-width_{width:g}"
        label = recipe.label or robust_training_cells.LABELS[recipe.trainer]
        recipe = dataclasses.replace(
          recipe, network_settings=settings, label=f"{label}, width {width:g}"
        )
      _join(models, name, Model(recipe, {"capacity": width}))


def _verified_capacities(
  models: Models, name: str, networks: Mapping[float, Mapping[str, Any]]
) -> None:
  """Figure 4: IBP by width."""
  ibp = models[name].recipe
  for width, settings in networks.items():
    recipe, key = ibp, name
    if dict(settings) != dict(ibp.network_settings):
      key = f"{name}-width_{width:g}"
      recipe = dataclasses.replace(
        ibp, network_settings=settings, label=f"IBP, width {width:g}"
      )
    _join(models, key, Model(recipe, {"verified_capacity": width}))


def _adaptation(models: Models, dataset: str) -> None:
  """Table 11: PGD with domain adaptation, its weight that of ATDA."""
  name = f"{dataset}-pgd"
  pgd = models[name].recipe
  _join(models, name, Model(pgd, {"adaptation": 0.0}))
  recipe = _changed(
    pgd, "PGD with domain adaptation", domain_adaptation_weight=1 / 3
  )
  _join(models, f"{name}-adapted", Model(recipe, {"adaptation": 1.0}))


def _subset(
  models: Models,
  name: str,
  natural: Recipe,
  dual: Recipe,
  radii: Sequence[float],
) -> None:
  """Table 10: dual training on few examples, by radius.

  Args:
    models: to add to.
    name: of the natural model.
    natural: its recipe.
    dual: recipe of the others, at any radius.
    radii: of training and evaluation.
  """
  _join(models, name, Model(natural, {"subset": 0.0}))
  for radius in radii:
    name = f"{dual.dataset}-subset_dual_{255 * radius:.3g}_255"
    moved = dataclasses.replace(dual, attack_eps=radius)
    recipe = _changed(
      moved,
      f"dual at {255 * radius:.3g}/255",
      attack_eps=radius,
      first_eps=radius / 30,
    )
    _join(models, name, Model(recipe, {"subset": radius}))


def _noise_layer(models: Models, natural: Recipe, name: str) -> None:
  """Appendix E: PixelDP with Gaussian noise for l2 changes of 0.1.

  Rates, length and batch are those of the natural model beside it, see
  `membership_train.settings`.
  """
  _join(models, name, Model(natural, {"noise_layer": 0.0}))
  recipe = dataclasses.replace(
    natural, trainer="pixeldp", label="PixelDP (noise layer, not private)"
  )
  name = f"{natural.dataset}-noise_layer"
  models[name] = Model(recipe, {"noise_layer": 1.0})


def _budgets(models: Models, private: Recipe, dp_epsilons) -> None:
  """PGD within other budgets, and natural training within the same."""
  for dp_epsilon in dp_epsilons:
    name = f"{private.dataset}-private_pgd-{dp_epsilon:g}"
    if name not in models:
      recipe = dataclasses.replace(private, dp_epsilon=dp_epsilon)
      models[name] = Model(recipe, {"private": dp_epsilon})
  recipe = dataclasses.replace(
    private,
    trainer="natural",
    preset=private.preset.replace("_pgd", "_natural"),
    label="natural, private (our addition)",
  )
  name = f"{private.dataset}-private_natural-{recipe.dp_epsilon:g}"
  models[name] = Model(recipe, {"private": recipe.dp_epsilon})


def _of(recipes: Mapping[str, Recipe], *datasets: str) -> dict[str, Recipe]:
  return {n: r for n, r in recipes.items() if r.dataset in datasets}


def _smoke() -> Models:
  recipes = {}
  for name, recipe in robust_training_scales.SCALES["smoke"].recipes.items():
    if recipe.dp_epsilon is None:
      recipe = dataclasses.replace(recipe, factor=0.5)
    else:
      recipe = _changed(recipe, recipe.label, batch_size=64)
    recipes[name] = dataclasses.replace(recipe, num_train=300)
  models = _main(recipes, own=True)
  _pgd_studies(models, "digits", (0.5,), (0.05,), 1, step=0.02)
  networks = {
    0.125: {"hidden": (8, 4)},
    1.0: {"hidden": (64, 32)},
    4.0: {"hidden": (256, 128)},
  }
  _capacities(models, "digits", networks, (0.1,), step=0.02)
  _verified_capacities(models, "digits-ibp", networks)
  _adaptation(models, "digits")
  natural, dual = recipes["digits-natural"], recipes["digits-dual"]
  _subset(models, "digits-natural", natural, dual, (5 / 255,))
  _noise_layer(models, natural, "digits-natural")
  _budgets(models, recipes["digits-private_pgd"], (8.0,))
  return models


def _har(models: Models, private: Recipe, retrainings: int) -> None:
  """All studies that uci_har can have."""
  radii, step = (0.0125, 0.025), 0.0125
  _pgd_studies(models, "uci_har", (0.5, 0.75), radii, retrainings, step)
  networks = {
    width: {"hidden": (int(1000 * width), int(100 * width))}
    for width in (0.02, 0.05, 0.2, 2.0)
  }
  networks[1.0] = {}
  _capacities(models, "uci_har", networks, (0.025, 0.05), step)
  _adaptation(models, "uci_har")
  natural = models["uci_har-natural"].recipe
  _noise_layer(models, natural, "uci_har-natural")
  _budgets(models, private, (1.0, 3.0, 8.0))


def _small() -> Models:
  recipes = robust_training_scales.SCALES["small"].recipes
  models = _main(_of(recipes, "yale_b", "fashion_mnist", "uci_har"), own=False)
  _har(models, recipes["uci_har-private_pgd"], retrainings=3)
  _verified_capacities(
    models, "yale_b-ibp", {float(s): {"scale": s} for s in (1, 2, 4)}
  )
  _adaptation(models, "yale_b")
  _adaptation(models, "fashion_mnist")
  few = {"num_train": 1_000, "network_settings": {"scale": 4}}
  recipes = _cifar10_subset(factor=0.2, **few)
  _subset(models, _SUBSET, *recipes, (0.5 / 255, 1.5 / 255))
  return models


def _reduced() -> Models:
  scales = robust_training_scales
  models = _main(scales.SCALES["reduced"].recipes, own=False)
  radii, step = (2 / 255, 4 / 255), 2 / 255
  _pgd_studies(models, "cifar10", (0.5, 0.75), radii, 6, step)
  networks = {
    float(width): {**scales.REDUCED_CIFAR10, "scale": width}
    for width in (1, 2, 4)
  }
  _capacities(models, "cifar10", networks, (*radii, 8 / 255), step)
  _adaptation(models, "fashion_mnist")
  few = {"num_train": 2_000, "network_settings": {"scale": 8}}
  _subset(models, _SUBSET, *_cifar10_subset(1.0, **few), _SUBSET_RADII)
  _cifar10_noise_layer(models, num_train=5_000)
  return models


def _cifar10_subset(factor: float, **more: Any) -> tuple[Recipe, Recipe]:
  """Natural and dual training of the residual network, for Table 10.

  The paper names no settings: Adam at 1e-3 for both, dual training otherwise as
  its code has it for Fashion-MNIST.
  """
  common = {"network": "small_dual_resnet", "factor": factor, **more}
  adam = {"learning_rate": 1e-3, "learning_rate_drops": "", "momentum": 0.0}
  natural = Recipe(
    "cifar10",
    "natural",
    "fashion_mnist_natural",
    attack_eps=1 / 255,
    changes={**adam, "reduction": "mean"},
    label="natural, dual's network",
    **{**common, "factor": factor * 61 / (80001 * 100 / 60000)},
  )
  dual = Recipe(
    "cifar10",
    "dual",
    "fashion_mnist_dual",
    attack_eps=1 / 255,
    changes=adam,
    **common,
  )
  return natural, dual


def _full() -> Models:
  scales = robust_training_scales.SCALES
  recipes = scales["full"].recipes
  names = ("yale_b", "fashion_mnist", "cifar10", "uci_har")
  models = _main(_of(recipes, *names), own=False)
  private = scales["small"].recipes["uci_har-private_pgd"]
  _har(models, private, retrainings=6)
  radii, step = (2 / 255, 4 / 255), 2 / 255
  _pgd_studies(models, "cifar10", (0.5, 0.75), radii, 6, step)
  networks = {float(s): {"scale": s} for s in (1, 2, 4, 8)}
  networks[10.0] = {}
  _capacities(models, "cifar10", networks, (*radii, 8 / 255), step)
  networks = {float(s): {"scale": s} for s in (2, 4, 16, 32)}
  networks[8.0] = {}
  _verified_capacities(models, "yale_b-ibp", networks)
  _adaptation(models, "yale_b")
  _adaptation(models, "fashion_mnist")
  _subset(
    models, _SUBSET, *_cifar10_subset(1.0, num_train=10_000), _SUBSET_RADII
  )
  _cifar10_noise_layer(models)
  return models


def _cifar10_noise_layer(models: Models, **few: Any) -> None:
  """Appendix E. PixelDP's residual network is not among ours.

  It is another one without batch normalisation, and natural training of the
  same beside it.
  """
  natural = dataclasses.replace(
    robust_training_scales.SCALES["full"].recipes["cifar10-natural"],
    network="vgg_cifar10",
    changes={"optimizer": "adam", "learning_rate": 1e-4, "momentum": 0.0},
    label="natural, PixelDP's network",
    **few,
  )
  _noise_layer(models, natural, "cifar10-noise_layer_none")


SCALES = {
  "smoke": membership_cells.Scale(
    _smoke(),
    robust=None,
    num_points=None,
    num_dual=60,
    num_swept=200,
    num_fit=10,
    radii=(0.0, 0.5, 1.0, 2.0),
    temperatures=(1.0, 5.0, 50.0),
  ),
  "small": membership_cells.Scale(
    _small(), robust="small", num_points=2_000, num_dual=0, num_swept=500
  ),
  "reduced": membership_cells.Scale(
    _reduced(),
    robust="reduced",
    num_points=None,
    num_dual=100,
    num_swept=2_000,
  ),
  "full": membership_cells.Scale(
    _full(), robust="full", num_points=None, num_dual=100, num_swept=None
  ),
}
