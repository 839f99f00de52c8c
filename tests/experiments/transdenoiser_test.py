"""The TransDenoiser experiment: cells, trainings, attacks, the page."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree

import numpy as np
import pytest
import tensorflow as tf

from experiments.grid import engine as grid
from experiments.transdenoiser import __main__ as transdenoiser
from experiments.transdenoiser import cells as transdenoiser_cells
from experiments.transdenoiser import measure as transdenoiser_measure
from experiments.transdenoiser import page as transdenoiser_page
from tf_privrob import certify
from tf_privrob import methods
from tf_privrob import models
from tf_privrob.privacy import run_facts

_Recipe = transdenoiser_cells.Recipe
_CHANGES = {"batch_size": 32, "epochs": 0.2, "checkpoint_every": 5}
_TINY = transdenoiser_cells.Scale(
  dp_epsilons=(3.0, 5.0),
  recipes={
    "paper": _Recipe(
      "As published",
      "transdenoiser",
      "mnist_5k_paper",
      {**_CHANGES, "num_slices": 3},
      "smooth_denoiser",
    ),
    "nodp": _Recipe(
      "nodp",
      "transdenoiser",
      "mnist_5k_nodp",
      _CHANGES,
      "smooth_denoiser",
      has_budget=False,
    ),
    "sound": _Recipe(
      "The heir",
      "transdenoiser",
      "mnist_5k_sound",
      _CHANGES,
      "smooth_denoiser",
    ),
    "secure": _Recipe(
      "SecureSGD",
      "secure_sgd",
      "mnist_5k_denoiser_sound",
      _CHANGES,
      "convolutional_denoiser",
      certificate="own",
      num_images=3,
    ),
  },
  public_epochs=3,
  num_images=6,
  draws=100,
  attack_norms=(0.5, 1.0),
  swept_norm=1.0,
  num_attacked=8,
  attack_steps=2,
  eot_draws=2,
  verdict_draws=10,
  classifier="mlp",
)


def _quick(cells):
  """One model attacked, and for the second budget."""
  return [
    cell
    for cell in cells
    if cell.recipe == "sound"
    or not (cell.dp_epsilon == 5.0 or cell.part.startswith("attack"))
  ]


@pytest.fixture(scope="module")
def parts():
  return transdenoiser_measure.load_parts("digits", None)


@pytest.fixture(scope="module")
def done(tmp_path_factory, parts):
  """All cells of the tiny scale but slow ones."""
  folder = tmp_path_factory.mktemp("transdenoiser")
  experiment = transdenoiser.Experiment(
    str(folder), "tiny", _TINY, parts, "a command"
  )
  experiment.open(resume=False)
  experiment.run(_quick(experiment.cells))
  experiment.write()
  return experiment


def test_cells():
  names = [cell.name for cell in transdenoiser_cells.cells(_TINY)]
  assert len(names) == len(set(names))
  assert names[:2] == ["public/train", "public/certify"]
  assert names[-1] == "secure-5/attack-1"
  assert "paper-3/attack-0.5" in names
  assert "paper-5/attack-1" in names
  assert "paper-5/attack-0.5" not in names  # only the swept size
  assert "nodp/attack-0.5" in names
  assert not any(name.startswith("nodp-") for name in names)


def test_a_cell_brings_its_training_and_the_public_classifier():
  every = transdenoiser_cells.cells(_TINY)
  chosen = grid.select(every, "sound-3/certify")
  assert [cell.name for cell in chosen] == [
    "public/train",
    "sound-3/train",
    "sound-3/certify",
  ]


def test_a_recipe_may_be_measured_in_part_and_at_the_first_budget_only():
  recipes = {
    **_TINY.recipes,
    "sound": dataclasses.replace(
      _TINY.recipes["sound"], swept=False, parts=("attack",)
    ),
  }
  scale = dataclasses.replace(_TINY, recipes=recipes)
  names = [cell.name for cell in transdenoiser_cells.cells(scale)]
  assert [name for name in names if name.startswith("sound-")] == [
    "sound-3/train",
    "sound-3/attack-0.5",
    "sound-3/attack-1",
  ]


def _all_scales():
  """Every scale, for each kind of data."""
  return [
    transdenoiser_cells.scale_of(name, dataset)
    for name in transdenoiser_cells.SCALES
    for dataset in ("mnist", "cifar10")
  ]


def test_every_recipe_of_every_scale_has_its_settings():
  for scale in _all_scales():
    for cell in transdenoiser_cells.cells(scale):
      if cell.part == "train" and cell.recipe != "public":
        config = transdenoiser_cells.settings(cell, scale, 30_000)
        assert methods.class_of(scale.recipes[cell.recipe].method, config)
        if hasattr(config, "dp_delta") and cell.dp_epsilon:
          assert config.dp_epsilon == cell.dp_epsilon
          assert config.dp_delta == transdenoiser_cells.DP_DELTA


def test_budgets_of_figure_4_are_trainings_of_different_length():
  """xi_up stays, and so the number of steps is what a budget buys."""
  scale = transdenoiser_cells.scale_of("full", "mnist")
  for name in ("paper_kept", "sepdp"):
    steps = {}
    for dp_epsilon in (0.5, 1.0, 2.0):
      cell = transdenoiser_cells.Cell(name, dp_epsilon, "train")
      config = transdenoiser_cells.settings(cell, scale, 30_000)
      config = config.changed(accountant="rdp")  # is quick
      network = models.denoised_classifier(
        models.smooth_denoiser((28, 28, 1), filters=1),
        models.mlp((28, 28, 1), 10, hidden=()),
      )
      made = methods.build("transdenoiser", network, config)
      steps[dp_epsilon] = made.plan(30_000).steps
    assert 2 * steps[0.5] < steps[1.0] < steps[2.0] / 2


def test_images_in_colour_are_attacked_with_less_noise():
  """As the paper's Figures 3, 4 and 7 are, beside its Figure 2."""
  scale = transdenoiser_cells.scale_of("full", "cifar10")
  stddevs = {"certify": set(), "attack": set()}
  for cell in transdenoiser_cells.cells(scale):
    part = cell.part.split("-")[0]
    if cell.recipe in ("sepdp", "sepdp_0.1", "nodp", "nodp_0.1"):
      if part in stddevs:
        config = transdenoiser_cells.settings(cell, scale, 25_000)
        stddevs[part].add(config.input_stddev)
  assert stddevs == {"certify": {0.25}, "attack": {0.1}}
  published = [
    row.figures["input_stddev"]
    for row in transdenoiser_page.PUBLISHED
    if (row.dataset, row.study) == ("cifar10", "settings")
  ]
  assert published == [0.25, 0.1, 0.1]


