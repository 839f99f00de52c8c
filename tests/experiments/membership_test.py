"""The membership experiment: cells, published rows, findings, a run, pages."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import xml.etree.ElementTree

import numpy as np
import pytest

from experiments import grid
from experiments import membership
from experiments import membership_cells
from experiments import membership_findings
from experiments import membership_measure
from experiments import membership_notes
from experiments import membership_outputs
from experiments import membership_page
from experiments import membership_plots
from experiments import membership_published
from experiments import membership_scales
from experiments import membership_studies
from experiments import membership_train
from experiments import robust_training_measure
from experiments import robust_training_scales
from tf_privrob import data
from tf_privrob import membership as membership_lib
from tf_privrob import run_folder

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
  experiment = _experiment(tmp_path_factory.mktemp("membership"))
  experiment.open(resume=False)
  experiment.run(experiment.cells)
  experiment.write()
  return experiment


# Cells and models.


def test_cells_and_what_they_need():
  every = membership_cells.cells(_TINY)
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


def test_models_that_are_not_trained_here_are_those_of_robust_training():
  for name in ("small", "full"):
    scale = membership_scales.SCALES[name]
    known = robust_training_scales.SCALES[scale.robust].recipes
    adopted = {n: m.recipe for n, m in scale.models.items() if not m.own}
    assert "uci_har-pgd" in adopted
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
    assert membership_published.row(*pair) is not None
  assert len(main) == 20

  def values(study, dataset):
    return sorted(
      m.studies[study]
      for m in models.values()
      if study in m.studies and m.recipe.dataset == dataset
    )

  assert values("share", "cifar10") == [0.0, 0.5, 0.75, 1.0]
  assert values("subset", "cifar10") == sorted(membership_published.SUBSET)
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
    config = membership_train.settings(recipe, count)
    assert config.private == (recipe.dp_epsilon is not None)
    radius = recipe.changes.get("attack_eps")
    if radius is not None:
      assert config.attack_eps == radius == recipe.attack_eps


def test_a_noise_layer_is_trained_as_long_as_the_natural_model():
  natural, noisy = (
    membership_train.settings(_SMOKE.models[name].recipe, 300)
    for name in ("digits-natural", "digits-noise_layer")
  )
  assert not noisy.private
  assert noisy.noise == "gaussian"
  assert noisy.construction_size == 0.1
  for field in ("epochs", "batch_size", "learning_rate", "optimizer"):
    assert getattr(noisy, field) == getattr(natural, field)


# Robust models that are not there.


def _needed(name="uci_har"):
  scale = membership_scales.SCALES["full"]
  return scale, membership_cells.cells(scale, name)


def test_a_missing_folder_names_the_command():
  scale, cells = _needed()
  with pytest.raises(ValueError, match="robust_training --scale=full") as error:
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
  out = tmp_path / "out"
  found = subprocess.run(
    [
      sys.executable,
      "-m",
      "experiments.membership",
      "--scale=small",
      "--dataset=uci_har",
      f"--out_dir={out}",
      f"--robust_dir={tmp_path / 'none'}",
    ],
    capture_output=True,
    text=True,
    check=False,
  )
  assert found.returncode == 2
  assert "Train them, or leave them out" in found.stderr
  assert not out.exists()


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


def test_a_model_of_other_data_is_refused(done):
  home = run_folder.RunFolder(done.folder.file("digits-natural"))
  digits = data.load("digits").take(200)
  with pytest.raises(ValueError, match="num_train=300 there and 200 here"):
    membership_train.adopt_cell("digits-natural", _TINY, digits, home)


# Published figures, typed by hand from the paper's tables.


@pytest.mark.parametrize(
  ("dataset", "trainer", "table", "inference"),
  [
    ("yale_b", "pgd", 2, (61.69, 68.83)),
    ("yale_b", "ibp", 8, (60.45, 66.28, 76.05)),
    ("fashion_mnist", "dual", 9, (50.58, 50.42, 50.45)),
    ("cifar10", "wrm", 4, (67.16, 64.24)),
    ("uci_har", "natural", 12, (55.36, 55.03)),
  ],
)
def test_published_rows(dataset, trainer, table, inference):
  row = membership_published.row(dataset, trainer)
  assert (row.table, row.inference) == (table, inference)


def test_published_rows_agree_with_what_the_paper_says_of_them():
  row = membership_published.row
  # Advantages in the captions of Tables 2, 3, 4, 8 and 12.
  for dataset, trainer, advantage in (
    ("yale_b", "natural", 11.70),
    ("yale_b", "pgd", 37.66),
    ("fashion_mnist", "pgd", 28.98),
    ("cifar10", "pgd", 51.34),
    ("yale_b", "ibp", 52.10),
    ("uci_har", "pgd", 20.26),
  ):
    best = max(row(dataset, trainer).inference)
    assert 2 * (best - 50) == pytest.approx(advantage)
  # "always has the highest inference accuracy"
  for values in membership_published.CLASSES:
    assert len(values) == len(membership_published.CLASS_STRATEGIES)
    assert max(values) == values[-1]
  # Tables 5 and 6 end with the model of Table 4.
  pgd = row("cifar10", "pgd")
  for table in (membership_published.SHARES, membership_published.RADII):
    assert table[max(table)].inference == pgd.inference
    assert table[max(table)].accuracies == pgd.accuracies
  best = max(membership_published.SUBSET.values(), key=lambda r: max(r[3]))
  assert max(best.inference) == 78.50
  assert membership_published.adapted("yale_b", False) == row("yale_b", "pgd")
  assert membership_published.adapted("uci_har", True) is None


# Points and groups.


def _dataset(x_train, x_test):
  labels = [np.arange(len(x)) % 2 for x in (x_train, x_test)]
  return data.from_arrays(
    "points", x_train, labels[0], x_test, labels[1], 2, (0.0, 1.0)
  )


def test_points_are_members_and_others():
  values = np.linspace(0, 1, 30, dtype=np.float32)[:, None]
  # The last test example is a training example.
  dataset = _dataset(values[:20], values[[20, 21, 22, 23, 3]])
  members, others = membership_outputs.points(dataset, None)
  assert len(members[0]) == 20
  np.testing.assert_array_equal(others[0], values[20:24])
  members, others = membership_outputs.points(dataset, 3)
  assert len(members[0]) == len(others[0]) == 3
  rows = [int(np.flatnonzero(values == x)[0]) for x in members[0]]
  assert sorted(set(rows)) == rows
  assert max(rows) < 20
  np.testing.assert_array_equal(members[1], np.array(rows) % 2)
  again, _ = membership_outputs.points(dataset, 3)
  np.testing.assert_array_equal(again[0], members[0])


def test_points_have_all_classes_where_these_take_turns():
  """Every second one of classes 0, 1, 0, 1, ... would be of one class."""
  values = np.linspace(0, 1, 300)[:, None]
  dataset = _dataset(values[:200], values[200:])
  for _, labels in membership_outputs.points(dataset, 50):
    assert 10 < labels.sum() < 40


def test_left_out_rows_are_one_of_each_class_and_never_kept():
  labels = np.arange(60) % 3
  left, kept = [], []
  for number in range(6):
    rows = membership_train.left_out_rows(labels, number)
    assert labels[rows].tolist() == [0, 1, 2]
    left += rows.tolist()
    kept += membership_train.kept_rows(labels, number).tolist()
  assert len(set(left)) == 18
  assert len(set(kept)) == 18
  assert not set(left) & set(kept)
  dataset = _dataset(np.linspace(0, 1, 60)[:, None], np.full((2, 1), 0.5))
  rest = membership_train.without(dataset, np.array([0, 59]))
  np.testing.assert_array_equal(rest.x_train, dataset.x_train[1:59])
  np.testing.assert_array_equal(rest.y_train, dataset.y_train[1:59])


# Findings.


def _inference(accuracy, count=1000, **more):
  tpr, fpr = accuracy, 1 - accuracy
  return {
    "strategy": "oracle",
    "score": "benign_confidence",
    "balanced_accuracy": accuracy,
    "interval": [accuracy - 0.01, accuracy + 0.01],
    "tpr": tpr,
    "fpr": fpr,
    "num_members": count,
    "num_nonmembers": count,
    "auc": accuracy,
    "auc_interval": [accuracy - 0.01, accuracy + 0.01],
    "tpr_at_fpr": [],
    **more,
  }


def test_verdict_by_two_standard_errors():
  """At 0.5 of 2 x 1,000 points an error is sqrt(2 / 4000) / 2 = 0.01118."""
  compare = membership_findings.compare
  error = 2 * math.sqrt(2) * math.sqrt(2 * 0.25 / 1000) / 2
  found = compare("", "", _inference(0.5), _inference(0.5))
  assert found.error == pytest.approx(error)
  assert found.verdict == "within error"
  for first, second, verdict in (
    (0.57, 0.53, "holds"),
    (0.53, 0.57, "does not hold"),
    (0.54, 0.53, "within error"),
  ):
    found = compare("", "", _inference(first), _inference(second))
    assert found.verdict == verdict
  untested = compare("", "", _inference(0.9), _inference(0.5), "it is short")
  assert untested.verdict == "not tested: it is short"


_TRAINING = {
  "network": "mlp",
  "parameters": 1,
  "num_train": 1,
  "factor": 1.0,
  "dp_epsilon": None,
  "epochs": 1.0,
  "steps": 1,
  "trained_attack_eps": 0.1,
  "changes": {},
  "seconds": 1.0,
}


def _results(*models, paired=0.01):
  """Cells "train" and "infer" of models, as they are written."""
  results = {}
  for name, trainer, studies, fit, benign, attacked in models:
    common = {
      "model": name,
      "dataset": "faces",
      "trainer": trainer,
      "label": name,
      "attack_eps": 0.1,
      "studies": studies,
      "claimed": None,
      "proven": None,
      "audited": None,
    }
    results[f"{name}/train"] = {**common, "part": "train", **_TRAINING}
    right = {"accuracy": fit, "count": 1000, "interval": (fit, fit)}
    results[f"{name}/infer"] = {
      **common,
      "part": "infer",
      "accuracies": {
        column: right for column in ("train", "test", "adv-train", "adv-test")
      },
      "paired": {"I_A": paired},
      "strategies": [
        _inference(benign),
        _inference(attacked, score="adversarial_confidence"),
      ],
    }
  return results


def test_findings_of_main_models():
  results = _results(
    ("n", "natural", {"main": 0}, 0.0, 0.60, 0.52),
    ("p", "pgd", {"main": 0}, 0.95, 0.62, 0.70),
    ("t", "trades", {"main": 0}, 0.5, 0.70, 0.55),
  )
  found = membership_findings.findings(results)
  verdicts = {(f.claim[:9], f.where): f.verdict for f in found}
  assert verdicts == {
    ("I_B above", "faces, n"): "holds",
    ("I_A above", "faces, p"): "holds",
    ("I_A of a ", "faces, p"): "holds",
    ("I_A above", "faces, t"): "does not hold",
    ("I_A of a ", "faces, t"): "not tested: adv-train accuracy is 50.0 %",
  }


def test_two_scores_of_one_model_are_compared_point_by_point():
  """0.62 and 0.64 of 1,000 points: two errors are 0.04 if independent."""
  rows = [("p", "pgd", {"main": 0}, 0.95, 0.62, 0.64)]
  for paired, verdict in ((0.005, "holds"), (0.02, "within error")):
    (found,) = membership_findings.findings(_results(*rows, paired=paired))
    assert found.error == 2 * paired
    assert found.verdict == verdict


def test_paired_error_by_hand():
  """Two of four members and one of two others change their answer."""
  scores = [
    membership_lib.Scores("s", np.array(members), np.array(others))
    for members, others in (
      ([1.0, 1, 1, 0], [0.0, 0]),
      ([1.0, 0, 0, 0], [0.0, 1]),
    )
  ]
  pair = [(found, membership_lib.fixed(found, 0.5)) for found in scores]
  # d = (0, 1, 1, 0), variance 1/4; d = (0, -1), variance 1/4.
  expected = math.sqrt(0.25 / 4 + 0.25 / 2) / 2
  assert membership_measure.paired_error(*pair) == pytest.approx(expected)
  assert membership_measure.paired_error(pair[0], pair[0]) == 0


def test_findings_of_studies_compare_the_ends():
  results = _results(
    ("n", "natural", {"share": 0.0, "radius": 0.0}, 1, 0.55, 0.52),
    ("half", "pgd", {"share": 0.5}, 1, 0.99, 0.99),
    ("p", "pgd", {"share": 1.0, "radius": 0.1, "adaptation": 0}, 1, 0.6, 0.7),
    ("small", "pgd", {"radius": 0.05}, 1, 0.6, 0.75),
    ("a", "pgd", {"adaptation": 1}, 1, 0.6, 0.6),
  )
  found = {f.claim: f for f in membership_findings.findings(results)}
  share = found["leakage rises with the share of adversarial examples"]
  assert (share.larger, share.smaller, share.verdict) == (0.7, 0.52, "holds")
  # The natural model has no radius: 0.05 is the smallest.
  radius = found["leakage rises with the radius of training"]
  assert (radius.larger, radius.smaller) == (0.7, 0.75)
  assert radius.verdict == "does not hold"
  adapted = found["domain adaptation lowers leakage"]
  assert (adapted.larger, adapted.smaller) == (0.7, 0.6)
  assert adapted.where == "faces: p above a, I_A"


def test_a_radius_far_beyond_is_compared_with_that_of_training():
  accuracies = {0.0: 0.6, 0.1: 0.7, 0.15: 0.8, 0.3: 0.5}
  rows = [{"radius": r, **_inference(a)} for r, a in accuracies.items()]
  result = {
    "part": "radii",
    "dataset": "faces",
    "label": "PGD",
    "attack_eps": 0.1,
    "radii": rows,
  }
  (found,) = membership_findings.findings({"p/radii": result})
  assert (found.larger, found.smaller, found.verdict) == (0.7, 0.5, "holds")


def test_sensitivities_are_compared_by_their_means():
  results = {}
  for trainer, values in (("natural", [0.0, 0.1]), ("pgd", [0.5, 0.7])):
    results[trainer] = {
      "part": "left_out",
      "dataset": "faces",
      "trainer": trainer,
      "left_out": {"sensitivity": values},
      "kept": {"sensitivity": [0.0, 0.0]},
    }
  (found,) = membership_findings.findings(results)
  assert (found.larger, found.smaller) == pytest.approx((0.6, 0.05))
  # Standard errors 0.1 and 0.05 of the two means.
  assert found.error == pytest.approx(2 * math.hypot(0.1, 0.05))


# A tiny run.


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


def test_outputs_are_made_once(done, monkeypatch):
  folder = done.folder.file("digits-pgd/run/membership")
  assert {"attacked.npz", "targeted.npz"} <= {p.name for p in folder.iterdir()}
  monkeypatch.setattr(membership_lib.Request, "__call__", pytest.fail)
  cell = membership_cells.Cell("digits-pgd", "infer")
  again = done.measure(cell)
  assert again["strategies"] == done.results()["digits-pgd/infer"]["strategies"]


def test_resume_keeps_what_is_done(done, monkeypatch):
  again = _experiment(done.folder.path)
  again.open(resume=True)
  monkeypatch.setattr(again, "measure", pytest.fail)
  again.run(again.cells)
  other = dataclasses.replace(_TINY, num_points=121)
  with pytest.raises(ValueError, match="same settings"):
    _experiment(done.folder.path, other).open(resume=True)


# The page.


def _rows(text, start):
  return [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in text.splitlines()
    if line.startswith(f"| {start}")
  ]


def test_page_shows_no_claim_alone(done):
  text = done.folder.file("table.md").read_text()
  private = _rows(text, "PGD, private")
  assert len(private) == 2  # what is inferred, its training
  for row in private:
    assert row[1].startswith("(")
    assert row[2].startswith("(")
    assert row[3] == "not run"
  for row in _rows(text, "PGD |") + _rows(text, "natural |"):
    assert row[1:4] == ["none", "none known", "not run"]
  for title in ("Findings", "Table 5", "Table 7", "Figure 2", "Private"):
    assert f"## {title}" in text
  assert "an upper estimate" in text
  assert "up to 120 training and as many test examples" in text
  page = done.folder.file("index.html").read_text()
  assert page.count("<figure") >= 6
  for name in ("figure-1", "figure-2", "figure-5-8-9", "private"):
    xml.etree.ElementTree.parse(done.folder.file(f"{name}.svg"))


def test_results_are_plain_json(done):
  text = done.folder.file("results.json").read_text()
  assert json.loads(text)["cells"].keys() == done.results().keys()
  assert '"roc"' not in text


def test_private_models_are_held_against_the_replaced_example():
  results = _results(("p", "pgd", {"private": 1.0}, 1, 0.9, 0.9))
  results["p/train"]["proven"] = {"dp_epsilon": 1.0, "dp_delta": 0.0}
  for found in results["p/infer"]["strategies"]:
    found.update(strategy="held_out", advantage=0.8)
    found["advantage_interval"] = [0.7, 0.9]
  (row,) = membership_studies.private_table(results).rows
  # tanh(1/2) and tanh(1), in percent and rounded up.
  assert "46.22" in row
  assert "76.16" in row
  assert "below what is allowed" in row
  for found in results["p/infer"]["strategies"]:
    found["advantage_interval"] = [0.77, 0.9]
  (row,) = membership_studies.private_table(results).rows
  assert "ABOVE what is proven" in row


def test_published_rows_stand_beside_measured_ones():
  results = _results(("p", "pgd", {"main": 0}, 1, 0.6, 0.7))
  for result in results.values():
    result["dataset"] = "uci_har"
  accuracy, inference = membership_page.tables(results)[1:3]
  assert accuracy.title.startswith("Table 12, uci_har")
  assert accuracy.rows[1][0] == "p, as published in Table 12"
  assert "73.84" in accuracy.rows[1]
  assert inference.rows[0][4:7] == [
    "60.00 (59.0 to 61.0)",
    "70.00 (69.0 to 71.0)",
    "no bound",
  ]
  assert inference.rows[1][4:7] == ["58.29", "60.13", "-"]


def test_figures_are_left_out_where_there_is_nothing_to_show():
  for _, _, make in membership_plots.FIGURES:
    assert make({}) is None
  record = {"settings": {"num_points": None, "num_swept": 5, "num_dual": 0}}
  notes = membership_notes.notes(record, {})
  assert any("all training and all test examples" in note for note in notes)
