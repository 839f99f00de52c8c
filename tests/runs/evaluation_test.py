"""Which certificate a model is evaluated by."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob import certify
from tf_privrob import data
from tf_privrob import layers
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import randomness
from tf_privrob import run_folder
from tf_privrob.runs import evaluate as evaluation

_SETTINGS = {"num_selection": 25, "num_estimation": 200, "confidence": 0.99}


def _network():
  return models.mlp((8, 8, 1), 10, hidden=(6,), activation="tanh")


def test_a_method_is_certified_by_its_own_certificate():
  objective = methods.Smooth(smoothing_stddev=0.4)
  model = methods.DPSGD(_network(), objective=objective)
  found = evaluation.choose_certifier(model, None, **_SETTINGS)
  assert found == certify.RandomizedSmoothing(0.4, **_SETTINGS)


def test_noise_that_is_asked_for_comes_first():
  model = methods.DPSGD(_network(), objective=methods.Smooth())
  found = evaluation.choose_certifier(model, 0.7, **_SETTINGS)
  assert found == certify.RandomizedSmoothing(0.7, **_SETTINGS)


@pytest.mark.parametrize("kind", ["plain", "dp_sgd"])
def test_models_without_a_proven_one_are_smoothed(kind):
  model = _network()
  if kind == "dp_sgd":
    model = methods.DPSGD(model)
  found = evaluation.choose_certifier(model, None, **_SETTINGS)
  assert found == certify.RandomizedSmoothing(0.25, **_SETTINGS)


def _dpal():
  """DPAL with noise that turns many an answer, as it is built."""
  config = papers.DPALConfig(
    batch_size=1200, seed=3, inference=papers.Inference(psi=0.1)
  )
  return papers.DPAL(models.mlp((8, 8, 1), 10, (6,), "tanh", seed=0), config)


def test_a_method_that_claims_is_certified_by_what_can_be_proven_of_it():
  model = _dpal()
  found = evaluation.choose_certifier(model, None, **_SETTINGS)
  assert found == model.proven_certifier(**_SETTINGS)
  assert found.kind == "proven"
  found = evaluation.choose_certifier(model, None, True, **_SETTINGS)
  assert found == model.certifier()
  found = evaluation.choose_certifier(model, None, True, 0.3, **_SETTINGS)
  assert found == model.certifier(attack_eps=0.3)
  with pytest.raises(ValueError, match="--claimed with --claimed_attack_eps"):
    evaluation.choose_certifier(model, None, False, 0.3, **_SETTINGS)


@pytest.mark.parametrize("claimed", [False, True])
def test_noise_inside_is_attacked_as_it_is_certified(tmp_path, claimed):
  """Not the network under its fixed draw, which nobody certifies."""
  digits, model = data.load("digits"), _dpal()
  inference = {"num_selection": 25, "num_estimation": 60, "confidence": 0.9}
  certifier = evaluation.choose_certifier(model, None, claimed, **inference)
  found = evaluation.evaluate(
    run_folder.RunFolder(tmp_path),
    model,
    digits,
    [("fgsm", "linf", 0.1)],
    certifier,
    num_attacked=40,
    num_certified=3,
    eot_draws=3,
    verdict_draws=15,
  )
  one_draw = model.noisy_logits
  if not claimed:
    one_draw = certifier.target(model, digits.x_test).logits
  draw = tf.function(one_draw)
  x, y = digits.x_test[:40], digits.y_test[:40]
  attack = attacks.FGSM(0.1, value_range=digits.value_range)
  expected = attacks.evaluate(
    attack, attacks.eot(one_draw, 3), x, y, 0, verdict_draws=15
  )
  (row,) = found["attacks"]
  assert row["accuracy"] == expected.accuracy
  assert (row["eot_draws"], row["verdict_draws"]) == (3, 15)
  votes = [
    tf.one_hot(tf.argmax(draw(digits.x_test, tf.constant([9, number])), 1), 10)
    for number in range(60)
  ]
  deployed = np.argmax(tf.add_n(votes), axis=1)
  clean = (deployed == digits.y_test).mean()
  assert found["clean"]["accuracy"] == pytest.approx(clean, abs=0.1)
  fixed = np.argmax(model.predict(digits.x_test, verbose=0), 1)
  assert (deployed != fixed).mean() > 0.3
  with np.load(tmp_path / "examples.npz") as pictures:
    assert (pictures["clean_predictions"] == pictures["labels"]).all()


def test_noise_inside_is_evaluated_into_the_metrics(tmp_path):
  digits = data.load("digits")
  model = papers.PixelDP(_network(), papers.PixelDPConfig())
  certifier = evaluation.choose_certifier(model, None, **_SETTINGS)
  assert isinstance(certifier, certify.SingleLayerCertificate)
  found = evaluation.certify_rows(
    model, digits, certifier, 5, 0, tmp_path / "c.csv", False
  )
  assert found.smoothing_stddev is None
  assert (found.norm, found.count) == ("l2", 5)
  assert "gaussian" in found.method
  assert found.curve[0].radius == 0


def test_a_linear_model_has_exact_radii_without_draws(tmp_path):
  digits = data.load("digits")
  model = papers.Halfspaces(models.linear((8, 8, 1), 10))
  certifier = evaluation.choose_certifier(model, None, **_SETTINGS)
  assert certifier == certify.LinearMargin()
  found = evaluation.certify_rows(
    model, digits, certifier, 5, 0, tmp_path / "c.csv", False
  )
  assert found.confidence == 1
  assert found.num_estimation is None
  assert found.method == "linear_margin"


def test_a_verified_trainer_has_radii_without_draws(tmp_path):
  digits = data.load("digits")
  model = methods.Trainer(_network(), objective=methods.IBP(attack_eps=0.01))
  certifier = evaluation.choose_certifier(model, None, **_SETTINGS)
  assert certifier == certify.VerifiedBound(0.01)
  found = evaluation.certify_rows(
    model, digits, certifier, 5, 0, tmp_path / "c.csv", False
  )
  assert (found.norm, found.confidence) == ("linf", 1)
  assert found.method == "verified_interval"


@pytest.mark.slow
def test_claimed_sizes_are_asked_for_and_stay_claims(tmp_path):
  digits = data.load("digits")
  config = papers.SecureSGDConfig(
    dp_epsilon=4.0,
    batch_size=16,
    epochs=1,
    redistribution=papers.MeasuredRedistribution(throwaway_steps=1),
    robustness=papers.ClaimedRobustness(num_draws=50),
  )
  model = papers.SecureSGD(_network(), config)
  model.compile()
  model.fit(digits.x_train[:64], digits.y_train[:64], verbose=0)
  certifier = evaluation.choose_certifier(model, None, True, **_SETTINGS)
  assert certifier == model.certifier()
  found = evaluation.certify_rows(
    model, digits, certifier, 5, 0, tmp_path / "c.csv", False
  )
  assert (found.kind, found.mean_radius) == ("claimed", None)
  assert found.num_estimation == 50
  rows = certify.read(tmp_path / "c.csv").rows
  assert {row.kind for row in rows} == {"claimed"}


def _attacked(path, sizes=(0.05, 0.1), **changes):
  """Attacks digits from scratch, or goes on with it."""
  digits = data.load("digits")
  settings = {"num_attacked": 20, "num_certified": 0, "steps": 1, **changes}
  dataset = settings.pop("dataset", digits)
  return evaluation.evaluate(
    run_folder.RunFolder(path),
    settings.pop("model", None) or models.mlp((8, 8, 1), 10, seed=1),
    dataset,
    [("pgd", "linf", size) for size in sizes],
    None,
    **settings,
  )


def _rows(metrics):
  return [(r["attack_eps"], r["steps"], r["count"]) for r in metrics["attacks"]]


def test_a_resume_mixes_no_settings_and_doubles_no_rows(tmp_path, monkeypatch):
  _attacked(tmp_path)
  kept = _attacked(tmp_path, resume=True)
  assert _rows(kept) == [(0.05, 1, 20), (0.1, 1, 20)]
  found = _attacked(tmp_path, resume=True, steps=3)
  assert _rows(found) == [(0.05, 3, 20), (0.1, 3, 20)]
  found = _attacked(tmp_path, [0.05], resume=True, num_attacked=30)
  assert _rows(found) == [(0.1, 3, 20), (0.05, 1, 30)]
  assert found["complete"] is True
  seeded = _attacked(tmp_path, [0.05], resume=True, num_attacked=30, seed=3)
  assert seeded["attacks"][0] == found["attacks"][0]
  assert seeded["attacks"][1]["seed"] == 3
  monkeypatch.setattr(evaluation, "attack_rows", lambda *given: given[2])
  assert _attacked(tmp_path, [0.1], resume=True, steps=3) == seeded


def test_what_was_asked_for_and_not_found_stays_missing(tmp_path, monkeypatch):
  whole = evaluation.attack_rows

  def killed(*given):
    yield next(whole(*given))
    raise KeyboardInterrupt

  with monkeypatch.context() as patched:
    patched.setattr(evaluation, "attack_rows", killed)
    with pytest.raises(KeyboardInterrupt):
      _attacked(tmp_path)
  assert _attacked(tmp_path, [0.05], resume=True)["complete"] is False
  assert _attacked(tmp_path, resume=True)["complete"] is True
  assert _attacked(tmp_path, [0.05])["complete"] is True


def test_other_test_data_are_not_gone_on_with(tmp_path):
  _attacked(tmp_path)
  digits = data.load("digits")
  before = (tmp_path / "metrics.json").read_bytes()
  for change in (
    {"name": "other"},
    {"x_test": digits.x_test[::-1], "y_test": digits.y_test[::-1]},
  ):
    other = dataclasses.replace(digits, **change)
    with pytest.raises(ValueError, match="Expected results on the test data"):
      _attacked(tmp_path, dataset=other, resume=True)
  assert (tmp_path / "metrics.json").read_bytes() == before
  found = _attacked(tmp_path, dataset=other)
  with np.load(tmp_path / "examples.npz") as pictures:
    assert str(pictures["data"]) == found["data"]
    np.testing.assert_array_equal(pictures["clean"][0], other.x_test[0])


def test_one_folder_is_about_one_imported_model(tmp_path):
  for number, name in enumerate(("a", "b")):
    models.mlp((8, 8, 1), 10, seed=number).save(tmp_path / f"{name}.keras")

  def run(name, dataset="digits"):
    return evaluation.run(
      tmp_path / "run",
      [("fgsm", "linf", 0.1)],
      model=str(tmp_path / f"{name}.keras"),
      dataset=dataset,
      num_attacked=10,
      num_certified=0,
    )

  first = run("a")
  with pytest.raises(ValueError, match=r"received .*b\.keras on digits"):
    run("b")
  with pytest.raises(ValueError, match="inputs of shape"):
    run("a", "mnist_5k")
  (tmp_path / "a.keras").replace(tmp_path / "moved.keras")
  assert run("moved")["weights"] == first["weights"]
  (tmp_path / "b.keras").replace(tmp_path / "a.keras")
  with pytest.raises(ValueError, match="with another weights"):
    run("a")


@pytest.mark.parametrize("kind", ["plain", "dp_sgd", "dp_smooth"])
def test_claimed_sizes_of_a_method_without_are_refused(kind):
  model = _network()
  if kind != "plain":
    model = methods.build(kind, model, methods.preset(kind))
  with pytest.raises(ValueError, match="Leave --claimed out"):
    evaluation.choose_certifier(model, None, True, **_SETTINGS)


def test_claimed_sizes_and_noise_at_the_input_exclude_each_other():
  model = papers.SecureSGD(_network(), papers.SecureSGDConfig())
  with pytest.raises(ValueError, match="received both"):
    evaluation.choose_certifier(model, 0.5, True, **_SETTINGS)


def test_batch_statistics_are_refused_before_the_attacks(tmp_path):
  digits = data.load("digits")
  model = tf.keras.Sequential(
    [
      tf.keras.layers.Input((8, 8, 1)),
      layers.BatchStandardization(),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(10),
    ]
  )
  folder = run_folder.RunFolder(tmp_path)
  certifier = evaluation.choose_certifier(model, None, **_SETTINGS)
  rest = {"num_attacked": 5, "steps": 1}
  with pytest.raises(ValueError, match="pass --num_certified=0"):
    evaluation.evaluate(
      folder, model, digits, [], certifier, num_certified=5, **rest
    )
  assert not folder.has("metrics.json")
  found = evaluation.evaluate(
    folder, model, digits, [], certifier, num_certified=0, **rest
  )
  assert found["certified"] is None


@pytest.mark.parametrize("seed", [None, 0])
def test_a_seed_is_a_condition_of_radii_and_of_nothing_else(tmp_path, seed):
  digits, model = data.load("digits"), models.mlp((8, 8, 1), 10, seed=1)
  certifier = evaluation.choose_certifier(model, None, **_SETTINGS)
  found = [
    evaluation.evaluate(
      run_folder.RunFolder(tmp_path / name),
      model,
      digits,
      [("pgd", "linf", 0.05)],
      certifier,
      num_attacked=5,
      num_certified=4,
      steps=1,
      seed=seed,
    )
    for name in "ab"
  ]
  assert [entry["attacks"][0]["seed"] for entry in found] == [0, 0]
  condition = "" if seed is None else randomness.SEEDED
  assert {entry["certified"]["condition"] for entry in found} == {condition}
  rows = [certify.read(tmp_path / n / "certificates.csv").rows for n in "ab"]
  assert {row.condition for row in rows[0]} == {condition}
  one, other = ([row.radius for row in part] for part in rows)
  assert (one == other) == (seed is not None)