# The page, from made-up results.


def _certified(recipe, dp_epsilon, reach, accuracies):
  model = recipe if dp_epsilon is None else f"{recipe}-{dp_epsilon:g}"
  radii = np.arange(0, reach, 0.05).round(2)
  curve = [
    {"radius": float(r), "accuracy": accuracies[0] if r < 0.3 else 0.1}
    for r in radii
  ]
  shared = {"recipe": recipe, "dp_epsilon": dp_epsilon, "model": model}
  return {
    f"{model}/train": {
      **shared,
      "part": "train",
      "label": f"the {recipe}",
      "network": "none",
      "steps": 1,
      "config": {"batch_size": 1},
      "seconds": 1.0,
    },
    f"{model}/certify": {
      **shared,
      "part": "certify",
      "count": 5,
      "draws": 100,
      "reach": reach,
      "mean_radius": 0.1,
      "curve": curve,
    },
  }


def _tables(*results):
  experiment = {
    "dataset": "mnist",
    "settings": {"dp_epsilons": [1.0], "attack_norms": []},
  }
  found = {name: row for part in results for name, row in part.items()}
  tables = transdenoiser_page.tables(experiment, found)
  return {table.title.split(" ")[-1]: table for table in tables}


def test_no_radius_is_printed_that_no_vote_can_reach():
  few = _certified("nodp", None, 0.4, [0.9])
  table = _tables(few)["proven"]
  assert table.head[-2:] == ["0", "0.25"]
  many = _certified("sound", 1.0, 0.62, [0.8])
  table = _tables(few, many)["proven"]
  assert table.head[-3:] == ["0", "0.25", "0.5"]
  assert [row[-1] for row in table.rows] == ["beyond", "10.00"]


def test_what_the_text_says_of_figure_2_stands_beside_ours():
  table = _tables(
    _certified("paper_kept", 1.0, 0.6, [0.9]),
    _certified("nodp", None, 0.6, [0.92]),
    _certified("sepdp", 1.0, 0.4, [0.85]),
  )["points"]
  assert [row[0] for row in table.rows] == ["the nodp", "the sepdp"]
  assert table.rows[0][4:] == ["similar", "+2.0", "+2.0", "+0.0", "beyond"]
  assert table.rows[1][4] == "significantly below"
  assert table.rows[1][5:] == ["-5.0", "-5.0", "beyond", "beyond"]


def test_public_and_private_parts_share_no_image(parts):
  public = {row.tobytes() for row in parts.public.x_train}
  assert not any(row.tobytes() in public for row in parts.private.x_train)
  total = parts.public.num_train + parts.private.num_train
  assert parts.public.num_train == pytest.approx(total / 2, rel=0.02)


