"""The smoothing experiment: cells, certificates, attacks inside, the page."""

import dataclasses
import types
import xml.etree.ElementTree

import numpy as np
import pytest
import tensorflow as tf

from experiments.grid import engine as grid
from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.grid import work
from experiments.smoothing import __main__ as smoothing
from experiments.smoothing import cells as smoothing_cells
from experiments.smoothing import measure as smoothing_measure
from experiments.smoothing import page as smoothing_page
from tests.experiments import running
from tf_privrob import data
from tf_privrob import methods
from tf_privrob import models
from tf_privrob.privacy import run_facts

pytestmark = pytest.mark.usefixtures("checked_once")

_CHANGES = {"batch_size": 64, "epochs": 1.0, "checkpoint_every": 5}
_TINY = smoothing_cells.Scale(
  dp_epsilons=(3.0,),
  stddevs=(0.25, 0.5),
  recipes={
    "flagship": smoothing_cells.Recipe(
      "The flagship",
      "dp_smooth",
      None,
      {**_CHANGES, "augmentation_multiplicity": 2},
      "mlp",
    ),
    "plain": smoothing_cells.Recipe(
      "Plain", "dp_sgd", None, _CHANGES, "mlp", stddev_field=None
    ),
  },
  num_images=6,
  draws=(50, 100),
  attacked=("flagship",),
  num_attacked=3,
  attack_steps=2,
  eot_draws=2,
  verdict_draws=2_000,
)


@pytest.fixture(scope="module")
def digits():
  return data.load("digits")


@pytest.fixture(scope="module")
def done(tmp_path_factory, digits):
  """Everything of the tiny scale."""
  folder = tmp_path_factory.mktemp("smoothing")
  return running.measured(
    smoothing.Experiment(str(folder), "tiny", _TINY, digits, "a command")
  )


def test_one_training_serves_all_noises_where_it_does_not_know_them():
  names = [cell.name for cell in smoothing_cells.cells(_TINY)]
  assert len(names) == len(set(names))
  assert [name for name in names if name.endswith("train")] == [
    "flagship-3-0.25/train",
    "plain-3/train",
    "flagship-3-0.5/train",
  ]
  assert "plain-3/certify-0.5-100" in names
  assert "flagship-3-0.5/attack-0.5" in names
  assert not any("plain" in name and "attack" in name for name in names)


def test_cells_bring_their_training():
  every = smoothing_cells.cells(_TINY)
  chosen = grid.select(every, "plain-3/certify-0.5-50")
  assert [cell.name for cell in chosen] == [
    "plain-3/train",
    "plain-3/certify-0.5-50",
  ]


def test_a_whole_name_means_that_cell_only():
  scale = dataclasses.replace(_TINY, draws=(10, 100))
  every = smoothing_cells.cells(scale)
  chosen = grid.select(every, "plain-3/certify-0.5-10")
  assert [cell.part for cell in chosen] == ["train", "certify-0.5-10"]
  more = grid.select(every, "plain-3/certify-0.5-1")
  assert [cell.part for cell in more][1:] == [
    "certify-0.5-10",
    "certify-0.5-100",
  ]


def test_settings_take_budget_and_noise():
  cell = smoothing_cells.Cell("flagship", 3.0, 0.5, "train")
  config = smoothing_cells.settings(cell, _TINY, 1000)
  assert isinstance(config.objective, methods.Smooth)
  assert (config.dp_epsilon, config.dp_delta) == (3.0, 1e-6)
  assert config.objective.smoothing_stddev == 0.5
  assert config.augmentation_multiplicity == 2
  assert smoothing_cells.settings(cell, _TINY, 100).batch_size == 25


def test_settings_can_depend_on_the_noise():
  recipe = dataclasses.replace(
    _TINY.recipes["flagship"], by_stddev={0.5: {"attack_warmup": 7}}
  )
  scale = dataclasses.replace(_TINY, recipes={"flagship": recipe})
  found = [
    smoothing_cells.settings(
      smoothing_cells.Cell("flagship", 3.0, stddev, "train"), scale, 1000
    ).objective.attack_warmup
    for stddev in (0.25, 0.5)
  ]
  assert found == [0, 7]


def test_every_recipe_of_every_scale_has_its_settings():
  for scale in smoothing_cells.SCALES.values():
    for cell in smoothing_cells.cells(scale):
      recipe = scale.recipes[cell.recipe]
      assert recipe.network in models.NAMES
      config = smoothing_cells.settings(cell, scale, 60_000)
      assert getattr(config, "dp_epsilon", None) in (None, cell.dp_epsilon)
      assert hasattr(config, "dp_epsilon") or "not private" in recipe.label


