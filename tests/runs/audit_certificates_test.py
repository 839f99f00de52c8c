"""The audit of a run folder's certificates, and its binary."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests import marking
from tf_privrob import certify
from tf_privrob import data
from tf_privrob import papers
from tf_privrob import run_folder
from tf_privrob.certify import record
from tf_privrob.runs import certificates as certificate_audit
from tf_privrob.runs import evaluate as evaluation

_DRAWS = {"num_selection": 25, "num_estimation": 60, "confidence": 0.9}
_QUICK = {"steps": 5, "draws": 4, "num_random": 4, "progress": False}


@pytest.fixture(scope="module")
def dataset():
  return data.load("digits")


def _network(dataset, seed):
  layers = tf.keras.layers
  model = tf.keras.Sequential(
    [
      layers.Input(dataset.input_shape),
      layers.Flatten(),
      layers.Dense(
        10, kernel_initializer=tf.keras.initializers.GlorotUniform(seed)
      ),
    ]
  )
  model.compile(
    tf.keras.optimizers.Adam(0.02),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  model.fit(dataset.x_train, dataset.y_train, 64, 3, verbose=0, shuffle=False)
  return model


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
  """A folder as train and evaluate leave it."""
  folder = run_folder.RunFolder(tmp_path_factory.mktemp("run"))
  model = _network(dataset, 1)
  model.save(folder.file("model.keras"))
  folder.write_json("config.json", {"method": "none", "dataset": "digits"})
  certifier = certify.RandomizedSmoothing(0.25, num_estimation=500)
  evaluation.certify_rows(
    model, dataset, certifier, 12, 0, folder.file("certificates.csv"), False
  )
  return folder, model


@pytest.mark.slow
def test_the_command_audits_a_run(run, command):
  folder, _ = run
  done = command(
    "audit_certificates",
    f"--run_dir={folder.path}",
    "--num=5",
    "--steps=5",
    "--draws=4",
    "--num_random=4",
  )
  assert done.code == 0, done.err
  assert "Attacked 5 certified l2 radii of randomised_smoothing" in done.out
  assert "ETA" in done.err
  found = json.loads(folder.file("certificate_audit.json").read_text())
  assert set(found) == {
    *("created", "count", "kind", "method", "norm", "confidence"),
    *("violations", "rate", "interval", "allowed", "verdict", "attacks"),
    *("rows", "draws", "seed", "seconds", "command", "closest"),
    *("inflated", "detectable"),
    "weights",
  }
  assert found["count"] == 5
  assert f"Verdict: {found['verdict']}." in done.out
  assert [row["name"] for row in found["attacks"]] == [
    *("pgd", "apgd", "targeted", "random", "boundary")
  ]


def test_a_file_with_larger_radii_is_caught(run, dataset, tmp_path):
  folder, model = run
  recorded = certify.read(folder.file("certificates.csv"))
  broken = run_folder.RunFolder(tmp_path)
  book = record.Record(
    str(broken.file("certificates.csv")), recorded.settings, recorded.model
  )
  book.open(resume=False)
  for row in recorded.rows:
    larger = dataclasses.replace(row, radius=4 * row.radius, stamp=book.stamp)
    book.append(larger)
  book.close()
  result = certificate_audit.audit_run(
    broken, model, dataset, **{**_QUICK, "steps": 20}
  )
  assert result.verdict == "violated"
  assert broken.read_json("certificate_audit.json")["verdict"] == "violated"


def test_another_model_or_other_data_are_refused(run, dataset):
  folder, model = run
  with pytest.raises(ValueError, match="Expected the model that was certified"):
    certificate_audit.audit_run(folder, _network(dataset, 2), dataset)
  other = dataclasses.replace(dataset, y_test=np.roll(dataset.y_test, 1))
  with pytest.raises(ValueError, match="inputs and labels that were certified"):
    certificate_audit.audit_run(folder, model, other)


def test_a_folder_without_certificates_or_weights(
  run, dataset, tmp_path, command
):
  folder = run_folder.RunFolder(tmp_path)
  with pytest.raises(
    ValueError, match=r"python -m tf_privrob certify --run_dir=.*num_certif"
  ):
    certificate_audit.audit_run(folder, run[1], dataset)
  done = command("audit_certificates", f"--run_dir={tmp_path}")
  assert done.code == 2
  assert "Expected a trained model at" in done.err
  assert "python -m tf_privrob train" in done.err


@pytest.mark.parametrize("claimed", marking.slow_but([False], [False, True]))
def test_certificates_of_noise_inside_are_audited(dataset, tmp_path, claimed):
  """Of a method that claims one thing and can prove another."""
  layers = tf.keras.layers
  network = tf.keras.Sequential(
    [
      layers.Input(dataset.input_shape),
      layers.Flatten(),
      layers.Dense(4, "relu"),
      layers.Dense(4, "tanh"),
      # Sure of itself: a radius of 0 is nothing to attack.
      layers.Dense(10, kernel_initializer=tf.keras.initializers.Orthogonal(99)),
    ]
  )
  inference = papers.Inference(num_draws=50)
  config = papers.DPALConfig(inference=inference, batch_size=1200)
  model, folder = papers.DPAL(network, config), run_folder.RunFolder(tmp_path)
  certifier = evaluation.choose_certifier(
    model, None, claimed, 0.3 if claimed else None, **_DRAWS
  )
  evaluation.certify_rows(
    model, dataset, certifier, 2, 0, folder.file("certificates.csv"), False
  )
  recorded = certify.read(folder.file("certificates.csv"))
  found = certificate_audit.certifier_of(recorded.settings, model)
  assert found == certifier
  result = certificate_audit.audit_run(folder, model, dataset, **_QUICK)
  assert result.kind == ("claimed" if claimed else "proven")


class _Own:
  """A model with a certifier of its own."""

  def __init__(self, certifier):
    self._own = certifier

  def certifier(self):
    return self._own


@pytest.mark.parametrize(
  "certifier",
  [
    certify.RandomizedSmoothing(0.3, num_estimation=700, confidence=0.99),
    certify.LinearMargin("linf"),
    certify.VerifiedBound(0.1, value_range=(0.0, 1.0), largest=True),
    certify.SingleLayerCertificate(0.4, norm="l2", distribution="gaussian"),
  ],
)
def test_certifiers_are_made_from_their_records(certifier):
  settings = json.loads(json.dumps(certifier.settings()))
  model = _Own(certifier)
  if hasattr(certifier, "num_estimation"):
    weaker = dataclasses.replace(certifier, num_estimation=20_000)
    model = _Own(weaker)
  assert certificate_audit.certifier_of(settings, model) == certifier


def test_a_certifier_of_another_model_is_refused():
  made = certify.SingleLayerCertificate(
    0.4, position="hidden", operator_norm=2.0, norm="l2"
  )
  settings = json.loads(json.dumps(made.settings()))
  now = dataclasses.replace(made, operator_norm=3.0)
  with pytest.raises(
    ValueError, match=r"operator_norm: 2\.0 in the record, 3\.0 now"
  ):
    certificate_audit.certifier_of(settings, _Own(now))
  with pytest.raises(ValueError, match="whose own certifier is SingleLayer"):
    certificate_audit.certifier_of(settings, object())
