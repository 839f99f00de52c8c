"""The halfspaces experiment: noise, margins, attacks, the page."""

from __future__ import annotations

import dataclasses
import math
import xml.etree.ElementTree

import numpy as np
import pytest
import tensorflow as tf

from experiments.grid import page as grid_page
from experiments.halfspaces import __main__ as halfspaces
from experiments.halfspaces import cells as halfspaces_cells
from experiments.halfspaces import measure as halfspaces_measure
from experiments.halfspaces import page as halfspaces_page
from tests.experiments import running
from tf_privrob import certify
from tf_privrob import data
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob.privacy import run_facts

_TINY = dataclasses.replace(
  halfspaces_cells.SCALES["smoke"],
  batches={"joint": (200,), "literal": (200,), "kesler": (200,)},
  dp_epsilons=(1.0, 4.0),
  dp_deltas=(1e-3, 1e-5),
  trials=3,
  radii=(0.0, 0.5, 1.0, 2.0),
  cnn_dp_epsilons=(4.0,),
  cnn_epochs=1.0,
  num_attacked=30,
  attack_steps=8,
  attack_radii=(0.0, 0.5, 1.0),
)


@pytest.fixture(scope="module")
def digits():
  return data.load("digits")


@pytest.fixture(scope="module")
def done(tmp_path_factory, digits):
  """All cells of the tiny scale but the sample sizes."""
  folder = tmp_path_factory.mktemp("halfspaces")
  experiment = halfspaces.Experiment(
    str(folder), "tiny", _TINY, digits, "a command"
  )
  cells = [c for c in experiment.cells if c.recipe != "rates"]
  return running.measured(experiment, cells)


# Noise.


@pytest.mark.slow
def test_noise_of_each_accounting():
  """The facts' table for n = 60,000, B = 500, dp_epsilon 1, by RDP and PLD."""
  found = {
    name: halfspaces_measure.noise(name, (1.0, 1e-5), 60_000, 500, 10)
    for name in halfspaces_cells.ACCOUNTINGS
  }
  assert found["literal"]["stddev"] == pytest.approx(1.053, abs=2e-3)
  assert found["literal"]["claimed"] == 1.0
  assert found["literal"]["proven"] == pytest.approx(1.477, abs=3e-3)
  # PLD asks for less than the RDP figures 1.411, 3.33 and 1.49.
  assert 1.2 < found["joint"]["stddev"] < 1.411
  assert 2.6 < found["shared"]["stddev"] < 3.33
  assert 1.15 < found["kesler"]["stddev"] < 1.49
  for name in ("joint", "shared", "kesler"):
    assert 0.99 < found[name]["proven"] <= 1.0
    assert found[name]["claimed"] == found[name]["proven"]
  ratio = found["shared"]["stddev"] / found["kesler"]["stddev"]
  assert ratio == pytest.approx(math.sqrt(5))


# Margins.


def _margins(weights, x, y):
  found = halfspaces_measure.scores(weights, x)
  np.testing.assert_allclose(found, x @ weights, rtol=1e-4, atol=1e-5)
  return halfspaces_measure.margins(weights, found, y)


def test_margins_by_brute_force():
  rng = np.random.default_rng(0)
  weights = rng.normal(size=(2, 3, 5, 4))
  x, y = rng.normal(size=(6, 5)), rng.integers(0, 4, 6)
  found = _margins(weights, x, y)
  assert found.shape == (2, 3, 6)
  for i in range(2):
    for j in range(3):
      w = weights[i, j]
      for k in range(6):
        expected = min(
          (w[:, y[k]] - w[:, c]) @ x[k] / np.linalg.norm(w[:, y[k]] - w[:, c])
          for c in range(4)
          if c != y[k]
        )
        assert found[i, j, k] == pytest.approx(expected)


def test_margins_are_those_of_the_certificate(digits):
  network = models.linear(digits.input_shape, 10)
  x, y = digits.x_test[:40], digits.y_test[:40]
  kernel = network.layers[-1].kernel.numpy()
  found = _margins(kernel, x.reshape(40, -1), y)
  for row, radius in zip(certify.LinearMargin().certify(network, x, y), found):
    assert (radius > 0) == row.correct
    if row.correct:
      assert row.radius == pytest.approx(radius, rel=2e-3, abs=1e-4)


def test_equal_weights_have_no_margin():
  found = _margins(np.ones((3, 2)), np.ones((1, 3)), [0])
  assert found[0] == 0


# The attack.


