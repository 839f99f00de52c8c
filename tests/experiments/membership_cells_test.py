"""What the membership experiment runs, needs and compares with."""

from __future__ import annotations

import pytest

from experiments.grid import engine as grid
from experiments.grid import sheets
from experiments.privacy_risks.membership import cells as membership_cells
from experiments.privacy_risks.membership import measure as membership_measure
from experiments.privacy_risks.membership import rows as membership_rows
from experiments.privacy_risks.membership import scales as membership_scales
from experiments.privacy_risks.training import scales as robust_training_scales
from tests.experiments import running
from tf_privrob import run_folder

_SMOKE = membership_scales.SCALES["smoke"]


def _published(study):
  """Published rows of CIFAR-10 by the parameter of a study."""
  return sheets.by_value(membership_rows.PUBLISHED, "cifar10", study)


# Cells and models.


def test_cells_and_what_they_need():
  every = membership_cells.cells(_SMOKE)
  names = [cell.name for cell in every]
  assert names[:3] == [
    "digits-natural/train",
    "digits-natural/infer",
    "digits-natural/losses",
  ]
  assert "digits-pgd/classes" in names
  assert "digits-natural/classes" not in names
  # A retraining is compared with the model that had all examples.
  chosen = grid.select(every, "digits-pgd-without_0/left_out")
  assert [cell.name for cell in chosen] == [
    "digits-pgd/train",
    "digits-pgd-without_0/train",
    "digits-pgd-without_0/left_out",
  ]


@pytest.mark.parametrize("scale_name", ["smoke", "small", "full"])
def test_scales_have_every_study_and_every_part(scale_name):
  scale = membership_scales.SCALES[scale_name]
  studies = {study for m in scale.models.values() for study in m.studies}
  assert studies == set(membership_cells.STUDIES)
  parts = {part for model in scale.models.values() for part in model.parts}
  assert parts == set(membership_cells.PARTS)
  for name, model in scale.models.items():
    if model.original:
      assert list(scale.models).index(model.original) < list(
        scale.models
      ).index(name)
      assert model.recipe.changes == scale.models[model.original].recipe.changes
    assert model.own or scale.robust


def test_reduced_has_what_does_not_fit_at_the_paper_s_size():
  """Tables 3 to 7, 9 to 11 and Figures 1 to 3 and 6 to 9, and Appendix E."""
  scale = membership_scales.SCALES["reduced"]
  full = membership_scales.SCALES["full"].models
  studies = {"main", "share", "radius", "capacity", "subset", "adaptation"}
  studies |= {"noise_layer", "left_out", "private"}
  assert {s for m in scale.models.values() for s in m.studies} == studies
  parts = {part for model in scale.models.values() for part in model.parts}
  assert parts == set(membership_cells.PARTS)
  for name, model in scale.models.items():
    if name in full:
      assert model.recipe.factor <= full[name].recipe.factor
      assert model.recipe.num_train or model.recipe.network_settings, name
  radii = [
    m.studies["subset"] for m in scale.models.values() if "subset" in m.studies
  ]
  assert sorted(radii) == pytest.approx([0, *sorted(_published("subset"))[1:]])


def test_models_that_are_not_trained_here_are_those_of_robust_training():
  for name, of_it in (
    ("small", "uci_har-pgd"),
    ("reduced", "cifar10-pgd"),
    ("full", "uci_har-pgd"),
  ):
    scale = membership_scales.SCALES[name]
    known = robust_training_scales.SCALES[scale.robust].recipes
    adopted = {n: m.recipe for n, m in scale.models.items() if not m.own}
    assert of_it in adopted
    for model, recipe in adopted.items():
      budget = recipe.dp_epsilon
      key = model if budget is None else model.removesuffix(f"-{budget:g}")
      assert known[key] == recipe
  assert all(model.own for model in _SMOKE.models.values())


def test_full_has_the_published_models_and_parameters():
  models = membership_scales.SCALES["full"].models
  main = {
    (m.recipe.dataset, m.recipe.trainer)
    for m in models.values()
    if "main" in m.studies
  }
  for pair in main:
    assert membership_rows.published_of(*pair) is not None
  assert len(main) == 20

  def values(study, dataset):
    return sorted(
      m.studies[study]
      for m in models.values()
      if study in m.studies and m.recipe.dataset == dataset
    )

  assert values("share", "cifar10") == [0.0, 0.5, 0.75, 1.0]
  subset = sorted(_published("subset"))
  assert values("subset", "cifar10") == pytest.approx(subset, abs=1e-9)
  found = values("radius", "cifar10")
  assert found == pytest.approx([0, 2 / 255, 4 / 255, 8 / 255])
  assert values("left_out", "cifar10") == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
  subset = models["cifar10-subset_dual_0.25_255"].recipe
  assert subset.num_train == 10_000
  assert subset.attack_eps == pytest.approx(0.25 / 255)
  # At half the radius, steps of half the size.
  half = models["uci_har-pgd-radius_0.025"].recipe
  assert (half.attack_eps, half.changes["attack_eps"]) == (0.025, 0.025)
  assert half.changes["step_size"] == pytest.approx(0.0125 / 2)


@pytest.mark.parametrize(
  "scale_name", ["smoke", pytest.param("full", marks=pytest.mark.slow)]
)
def test_every_trained_model_has_settings(scale_name):
  scale = membership_scales.SCALES[scale_name]
  for model in scale.models.values():
    recipe = model.recipe
    count = recipe.num_train or recipe.preset_size
    config = membership_measure.settings(recipe, count)
    assert hasattr(config, "dp_epsilon") == (recipe.dp_epsilon is not None)
    radius = recipe.changes.get("attack_eps")
    if radius is not None:
      assert config.objective.attack_eps == radius == recipe.attack_eps


