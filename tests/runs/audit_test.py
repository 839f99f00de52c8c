"""Audits of run folders: what is written, compared, resumed and refused."""

import dataclasses
import json

import numpy as np
import pytest

from tests.models.files import hostile_files
from tf_privrob import data
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob import run_folder
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.privacy import stated as stated_lib
from tf_privrob.runs import train as training
from tf_privrob.runs.audit import one_run as audit_one_run
from tf_privrob.runs.audit import perform as auditing
from tf_privrob.runs.audit import record as audit_record
from tf_privrob.runs.audit import source as audit_source

pytestmark = pytest.mark.usefixtures("checked_once")


def budget(dp_epsilon):
  return {"dp_epsilon": dp_epsilon, "dp_delta": 1e-4}


# What is written.


@pytest.mark.parametrize(
  ("claimed", "proven", "expected"),
  [
    (None, None, "no claim"),
    (budget(1), None, "refutes claimed"),
    (budget(3), None, "below claimed, none proven"),
    (budget(1), budget(3), "refutes claimed"),
    (budget(3), budget(3), "below proven"),
    (budget(3), budget(1), "refutes proven"),
  ],
)
def test_verdict_by_hand(claimed, proven, expected):
  assert audit_record.verdict(2.0, claimed, proven) == expected


def counting(calls):
  def collect(run, part, present, seeds):
    calls.append(len(seeds))
    return np.array([[present + 1e-3 * seed, 0.0] for seed in seeds])

  return collect


def test_a_killed_audit_goes_on(tmp_path):
  """Every run is made once, and the seed of the first session counts."""
  folder = run_folder.RunFolder(tmp_path)
  settings = {"kind": "step", "runs": 20}
  first = audit_record.Store(folder, settings, seed=5)
  calls = []

  def killed(run, part, present, seeds):
    if len(calls) == 2:
      raise KeyboardInterrupt
    return counting(calls)(run, part, present, seeds)

  seeds = list(range(100, 120))
  with pytest.raises(KeyboardInterrupt):
    first.collecting(killed, each=5)(None, "pilot", True, seeds)
  (path,) = (tmp_path / "nonprivate" / "audit").glob("*.jsonl")
  path.write_text(path.read_text() + '{"part": "pilot", "pre')  # cut short
  second = audit_record.Store(folder, settings, seed=6)
  assert (second.seed, second.done) == (5, 10)
  found = second.collecting(counting(calls), each=5)(None, "pilot", True, seeds)
  assert calls == [5, 5, 5, 5]
  np.testing.assert_array_equal(found, counting([])(None, "", True, seeds))
  other = second.collecting(counting(calls))(None, "pilot", False, seeds)
  assert other[0, 0] != found[0, 0]
  second.close()
  assert audit_record.Store(folder, settings, seed=6).done == 0
  assert audit_record.Store(folder, {**settings, "runs": 9}, 7).seed == 7


def test_slow_runs_are_asked_for_in_small_blocks(tmp_path, monkeypatch):
  """Progress and the file follow every few seconds, whatever a run takes."""
  now, calls = [0.0], []
  monkeypatch.setattr(audit_record.time, "monotonic", lambda: now[0])

  def slow(run, part, present, seeds):
    calls.append(len(seeds))
    now[0] += (2.0 if len(calls) < 3 else 0.01) * len(seeds)
    return np.zeros([len(seeds), 1])

  store = audit_record.Store(
    run_folder.RunFolder(tmp_path), {"kind": "step"}, seed=1
  )
  store.collecting(slow)(None, "judged", True, range(600))
  assert calls[:6] == [16, 2, 2, 8, 32, 128]
  assert max(calls) == 250
  assert sum(calls) == 600


def statement(**changes):
  stated = privacy.Budget(3.0, 1e-4)
  return privacy.PrivacyStatement(claimed=stated, proven=stated, **changes)


