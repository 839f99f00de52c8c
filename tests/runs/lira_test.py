"""Reference models of a run, and the binary that trains them."""

import dataclasses
import json

import numpy as np
import pytest

from tf_privrob import data
from tf_privrob import methods
from tf_privrob import records
from tf_privrob import run_folder
from tf_privrob.runs import infer as inferring
from tf_privrob.runs import references
from tf_privrob.runs import train as training
from tf_privrob.runs.audit import source as audit_source

pytestmark = pytest.mark.usefixtures("checked_once")


def test_every_point_is_in_half_of_the_models():
  found = references.coins(6, 11, 3)
  np.testing.assert_array_equal(found.sum(axis=0), np.full(11, 3))
  np.testing.assert_array_equal(found[0], ~found[1])
  assert sorted(found.sum(axis=1)) == [5, 5, 5, 6, 6, 6]
  assert not np.array_equal(found[0], found[2])
  np.testing.assert_array_equal(found, references.coins(6, 11, 3))


@pytest.mark.parametrize("number", [2, 5, 0])
def test_models_that_cannot_estimate_are_refused(number):
  with pytest.raises(ValueError, match="an even num_references >= 4"):
    references.coins(number, 10, 0)


def _noisy_digits(num: int):
  """Few digits with random labels: a network can only learn them by heart."""
  digits = data.load("digits")
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 10, 2 * num)
  return data.from_arrays(
    "digits",
    digits.x_train[:num],
    labels[:num],
    digits.x_test[:num],
    labels[num:],
    10,
    digits.value_range,
  )


_NATURAL = methods.TrainingConfig(
  batch_size=20, epochs=40, learning_rate=5e-3, optimizer="adam"
)


def _run(path, dataset=None, **changes):
  """A natural training that fits its training set, and its inference."""
  dataset = dataset or _noisy_digits(100)
  folder = run_folder.RunFolder(path)
  config = dataclasses.replace(_NATURAL, seed=0, **changes)
  model = training.build("natural", config, dataset, "mlp")
  training.fit(model, dataset, "mlp", folder, False, {})
  inferring.infer(folder, model, dataset, attack_eps=None, num=None)
  return folder, dataset


class _Source:
  """As `audit_source.Source`, of the same run; counts trainings."""

  def __init__(self, dataset):
    self.dataset, self.built, self.config = dataset, 0, _NATURAL

  def build(self, seed):
    self.built += 1
    config = dataclasses.replace(_NATURAL, seed=seed)
    return training.build("natural", config, self.dataset, "mlp")


@pytest.mark.slow
def test_points_learnt_by_heart_are_found_and_written(tmp_path):
  folder, dataset = _run(tmp_path)
  before = folder.read_json(inferring.OUTPUT)["strategies"]
  source = _Source(dataset)
  rows = references.lira(folder, source, 4, seed=1)
  assert source.built == 4
  online, offline = rows
  assert online["label"].startswith("LiRA online, 4 reference models")
  assert online["balanced_accuracy"] > 0.85
  assert offline["balanced_accuracy"] > 0.75
  written = folder.read_json(inferring.OUTPUT)
  assert written["strategies"] == before + rows
  assert written["lira"]["references"] == 4
  # Again: nothing is trained, and no row is there twice.
  assert references.lira(folder, source, 4, seed=1) == rows
  assert source.built == 4
  assert len(folder.read_json(inferring.OUTPUT)["strategies"]) == (
    len(before) + 2
  )
  # Fewer points: those models were trained on others and do not serve.
  model = training.build("natural", source.build(0).config, dataset, "mlp")
  inferring.infer(folder, model, dataset, attack_eps=None, num=60)
  references.lira(folder, source, 4, seed=1)
  assert source.built == 9


@pytest.mark.slow
def test_private_references_have_no_seed_and_are_named(tmp_path):
  """They are trained on the private records, like the run itself."""
  dataset = data.load("digits")
  folder = run_folder.RunFolder(tmp_path)
  config = methods.DPSGDConfig(
    dp_epsilon=1.0,
    dp_delta=1e-4,
    accountant="rdp",
    batch_size=400,
    epochs=0.5,
  )
  model = training.build("dp_sgd", config, dataset, "mlp")
  training.fit(model, dataset, "mlp", folder, False, {})
  inferring.infer(folder, model, dataset, attack_eps=None, num=50)
  before = {path for path in tmp_path.rglob("*") if path.is_file()}
  caveats, source = folder.privacy["caveats"], audit_source.load(folder)
  references.lira(folder, source, 4)
  added = {path for path in tmp_path.rglob("*") if path.is_file()} - before
  assert added
  assert all(tmp_path / "nonprivate" in path.parents for path in added)
  ledgers = [path for path in added if path.name == "ledger.jsonl"]
  first = [json.loads(path.read_text().splitlines()[0]) for path in ledgers]
  assert [line["parameters"]["seeded"] for line in first] == [False] * 4
  (caveat,) = set(folder.privacy["caveats"]) - set(caveats)
  assert "Reference models for LiRA were trained on the private" in caveat


def test_a_source_has_the_examples_that_the_run_had(tmp_path):
  dataset = data.load("digits").take(100)
  folder, _ = _run(tmp_path / "digits", dataset, epochs=1)
  found = audit_source.load(folder).dataset
  np.testing.assert_array_equal(found.x_train, dataset.x_train)
  assert data.load("digits").num_train > found.num_train
  other, _ = _run(tmp_path / "other", epochs=1)  # its labels were drawn
  with pytest.raises(ValueError, match="others under the name of digits"):
    audit_source.load(other)


def test_a_reference_has_as_many_examples_as_the_run(tmp_path):
  """As many of either kind are judged, though there are fewer non-members."""
  whole = _noisy_digits(100)
  dataset = dataclasses.replace(
    whole, x_test=whole.x_test[:30], y_test=whole.y_test[:30]
  )
  folder = run_folder.RunFolder(tmp_path)
  model = training.build("natural", _NATURAL, dataset, "mlp")
  found = inferring.infer(folder, model, dataset, attack_eps=None, num=80)
  assert (found["num_members"], found["num_nonmembers"]) == (80, 30)
  record = records.Membership.from_json(found)
  judged = references.judged_points(folder, record, dataset)
  outputs, members, nonmembers, (rest_x, rest_y) = judged
  assert len(members[0]) == len(nonmembers[0]) == 30
  assert len(rest_x) == len(rest_y) == 70
  joined = np.concatenate([rest_x, members[0]])
  np.testing.assert_array_equal(
    np.sort(joined.reshape(100, -1), axis=0),
    np.sort(dataset.x_train.reshape(100, -1), axis=0),
  )
  for logits, (x, _) in zip(outputs.benign, (members, nonmembers)):
    np.testing.assert_allclose(logits, model(x), atol=1e-4)
  other = dataclasses.replace(dataset, y_train=dataset.y_train[::-1])
  with pytest.raises(ValueError, match="Infer again"):
    references.judged_points(folder, record, other)


@pytest.mark.parametrize(
  ("words", "message"),
  [
    ([], "Expected --run_dir"),
    (["--run_dir=nowhere", "--num_references=3"], "an even num_references"),
  ],
)
def test_the_command_refuses(words, message, command):
  done = command("lira", *words)
  assert done.code == 2
  assert message in done.err


def test_a_run_without_inference_is_refused(tmp_path):
  folder = run_folder.RunFolder(tmp_path)
  with pytest.raises(ValueError, match="which says who is judged"):
    references.lira(folder, None, 4)
