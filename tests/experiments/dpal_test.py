"""experiments.dpal: what it runs, what it keeps, what it writes."""

import csv
import dataclasses
import json
import types
import xml.etree.ElementTree

import numpy as np
import pytest

from experiments.dpal import __main__ as dpal
from experiments.dpal import cells as dpal_cells
from experiments.dpal import figures as dpal_figures
from experiments.dpal import measure as dpal_measure
from experiments.dpal import models as dpal_models
from experiments.dpal import page as dpal_page
from experiments.grid import engine as grid
from experiments.grid import plots as grid_plots
from tests.experiments import running
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import run_folder
from tf_privrob.privacy import run_facts

pytestmark = pytest.mark.usefixtures("checked_once")

_BUDGET = {"dp_epsilon": 2.0, "dp_delta": 0.0}
_PROVEN = {"dp_epsilon": 2.0, "dp_delta": 1e-5}
_INTERVAL = (0.4, 0.9)
_TINY = dataclasses.replace(
  dpal_cells.SCALES["smoke", "mnist"],
  totals=(2.0,),
  train={
    "dpal": (
      "mnist_5k",
      {
        "batch_size": 60,
        "steps": 4,
        "attack_steps": 1,
        "checkpoint_every": 1,
        "eval_every": 4,
      },
    ),
    "adlm": (
      "mnist_small",
      {"batch_size": 60, "steps": 3, "relevance_steps": 3, "eval_every": 3},
    ),
    "dp_sgd": ("mnist_5k", {"batch_size": 64, "epochs": 0.2}),
    "sound_dpal": (
      "mnist_5k_sound",
      {"batch_size": 64, "epochs": 0.2, "attack_steps": 1},
    ),
  },
  num_attacked=6,
  attack_steps=1,
  eot_draws=1,
  verdict_draws=3,
  num_radii=4,
  num_draws=25,
  num_selection=25,
  num_estimation=50,
)


@pytest.fixture(scope="module")
def digits():
  return dpal_models.load_dataset("digits", None)


# What is run.


@pytest.mark.parametrize(("scale", "family"), dpal_cells.SCALES)
def test_every_scale_trains_before_it_measures(scale, family):
  found = dpal_cells.cells(dpal_cells.SCALES[scale, family])
  assert len({cell.name for cell in found}) == len(found)
  for number, cell in enumerate(found):
    assert cell.training in found[: number + 1]
  parts = {cell.part for cell in found}
  attacked = {f"attacked-{attack}" for attack in dpal_cells.ATTACKS}
  assert parts == {"train", "linf-0.1", "linf-0.2", "radii", *attacked}
  for part in ("radii", *attacked):
    radii = {c.method: c.total for c in found if c.part == part}
    if family == "mnist":
      budgets = {"dpal": 2.0, "sound_dpal": 2.0, "secure_sgd": 2.0}
      assert radii == {**budgets, "pixeldp": None, "pixeldp_linf": None}
    else:
      assert radii == {"dpal": 4.0, "sound_dpal": 4.0, "pixeldp_linf": None}


def test_full_has_the_papers_grids():
  mnist = dpal_cells.cells(dpal_cells.SCALES["full", "mnist"])
  totals = sorted({cell.total for cell in mnist if cell.total})
  assert totals == pytest.approx([0.2 * i for i in range(1, 11)])
  # Three of seven methods also have radii, clean and under four attacks, at 2;
  # PixelDP, for l_2 and for l_inf, has no budget.
  assert len(mnist) == 10 * 7 * 3 + 3 * 5 + 2 * (3 + 5)
  cifar = dpal_cells.cells(dpal_cells.SCALES["full", "cifar10"])
  totals = sorted({cell.total for cell in cifar if cell.total})
  assert totals == [2, 4, 6, 8, 10]
  for scale in ("small", "full"):  # Figures 6, 7 and 9, narrow or as they are
    sizes = dpal_cells.SCALES[scale, "cifar10"]
    assert sizes.totals == (2.0, 4.0, 6.0, 8.0, 10.0)
    cell = dpal_cells.Cell("dpal", 4.0, "train")
    config = dpal_cells.settings(cell, sizes, "cifar10", 50_000)
    assert (config.batch_size, config.inference.psi) == (1800, 10)
    assert (config.steps < 16_801) == (scale == "small")


