"""A run of the membership experiment: points, results, pages."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree

import numpy as np
import pytest

from experiments.privacy_risks.membership import __main__ as membership
from experiments.privacy_risks.membership import cells as membership_cells
from experiments.privacy_risks.membership import findings as membership_findings
from experiments.privacy_risks.membership import measure as membership_measure
from experiments.privacy_risks.membership import scales as membership_scales
from experiments.privacy_risks.training import (
  measure as robust_training_measure,
)
from tests.experiments import running
from tf_privrob import data
from tf_privrob import membership as membership_lib
from tf_privrob import privacy
from tf_privrob import run_folder
from tf_privrob.runs import infer as inferring
from tf_privrob.runs import train as training

pytestmark = pytest.mark.usefixtures("checked_once")

_SMOKE = membership_scales.SCALES["smoke"]


def _few(*names, **changes):
  """Some models of smoke, with shorter trainings."""
  models = {}
  for name in names:
    model = _SMOKE.models[name]
    recipe = dataclasses.replace(
      model.recipe, factor=0.1, network_settings={"hidden": (16,)}
    )
    if recipe.dp_epsilon:
      recipe = dataclasses.replace(
        recipe, changes={**recipe.changes, "epochs": 2.0}
      )
    models[name] = dataclasses.replace(model, recipe=recipe)
  sizes = {"num_points": 120, "num_swept": 120, "num_fit": 3, "num_dual": 4}
  return dataclasses.replace(_SMOKE, models=models, **{**sizes, **changes})


_TINY = _few(
  "digits-natural",
  "digits-pgd",
  "digits-ibp",
  "digits-private_pgd-3",
  "digits-pgd-without_0",
  radii=(0.0, 1.0),
  temperatures=(1.0, 50.0),
)


def _experiment(folder, scale=_TINY, **more):
  datasets = robust_training_measure.Datasets(["digits"])
  return membership.Experiment(
    str(folder), "tiny", scale, datasets, "a command", **more
  )


@pytest.fixture(scope="module")
def done(tmp_path_factory):
  return running.measured(_experiment(tmp_path_factory.mktemp("membership")))


@pytest.mark.slow
def test_a_model_of_robust_training_is_read_and_not_changed(done, tmp_path):
  """The folder of another run stands for that of robust_training."""
  name = "digits-natural"
  model = dataclasses.replace(_TINY.models[name], own=False)
  scale = dataclasses.replace(_TINY, models={name: model}, robust="tiny")

  def state():
    return {
      path: (path.stat().st_mtime_ns, path.stat().st_size)
      for path in done.folder.path.rglob("*")
    }

  before = state()
  again = _experiment(tmp_path, scale, robust_dir=str(done.folder.path))
  again.open(resume=False)
  again.run(again.cells)
  assert state() == before
  results = again.results()
  assert results[f"{name}/train"]["origin"].endswith(name)
  first = done.results()[f"{name}/infer"]["strategies"]
  assert results[f"{name}/infer"]["strategies"] == first
  assert not again.folder.has(f"{name}/run/model.keras")


def test_the_condition_of_an_older_training_is_that_of_its_run(tmp_path):
  """Its train.json has none, and seed null."""
  home = run_folder.RunFolder(tmp_path)
  digits = data.load("digits")
  sizes = {"num_train": digits.num_train, "num_test": digits.num_test}
  home.write_json("train.json", {**sizes, "audited": None})
  stated = privacy.PrivacyStatement(None, None, condition="only on Sundays")
  home.write_json("run/privacy.json", stated.to_dict())
  found = membership_measure.adopt_cell("digits-natural", _TINY, digits, home)
  assert found["condition"] == "only on Sundays"


@pytest.mark.slow
def test_a_model_of_other_data_is_refused(done):
  home = run_folder.RunFolder(done.folder.file("digits-natural"))
  digits = data.load("digits").take(200)
  with pytest.raises(ValueError, match="num_train=300 there and 200 here"):
    membership_measure.adopt_cell("digits-natural", _TINY, digits, home)


# Points and groups.


def _dataset(x_train, x_test):
  labels = [np.arange(len(x)) % 2 for x in (x_train, x_test)]
  return data.from_arrays(
    "points", x_train, labels[0], x_test, labels[1], 2, (0.0, 1.0)
  )


def test_left_out_rows_are_one_of_each_class_and_never_kept():
  labels = np.arange(60) % 3
  left, kept = [], []
  for number in range(6):
    rows = membership_measure.left_out_rows(labels, number)
    assert labels[rows].tolist() == [0, 1, 2]
    left += rows.tolist()
    kept += membership_measure.kept_rows(labels, number).tolist()
  assert len(set(left)) == 18
  assert len(set(kept)) == 18
  assert not set(left) & set(kept)
  dataset = _dataset(np.linspace(0, 1, 60)[:, None], np.full((2, 1), 0.5))
  rest = membership_measure.without(dataset, np.array([0, 59]))
  np.testing.assert_array_equal(rest.x_train, dataset.x_train[1:59])
  np.testing.assert_array_equal(rest.y_train, dataset.y_train[1:59])


# A tiny run.


@pytest.mark.slow
def test_results(done):
  results = done.results()
  assert set(results) == {cell.name for cell in done.cells}
  infer = results["digits-pgd/infer"]
  assert infer["accuracies"]["train"]["count"] == 120
  assert infer["accuracies"]["adv-test"]["accuracy"] <= 1
  inferred = membership_findings.inferred
  benign = inferred(infer, "I_B")
  gap = inferred(infer, "I_B", "gap", "correct")
  train, test = (infer["accuracies"][part] for part in ("train", "test"))
  expected = 0.5 + (train["accuracy"] - test["accuracy"]) / 2
  assert gap["balanced_accuracy"] == pytest.approx(expected)
  # A margin orders at least as finely as a confidence.
  margin = inferred(infer, "I_B", "oracle", "margin")
  assert margin["balanced_accuracy"] >= benign["balanced_accuracy"] - 1e-9
  assert inferred(infer, "I_V") is None
  verified = inferred(results["digits-ibp/infer"], "I_V")
  assert verified["num_members"] == 120
  accuracies = results["digits-ibp/infer"]["accuracies"]
  for part in ("train", "test"):
    attacked = accuracies[f"adv-{part}"]["accuracy"]
    assert accuracies[f"ver-{part}"]["accuracy"] <= attacked
  assert results["digits-private_pgd-3/train"]["proven"]["dp_epsilon"] <= 3
  assert results["digits-pgd-without_0/train"]["num_train"] == 290


@pytest.mark.slow
def test_parts_agree_with_each_other(done):
  """Radius 0 is I_B, radius 1 and temperature 1 are I_A of the main cell."""
  results = done.results()
  infer = results["digits-pgd/infer"]
  benign, attacked = (
    membership_findings.inferred(infer, name)["balanced_accuracy"]
    for name in ("I_B", "I_A")
  )
  first, second = results["digits-pgd/radii"]["radii"]
  assert (first["radius"], second["radius"]) == (0.0, 0.1)
  assert first["balanced_accuracy"] == pytest.approx(benign)
  assert second["balanced_accuracy"] == pytest.approx(attacked, abs=0.02)
  one, hot = results["digits-pgd/temperatures"]["temperatures"]
  assert one["I_A"]["balanced_accuracy"] == pytest.approx(attacked)
  assert hot["temperature"] == 50.0
  losses = results["digits-pgd/losses"]["losses"]["benign"]
  assert sum(losses["members"]["counts"]) == 120
  parts = [losses[f"{k} non-members"]["count"] for k in ("secure", "insecure")]
  assert sum(parts) == 120
  right = infer["accuracies"]["adv-test"]["accuracy"]
  assert parts[0] == round(120 * right)


@pytest.mark.slow
def test_worst_cases_are_those_that_infer_has(done, tmp_path):
  """One function says how worst cases are bounded, and who is judged."""
  path = done.folder.file("digits-ibp")
  model = training.load_run(run_folder.RunFolder(path))
  dataset = data.load("digits").take(300)
  found = inferring.infer(
    run_folder.RunFolder(tmp_path), model, dataset, attack_eps=0.1, num=120
  )
  own = tmp_path / f"nonprivate/membership/{found['outputs']}.npz"
  theirs = path / "run/nonprivate/membership/verified.npz"
  pairs = (membership_lib.Outputs.load(p).worst_case for p in (own, theirs))
  for one, other in zip(*pairs):
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_outputs_are_made_once(done, monkeypatch):
  folder = done.folder.file("digits-pgd/run/nonprivate/membership")
  assert {"attacked.npz", "targeted.npz"} <= {p.name for p in folder.iterdir()}
  monkeypatch.setattr(membership_lib.Request, "__call__", pytest.fail)
  cell = membership_cells.Cell("digits-pgd", "infer")
  again = done.measure(cell)
  assert again["strategies"] == done.results()["digits-pgd/infer"]["strategies"]


@pytest.mark.slow
def test_resume_keeps_what_is_done(done, monkeypatch):
  again = _experiment(done.folder.path)
  again.open(resume=True)
  monkeypatch.setattr(again, "measure", pytest.fail)
  again.run(again.cells)
  other = dataclasses.replace(_TINY, num_points=121)
  with pytest.raises(ValueError, match="same settings"):
    _experiment(done.folder.path, other).open(resume=True)


# The page.


@pytest.mark.slow
def test_page_shows_no_claim_alone(done):
  text = done.folder.file("table.md").read_text()
  private = running.rows(text, "PGD, private")
  assert len(private) == 2  # what is inferred, its training
  for row in private:
    assert row[1].startswith("(")
    assert row[2].startswith("(")
    assert row[3] == "not run"
  for row in running.rows(text, "PGD |") + running.rows(text, "natural |"):
    assert row[1:4] == ["none", "none known", "not run"]
  for title in ("Findings", "Table 5", "Table 7", "Figure 2", "Private"):
    assert f"## {title}" in text
  assert "an upper estimate" in text
  assert "up to 120 training and up to as many test examples" in text
  assert text.count(".svg)") >= 6
  for name in ("figure-1", "figure-2", "figure-5-8-9", "private"):
    xml.etree.ElementTree.parse(done.folder.file(f"{name}.svg"))


@pytest.mark.slow
def test_results_are_plain_json(done):
  text = done.folder.file("results.json").read_text()
  assert json.loads(text)["cells"].keys() == done.results().keys()
  assert '"roc"' not in text
