"""A run from Python to its report, killed and damaged in many places."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import data
from tf_privrob import files
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import report
from tf_privrob import run_folder
from tf_privrob.report import plots
from tf_privrob.report import results as results_lib
from tf_privrob.runs import evaluate
from tf_privrob.runs import infer
from tf_privrob.runs import train
from tf_privrob.runs.audit import perform as audit

pytestmark = pytest.mark.usefixtures("checked_once")
_SETTINGS = methods.DPSGDConfig(
  dp_epsilon=1.0, dp_delta=1e-4, batch_size=400, epochs=1, seed=1
)
_SMALL = {"num_attacked": 30, "num_certified": 5, "num_estimation": 100}
_ATTACKS = [("fgsm", "linf", 0.05), ("fgsm", "linf", 0.1)]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
  """A run with all that may follow on a training."""
  path = tmp_path_factory.mktemp("done") / "run"
  train.run("dp_sgd", _SETTINGS, data.load("digits"), "mlp", path)
  evaluate.run(path, _ATTACKS, **_SMALL)
  infer.run(path, num=40)
  audit.run(path, "step", runs=300, seed=1)
  report.write(path)
  return path


@pytest.fixture
def copied(done, tmp_path):
  return run_folder.RunFolder(shutil.copytree(done, tmp_path / "run"))


def test_a_run_from_python_is_whole(done):
  found = results_lib.read(run_folder.RunFolder(done))
  assert found.problems == ()
  assert (found.method, found.dataset, found.network) == (
    "DP-SGD",
    "digits",
    "mlp",
  )
  for part in ("run", "history", "privacy", "clean", "attacks", "smoothed"):
    assert getattr(found, part), part
  for part in ("membership", "audits", "examples"):
    assert getattr(found, part), part
  card = json.loads((done / "report.json").read_text())
  assert card["privacy"]["proven"] is not None


def test_fit_leaves_the_folder_that_train_leaves(done, tmp_path):
  digits, path = data.load("digits"), tmp_path / "fit"
  network = models.by_name("mlp", digits.input_shape, digits.num_classes)
  model = methods.DPSGD(network, _SETTINGS)
  model.fit(digits, run_dir=path, verbose=0)
  written = report.write(path)
  assert "nothing trained" not in written.summary
  places = [run_folder.RunFolder(place) for place in (path, done)]
  found, other = map(results_lib.read, places)
  assert found.problems == ()
  assert found.config.config == other.config.config
  ours, theirs = (folder.read_json("run.json") for folder in places)
  assert set(ours) == set(theirs)
  assert found.run.weights == other.run.weights  # one seed, one model
  assert found.privacy.proven == other.privacy.proven
  evaluate.run(path, _ATTACKS[:1], **{**_SMALL, "num_certified": 0})


def test_arrays_have_no_name(tmp_path):
  digits = data.load("digits")
  model = methods.DPSGD(models.mlp((8, 8, 1), 10), _SETTINGS)
  model.fit(digits.x_train, digits.y_train, run_dir=tmp_path, verbose=0)
  found = results_lib.read(run_folder.RunFolder(tmp_path))
  assert (found.problems, found.dataset) == ((), "unknown data set")
  report.write(tmp_path)
  with pytest.raises(ValueError, match="Expected --dataset"):
    evaluate.run(tmp_path, _ATTACKS, **_SMALL)


# Killed at the end.


@pytest.mark.parametrize(
  "left", ["no model", "half a model", "no run.json", "no statement"]
)
def test_an_end_that_was_cut_short_is_finished(copied, left):
  before, steps = copied.run, copied.run["steps"]
  model = copied.file("model.keras")
  if left == "half a model":
    model.write_bytes(model.read_bytes()[:1000])
  else:
    copied.file(
      {
        "no model": "model.keras",
        "no run.json": "run.json",
        "no statement": "privacy.json",
      }[left]
    ).unlink()
  digits = data.load("digits")
  train.run("dp_sgd", _SETTINGS, digits, "mlp", copied.path, resume=True)
  assert copied.run["weights"] == before["weights"]
  assert (copied.run["steps"], copied.run["sessions"]) == (steps, 2)
  assert results_lib.read(copied).privacy.proven is not None
  assert train.is_complete(copied)
  with pytest.raises(ValueError, match="complete: there is nothing to resume"):
    train.run("dp_sgd", _SETTINGS, digits, "mlp", copied.path, resume=True)


def test_a_model_that_keras_cannot_save_is_still_trained(tmp_path, monkeypatch):
  def no(*unused):
    raise NotImplementedError("no get_config")

  monkeypatch.setattr(methods.DPSGD, "save", no)
  model = methods.DPSGD(models.mlp((8, 8, 1), 10), _SETTINGS)
  with pytest.warns(RuntimeWarning, match="Keras cannot save"):
    model.fit(data.load("digits"), run_dir=tmp_path, verbose=0)
  folder = run_folder.RunFolder(tmp_path)
  assert folder.run["steps"] == model.run_record["steps"]
  assert not folder.has("model.keras")


# Evaluations.


def test_certificates_name_their_inputs_in_the_data_set(done):
  with open(done / "certificates.csv", encoding="utf-8") as stream:
    rows = list(csv.DictReader(stream))
  digits = data.load("digits")
  expected = np.linspace(0, digits.num_test - 1, 5).round().astype(int)
  assert [int(row["index"]) for row in rows] == expected.tolist()
  labels = digits.y_test[expected].tolist()
  assert [int(row["label"]) for row in rows] == labels


@pytest.mark.parametrize("left", ["none", "half", "another's"])
def test_pictures_of_a_killed_evaluation_are_completed(copied, left):
  path = copied.file("examples.npz")
  whole = files.read_arrays(path)
  path.unlink()
  if left == "half":
    path.write_bytes(b"PK half")
  if left == "another's":
    files.write_arrays(path, {**whole, "weights": np.array("0")})
  evaluate.run(copied.path, _ATTACKS, **_SMALL, resume=True)
  found = files.read_arrays(path)
  assert found["attack_names"].tolist() == whole["attack_names"].tolist()
  assert str(found["weights"]) == copied.run["weights"]
  np.testing.assert_array_equal(found["clean"], whole["clean"])


def test_an_evaluation_that_was_stopped_says_so(copied, monkeypatch):
  def stop(*args, **kwargs):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(evaluate, "certify_rows", stop)
    with pytest.raises(KeyboardInterrupt):
      evaluate.run(copied.path, _ATTACKS, **_SMALL)
  assert copied.metrics["complete"] is False
  assert any("was stopped" in p for p in results_lib.read(copied).problems)
  evaluate.run(copied.path, _ATTACKS, **_SMALL, resume=True)
  assert results_lib.read(copied).problems == ()


def test_certifying_keeps_the_attacks_and_replaces_the_radii(copied):
  before = copied.metrics
  small = {"num_certified": 3, "num_estimation": 100}
  evaluate.run(copied.path, (), **small)
  assert copied.metrics["attacks"] == before["attacks"]
  assert copied.metrics["certified"]["count"] == 3
  assert copied.metrics["complete"] is True


@contextlib.contextmanager
def _killed_at(monkeypatch, owner, name):
  """What is done in the block ends where it calls this function."""

  def killed(*args, **kwargs):
    raise KeyboardInterrupt

  with monkeypatch.context() as patched:
    patched.setattr(owner, name, killed)
    with pytest.raises(KeyboardInterrupt):
      yield


def test_certifying_does_not_complete_attacks_that_were_stopped(
  copied, monkeypatch
):
  with _killed_at(monkeypatch, evaluate, "attack_rows"):
    evaluate.run(copied.path, _ATTACKS, **_SMALL)
  evaluate.run(copied.path, (), num_certified=3, num_estimation=100)
  assert copied.metrics["certified"]["count"] == 3
  assert copied.metrics["complete"] is False
  evaluate.run(copied.path, _ATTACKS, resume=True, num_certified=0)
  assert copied.metrics["complete"] is True


def test_a_stopped_certification_is_completed_by_the_next(copied, monkeypatch):
  with _killed_at(monkeypatch, evaluate, "certify_rows"):
    evaluate.run(copied.path, (), num_certified=3, num_estimation=100)
  assert copied.metrics["complete"] is False
  evaluate.run(copied.path, (), num_certified=3, num_estimation=100)
  assert copied.metrics["complete"] is True


def test_a_certification_that_was_stopped_stays_missing(copied, monkeypatch):
  with _killed_at(monkeypatch, evaluate, "certify_rows"):
    evaluate.run(copied.path, _ATTACKS, **_SMALL)
  rest = {"num_attacked": 30, "num_certified": 0, "resume": True}
  assert evaluate.run(copied.path, _ATTACKS, **rest)["complete"] is False
  done = evaluate.run(copied.path, _ATTACKS, **_SMALL, resume=True)
  assert (done["complete"], done["certifying"]) == (True, None)


def test_a_run_that_its_ledger_goes_beyond_is_not_complete(copied):
  assert train.is_complete(copied)
  ledger, plan = copied.file("ledger.jsonl"), {"noise_multiplier": 1.0}
  ledger.unlink()
  assert train.is_complete(copied)  # nothing says that there was more
  with privacy.Ledger.open(ledger, {}) as opened:  # of a run begun anew
    opened.settle(plan, None)
  assert not train.is_complete(copied)
  run = copied.run
  copied.write_json("run.json", {**run, "run_id": None, "steps": 0})
  assert train.is_complete(copied)
  with privacy.Ledger.open(ledger, {}, resume=True) as opened:
    opened.settle(plan, None)
    opened.charge()
  assert not train.is_complete(copied)


def test_two_evaluations_at_once_are_refused(copied):
  with files.locked(copied.file(".evaluate.lock"), "this test"):
    with pytest.raises(ValueError, match="alone with the evaluation in"):
      evaluate.run(copied.path, _ATTACKS, **_SMALL)


def test_certificates_of_another_model_make_no_curve(copied):
  path = copied.file("certificates.csv")
  model = copied.metrics["certified"]["model"]
  path.write_text(path.read_text().replace(model, "0" * 16))
  found = results_lib.read(copied)
  assert found.smoothed is None
  assert any("certificates.csv" in problem for problem in found.problems)


def test_rows_of_certificates_and_their_curve_go_together(copied):
  """One radius more than metrics.json counts."""
  path = copied.file("certificates.csv")
  *lines, last = path.read_text().splitlines()
  row = dict(zip(lines[0].split(","), last.split(",")))
  row.update(prediction=row["label"], abstained="0", correct="1", radius="9.0")
  path.write_text("\n".join([*lines, ",".join(row.values())]) + "\n")
  found = results_lib.read(copied)
  assert found.smoothed is None
  (problem,) = found.problems
  assert "nothing certified is shown" in problem


def test_a_condition_that_was_taken_out_takes_the_proof_along(copied):
  """The run has a seed, which only the statement says beside its figure."""
  assert "do not know the seed" in copied.privacy["condition"]
  copied.write_json("privacy.json", {**copied.privacy, "condition": ""})
  found = results_lib.read(copied).privacy
  assert found.proven is None
  assert "the hash of another text" in found.caveats[0]


def test_a_result_that_names_no_weights_is_not_of_this_run(copied):
  metrics = dict(copied.metrics)
  del metrics["weights"]
  copied.write_json("metrics.json", metrics)
  found = results_lib.read(copied)
  assert found.clean is None
  assert any("other weights" in problem for problem in found.problems)


def test_an_audit_is_written_down_once(copied, monkeypatch):
  before = len(copied.read_json("audit.json")["audits"])

  with _killed_at(monkeypatch, audit.audit_record.Store, "close"):
    audit.run(copied.path, "step", runs=301, seed=1)
  audit.run(copied.path, "step", runs=301, seed=2)
  assert len(copied.read_json("audit.json")["audits"]) == before + 1


# Damage.

_FILES = (
  "audit.json",
  "certificates.csv",
  "certificates.csv.json",
  "config.json",
  "examples.npz",
  "history.jsonl",
  "ledger.jsonl",
  "metrics.json",
  "model.keras",
  "nonprivate/membership.json",
  "privacy.json",
  "run.json",
)
_OTHERS = (b"[]", b'"text"', b'{"a": NaN}', b"{}", b"null", b'{"audits": [1]}')


def _emptied(path, rng):
  path.write_bytes(b"")


def _cut(path, rng):
  content = path.read_bytes()
  path.write_bytes(content[: rng.randrange(1, len(content))])


def _folder(path, rng):
  path.unlink()
  path.mkdir()


def _noise(path, rng):
  path.write_bytes(rng.randbytes(300))


def _other(path, rng):
  path.write_bytes(rng.choice(_OTHERS))


def _strings(path, rng):
  """Values of JSON turned into strings, lists into objects."""
  text = path.read_bytes().decode("utf-8", "replace")
  path.write_text(text.replace("[", '{"a": ').replace("]", "}"))


def _damaged_types(path, rng):
  try:
    payload = json.loads(path.read_text())
  except ValueError:
    payload = {"a": 1}
  name = rng.choice(sorted(payload)) if payload else "a"
  payload[name] = rng.choice(["text", [1], 7, None, {"a": "b"}, [["x"]]])
  path.write_text(json.dumps(payload))


_DAMAGES = (_emptied, _cut, _folder, _noise, _other, _strings, _damaged_types)


def _figures(results):
  """What the report shows, by part."""
  return {
    "privacy": results.privacy and results.privacy.proven,
    "clean": results.clean,
    "attacks": results.attacks,
    "smoothed": results.smoothed and results.smoothed.curve,
    "audits": results.audits,
  }


@pytest.mark.parametrize("name", _FILES)
def test_a_damaged_file_is_told_and_never_a_traceback(
  copied, name, monkeypatch
):
  """One file at a time: figures stay, or vanish with a word about it."""
  for module, drawn in (
    (plots, "history"),
    (plots, "attack_curves"),
    (plots, "certified_curve"),
    (plots, "roc_curves"),
  ):
    monkeypatch.setattr(module, drawn, lambda *_, **__: "<svg></svg>")
  rng, digits = random.Random(name), data.load("digits")
  model, resumed = train.load_model(copied), {"num_certified": 0}
  resumed["resume"] = True
  if name not in ("model.keras", "run.json"):  # of which only loading is slow
    monkeypatch.setattr(train, "load_model", lambda folder: folder.run)
  path = copied.file(name)
  whole, before = path.read_bytes(), _figures(results_lib.read(copied))
  for damage in (*_DAMAGES, *_DAMAGES[-1:] * 3):
    if path.is_dir():
      path.rmdir()
    path.write_bytes(whole)
    damage(path, rng)
    found = results_lib.read(copied)
    report.write(copied.path)
    for part, value in _figures(found).items():
      told = found.problems or (found.privacy and found.privacy.caveats)
      fine = value == before[part] or (not value and told)
      if part in ("attacks", "audits") and found.problems:
        fine = set(value) <= set(before[part])
      if name == "metrics.json" and damage is _damaged_types:
        fine = fine or not value  # an object without that part: not run
      assert fine, (damage.__name__, part, value)
    with contextlib.suppress(ValueError):
      train.open_run(copied.path)
    if name == "metrics.json":
      with contextlib.suppress(ValueError):
        evaluate.evaluate(
          copied, model, digits, [], None, num_attacked=1, **resumed
        )


@pytest.mark.parametrize("place", ["file", "n" * 300])
def test_a_run_dir_that_cannot_be_made(tmp_path, place):
  (tmp_path / "file").write_text("")
  digits = data.load("digits")
  settings = dataclasses.replace(_SETTINGS, seed=None)
  with pytest.raises(ValueError, match="Expected"):
    train.run("dp_sgd", settings, digits, "mlp", tmp_path / place)


def test_no_file_tells_the_largest_private_label(tmp_path):
  network = tf.keras.Sequential(
    [tf.keras.Input((4,)), tf.keras.layers.Dense(5)]
  )
  config = methods.DPSGDConfig(
    noise_multiplier=1.0, dp_delta=1e-3, batch_size=16, epochs=1.0, seed=0
  )
  x, y = np.zeros((32, 4), np.float32), np.arange(32) % 3
  methods.DPSGD(network, config).fit(
    x, y, value_range=(0.0, 1.0), run_dir=tmp_path / "run", verbose=0
  )
  described = json.loads((tmp_path / "run" / "run.json").read_text())
  assert described["dataset"]["num_classes"] == 5