@pytest.mark.parametrize("form", ["narrow", "3x3"])
def test_all_models_have_the_design_of_dpal(digits, form):
  """On CIFAR-10; on MNIST those that say so."""
  shape = (28, 28, 3)
  cifar = types.SimpleNamespace(
    name="cifar10", input_shape=shape, num_classes=10
  )
  scale = dpal_cells.SCALES["full", "cifar10"]
  convolutions = {}
  for method in ("dpal", "dp_sgd_same", "sound_dpal", "pixeldp_linf"):
    cell = dpal_cells.Cell(method, 4.0, "train")
    name = dpal_models.network_name(cell, "cifar10", form, cifar)
    network = models.by_name(name, shape, 10)
    kernels = [w.shape for w in network.trainable_weights if w.shape.rank > 1]
    convolutions[method] = kernels
  first = convolutions["dpal"][0]
  assert first == (3, 3, 3, 32 if form == "narrow" else 128)
  assert all(found == convolutions["dpal"] for found in convolutions.values())
  cell = dpal_cells.Cell("dp_sgd_same", 2.0, "train")
  assert dpal_models.network_name(cell, "mnist", form, digits) == "dpal_mnist"
  assert scale.form == "3x3"


def test_a_budget_of_radii_alone_is_trained_where_it_is_needed():
  scale = dataclasses.replace(_TINY, totals=(1.0,))
  names = [cell.name for cell in dpal_cells.cells(scale)]
  assert "dpal-2/radii" in names
  assert "dpal-2/train" in names
  assert "dpal-2/linf-0.1" not in names
  assert "dp_sgd-2/train" not in names


@pytest.mark.parametrize(
  ("family", "total", "features", "labels"),
  [
    ("mnist", 2.0, 1.9, 0.1),
    ("mnist", 0.2, 0.1, 0.1),
    ("cifar10", 2.0, 1.0, 1.0),
    ("cifar10", 4.0, 7 / 3, 5 / 3),
    ("cifar10", 10.0, 19 / 3, 11 / 3),
  ],
)
def test_budgets_are_split_as_in_the_released_code(
  family, total, features, labels
):
  found = dpal_cells.dpal_budgets(family, total)
  assert found == pytest.approx((features, labels))
  assert sum(dpal_cells.adlm_budgets(family, total)) == pytest.approx(total)


@pytest.mark.parametrize(("scale", "family"), dpal_cells.SCALES)
def test_every_cell_claims_or_spends_its_total(scale, family):
  sizes = dpal_cells.SCALES[scale, family]
  for cell in dpal_cells.cells(sizes):
    config = dpal_cells.settings(cell, sizes, family, 4000)
    if cell.method in dpal_cells.NO_BUDGET:
      assert (cell.total, getattr(config, "private", False)) == (None, False)
    elif cell.method == "secure_sgd":  # claims what its accountant says
      assert config.dp_epsilon == cell.total
    elif cell.method in dpal_cells.CLAIMED_ONLY:
      assert config.claimed_dp_epsilon == pytest.approx(cell.total)
    else:
      assert (config.dp_epsilon, config.dp_delta) == (cell.total, 1e-5)
    assert config.batch_size <= (2000 if cell.method == "dpal" else 4000)


def test_the_filter_brings_the_training_along():
  every = dpal_cells.cells(_TINY)
  chosen = grid.select(every, "dpal-2/radi")
  assert [cell.name for cell in chosen] == [
    "dpal-2/train",
    "dpal-2/radii",
    "sound_dpal-2/train",
    "sound_dpal-2/radii",
  ]
  assert grid.select(every, "") == every
  with pytest.raises(ValueError, match="Did you mean 'adlm-2/train'"):
    grid.select(every, "adml-2/train")


# What is kept.