def test_full_is_what_the_published_figures_are_for():
  full = smoothing_cells.SCALES["full"]
  assert full.stddevs == (0.25, 0.5, 1.0)
  assert full.num_images == 500
  assert max(full.draws) == 100_000
  assert smoothing_cells.PUBLISHED_DRAWS in full.draws


def test_every_twentieth_test_image(digits):
  many = dataclasses.replace(
    digits,
    x_test=np.zeros((10_000, 8, 8, 1), np.float32),
    y_test=np.zeros(10_000, np.int64),
  )
  rows = work.chosen_rows(many, 500)
  np.testing.assert_array_equal(rows, np.arange(0, 10_000, 20))


def test_holdout_replaces_the_test_images(digits):
  found = smoothing_measure.load_dataset("digits", None, holdout=100)
  assert found.num_train == digits.num_train - 100
  np.testing.assert_array_equal(found.x_test, digits.x_train[-100:])
  assert "The last 100 training images" in found.split


@pytest.mark.slow
def test_results_are_proven_and_complete(done):
  results = done.results()
  assert list(results) == [cell.name for cell in done.cells]
  for result in results.values():
    if result["part"] == "train":
      assert result["proven"]["dp_epsilon"] <= 3.0
      assert result["proven"]["dp_delta"] == 1e-6
      assert result["condition"] == run_facts.CONDITION
      assert result["config"]["seed"] == 0
    if result["part"].startswith("certify"):
      curve = [point["accuracy"] for point in result["curve"]]
      assert curve == sorted(curve, reverse=True)
      assert result["count"] == 6
      assert result["num_draws"] == 6 * (100 + result["draws"])
    if result["part"].startswith("attack"):
      assert result["fallen"] == 0


@pytest.mark.slow
def test_the_table_has_claimed_proven_and_audited(done):
  text = done.folder.file("table.md").read_text()
  lines = [line for line in text.splitlines() if line.startswith("| The fl")]
  assert len(lines) == 2 * (2 + 2 + 1 + 1)
  for line in lines:
    claimed, proven, audited = line.split(" | ")[1:4]
    assert claimed == "(3, 1e-6)"
    assert proven == f"(3, 1e-6) ({run_facts.CONDITION})"
    assert audited == "not run"


@pytest.mark.slow
def test_the_page_is_whole(done):
  page = done.folder.file("table.md").read_text()
  assert page.count(".svg)") == 1
  assert f"{len(done.cells)} of {len(done.cells)} cells" in page
  assert "a command" in page
  svg = done.folder.file("curves-3.svg").read_text()
  assert xml.etree.ElementTree.fromstring(svg) is not None


@pytest.mark.slow
def test_the_legend_names_every_curve_once(done):
  results = done.results()
  del results["flagship-3-0.25/certify-0.25-50"]
  del results["flagship-3-0.25/certify-0.25-100"]  # not in the first panel
  (spec,) = smoothing_page.figures(done.record, results)
  figure = grid_plots.draw(spec)
  (legend,) = figure.legends
  assert legend.get_title().get_text() == f"Proven {run_facts.CONDITION}."
  labels = [text.get_text() for text in legend.get_texts()]
  assert sorted(labels) == [
    "Plain, proven (3, 1e-6)",
    "The flagship, proven (3, 1e-6)",
  ]


@pytest.mark.slow
def test_published_figures_stand_beside_ours(done):
  record = {**done.record, "dataset": "mnist"}
  made = smoothing_page.tables(record, done.results())
  radii = made[0]
  column = radii.head.index("published best")
  assert {row[column] for row in radii.rows} == {"0.752", "1.296"}
  accuracy = next(table for table in made if "noise 0.25" in table.title)
  assert accuracy.rows[0][0] == "published best"
  assert accuracy.rows[0][accuracy.head.index("0.5")] == "93.30"


def test_standard_error_counts_wrong_images_as_zero():
  rows = [
    types.SimpleNamespace(radius=1.0, correct=True),
    types.SimpleNamespace(radius=3.0, correct=True),
    types.SimpleNamespace(radius=9.0, correct=False),
  ]
  # Values 1, 3, 0: variance 7/3 over n - 1 = 2, divided by n = 3.
  expected = (7 / 3 / 3) ** 0.5
  assert smoothing_measure.standard_error(rows) == pytest.approx(expected)