@pytest.mark.parametrize(
  ("scope", "dp_delta", "expected"),
  [
    (stated_lib.OWN_SETTINGS, 1e-4, 1.5),
    (stated_lib.OWN_SETTINGS, 1e-5, None),
    ("one step", 1e-4, None),
  ],
)
def test_only_an_audit_of_the_run_goes_beside_its_budget(
  tmp_path, scope, dp_delta, expected
):
  folder = run_folder.RunFolder(tmp_path)
  folder.write_text("privacy.json", statement().to_json())
  audit = {"label": "a", "runs": 9, "confidence": 0.95, "scope": scope}
  for audited in (1.5, 0.5):
    stated_lib.append(
      folder, {**audit, "audited": audited, "dp_delta": dp_delta}
    )
  assert folder.privacy["audited"] == expected
  audits = folder.read_json("audit.json")["audits"]
  assert [found["audited"] for found in audits] == [1.5, 0.5]


def test_absent_canaries_are_never_drawn_and_others_as_ever():
  plain = data.PoissonSampler(50, 0.5, 10)
  sampler = audit_one_run.PresentSampler(50, 0.5, 10, absent=(40, 49))
  key = randomness.Key.of(1)
  assert sampler.expected_batch_size == plain.expected_batch_size
  for step in range(20):
    expected = [r for r in plain.indices(key, step) if r not in (40, 49)]
    assert sampler.indices(key, step).tolist() == expected


def test_took_part_by_hand():
  """Ridge regression, written out; its noise measured on the rest."""
  rng = np.random.default_rng(0)
  canaries = rng.normal(size=(3, 400))
  left = canaries[0] + canaries[2] + 0.7 * rng.normal(size=400)
  _, residual, _, _ = np.linalg.lstsq(canaries.T, left, rcond=None)
  ridge = residual[0] / 397 / 0.25
  expected = np.linalg.solve(
    canaries @ canaries.T + ridge * np.eye(3), canaries @ left
  )
  found = audit_one_run.took_part(canaries, left, 99.0, 0.25)
  np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
  np.testing.assert_allclose(found, [1, 0, 1], atol=0.2)
  # Canaries as many as dimensions: the stated noise counts.
  square = np.eye(3)
  found = audit_one_run.took_part(square, np.array([1.0, 0, 1]), 2.0, 0.5)
  np.testing.assert_allclose(found, np.array([1, 0, 1]) / (1 + 8), rtol=1e-4)


def test_losses_are_compared_with_those_of_the_weights_that_fit_draws(tmp_path):
  """Not with those of the network that it was given."""
  digits, folder = data.load("digits"), run_folder.RunFolder(tmp_path)
  method = methods.DPSGD(models.mlp((8, 8, 1), 10, seed=1))
  canaries = digits.x_test[:5], digits.y_test[:5]
  scorer = audit_one_run.LossScore(method, folder, None, canaries)
  method.network.set_weights(models.mlp((8, 8, 1), 10, seed=2).get_weights())
  scorer.before_step()
  scorer.before_step()
  np.testing.assert_allclose(scorer.result(), 0, atol=1e-6)
  kept = audit_one_run.LossScore(method, folder, None, canaries)  # resumed
  method.network.set_weights([0 * w for w in method.network.get_weights()])
  kept.before_step()
  fallen = scorer.result()
  assert np.abs(fallen).min() > 1e-3
  np.testing.assert_allclose(kept.result(), fallen, atol=1e-6)


# On run folders.


def make_run(folder, method="dp_sgd", network="mlp", **changes):
  config = methods.preset(method, None)
  settings = {
    "dp_epsilon": 1.0,
    "dp_delta": 1e-4,
    "batch_size": 400,
    "epochs": 1.5,
    "learning_rate": 1.0,
    **changes,
  }
  config = dataclasses.replace(config, **settings)
  dataset, made = data.load("digits"), run_folder.RunFolder(folder)
  model = training.build(method, config, dataset, network)
  training.fit(model, dataset, network, made, False, {})
  return made


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  return make_run(tmp_path_factory.mktemp("run") / "run")