def _fake(part, method="dpal"):
  """A result as a cell would give it."""
  if part == "train":
    claim = method in dpal_cells.CLAIMED_ONLY
    return {
      "claimed": _BUDGET if claim else _PROVEN,
      "proven": None if claim else _PROVEN,
      "clean": {"accuracy": 0.9, "count": 10, "interval": _INTERVAL},
      "seconds": 1.0,
    }
  if part == "radii":
    return _fake_radii(method)
  if part.startswith("attacked"):
    return _fake_attacked(part, method)
  accuracy = {"linf-0.1": 0.5, "linf-0.2": 0.475}[part]
  return {
    "attack_eps": float(part[5:]),
    "clean_accuracy": 0.875,
    "attacks": [
      {"name": name, "accuracy": accuracy, "interval": _INTERVAL}
      for name in dpal_cells.ATTACKS
    ],
    "seconds": 1.0,
  }


def _fake_radii(method):
  points = [
    {"radius": r, "accuracy": 0.3125 if r < 0.1 else 0.0, "interval": _INTERVAL}
    for r in (0.0, *dpal_cells.RADII)
  ]
  result = {
    "count": 40,
    "proven": {"linf": points, "l2": points},
    "seconds": 1.0,
  }
  if method == "dpal":
    sizes = dpal_cells.RADII
    result["claimed"] = {
      "attacked": [
        {"attack_eps": s, "accuracy": 0.2, "interval": _INTERVAL} for s in sizes
      ],
      "curves": {
        bound: {
          name: [
            {
              "attack_eps": s,
              "reach": 0.115,
              "accuracy": accuracy,
              "claimed": int(40 * accuracy),
              "fallen": 17,
            }
            for s in sizes
          ]
          for name in dpal_measure.FORMULAS
        }
        for bound, accuracy in (("hoeffding", 0.5), ("clopper_pearson", 0.6))
      },
    }
  return result


def _fake_attacked(part, method):
  share = {"accuracy": 0.25, "count": 40, "interval": _INTERVAL}
  sizes = {"proven": share}
  if method == "dpal":
    one = dict.fromkeys(dpal_measure.FORMULAS, share)
    sizes = {"claimed": dict.fromkeys(dpal_measure.BOUNDS, one)}
  return {
    "attack": part.removeprefix("attacked-"),
    "count": 40,
    "reach": 0.15,
    "points": [
      {"attack_eps": s, "accuracy": 0.75, "interval": _INTERVAL, **sizes}
      for s in dpal_cells.RADII
    ],
    "seconds": 1.0,
  }


class _Recorded(dpal.Experiment):
  """Runs nothing; notes the cells, and is killed at one of them."""

  ran = ()
  killed_at = None

  def measure(self, cell):
    if cell.name == self.killed_at:
      raise KeyboardInterrupt
    self.ran = (*self.ran, cell.name)
    return _fake(cell.part, cell.method)

  def weights(self, cell):
    return f"weights of {cell.model}"


def _recorded(tmp_path, digits, **changes):
  scale = dataclasses.replace(_TINY, **changes)
  return _Recorded(str(tmp_path), "smoke", scale, digits, "a command")


def test_finished_cells_are_never_run_again(tmp_path, digits, capsys):
  first = _recorded(tmp_path, digits)
  first.open(resume=False)
  first.killed_at = "dp_sgd-2/linf-0.1"
  with pytest.raises(KeyboardInterrupt):
    first.run(first.cells)
  names = [cell.name for cell in first.cells]
  stop = names.index(first.killed_at)
  assert list(first.ran) == names[:stop]
  assert list(first.results()) == names[:stop]
  kept = json.loads((tmp_path / "results.json").read_text())
  assert list(kept["cells"]) == names[:stop]

  second = _recorded(tmp_path, digits)
  with pytest.raises(ValueError, match=r"Go on with --resume"):
    second.open(resume=False)
  second.open(resume=True)
  second.run(second.cells)
  assert list(second.ran) == names[stop:]
  assert list(second.results()) == names
  error = capsys.readouterr().err
  assert f"cells: {len(names)}/{len(names)} (100%)" in error
  assert "ETA" in error
  third = _recorded(tmp_path, digits)
  third.run(third.cells)
  assert third.ran == ()