def test_accuracy_between_radii_is_that_of_the_larger_one():
  curve = [
    {"radius": 0.0, "accuracy": 0.9},
    {"radius": 0.05, "accuracy": 0.8},
    {"radius": 0.1, "accuracy": 0.5},
  ]
  found = [
    grid_page.accuracy_at({"curve": curve}, radius)
    for radius in (0.0, 0.02, 0.05, 0.1, 0.2)
  ]
  assert found == [0.9, 0.8, 0.8, 0.5, 0.0]


@pytest.mark.slow
def test_claimed_sizes_stand_beside_proven_ones(tmp_path, digits):
  changes = {
    "l2_clip_norm": 0.1,
    "throwaway_steps": 2,
    "epochs": 2.0,
    "num_draws": 50,
    "batch_size": 64,
  }
  recipe = smoothing_cells.Recipe(
    "Released",
    "secure_sgd",
    "mnist_released",
    changes,
    "secure_sgd_mnist",
    stddev_field=None,
    certificate="claimed",
  )
  scale = dataclasses.replace(_TINY, recipes={"released": recipe}, attacked=())
  experiment = smoothing.Experiment(str(tmp_path), "tiny", scale, digits)
  names = [cell.name for cell in experiment.cells]
  assert names == ["released-3/train", "released-3/claimed"]
  trained, result = running.measured(experiment).results().values()
  assert trained["proven"] is None
  assert trained["claimed"]["dp_epsilon"] > 0
  assert result["proven"]["fallen"] == 0
  assert result["claimed"]["attacked"] > 0
  sizes = [result[kind]["median_size"] for kind in ("claimed", "proven")]
  assert sizes[0] > 10 * sizes[1]
  text = experiment.folder.file("table.md").read_text()
  assert "## Claimed sizes and proven radii, attacked inside" in text
  assert "none known" in text


@pytest.mark.slow
def test_pixeldp_is_shown_by_both_bounds(tmp_path, digits):
  recipe = smoothing_cells.Recipe(
    "PixelDP",
    "pixeldp",
    "mnist_5k",
    {"epochs": 2.0},
    "mlp",
    stddev_field=None,
    certificate="rules",
  )
  scale = dataclasses.replace(
    _TINY,
    dp_epsilons=(3.0, 1.0),
    recipes={"open": recipe},
    attacked=(),
    draws=(200,),
  )
  experiment = smoothing.Experiment(str(tmp_path), "tiny", scale, digits)
  names = [cell.name for cell in experiment.cells]
  assert names == ["open-3/train", "open-3/rules"]
  trained, result = running.measured(experiment).results().values()
  assert trained["claimed"] is None
  assert trained["proven"] is None
  paper, tight = result["rules"]["pixeldp"], result["rules"]["tight"]
  assert paper["mean_radius"] <= tight["mean_radius"]
  assert tight["mean_radius"] > 0
  assert paper["curve"][0]["accuracy"] == tight["curve"][0]["accuracy"]
  text = experiment.folder.file("table.md").read_text()
  assert "| PixelDP | none | none known | not run | the paper's search" in text


@pytest.mark.parametrize(("factor", "fallen"), [(0.9, 0), (1.2, 20)])
def test_attacks_inside_find_the_edge_of_a_half_space(factor, fallen):
  """The radius of 1[w x > 0] is |w x| / |w| under any Gaussian noise."""
  rng = np.random.default_rng(0)
  w = rng.standard_normal(16).astype(np.float32)
  x = rng.standard_normal((20, 4, 4, 1)).astype(np.float32)
  margin = x.reshape(20, -1) @ w / np.linalg.norm(w)

  def logits(x):
    value = tf.linalg.matvec(tf.reshape(x, [-1, 16]), w)
    return 20.0 * tf.stack([-value, value], axis=1)

  noisy = smoothing_measure.smoothed(lambda x, training: logits(x), 0.2)
  scale = dataclasses.replace(
    _TINY, attack_steps=10, eot_draws=4, verdict_draws=2_000
  )
  found = smoothing_measure.attack_inside(
    noisy, x, (margin > 0).astype(int), factor * np.abs(margin) + 0.02, scale
  )
  inside = np.abs(margin) > 0.3  # the 0.02 does not reach the edge
  if fallen:
    assert found.all()
  else:
    assert not found[inside].any()


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (["--scale=smok"], "Did you mean 'smoke'?"),
    (["--dataset=minst"], "Did you mean 'mnist'?"),
    ([], "Expected --out_dir"),
    (["--out_dir=x", "--cells=flagship"], "Expected --cells to be a part"),
  ],
)
def test_bad_flags_end_with_code_2(words, message, tmp_path):
  running.require_refusal("smoothing", words, message, tmp_path)
