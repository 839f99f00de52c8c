"""The robust-training experiment: cells, settings, trainings, the page."""

from __future__ import annotations

import dataclasses
import types
import xml.etree.ElementTree

import numpy as np
import pytest

from experiments.grid import engine as grid
from experiments.grid import plots as grid_plots
from experiments.privacy_risks.training import __main__ as robust_training
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import (
  measure as robust_training_measure,
)
from experiments.privacy_risks.training import page as robust_training_page
from experiments.privacy_risks.training import scales as robust_training_scales
from tests.experiments import running
from tf_privrob import certify
from tf_privrob import data
from tf_privrob import methods
from tf_privrob import run_folder
from tf_privrob.privacy import run_facts
from tf_privrob.runs import train as training

pytestmark = pytest.mark.usefixtures("checked_once")

_SMOKE = robust_training_scales.SCALES["smoke"]
_TINY = robust_training_cells.Scale(
  recipes={
    name: dataclasses.replace(
      _SMOKE.recipes[name],
      factor=0.06,
      network_settings={"hidden": (32,)},
      changes={**_SMOKE.recipes[name].changes, "seed": 3},
    )
    for name in ("digits-pgd", "digits-ibp", "digits-private_pgd")
  },
  num_attacked=40,
  num_verified=40,
  num_dual=4,
)
# Of the paper's tables; others are of the authors of IBP.
_PAPER = [row for row in robust_training_page.PUBLISHED if row.table]
# Small stand-ins for inputs whose networks are heavy.
_SHAPES = {
  "yale_b": ((24, 16, 1), 38),
  "fashion_mnist": ((16, 16, 1), 10),
  "cifar10": ((16, 16, 3), 10),
  "uci_har": ((561,), 6),
  "mnist": ((28, 28, 1), 10),
  "digits": ((8, 8, 1), 10),
}
_CAPACITY = {
  "yale_b": {"scale": 2},
  "fashion_mnist": {"scale": 2},
  "cifar10": {"scale": 1, "units": 1},
}


@pytest.fixture(scope="module")
def datasets():
  return robust_training_measure.Datasets(["digits"])


@pytest.fixture(scope="module")
def done(tmp_path_factory, datasets):
  folder = tmp_path_factory.mktemp("robust_training")
  return running.measured(
    robust_training.Experiment(
      str(folder), "tiny", _TINY, datasets, "a command"
    )
  )


def _examples(name):
  shape, classes = _SHAPES[name]
  x = np.full((2, *shape), 0.5, np.float32)
  y = np.zeros(2, np.int64)
  return data.from_arrays(name, x, y, x, y, classes, (0.0, 1.0))


def _fake(trainer, part, dp_epsilon=None, **more):
  """A result as a cell writes it."""
  name = f"yale_b-{trainer}"
  cell = robust_training_cells.Cell(name, dp_epsilon, part)
  found = {"accuracy": 0.5, "count": 10, "interval": (0.2, 0.8)}
  return cell.name, {
    **dataclasses.asdict(cell),
    "model": cell.model,
    "dataset": "yale_b",
    "trainer": trainer,
    "label": trainer,
    "attack_eps": 0.0314,
    "train": found,
    "test": found,
    "claimed": None,
    "proven": None,
    "audited": None,
    "data": "Two faces.",
    "num_train": 10,
    "network": "yale_cnn",
    "parameters": 1,
    "factor": 0.1,
    "changes": {},
    "epochs": 2.0,
    "steps": 3,
    "trained_attack_eps": 0.06,
    "seconds": 1.0,
    **more,
  }


# Cells.


def test_cells():
  names = [c.name for c in robust_training_cells.cells(_TINY)]
  assert names == [
    "digits-pgd/train",
    "digits-pgd/clean",
    "digits-pgd/attack",
    "digits-ibp/train",
    "digits-ibp/clean",
    "digits-ibp/attack",
    "digits-ibp/verify",
    "digits-private_pgd-3/train",
    "digits-private_pgd-3/clean",
    "digits-private_pgd-3/attack",
  ]
  every = robust_training_cells.cells(_TINY)
  chosen = grid.select(every, "digits-ibp/verify")
  assert [c.name for c in chosen] == ["digits-ibp/train", "digits-ibp/verify"]