@pytest.mark.slow
def test_statements_of_the_trainings(done):
  results = done.results()
  paper = results["paper-3/train"]
  assert paper["claimed"]["dp_epsilon"] > 0
  assert paper["proven"] is None
  assert [row["parameters"] for row in paper["tally"]] == [160, 272, 145]
  sound = results["sound-3/train"]
  assert sound["proven"]["dp_epsilon"] <= 3.0
  assert sound["condition"] == run_facts.CONDITION
  assert sound["config"]["seed"] == 0
  assert results["nodp/train"]["claimed"] is None
  assert results["secure-3/train"]["proven"]["dp_epsilon"] <= 3.0


@pytest.mark.slow
def test_certificates_are_those_of_the_model(done):
  result = done.results()["sound-3/certify"]
  assert result["certificate"] == "randomised_smoothing"
  assert result["count"] == 6
  radii = [point["radius"] for point in result["curve"]]
  assert radii[0] == 0
  assert radii[-1] <= result["reach"]
  assert result["largest_radius"] <= result["reach"]
  smoothing = certify.RandomizedSmoothing(0.25, num_estimation=_TINY.draws)
  assert result["reach"] == smoothing.largest_radius
  secure = done.results()["secure-3/certify"]
  assert secure["count"] == 3
  assert 0 < secure["largest_radius"] <= secure["reach"] < 10


@pytest.mark.slow
def test_the_classifier_alone_is_what_a_denoiser_is_compared_with(done):
  result = done.results()["public/certify"]
  assert result["certificate"] == "randomised_smoothing"
  assert result["count"] == 6
  text = done.folder.file("table.md").read_text()
  row = "| the public classifier alone | public data | public data | - | 6 |"
  assert row in text


@pytest.mark.slow
def test_attacks_are_crafted_both_ways(done, parts):
  """Around a model that is the classifier itself, both ways are one."""
  result = done.results()["sound-3/attack-1"]
  names = [attack["name"] for attack in result["attacks"]]
  assert names == list(transdenoiser_cells.ATTACKS)

  class Itself:
    def noisy_logits(self, x, seed):
      del seed
      return done.classifier(x)

  cell = transdenoiser_cells.Cell("sound", 3.0, "attack-1")
  found = transdenoiser_measure.attack_cell(
    cell, _TINY, parts, Itself(), done.classifier
  )
  for attack in found["attacks"]:
    assert attack["transfer"] == attack["classifier"]
    assert attack["adaptive"] == pytest.approx(attack["classifier"], abs=0.13)
  worst = min(attack["transfer"] for attack in found["attacks"])
  assert worst < found["clean_accuracy"]


def test_a_model_on_another_range_is_asked_in_units_of_0_to_1():
  class Model:
    def noisy_logits(self, x, seed):
      del seed
      return x

  recipe = dataclasses.replace(_TINY.recipes["nodp"], value_range=(-1.0, 1.0))
  logits = transdenoiser_measure.noisy_logits(recipe, Model())
  np.testing.assert_allclose(
    logits(tf.constant([0.0, 0.5, 1.0]), None), [-1, 0, 1]
  )
  assert transdenoiser_measure.unit_of(recipe) == 2


@pytest.mark.slow
def test_page_shows_claims_beside_what_is_proven(done):
  text = done.folder.file("table.md").read_text()
  for title in (
    "## Certified accuracy in % by l_2 radius, proven",
    "## Accuracy in % of the majority of draws, l_2 attacks of 0.5",
    "## What the input noise was counted for",
  ):
    assert title in text
  for line in text.splitlines():
    if line.startswith("| As published"):
      cells = [cell.strip() for cell in line.split("|")]
      assert cells[3] == "none known"
      assert cells[4] == "not run"
  assert text.count(".svg)") == 3
  for name in ("certified", "attacks", "budgets"):
    xml.etree.ElementTree.parse(done.folder.file(f"{name}.svg"))
    svg = done.folder.file(f"{name}.svg").read_text()
    assert svg.count("<svg") == 1


@pytest.mark.slow
def test_labels_of_curves_have_all_three_figures(done):
  results = done.results()
  label = transdenoiser_page.label_of(results, results["paper-3/certify"])
  assert "claimed (" in label
  assert "proven none known" in label
  assert "audited not run" in label
  label = transdenoiser_page.label_of(results, results["sound-3/certify"])
  assert f"1e-5) ({run_facts.CONDITION}) / audited" in label


@pytest.mark.slow
def test_resume_keeps_what_is_done(done, parts, monkeypatch):
  again = transdenoiser.Experiment(
    str(done.folder.path), "tiny", _TINY, parts, "a command"
  )
  again.open(resume=True)
  monkeypatch.setattr(again, "measure", pytest.fail)
  again.run(_quick(again.cells))
  other = dataclasses.replace(_TINY, draws=200)
  changed = transdenoiser.Experiment(
    str(done.folder.path), "tiny", other, parts
  )
  with pytest.raises(ValueError, match="same settings"):
    changed.open(resume=True)
