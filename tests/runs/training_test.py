"""A method from names and files, as the binaries build it."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import data
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import run_folder
from tf_privrob.privacy import stated as stated_lib
from tf_privrob.report import results as results_lib
from tf_privrob.runs import evaluate as evaluation
from tf_privrob.runs import infer as inferring
from tf_privrob.runs import train as training
from tf_privrob.runs.audit import source as audit_source

pytestmark = pytest.mark.usefixtures("checked_once")


@pytest.fixture(scope="module")
def parts():
  return data.split_public(data.load("digits"), 0.5)


@pytest.fixture
def classifier(tmp_path):
  network = tf.keras.Sequential(
    [
      tf.keras.layers.Input((8, 8, 1)),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(10),
    ]
  )
  network.layers[-1].bias.assign(tf.range(10.0) / 10)  # as after a training
  path = tmp_path / "classifier.keras"
  network.save(path)
  return str(path)


def test_a_denoiser_by_name_before_a_classifier_from_a_file(parts, classifier):
  public, private = parts
  config = methods.preset("transdenoiser", "mnist_5k_sound")
  model = training.build(
    "transdenoiser", config, private, "smooth_denoiser", classifier, public
  )
  assert isinstance(model, papers.SoundTransDenoiser)
  assert len(model.network.trainable_variables) == 6
  with pytest.raises(ValueError, match="value range"):
    model.fit(private.rescaled((-1.0, 1.0)), verbose=0)
  with pytest.raises(ValueError, match="occur in both"):
    model.fit(public, verbose=0)


def test_a_denoiser_from_a_file(parts, classifier, tmp_path):
  inputs = tf.keras.Input((8, 8, 1))
  outputs = tf.keras.layers.Conv2D(1, 3, padding="same")(inputs)
  path = str(tmp_path / "denoiser.keras")
  tf.keras.Model(inputs, outputs).save(path)
  config = methods.preset("transdenoiser", "mnist_5k_sound")
  model = training.build("transdenoiser", config, parts[1], path, classifier)
  loaded = tf.keras.models.load_model(path)
  x = parts[1].x_test[:5]
  np.testing.assert_allclose(model.denoiser(x), loaded(x), rtol=1e-6)


def test_other_methods_train_a_denoiser_too(parts, classifier):
  config = methods.preset("secure_sgd", "mnist_5k_denoiser_sound")
  model = training.build(
    "secure_sgd",
    config,
    parts[1],
    "convolutional_denoiser",
    classifier,
    parts[0],
  )
  assert isinstance(model, papers.SoundSecureSGD)


_DENOISED = {
  "transdenoiser": ("mnist_5k_sound", "smooth_denoiser"),
  "secure_sgd": ("mnist_5k_denoiser_sound", "convolutional_denoiser"),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", _DENOISED)
def test_a_public_classifier_stays_and_the_denoiser_is_trained(
  parts, classifier, tmp_path, method
):
  """Its weights are declared by the data that it was trained on."""
  public, private = parts
  preset, denoiser = _DENOISED[method]
  config = dataclasses.replace(
    methods.preset(method, preset), batch_size=200, epochs=0.5, seed=1
  )
  model = training.build(method, config, private, denoiser, classifier, public)
  kept = model.network.layers[-1].get_weights()
  before = model.network.trainable_variables[-1].numpy()
  folder = run_folder.RunFolder(tmp_path / "run")
  training.fit(model, private, denoiser, folder, False, {})
  for a, b in zip(model.network.layers[-1].get_weights(), kept):
    np.testing.assert_array_equal(a, b)
  assert np.any(model.network.trainable_variables[-1].numpy() != before)
  assert folder.privacy["proven"] is not None
  said = " ".join(a["text"] for a in folder.privacy["assumptions"])
  assert "classifier" in said


def test_a_classifier_that_nobody_declares_public_is_refused(parts, classifier):
  config = methods.preset("secure_sgd", "mnist_5k_denoiser_sound")
  model = training.build(
    "secure_sgd", config, parts[1], "convolutional_denoiser", classifier
  )
  with pytest.raises(ValueError, match="public_weights="):
    model.fit(parts[1], verbose=0)


def test_unknown_denoiser(parts, classifier):
  config = methods.preset("transdenoiser", "mnist_5k_sound")
  with pytest.raises(ValueError, match="Did you mean 'smooth_denoiser'"):
    training.build(
      "transdenoiser", config, parts[1], "smoth_denoiser", classifier
    )


# Seeds of networks.


def _seeds(model):
  """Of all initialisers, as a model file tells them."""
  return [
    layer.kernel_initializer.seed
    for layer in model.network.layers
    if hasattr(layer, "kernel_initializer")
  ]


def test_a_private_run_keeps_its_seed_out_of_the_network(parts, classifier):
  config = methods.DPSGDConfig(seed=123456)
  model = training.build("dp_sgd", config, parts[1], "mlp")
  assert _seeds(model) == [None] * 3
  assert "123456" not in json.dumps(model.network.get_config(), default=str)
  settings = methods.preset("transdenoiser", "mnist_5k_sound")
  settings = dataclasses.replace(settings, seed=123456)
  model = training.build(
    "transdenoiser", settings, parts[1], "smooth_denoiser", classifier
  )
  assert set(_seeds(model)) == {None}


def test_open_training_repeats_its_initial_weights(parts):
  def weights(seed):
    config = methods.TrainingConfig(seed=seed)
    model = training.build("natural", config, parts[1], "mlp")
    assert seed is None or seed not in _seeds(model)
    return model.network.get_weights()[0]

  np.testing.assert_array_equal(weights(3), weights(3))
  assert not np.array_equal(weights(3), weights(4))
  assert not np.array_equal(weights(None), weights(None))


def test_a_public_seed_repeats_what_comes_before_a_training(parts):
  config = methods.DPSGDConfig(seed=3)
  first, second = (
    training.build("dp_sgd", config, parts[1], "mlp", seed=0) for _ in range(2)
  )
  for a, b in zip(first.network.weights, second.network.weights):
    np.testing.assert_array_equal(a, b)


# Initial weights from a file.


def _fit(model, network, dataset, folder, resume=False, **flags):
  training.fit(model, dataset, network, folder, resume, flags)


_SHORT = methods.DPSGDConfig(
  dp_epsilon=1.0, dp_delta=1e-4, batch_size=400, epochs=1, seed=1
)


def test_a_private_run_keeps_weights_that_are_declared_public(
  classifier, tmp_path
):
  """And so does whoever trains it again to audit it."""
  dataset = data.load("digits")
  start = tf.keras.models.load_model(classifier).get_weights()
  reason = "trained on letters"
  model = training.build(
    "dp_sgd", _SHORT, dataset, classifier, public_weights=reason
  )
  folder = run_folder.RunFolder(tmp_path / "run")
  _fit(model, classifier, dataset, folder, public_weights=reason)
  assert model.run_record["public_weights"] == reason
  assert any(reason in a["text"] for a in folder.privacy["assumptions"])
  source = audit_source.load(folder)
  for a, b in zip(source.build().network.get_weights(), start):
    np.testing.assert_array_equal(a, b)
  assert source.build().public_weights == reason


def test_a_private_run_draws_anew_what_is_not_declared(classifier, tmp_path):
  """What seems to be trained is not thrown away, but refused."""
  dataset, folder = data.load("digits"), run_folder.RunFolder(tmp_path / "run")
  model = training.build("dp_sgd", _SHORT, dataset, classifier)
  with pytest.raises(ValueError, match="signs of training"):
    _fit(model, classifier, dataset, folder)
  path = str(tmp_path / "fresh.keras")
  models.mlp((8, 8, 1), 10).save(path)
  model = training.build("dp_sgd", _SHORT, dataset, path)
  start = model.network.get_weights()[0]
  model.compile(tf.keras.optimizers.SGD(1e-9))
  _fit(model, path, dataset, folder)
  found = model.network.get_weights()[0]
  assert np.abs(found - start).max() > 1e-2  # no step moves it that far
  assert model.run_record["initial_weights"] == "drawn"


def test_there_must_be_a_run_to_resume(tmp_path):
  """A misspelt folder is not a new run."""
  dataset = data.load("digits")
  model = training.build("dp_sgd", _SHORT, dataset, "mlp")
  folder = run_folder.RunFolder(tmp_path / "mispelt")
  with pytest.raises(ValueError, match="Expected a run to resume"):
    _fit(model, "mlp", dataset, folder, resume=True)
  assert not folder.path.exists()


# Whose model is in a folder.


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
  """Folders of two runs of the same settings, each with its own randomness."""
  dataset, made = data.load("digits"), []
  for name in ("a", "b"):
    folder = run_folder.RunFolder(tmp_path_factory.mktemp(name) / "run")
    config = dataclasses.replace(_SHORT, seed=None)
    model = training.build("dp_sgd", config, dataset, "mlp")
    _fit(model, "mlp", dataset, folder)
    made.append(folder)
  return made


def test_a_run_tells_the_fingerprint_of_its_weights(two_runs):
  for folder in two_runs:
    model = training.load_model(folder)
    assert folder.run["weights"] == model.run_record["weights"]
    assert folder.run["weights"] == models.fingerprint(model)
    assert folder.run["run_id"] == model.run_record["run"]


def _copy(folder, path, **changes):
  """The folder with other values in run.json."""
  shutil.copytree(folder.path, path)
  made = run_folder.RunFolder(path)
  made.write_json("run.json", {**folder.run, **changes})
  return made


@pytest.fixture
def mixed(two_runs, tmp_path):
  """The folder of one run with the model of the other."""
  folder = _copy(two_runs[0], tmp_path / "run")
  shutil.copy(two_runs[1].file("model.keras"), folder.file("model.keras"))
  return folder


_ANOTHER = "Expected the model of the run that run.json describes"


def test_the_model_of_another_run_is_refused(mixed):
  with pytest.raises(ValueError, match=_ANOTHER):
    audit_source.load(mixed)
  with pytest.raises(ValueError, match=_ANOTHER):
    training.load_run(run_folder.RunFolder(mixed.path.parent))


def test_weights_that_were_altered_are_refused_with_the_record_of_the_run(
  two_runs, tmp_path
):
  """The record of a file may be the run's own: the weights are compared."""
  folder = _copy(two_runs[0], tmp_path / "run")
  model = training.load_model(folder)
  record = dict(model.run_record)
  first = model.network.trainable_variables[0]
  first.assign(first + tf.one_hot([0], first.shape[0], 1e-3, axis=0))
  model.save(folder.file("model.keras"))
  assert models.load_model(folder.file("model.keras")).run_record == record
  with pytest.raises(ValueError, match=_ANOTHER):
    training.load_model(folder)