def test_source_is_the_run(run):
  source = audit_source.load(run)
  assert source.method == "dp_sgd"
  assert source.config.batch_size == 400
  assert source.noise_multiplier == pytest.approx(
    source.statement.releases[0]["parameters"]["noise_multiplier"]
  )
  assert source.record["steps"] == source.statement.releases[0]["count"]


def test_a_network_that_config_json_names_runs_no_code(
  run, tmp_path, monkeypatch
):
  """Whoever changes config.json may name any file."""
  write, _ = hostile_files.DESCRIBED["module of ours"]
  marker = tmp_path / hostile_files.MARKER
  (tmp_path / f"{hostile_files.INTRUDER}.py").write_text(
    f"open({str(marker)!r}, 'w').close()\n"
  )
  monkeypatch.syspath_prepend(str(tmp_path))
  for network, message in (
    (str(write(tmp_path, ".keras")), f"needs code: {hostile_files.INTRUDER}"),
    ({"class_name": "Lambda"}, "name or file of a network"),
  ):
    source = dataclasses.replace(audit_source.load(run), network=network)
    with pytest.raises(ValueError, match=message):
      source.build(0)
  assert not marker.exists()


def test_another_network_in_the_place_of_the_run_s(tmp_path):
  """The file that config.json names is another one by now."""
  path = tmp_path / "net.keras"
  models.mlp((8, 8, 1), 10, hidden=(6,), seed=1).save(path)
  folder = make_run(tmp_path / "run", network=str(path), epochs=0.5)
  models.mlp((8, 8, 1), 10, hidden=(6,), seed=2).save(path)
  assert audit_source.load(folder).build(0).network.count_params() == 460
  models.mlp((8, 8, 1), 10, hidden=(6,), activation="tanh").save(path)
  for kind in auditing.KINDS:
    with pytest.raises(ValueError, match=r"network of the run's model\.keras"):
      auditing.run(folder.path, kind)
  assert not folder.has("audit.json")


def test_step_is_compared_with_one_step_only(run):
  source = audit_source.load(run)
  before = run.privacy
  found = auditing.short_audit(run, source, "step", 120, seed=3)
  one = privacy.dp_epsilon(
    [privacy.poisson_sgd(source.noise_multiplier, 1.0, 1)], 1e-4
  )
  assert found["proven"]["dp_epsilon"] == pytest.approx(one, rel=1e-3)
  assert found["proven"]["dp_epsilon"] != before["proven"]["dp_epsilon"]
  assert (found["scope"], found["sampling_prob"]) == ("one step", 1.0)
  assert found["verdict"] == "below proven"
  assert run.privacy == before
  keys = {"name", "label", "statistic", "canary", "audited", "dp_delta"}
  keys |= {"confidence", "runs", "caught", "false_alarms", "claimed", "proven"}
  keys |= {"verdict", "reachable", "scope", "created", "seconds", "command"}
  stored = run.read_json("audit.json")["audits"][-1]
  assert keys <= set(stored)
  assert stored["audited"] == found["audited"]
  assert json.loads(json.dumps(stored)) == stored


def test_too_few_runs_are_refused_before_any_work(run):
  source = audit_source.load(run)
  before = sorted(run.path.rglob("*.jsonl"))
  with pytest.raises(ValueError, match=r"runs=3, .* Set runs=\d+ or more"):
    auditing.short_audit(run, source, "step", 3)
  with pytest.raises(ValueError, match=r"num_canaries=5, .* Set num_canaries="):
    auditing.one_run_audit(run, source, 5)
  assert sorted(run.path.rglob("*.jsonl")) == before
  assert not run.has(audit_one_run.TRAINING)