def test_scales_have_the_models_of_the_tables():
  full = robust_training_scales.SCALES["full"]
  have = {(r.dataset, r.trainer) for r in full.recipes.values()}
  assert {(row.dataset, row.model) for row in _PAPER} <= have
  assert [
    (recipe.network, recipe.attack_eps, recipe.changes["attack_eps"])
    for recipe in full.recipes.values()
    if recipe.dataset == "mnist"
  ] == [
    ("ibp_small", 0.1, 0.2),
    ("ibp_small", 0.3, 0.33),
    ("ibp_medium", 0.1, 0.2),
    ("ibp_large", 0.3, 0.4),
  ]
  assert _SMOKE.datasets == ["digits"]
  small = robust_training_scales.SCALES["small"]
  of_har = robust_training_cells.cells(small, "uci_har")
  assert {cell.model for cell in of_har} == {
    "uci_har-natural",
    "uci_har-pgd",
    "uci_har-private_pgd-3",
  }
  names = [cell.name for cell in robust_training_cells.cells(full)]
  assert "fashion_mnist-ibp/verify" in names
  assert "fashion_mnist-dual/verify" not in names  # days an image
  assert "yale_b-dual/verify" not in names
  reduced = robust_training_scales.SCALES["reduced"]
  names = [cell.name for cell in robust_training_cells.cells(reduced)]
  assert "fashion_mnist-dual/verify" in names  # of fewer channels
  assert "yale_b-dual/verify" not in names
  assert "cifar10-pgd/verify" not in names


@pytest.mark.parametrize(
  "scale_name",
  [
    "smoke",
    pytest.param("small", marks=pytest.mark.slow),
    pytest.param("reduced", marks=pytest.mark.slow),
    pytest.param("full", marks=pytest.mark.slow),
  ],
)
def test_every_recipe_builds_its_settings_and_network(scale_name):
  for recipe in robust_training_scales.SCALES[scale_name].recipes.values():
    num_train = recipe.num_train or recipe.preset_size
    config = robust_training_cells.settings(recipe, num_train)
    private = isinstance(config, methods.DPSGDConfig)
    assert (private, recipe.dp_epsilon) in ((False, None), (True, 3.0))
    if recipe.dataset != "digits" and "tutorial" not in recipe.network:
      narrow = {**recipe.network_settings, **_CAPACITY.get(recipe.dataset, {})}
      recipe = dataclasses.replace(recipe, network_settings=narrow)
    examples = _examples(recipe.dataset)
    network = robust_training_cells.network(recipe, examples, 0)
    model = methods.build(recipe.method, network, config)
    assert model.network.output_shape[-1] == examples.num_classes
    if recipe.has_bounds:
      assert model.objective.sound_domain.is_bound


def test_full_settings_are_the_presets():
  recipes = robust_training_scales.SCALES["full"].recipes
  for name in ("yale_b-ibp", "fashion_mnist-trades", "cifar10-pgd"):
    recipe = recipes[name]
    config = robust_training_cells.settings(recipe, recipe.preset_size)
    assert config == methods.preset(recipe.method, recipe.preset)


def test_moments_keep_their_place_with_fewer_examples():
  """With 15,000 images instead of 50,000 an epoch has 3/10 of the steps."""
  recipe = robust_training_scales.SCALES["full"].recipes["cifar10-pgd"]
  config = robust_training_cells.settings(recipe, 15_000)
  assert config.learning_rate_drops == "12000:0.1,18000:0.01"
  assert config.epochs == pytest.approx(80001 * 128 / 50000)
  # Epochs and shares of a run have kept their place anyway.
  trades = robust_training_scales.SCALES["full"].recipes["cifar10-trades"]
  config = robust_training_cells.settings(trades, 15_000)
  assert config.learning_rate_drops.startswith("75e:0.1")
  # Half as many steps by a batch of twice the size.
  ibp = dataclasses.replace(
    robust_training_scales.SCALES["full"].recipes["mnist-ibp_0.3"],
    changes={"batch_size": 400},
  )
  config = robust_training_cells.settings(ibp, 60_000)
  ramp = config.objective.ramp
  assert (ramp.warmup, ramp.length) == ("1000", "5000")


# Published figures, typed by hand from the paper's tables.


@pytest.mark.parametrize(
  ("dataset", "trainer", "table", "percent"),
  [
    ("yale_b", "trades", "2", (99.53, 93.77, 99.42, 83.85)),
    ("fashion_mnist", "ibp", "9", (89.85, 86.26, 82.60, 78.44, 79.20, 74.17)),
    ("uci_har", "pgd", "12", (96.10, 92.53, 92.51, 73.84)),
  ],
)
def test_published_rows(dataset, trainer, table, percent):
  row = robust_training_page.published_row(dataset, trainer)
  assert row.table == table
  assert row.figures == dict(zip(robust_training_page.COLUMNS, percent))