@pytest.mark.parametrize("name", ["evaluate", "infer"])
def test_commands_refuse_the_model_of_another_run(mixed, name, command):
  done = command(name, f"--run_dir={mixed.path}")
  assert done.code == 2
  assert _ANOTHER in done.err
  assert mixed.metrics is None


@pytest.mark.parametrize("field", ["run_id", "weights"])
def test_each_field_of_run_json_counts(two_runs, tmp_path, field):
  changed = _copy(two_runs[0], tmp_path / "changed", **{field: "0" * 32})
  with pytest.raises(ValueError, match=f"{_ANOTHER}.*{'0' * 32}"):
    training.load_model(changed)
  old = _copy(two_runs[0], tmp_path / "old", run_id=None, weights=None)
  assert training.load_model(old).run_record["weights"]


def test_a_plain_network_is_not_the_model_of_a_run(mixed):
  models.mlp((8, 8, 1), 10, seed=0).save(mixed.file("model.keras"))
  with pytest.raises(ValueError, match=_ANOTHER):
    training.load_model(mixed)


_TRACES = ("privacy.json", "run.json", "ledger.jsonl", "model.keras")


@pytest.mark.parametrize("name", _TRACES)
def test_another_model_has_no_place_in_the_folder_of_a_run(tmp_path, name):
  folder = run_folder.RunFolder(tmp_path)
  training.require_no_run(folder, "b.keras")
  imported = {"method": training.IMPORTED, "network": "b.keras"}
  folder.write_json("config.json", imported)
  training.require_no_run(folder, "b.keras")
  folder.write_text(name, "{}")
  with pytest.raises(ValueError, match=r"b\.keras.*another --run_dir"):
    training.require_no_run(folder, "b.keras")