def test_attack_on_a_linear_model_falls_where_the_margin_ends(digits):
  """For a linear rule PGD can be judged by the exact margin."""
  rng = np.random.default_rng(1)
  network = models.linear(digits.input_shape, 10)
  centres = np.stack(
    [
      digits.x_train[digits.y_train == k].mean(axis=0).ravel()
      for k in range(10)
    ]
  )
  centres = centres.reshape(10, 64)
  kernel = centres - centres.mean(axis=0) + 0.01 * rng.normal(size=(10, 64))
  network.layers[-1].kernel.assign(kernel.T)
  scale = dataclasses.replace(
    _TINY, attack_radii=(0.0, 0.3, 0.8), attack_steps=40, num_attacked=60
  )
  found = halfspaces_measure.attack_cell(scale, digits, network)
  rows = np.arange(0, digits.num_test, digits.num_test // 60)[:60]
  exact = _margins(
    network.layers[-1].kernel.numpy(),
    digits.x_test[rows].reshape(60, -1),
    digits.y_test[rows],
  )
  for radius, free, boxed in zip(found["radii"], found["free"], found["boxed"]):
    truth = (exact > radius).mean()
    assert truth <= free + 1e-9
    assert free <= truth + 0.05
    assert boxed >= free - 1e-9


# Cells and pages.


def test_cells_and_their_trainings():
  cells = halfspaces_cells.cells(_TINY, ("one",))
  names = [cell.name for cell in cells]
  assert names == [
    "perceptron/joint-200",
    "perceptron/literal-200",
    "perceptron/kesler-200",
    "cnn-4/train",
    "cnn-4/attack",
    "rates/one",
  ]
  assert cells[4].training == cells[3]
  assert cells[0].training == cells[0]
  assert (cells[1].accounting, cells[1].batch_size) == ("literal", 200)


def test_budgets_are_those_of_the_figure_each_once():
  found = halfspaces_cells.budgets(_TINY, "digits")
  assert found == [(1.0, 1e-5), (4.0, 1e-5), (1.0, 1e-3)]
  assert halfspaces_cells.budgets(_TINY, "usps")[0] == (1.0, 1e-4)


@pytest.mark.slow
def test_results(done):
  results = done.results()
  literal = results["perceptron/literal-200"]
  assert literal["steps"] == round(done.dataset.num_train / 200)
  rows = literal["rows"]
  assert len(rows) == 2 * (3 + 1)  # margins x (budgets and no noise)
  for row in rows:
    assert len(row["accuracies"]) == 3
    assert row["robust"][0] == pytest.approx(row["accuracy"])
    assert row["robust"] == sorted(row["robust"], reverse=True)
  strict = [r for r in rows if r["dp_epsilon"] == 1.0 and r["dp_delta"] == 1e-5]
  assert all(row["proven"] > 1.3 > row["claimed"] for row in strict)
  free = max(r["accuracy"] for r in rows if r["dp_epsilon"] is None)
  assert free > 0.6
  network = results["cnn-4/train"]
  assert network["proven"]["dp_epsilon"] <= 4.0
  assert network["condition"] == run_facts.CONDITION
  assert network["config"]["seed"] == 0
  attacked = results["cnn-4/attack"]
  assert attacked["free"] == sorted(attacked["free"], reverse=True)


@pytest.mark.slow
def test_proven_is_what_the_accountant_says(done):
  row = done.results()["perceptron/literal-200"]["rows"][1]
  count = done.dataset.num_train
  release = privacy.poisson_sgd(
    row["stddev"], 200 / count, 10 * round(count / 200)
  )
  expected = privacy.dp_epsilon([release], row["dp_delta"])
  assert row["proven"] == pytest.approx(expected)


def test_best_is_the_best_and_keeps_its_setting():
  def row(margin, accuracy, robust):
    return {
      "margin": margin,
      "dp_epsilon": 1.0,
      "dp_delta": 1e-5,
      "accuracy": accuracy,
      "robust": [accuracy, robust],
    }

  results = {
    "a": {
      "recipe": "perceptron",
      "part": "joint-10",
      "rows": [row(0.1, 0.7, 0.1), row(1.0, 0.6, 0.5)],
    },
    "b": {
      "recipe": "perceptron",
      "part": "joint-50",
      "rows": [row(0.1, 0.5, 0.2)],
    },
  }
  found = halfspaces_page.best(results, "joint", 1.0, 1e-5)
  assert (found["batch"], found["margin"]) == (10, 0.1)
  found = halfspaces_page.best(results, "joint", 1.0, 1e-5, place=1)
  assert (found["batch"], found["margin"]) == (10, 1.0)
  assert halfspaces_page.best(results, "joint", 2.0, 1e-5) is None


def test_crossing_by_hand():
  row = [0.8, 0.7, 0.5]
  attacked = {"radii": [0.0, 0.5, 1.0], "free": [0.9, 0.7, 0.4]}
  assert halfspaces_page.crossing(row, [0.0, 0.5, 1.0], attacked) == 1.0
  attacked["free"] = [0.9, 0.8, 0.6]
  assert halfspaces_page.crossing(row, [0.0, 0.5, 1.0], attacked) is None


@pytest.mark.slow
def test_no_claim_stands_alone(done):
  for table in done.tables(done.results()):
    if "claimed dp_epsilon" in table.head:
      place = table.head.index("claimed dp_epsilon")
      assert table.head[place + 1 : place + 3] == [
        "proven dp_epsilon",
        "audited",
      ]
      assert all(row[place + 1] for row in table.rows)
    for place, name in enumerate(table.head):
      for row in table.rows if "proven dp_epsilon" in name else ():
        known = row[place] == grid_page.NONE_KNOWN
        assert known or row[place].endswith(f" ({run_facts.CONDITION})")
  text = done.folder.file("table.md").read_text(encoding="utf-8")
  assert "certified" not in text


@pytest.mark.slow
def test_page_and_figures(done):
  page = done.folder.file("table.md").read_text(encoding="utf-8")
  assert "Robust accuracy in % by l_2 radius, exact" in page
  for name in ("figure-1", "figure-1-robust", "figure-2"):
    path = done.folder.file(f"{name}.svg")
    xml.etree.ElementTree.parse(path)
    assert f"Proven {run_facts.CONDITION}." in path.read_text()
    assert f"]({name}.svg)" in page


def test_rows_of_norm_one(digits):
  found = halfspaces_measure.unit_rows(digits.x_train[:5])
  assert found.shape == (5, 64)
  np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)


@pytest.mark.slow
def test_network_is_a_keras_file(done):
  path = done.folder.file("cnn-4/run/model.keras")
  loaded = models.load_model(path)
  assert isinstance(loaded, tf.keras.Model)