def test_other_settings_are_not_mixed_in(tmp_path, digits):
  first = _recorded(tmp_path, digits)
  first.open(resume=False)
  first.run(grid.select(first.cells, "dpal-2/train"))
  with pytest.raises(ValueError, match="same settings of dpal-2/train as in"):
    _recorded(tmp_path, digits, eot_draws=2).open(resume=True)


def test_results_have_their_place(tmp_path, digits):
  experiment = _recorded(tmp_path, digits)
  experiment.run(grid.select(experiment.cells, "adlm-2/linf-0.2"))
  result = json.loads((tmp_path / "adlm-2" / "linf-0.2.json").read_text())
  assert (result["method"], result["total"]) == ("adlm", 2.0)
  assert (result["part"], result["model"]) == ("linf-0.2", "adlm-2")
  assert not list(tmp_path.rglob("*.tmp"))
  payload = json.loads((tmp_path / "results.json").read_text())
  assert set(payload) == {"experiment", "published", "cells"}
  drop = next(row for row in payload["published"] if row["study"] == "drop")
  assert drop["figures"] == {"drop": 0.0176}


# What is written.


@pytest.fixture(scope="module")
def written(tmp_path_factory, digits):
  folder = tmp_path_factory.mktemp("written")
  running.measured(_recorded(folder, digits))
  return folder


def _rows(text, title):
  part = text.split(f"## {title}")[1].split("\n## ")[0]
  lines = [line for line in part.splitlines() if line.startswith("|")]
  split = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
  return [dict(zip(split[0], row)) for row in split[2:]]


def test_the_table_shows_claimed_beside_proven(written):
  text = (written / "table.md").read_text()
  assert "certified" not in text.lower()
  rows = _rows(text, "Accuracy in %")
  assert len(rows) == 8
  for row in rows:
    claimed_only = row["method"] in ("DPAL", "AdLM")
    assert row["claimed budget"] == ("2" if claimed_only else "(2, 1e-5)")
    assert row["proven budget"] == (
      "none known" if claimed_only else "(2, 1e-5)"
    )
    assert row["audited"] == "not run"
    assert row["clean"] == "87.50"
    assert row["mean"] == {"0.1": "50.00", "0.2": "47.50"}[row["l_inf size"]]
  radii = _rows(text, "Right and robust")
  assert [row["l_inf size"] for row in radii] == [
    f"{size:g}" for size in dpal_cells.RADII
  ]
  first = radii[0]
  assert first["claimed in the paper's text"] == "82.28"
  assert first["claimed, released code V0"] == "50.00 / 60.00"
  assert first["proven, DPAL"] == first["proven, SoundDPAL"] == "31.25"
  assert first["DPAL under EOT-PGD"] == "20.00"
  assert radii[-1]["claimed in the paper's text"] == "72.40"
  assert radii[-1]["proven, SoundDPAL"] == "0.00"


def test_the_table_counts_what_fell_and_has_the_papers_numbers(written):
  text = (written / "table.md").read_text()
  fallen = _rows(text, "Images claimed to be robust")
  assert fallen[0]["claimed, harmonic"] == (
    "17 of 20 (at most 0.12) / 17 of 24 (at most 0.12)"
  )
  attacked = _rows(text, "At attacked images")
  assert len(attacked) == 2 * 4 * 7
  assert attacked[0]["attack"] == "FGSM"
  assert attacked[0]["claimed, harmonic"] == "25.00 / 25.00"
  assert attacked[0]["proven"] == attacked[-1]["claimed, harmonic"] == "-"
  assert attacked[-1]["method"] == "SoundDPAL"
  assert attacked[-1]["proven"] == "25.00 (at most 0.15)"
  beside = _rows(text, "Beside the paper's numbers")
  assert (beside[0]["paper"], beside[0]["here"]) == ("1.76", "2.50")
  assert {row["paper"] for row in beside[1:5]} == {"82.28", "72.40"}
  assert all("proven here" in row[""] for row in beside[1:5])
  assert [row["paper"] for row in beside[5:]] == ["94.19", "9.08", "77.47"]
  assert {row["here"] for row in beside[5:]} == {"not run / not run"}