def test_published_rows_are_plausible():
  assert len(_PAPER) == 20
  for row in _PAPER:
    has_bounds = row.model in robust_training_cells.VERIFIED
    percent = list(row.figures.values())
    assert len(percent) == (6 if has_bounds else 4)
    assert row.estimated == (row.model == "dual")
    # Clean, then attacked, then verified: never rising.
    for part in (percent[::2], percent[1::2]):
      assert part == sorted(part, reverse=True)
  assert robust_training_page.published_row("mnist", "ibp") is None


def test_published_rows_of_gowal_et_al_name_their_network():
  published_row = robust_training_page.published_row
  row = published_row("mnist", "ibp", 0.3)
  assert row.figures == {"test": 98.34, "adv-test": 96.03, "ver-test": 91.79}
  assert "large network, trained at 0.4" in row.remark
  assert published_row("mnist", "ibp", 0.2) is None
  assert published_row("mnist", "pgd", 0.3) is None


# Measurements.


def test_attack_is_the_one_of_the_paper():
  recipe = dataclasses.replace(_SMOKE.recipes["digits-pgd"], attack_eps=0.05)
  attack = robust_training_measure.evaluation_attack(recipe, (-1.0, 1.0))
  assert attack.norm == "linf"
  assert attack.steps == 20
  assert attack.step_size == pytest.approx(0.00625)
  assert not attack.random_start
  assert attack.value_range == (-1.0, 1.0)
  assert attack.attack_eps == 0.05


def test_rows_are_spread_over_all_of_either_part(datasets):
  digits = datasets.of(_SMOKE.recipes["digits-pgd"])
  for part in ("train", "test"):
    total = getattr(digits, f"num_{part}")
    for count, expected in ((40, 40), (None, total)):
      rows = robust_training_measure.chosen_rows(digits, part, count)
      assert len(set(rows)) == expected
      assert (rows[0], rows[-1]) == (0, total - 1)
  few = digits.take(100)
  assert len(robust_training_measure.chosen_rows(few, "train", 200)) == 100
  many = types.SimpleNamespace(num_train=60_000, num_test=400)
  assert len(robust_training_measure.chosen_rows(many, "train", None)) == 10_000


def test_only_proven_right_rows_are_verified():
  right = certify.Certificate(
    index=0,
    label=3,
    prediction=3,
    radius=0.1,
    norm="linf",
    abstained=False,
    confidence=1.0,
    kind="proven",
    method="verified_interval",
    seconds=0.0,
  )
  rows = [
    right,
    dataclasses.replace(right, kind="claimed"),
    dataclasses.replace(right, prediction=4),
    dataclasses.replace(right, radius=0.0999),
  ]
  found = robust_training_measure.is_verified(rows, 0.1)
  assert found.tolist() == [True, False, False, False]


@pytest.mark.slow
def test_results(done):
  results = done.results()
  assert len(results) == len(done.cells)
  for model in ("digits-pgd", "digits-ibp", "digits-private_pgd-3"):
    clean, attacked = (results[f"{model}/{p}"] for p in ("clean", "attack"))
    assert (clean["train"]["count"], clean["test"]["count"]) == (1442, 355)
    for part in ("train", "test"):
      assert attacked[part]["count"] == 40
      assert attacked[part]["strict"] <= attacked[part]["accuracy"]
      low, high = attacked[part]["interval"]
      assert low <= attacked[part]["accuracy"] <= high
  assert results["digits-pgd/clean"]["test"]["accuracy"] > 0.8
  attacked = results["digits-pgd/attack"]["test"]["accuracy"]
  assert attacked < results["digits-pgd/clean"]["test"]["accuracy"]
  # Both are about the same examples: what is proven cannot be felled.
  verified = results["digits-ibp/verify"]
  assert verified["kinds"] == ["proven"]
  assert verified["certificate"] == "verified_interval_in_range"
  for part in ("train", "test"):
    strict = results["digits-ibp/attack"][part]["strict"]
    assert 0 < verified[part]["accuracy"] <= strict
  private = results["digits-private_pgd-3/train"]
  assert private["proven"]["dp_epsilon"] <= 3.0
  assert results["digits-pgd/train"]["proven"] is None


@pytest.mark.slow
def test_models_are_kept_for_later_experiments(done, datasets):
  folder = run_folder.RunFolder(done.folder.file("digits-pgd"))
  model = training.load_run(folder)
  digits = datasets.of(_TINY.recipes["digits-pgd"])
  right = model.predict(digits.x_test, verbose=0).argmax(1) == digits.y_test
  found = done.results()["digits-pgd/clean"]["test"]["accuracy"]
  assert right.mean() == pytest.approx(found)


# The page.