def test_a_run_that_was_killed_is_a_run(tmp_path):
  folder = run_folder.RunFolder(tmp_path)
  folder.write_json("config.json", {"method": "dp_sgd"})
  with pytest.raises(ValueError, match=r"config\.json"):
    training.require_no_run(folder, "b.keras")


# Whose statement and whose results are in a folder.


@pytest.fixture(scope="module")
def noisier(tmp_path_factory):
  """A run like `two_runs`, with ten times the noise."""
  dataset = data.load("digits")
  folder = run_folder.RunFolder(tmp_path_factory.mktemp("noisier") / "run")
  planned = methods.DPSGD(models.mlp((8, 8, 1), 10), _SHORT).plan(
    dataset.num_train, (8, 8, 1)
  )
  config = dataclasses.replace(
    _SHORT, seed=None, noise_multiplier=10 * planned.noise_multiplier
  )
  model = training.build("dp_sgd", config, dataset, "mlp")
  _fit(model, "mlp", dataset, folder)
  return folder


def _stated(folder):
  return results_lib.read(folder).privacy


def test_a_statement_names_its_run_and_weights(two_runs):
  for folder in two_runs:
    for field in ("run_id", "weights"):
      assert folder.privacy[field] == folder.run[field]
    assert _stated(folder).proven is not None