def test_cifar_has_its_own_numbers():
  results = {
    "dpal-2/linf-0.1": {
      **dataclasses.asdict(dpal_cells.Cell("dpal", 2.0, "linf-0.1")),
      "model": "dpal-2",
      **_fake("linf-0.1"),
    }
  }
  found = dpal_page.tables({"dataset": "cifar10"}, results)[-1].rows
  assert [row[1:] for row in found] == [
    ["44.10", "50.00"],
    ["48.77", "not run"],
  ]


def test_plots_are_written_and_the_page_shows_them(written):
  names = ["accuracy_linf_0.1", "accuracy_linf_0.2", "radii", "fallen"]
  names.append("attacked")
  page = (written / "table.md").read_text()
  for name in names:
    tree = xml.etree.ElementTree.parse(written / f"{name}.svg")
    assert tree.getroot().tag.endswith("svg")
    assert f"]({name}.svg)" in page
  assert "none known" in page
  assert "a command" in page
  assert not list(written.glob("*.draft*"))


def test_a_narrow_network_is_called_so():
  for scale, told in (("small", True), ("full", False)):
    experiment = dpal.Experiment.described(scale, "cifar10", "runs")
    notes = " ".join(dpal_page.notes(experiment.record, {}))
    assert ("a quarter of the filters" in notes) == told


def test_labels_of_claimed_budgets_say_that_nothing_is_proven(written):
  results = json.loads((written / "results.json").read_text())
  record, cells = results["experiment"], results["cells"]
  specs = {f.name: f for f in dpal_figures.figures(record, cells)}
  figure = grid_plots.draw(specs["accuracy_linf_0.1"])
  labels = [text.get_text() for text in figure.legends[0].get_texts()]
  assert len(labels) == 4
  for label in labels:
    claimed = label.startswith(("DPAL", "AdLM"))
    assert ("claimed, proven: none known" in label) == claimed
  axes = figure.axes[0]
  line = next(x for x in axes.lines if x.get_label().startswith("DPAL"))
  assert list(line.get_xdata()) == [2.0]
  assert list(line.get_ydata()) == [0.5]
  radii = grid_plots.draw(specs["radii"])
  words = [text.get_text() for text in radii.legends[0].get_texts()]
  assert sum("claimed" in word for word in words) == 6
  assert sum(word.startswith("proven") for word in words) == 2
  assert not any("certified" in word for word in words)


def test_what_was_not_run_is_left_out(tmp_path, digits):
  experiment = _recorded(tmp_path, digits)
  experiment.open(resume=False)
  experiment.write()
  assert "0 of 22 cells" in (tmp_path / "table.md").read_text()
  assert not list(tmp_path.glob("*.svg"))
  experiment.run(grid.select(experiment.cells, "sound_dpal-2/radii"))
  experiment.write()
  assert [path.name for path in tmp_path.glob("*.svg")] == ["radii.svg"]
  rows = _rows((tmp_path / "table.md").read_text(), "Right and robust")
  assert rows[0]["claimed, harmonic"] == rows[0]["proven, DPAL"] == "not run"
  assert rows[0]["proven, SoundDPAL"] == "31.25"


def test_six_models_stand_in_one_table(written):
  results = json.loads((written / "results.json").read_text())["cells"]
  audit = {"claimed": _BUDGET, "proven": None, "audited": 5.3}
  audits = {"dpal": {**audit, "verdict": "refutes claimed"}}
  table = dpal_page.summary(results, audits)
  rows = {row[0]: dict(zip(table.head, row)) for row in table.rows}
  assert list(rows) == list(dpal_cells.METHODS.values())[:6]
  dpal_row = rows["DPAL"]
  assert dpal_row["claimed / proven / audited"] == "2 / none known / not run"
  step = "2 / none known / >= 5.3: refutes claimed"
  assert dpal_row["audit of one step"] == step
  assert (dpal_row["clean"], dpal_row["under attack, 0.2"]) == (
    "90.00",
    "47.50",
  )
  fell = "50.00, 17 of 20 fell"  # by the paper's own bound
  assert dpal_row["claimed robust at 0.05, fallen"] == fell
  assert dpal_row["proven at 0.05"] == "31.25"
  assert dpal_row["claimed in the paper at 0.05 and 0.6"] == "82.28 and 72.40"
  secure, pixeldp = rows["SecureSGD, released code"], rows[list(rows)[-1]]
  for row in (secure, pixeldp):
    assert row["claimed / proven / audited"] == "not run / not run / not run"
    assert row["clean"] == row["proven at 0.6"] == "not run"
  assert secure["claimed robust at 0.6, fallen"] == "not run"
  assert pixeldp["claimed robust at 0.6, fallen"] == "-"
  assert pixeldp["claimed in the paper at 0.05 and 0.6"] == "94.19 and 9.08"