def test_a_noise_layer_is_trained_as_long_as_the_natural_model():
  natural, noisy = (
    membership_measure.settings(_SMOKE.models[name].recipe, 300)
    for name in ("digits-natural", "digits-noise_layer")
  )
  assert not hasattr(noisy, "dp_epsilon")
  assert noisy.layer.noise == "gaussian"
  assert noisy.layer.construction_size == 0.1
  for field in ("epochs", "batch_size", "learning_rate", "optimizer"):
    assert getattr(noisy, field) == getattr(natural, field)


# Robust models that are not there.


def _needed(name="uci_har"):
  scale = membership_scales.SCALES["full"]
  return scale, membership_cells.cells(scale, name)


def test_a_missing_folder_names_the_command():
  scale, cells = _needed()
  with pytest.raises(ValueError, match="training --scale=full") as error:
    membership_cells.available(scale, cells, None)
  assert "--dataset=uci_har" in str(error.value)
  assert "yale_b" not in str(error.value)


def test_missing_models_are_named(tmp_path):
  scale, cells = _needed()
  folder = run_folder.RunFolder(tmp_path)
  folder.write_json("experiment.json", {"scale": "full"})
  folder.write_json("uci_har-natural/train.json", {})
  folder.write_text("uci_har-natural/run/model.keras", "")
  with pytest.raises(ValueError, match="none of uci_har-pgd") as error:
    membership_cells.available(scale, cells, str(tmp_path))
  assert f"--out_dir={tmp_path} --resume" in str(error.value)
  # Without them, nor retrainings that would be compared with them.
  kept = membership_cells.available(scale, cells, str(tmp_path), True)
  names = {cell.model for cell in kept}
  assert {"uci_har-natural", "uci_har-natural-without_0"} <= names
  assert not {"uci_har-pgd", "uci_har-pgd-without_0"} & names
  assert "uci_har-pgd-share_0.5" in names
  # What needs no model of that folder needs no folder.
  own = [c for c in cells if c.model == "uci_har-private_pgd-1"]
  assert membership_cells.available(scale, own, None) == own


def test_another_scale_is_refused(tmp_path):
  scale, cells = _needed()
  run_folder.RunFolder(tmp_path).write_json(
    "experiment.json", {"scale": "small"}
  )
  with pytest.raises(ValueError, match=r"scale 'full'.*found scale 'small'"):
    membership_cells.available(scale, cells, str(tmp_path))
  cells = membership_cells.cells(_SMOKE)
  with pytest.raises(ValueError, match="Expected no --robust_dir"):
    membership_cells.available(_SMOKE, cells, str(tmp_path))


def test_bad_flags_are_refused_before_any_work(tmp_path):
  words = ["--scale=small", "--dataset=uci_har", "--out_dir=out"]
  words.append(f"--robust_dir={tmp_path / 'none'}")
  message = "Train them, or leave them out"
  running.require_refusal("privacy_risks.membership", words, message, tmp_path)


# Published figures, typed by hand from the paper's tables.


def _inference(row):
  return [row.figures[n] for n in ("I_B", "I_A", "I_V") if n in row.figures]


@pytest.mark.parametrize(
  ("dataset", "trainer", "table", "inference"),
  [
    ("yale_b", "pgd", "2", [61.69, 68.83]),
    ("yale_b", "ibp", "8", [60.45, 66.28, 76.05]),
    ("fashion_mnist", "dual", "9", [50.58, 50.42, 50.45]),
    ("cifar10", "wrm", "4", [67.16, 64.24]),
    ("uci_har", "natural", "12", [55.36, 55.03]),
  ],
)
def test_published_rows(dataset, trainer, table, inference):
  row = membership_rows.published_of(dataset, trainer)
  assert (row.table, _inference(row)) == (table, inference)
  (kept,) = [
    row
    for row in membership_rows.PUBLISHED
    if (row.study, row.dataset, row.model) == ("main", dataset, trainer)
  ]
  assert (kept.table, kept.estimated) == (row.table, row.estimated)


def test_published_rows_agree_with_what_the_paper_says_of_them():
  row = membership_rows.published_of
  # Advantages in the captions of Tables 2, 3, 4, 8 and 12.
  for dataset, trainer, advantage in (
    ("yale_b", "natural", 11.70),
    ("yale_b", "pgd", 37.66),
    ("fashion_mnist", "pgd", 28.98),
    ("cifar10", "pgd", 51.34),
    ("yale_b", "ibp", 52.10),
    ("uci_har", "pgd", 20.26),
  ):
    best = max(_inference(row(dataset, trainer)))
    assert 2 * (best - 50) == pytest.approx(advantage)
  # "always has the highest inference accuracy"
  classes = _published("class")
  assert list(classes) == list(range(10))
  for found in classes.values():
    assert tuple(found.figures) == membership_measure.CLASS_STRATEGIES
    values = list(found.figures.values())
    assert max(values) == values[-1]
  # Tables 5 and 6 end with the model of Table 4.
  for study in ("share", "radius"):
    table = _published(study)
    assert table[max(table)].figures == row("cifar10", "pgd").figures
  assert max(max(_inference(r)) for r in _published("subset").values()) == 78.50
  assert row("digits", "pgd") is None