@pytest.mark.parametrize("broken", [False, True])
def test_one_run_is_set_beside_the_budget(tmp_path, monkeypatch, broken):
  """The run's own noise, sampling and steps; without noise it is caught."""
  folder = make_run(tmp_path / "run", sampler="full_batch", epochs=3)
  source = audit_source.load(folder)
  if broken:
    noisy = outlet_lib.Outlet.gaussian
    monkeypatch.setattr(
      outlet_lib.Outlet,
      "gaussian",
      lambda self, sums, *rest: noisy(self, sums, *rest).map(lambda _: sums),
    )
  found = auditing.one_run_audit(
    folder, source, 120, canary="out_of_distribution", seed=2
  )
  assert found["scope"] == stated_lib.OWN_SETTINGS
  assert found["proven"]["dp_epsilon"] == pytest.approx(
    source.statement.proven.dp_epsilon, rel=1e-6
  )
  assert folder.privacy["audited"] == found["audited"]
  assert folder.privacy["violated"] == broken
  if broken:
    assert found["verdict"] == "refutes proven"
  else:
    assert found["verdict"] == "below proven"


@pytest.mark.parametrize("broken", [False, True])
def test_gradient_canaries_fill_the_third_column(tmp_path, monkeypatch, broken):
  """A training of the same settings, of which nothing else is kept."""
  folder = make_run(tmp_path / "run", epochs=3)
  source = audit_source.load(folder)
  before = sorted(folder.path.rglob("*"))
  if broken:
    real = randomness.Key.normal
    monkeypatch.setattr(
      randomness.Key, "normal", lambda self, count: real(self, count) / 20
    )
  found = auditing.run(folder.path, "planted", seed=3)
  assert found["scope"] == stated_lib.OWN_SETTINGS
  assert found["proven"]["dp_epsilon"] == pytest.approx(
    source.statement.proven.dp_epsilon, rel=1e-6
  )
  assert folder.privacy["audited"] == found["audited"]
  assert "gradient canaries" in folder.privacy["audit_note"]
  assert folder.privacy["violated"] == broken
  assert (found["verdict"] == "refutes proven") == broken
  assert found["noise_found"] == pytest.approx(1 / 20 if broken else 1, abs=0.2)
  new = {path.name for path in {*folder.path.rglob("*")} - {*before}}
  assert new <= {"audit.json", ".audit.lock"}


def test_gradient_canaries_need_noise_and_batches_of_chance(run):
  source = audit_source.load(run)
  shuffled = dataclasses.replace(
    source, record={**source.record, "sampler": "shuffle"}
  )
  with pytest.raises(ValueError, match="for --kind=planted: each canary"):
    auditing.planted_audit(run, shuffled)
  silent = dataclasses.replace(
    source, record={**source.record, "noise_multiplier": 0.0}
  )
  with pytest.raises(ValueError, match="a run with noise for --kind=planted"):
    auditing.planted_audit(run, silent)


@pytest.mark.parametrize("guesses", [(), (0,), (4, -1)])
def test_guesses_that_are_none(run, guesses):
  with pytest.raises(ValueError, match=r"Expected .*guesses"):
    auditing.run(run.path, "one_run", guesses=guesses)
  assert not run.has(audit_one_run.TRAINING)


def test_where_a_kind_cannot_work_it_says_so(run):
  source = audit_source.load(run)
  shuffled = dataclasses.replace(
    source, record={**source.record, "sampler": "shuffle"}
  )
  with pytest.raises(ValueError, match="--kind=step"):
    audit_source.short_runs(shuffled, 2, "blank")
  with pytest.raises(ValueError, match="sampler 'shuffle'"):
    audit_one_run.check(shuffled, 100)
  pure = dataclasses.replace(
    source, method="halfspaces", config=papers.PureHalfspacesConfig()
  )
  with pytest.raises(ValueError, match=r"privacy\.refute"):
    audit_source.short_runs(pure, None, "blank")
  with pytest.raises(ValueError, match="'own_direction'"):
    audit_source.short_runs(source, None, "own_directon")
  with pytest.raises(ValueError, match=r"Train one first"):
    audit_source.load(run_folder.RunFolder(run.path / "nothing"))