# What is measured.


def test_sizes_follow_each_formula():
  network = models.mlp((4, 4, 1), 3, hidden=(3, 2), activation="tanh", seed=0)
  kernel = np.zeros([16, 3], np.float32)
  kernel[0] = [1, -2, 1]  # row norm 4, singular value sqrt(6)
  inference = papers.Inference(num_draws=50)
  model = papers.DPAL(
    network, papers.DPALConfig(batch_size=60, inference=inference)
  )
  network.layers[1].kernel.assign(kernel)
  estimate = papers.Estimate(
    np.array([0, 1, 2]), np.array([0.8, 0.2, 0.8]), np.array([0.1, 0.4, 0.1])
  )
  scale = model.noise.input_scale
  robust = np.log(8) / 2
  kappa, phi = scale / (0.1 * 16), 2 * scale / (np.sqrt(3) * 4)
  coded = 3 * np.sqrt(6)
  expected = {
    "paper": robust * (kappa + phi),
    "paper_matrix": robust * (kappa + phi),  # of a dense layer the same
    "harmonic": robust / (1 / kappa + 1 / phi),
    "released_v0": 0.1 * robust / (scale * (1 / 1.6 + 2 / coded)),
    "released_v1": robust * scale / (coded / 2 + 1.6),
  }
  for name, value in expected.items():
    y = np.array([0, 1, 1])  # the third is wrong
    found = dpal_measure.sizes_by(name, model, estimate, y, 0.1)
    assert found == pytest.approx([value, 0.0, -1.0]), name


def test_only_claimed_images_that_an_attack_moved_have_fallen():
  x = np.zeros([4, 2, 2, 1], np.float32)
  x_adv = x.copy()
  x_adv[[0, 1, 3], 0, 0] = 0.1  # image 2 was wrong without an attack
  result = types.SimpleNamespace(
    x_adv=x_adv, success=np.array([True, False, True, True])
  )
  claimed = np.array([True, True, True, False])
  assert dpal_measure.count_fallen(claimed, result, x) == {
    "accuracy": 0.75,
    "claimed": 3,
    "fallen": 1,
  }


# Real cells, tiny.


_FEW = (0.05, 0.3)  # sizes: every further one is traced anew


@pytest.fixture(scope="module")
def trained(tmp_path_factory, digits):
  """DPAL and SoundDPAL on digits; DPAL's training is killed and resumed."""
  folder = tmp_path_factory.mktemp("real")
  experiment = dpal.Experiment(str(folder), "smoke", _TINY, digits)
  experiment.open(resume=False)
  count = papers.DPAL.count_steps

  def killed(self, steps, sessions):
    if steps == 3:
      raise KeyboardInterrupt
    count(self, steps, sessions)

  wanted = grid.select(experiment.cells, "dpal-2/radi")
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(papers.DPAL, "count_steps", killed)
    with pytest.raises(KeyboardInterrupt):
      experiment.run(wanted)
  run = folder / "dpal-2" / "run"
  assert (run / "ledger.jsonl").exists()
  assert not (folder / "dpal-2" / "train.json").exists()
  (run / "model.keras").write_text("half of a model")
  again = dpal.Experiment(str(folder), "smoke", _TINY, digits)
  again.open(resume=True)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(dpal_cells, "RADII", _FEW)
    again.run(wanted)
  return again