@pytest.mark.slow
def test_page_shows_no_claim_alone(done):
  text = done.folder.file("table.md").read_text()
  private = running.rows(text, "PGD, private")
  plain = running.rows(text, "PGD |") + running.rows(text, "IBP |")
  assert len(private) == 2  # its accuracies, its training
  for row in private:
    assert row[1].startswith("(")
    assert row[2].startswith("(")
    assert row[2].endswith(f") ({run_facts.CONDITION})")
    assert row[3] == "not run"
  assert len(plain) == 4
  for row in plain:
    assert row[1:4] == ["none", "none known", "not run"]
  assert "](accuracy.svg)" in text
  assert "a command" in text
  xml.etree.ElementTree.parse(done.folder.file("accuracy.svg"))


@pytest.mark.slow
def test_page_says_what_was_cut(done):
  text = done.folder.file("table.md").read_text()
  assert "up to 40 test and training examples each" in text
  assert "digits: Fixed and stratified" in text
  row = running.rows(text, "IBP |")[1]
  assert row[8] == "0.06"  # of the preset's length
  assert "batch_size 50, learning_rate 0.002, seed 3" in row


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "condition"),
  [("digits-pgd", ""), ("digits-private_pgd-3", run_facts.CONDITION)],
)
def test_the_seed_that_was_used_is_written_down(done, name, condition):
  """A study's is public: whoever reads its figures can subtract the noise."""
  result = done.folder.read_json(f"{name}/train.json")
  assert result["config"]["seed"] == result["changes"]["seed"] == 3
  stated = done.folder.read_json(f"{name}/run/privacy.json")
  assert result["condition"] == stated["condition"] == condition


@pytest.mark.parametrize("scale", robust_training_scales.SCALES)
def test_no_recipe_hides_a_seed_that_it_has_anyway(scale):
  for recipe in robust_training_scales.SCALES[scale].recipes.values():
    assert recipe.changes.get("seed", 0) is not None


def test_an_unverified_number_is_not_called_verified():
  kinds = {"kinds": ["proven"]}
  results = dict(
    [
      _fake("natural", "train"),
      _fake("natural", "clean"),
      _fake("dual", "train"),
      _fake("dual", "verify", **kinds),
      _fake("ibp", "train"),
      _fake("ibp", "verify", kinds=["claimed"]),
    ]
  )
  table = robust_training_page.tables({}, results)[0]
  rows = {row[0]: row for row in table.rows}
  ver = [table.head.index(name) for name in ("ver-train", "ver-test")]

  def shown(label):
    return [rows[label][column] for column in ver]

  assert shown("natural") == ["no bound"] * 2
  assert shown("dual") == ["50.00 (20.0 to 80.0)"] * 2
  assert shown("ibp") == ["not run"] * 2
  assert shown("dual, as published in Table 8") == [
    "96.37 estimated",
    "68.87 estimated",
  ]
  assert shown("natural, as published in Table 2") == ["no bound"] * 2
  (spec,) = robust_training_page.figures({}, results)
  figure = grid_plots.draw(spec)
  labels = figure.axes[0].get_legend_handles_labels()[1]
  # One proven model; of the published, dual's is an estimate.
  assert labels.count("verified (proven)") == 1
  assert labels.count("estimated bound, as published") == 1
  assert labels.count("verified, as published") == 1


def test_a_private_model_has_no_published_row():
  results = dict([_fake("pgd", "train", dp_epsilon=3.0)])
  assert len(robust_training_page.tables({}, results)[0].rows) == 1
  results = dict([_fake("pgd", "train")])
  assert len(robust_training_page.tables({}, results)[0].rows) == 2


def test_mnist_stands_beside_what_its_authors_published():
  results = dict([_fake("ibp", "train", dataset="mnist", attack_eps=0.1)])
  row = robust_training_page.tables({}, results)[0].rows[1]
  assert row[0] == "IBP at 0.1, medium, as published by its authors"
  assert row[5:11] == ["-", "98.94", "-", "97.99", "-", "97.08"]
  settings = {"settings": {"num_attacked": 10}}
  remarks = "\n".join(robust_training_page.notes(settings, results))
  assert "medium network, trained at 0.2" in remarks
  (spec,) = robust_training_page.figures({}, results)
  assert spec.shows_any


@pytest.mark.slow
def test_resume_keeps_what_is_done(done, datasets, monkeypatch):
  again = robust_training.Experiment(
    str(done.folder.path), "tiny", _TINY, datasets, "a command"
  )
  again.open(resume=True)
  monkeypatch.setattr(again, "measure", pytest.fail)
  again.run(again.cells)
  with pytest.raises(ValueError, match="Go on with --resume"):
    again.open(resume=False)
  other = dataclasses.replace(_TINY, num_attacked=41)
  changed = robust_training.Experiment(
    str(done.folder.path), "tiny", other, datasets
  )
  with pytest.raises(ValueError, match="same settings"):
    changed.open(resume=True)