@pytest.mark.parametrize("also", [(), ("run.json",), ("ledger.jsonl",)])
def test_the_statement_of_another_run_is_not_believed(
  two_runs, noisier, tmp_path, also
):
  folder = _copy(two_runs[0], tmp_path / "run")
  shutil.copy(noisier.file("privacy.json"), folder.path)
  for name in also:
    folder.file(name).unlink()
  found = _stated(folder)
  assert found.proven is None
  assert "another run" in found.caveats[0]
  assert inferring.bound_of(folder) is None
  if not also:
    assert audit_source.load(folder).statement.proven is None


def test_a_statement_without_names_must_account_what_the_ledger_counts(
  two_runs, noisier, tmp_path
):
  """Earlier versions named no run in privacy.json, and noted no hash of it."""

  def named_nothing(folder):
    named = ("run_id", "weights")
    return {k: v for k, v in folder.privacy.items() if k not in named}

  folder = _copy(two_runs[0], tmp_path / "run")
  ledger = folder.file("ledger.jsonl")
  lines = ledger.read_bytes().splitlines(keepends=True)
  assert b'{"type": "statement"' in lines.pop()
  ledger.write_bytes(b"".join(lines))
  folder.write_json("privacy.json", named_nothing(folder))
  assert _stated(folder).proven is not None
  folder.write_json("privacy.json", named_nothing(noisier))
  assert _stated(folder).proven is None
  folder.write_json("privacy.json", named_nothing(two_runs[0]))
  ledger.unlink()
  assert _stated(folder).proven is None


_PARTS = ("clean", "attacks", "membership", "audits", "examples")


def test_results_of_other_weights_do_not_stand_beside_a_statement(
  two_runs, tmp_path
):
  """Whatever was left by an earlier training, or by an earlier session."""
  folder, digits = _copy(two_runs[0], tmp_path / "run"), data.load("digits")
  model = training.load_model(folder)
  attacks, sizes = [("fgsm", "linf", 0.1)], {"num_attacked": 300}
  evaluation.evaluate(
    folder, model, digits, attacks, None, num_certified=0, **sizes
  )
  inferring.infer(folder, model, digits, attack_eps=None, num=50)
  audit = {"label": "a", "runs": 9, "confidence": 0.95, "audited": 1e-3}
  audit |= {"scope": stated_lib.OWN_SETTINGS, "dp_delta": _SHORT.dp_delta}
  stated_lib.append(folder, audit)
  found = results_lib.read(folder)
  assert not found.problems
  for name in _PARTS:
    assert getattr(found, name), name
  for name in ("run.json", "privacy.json", "ledger.jsonl", "model.keras"):
    shutil.copy(two_runs[1].file(name), folder.path)
  found = results_lib.read(folder)
  assert found.privacy.proven is not None
  for name in _PARTS:
    assert not getattr(found, name), name
  for name in ("metrics.json", "membership.json", "audit.json", "examples.npz"):
    assert any(name in problem for problem in found.problems), name
  stated_lib.state(folder, found.privacy)
  assert folder.privacy["audited"] is None
  again = training.load_model(folder)
  with pytest.raises(ValueError, match=r"of this model to go on with.*resume"):
    evaluation.evaluate(
      folder, again, digits, [], None, num_certified=0, resume=True, **sizes
    )