@pytest.mark.slow
def test_a_killed_training_goes_on(trained):
  result = trained.results()["dpal-2/train"]
  assert result["sessions"] == 2
  assert result["steps"] == 4
  assert result["claimed"] == {"dp_epsilon": pytest.approx(2), "dp_delta": 0}
  assert result["proven"] is None
  assert 0 <= result["clean"]["accuracy"] <= 1
  sound = trained.results()["sound_dpal-2/train"]
  assert sound["sessions"] == 1
  assert sound["proven"]["dp_epsilon"] <= 2.0
  assert sound["proven"] == sound["claimed"]
  assert sound["condition"] == run_facts.CONDITION
  assert sound["config"]["seed"] == 0


def test_radii_are_claimed_and_proven(trained):
  result = trained.results()["dpal-2/radii"]
  claimed = result["claimed"]
  assert set(claimed["curves"]) == set(dpal_measure.BOUNDS)
  for curves in claimed["curves"].values():
    assert set(curves) == set(dpal_measure.FORMULAS)
    for points in curves.values():
      assert [p["attack_eps"] for p in points] == list(_FEW)
      assert all(0 <= p["fallen"] <= p["claimed"] <= 4 for p in points)
  least, most = (
    claimed["curves"][bound]["paper"][0]["reach"]
    for bound in ("hoeffding", "clopper_pearson")
  )
  assert 0 < least < most
  attacked = [row["accuracy"] for row in claimed["attacked"]]
  assert len(attacked) == len(_FEW)
  assert max(attacked) <= 1
  for name, method in (
    ("dpal-2/radii", "laplace_input_tight"),
    ("sound_dpal-2/radii", "randomised_smoothing"),
  ):
    proven = trained.results()[name]["proven"]
    assert proven["method"] == method
    for norm in ("linf", "l2"):
      curve = [point["accuracy"] for point in proven[norm]]
      assert curve == sorted(curve, reverse=True)
    # A size in l_inf is a radius in l_2 over the root of 64 pixels.
    path = trained.folder.file(f"{name.split('/')[0]}/certificates.csv")
    lines = [x for x in path.read_text().splitlines() if not x.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert len(rows) == 4
    most = max(float(row["radius"]) for row in rows)
    assert most > 0 or method != "randomised_smoothing"
    assert proven["largest_linf_radius"] == pytest.approx(most / 8, rel=1e-6)


def test_sizes_at_attacked_images(trained, monkeypatch):
  monkeypatch.setattr(dpal_cells, "RADII", _FEW[1:])
  cells = {cell.name: cell for cell in trained.cells}
  for name, kind in (
    ("dpal-2/attacked-fgsm", "claimed"),
    ("sound_dpal-2/attacked-fgsm", "proven"),
  ):
    result = trained.measure(cells[name])
    assert (result["attack"], result["count"]) == ("fgsm", 6)
    assert [p["attack_eps"] for p in result["points"]] == list(_FEW[1:])
    for point in result["points"]:
      assert ({"claimed", "proven"} & set(point)) == {kind}
      if kind == "claimed":
        assert set(point["claimed"]) == set(dpal_measure.BOUNDS)
        for shares in point["claimed"].values():
          assert set(shares) == set(dpal_measure.FORMULAS)
      else:
        assert 0 <= point["proven"]["accuracy"] <= 1
        assert (point["proven"]["accuracy"] > 0) <= (
          point["attack_eps"] <= result["reach"]
        )


@pytest.mark.slow
def test_attacks_on_deterministic_and_randomised_models(trained, monkeypatch):
  monkeypatch.setattr(dpal_cells, "ATTACKS", {"fgsm": "", "pgd": ""})
  cells = {cell.name: cell for cell in trained.cells}
  for name, draws in (("dpal-2/linf-0.2", 3), ("sound_dpal-2/linf-0.2", None)):
    result = trained.measure(cells[name])
    assert result["verdict_draws"] == draws
    assert result["count"] == 6
    assert [row["name"] for row in result["attacks"]] == list(
      dpal_cells.ATTACKS
    )
    for row in result["attacks"]:
      low, high = row["interval"]
      assert low <= row["accuracy"] <= high
      assert row["accuracy"] <= 1


def test_adlm_is_deployed_with_clean_statistics(tmp_path, digits):
  experiment = dpal.Experiment(str(tmp_path), "smoke", _TINY, digits)
  cell = dpal_cells.Cell("adlm", 2.0, "train")
  result = experiment.measure(cell)
  assert result["proven"] is None
  assert result["claimed"]["dp_epsilon"] == pytest.approx(2.0)
  folder = run_folder.RunFolder(tmp_path / cell.model)
  model = dpal_models.load_model(cell, digits, folder)
  alone = model(digits.x_test[:1]).numpy()
  among = model(digits.x_test[:5]).numpy()[:1]
  np.testing.assert_allclose(alone, among, atol=1e-5)
  deployed = model(digits.x_train[:60]).numpy()
  clean = model.network(digits.x_train[:60], training=True).numpy()
  np.testing.assert_allclose(deployed, clean, atol=1e-4)


@pytest.mark.slow
def test_rivals_with_noise_have_claimed_and_proven_sizes(
  tmp_path, digits, monkeypatch
):
  monkeypatch.setattr(dpal_cells, "ATTACKS", {"fgsm": ""})
  monkeypatch.setattr(dpal_cells, "RADII", _FEW)
  short = {"l2_clip_norm": 0.1, "throwaway_steps": 2, "epochs": 0.5}
  train = {
    "secure_sgd": ("mnist_released", {**short, "batch_size": 64}),
    "pixeldp": ("mnist_5k", {"construction_size": 0.1, "epochs": 0.3}),
    "pixeldp_linf": ("mnist_5k", {"attack_norm": "linf", "epochs": 0.3}),
  }
  scale = dataclasses.replace(_TINY, train=train)
  experiment = dpal.Experiment(str(tmp_path), "smoke", scale, digits)
  experiment.open(resume=False)
  parts = ("train", "linf-0.2", "radii", "attacked-fgsm")
  experiment.run([c for c in experiment.cells if c.part in parts])
  results = experiment.results()
  secure, pixeldp = (
    results[f"{name}/radii"] for name in ("secure_sgd-2", "pixeldp")
  )
  ((points,),) = (
    curves.values() for curves in secure["claimed"]["curves"].values()
  )
  assert [p["attack_eps"] for p in points] == list(_FEW)
  assert all(0 <= p["fallen"] <= p["claimed"] <= 4 for p in points)
  assert "claimed" not in pixeldp
  for found in (secure, pixeldp):
    assert found["proven"]["method"] == "gaussian_hidden_tight"
  for name, kind in (
    ("secure_sgd-2", "claimed"),
    ("pixeldp", "proven"),
    ("pixeldp_linf", "proven"),
  ):
    points = results[f"{name}/attacked-fgsm"]["points"]
    assert {kind} == {"claimed", "proven"} & set(points[0])
  own = results["pixeldp_linf/radii"]["proven"]
  assert own["settings"]["norm"] == "linf"
  assert [p["accuracy"] for p in own["linf"] if p["radius"] == 0.1] == [
    p["accuracy"] for p in own["l2"] if p["radius"] == 0.1
  ]
  assert results["pixeldp/linf-0.2"]["verdict_draws"] == 3
  assert results["pixeldp/train"]["proven"] is None
  assert results["secure_sgd-2/train"]["proven"] is None


# The binary.


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (["--scale=smal"], "Did you mean 'small'?"),
    (["--dataset=minst"], "Did you mean 'mnist'?"),
    (["--dataset=uci_har"], "Known: cifar10, digits, fashion_mnist, mnist,"),
    (["--out_dri=x"], "Did you mean: out_dir ?"),
    ([], "Expected --out_dir"),
    (["--out_dir=x", "--cells=dpla"], "Expected --cells to be a part"),
  ],
)
def test_bad_flags_end_with_code_2(words, message, tmp_path):
  running.require_refusal("dpal", words, message, tmp_path)
