"""A statement of another run, or one that counts too little, proves nothing."""

import json
import shutil

import pytest

from tests.report import conftest
from tf_privrob import files as files_lib
from tf_privrob import privacy
from tf_privrob import report
from tf_privrob.privacy import stated
from tf_privrob.report import results as results_lib

_STEPS, _PLAN = 640, {"noise_multiplier": 1.2207}


@pytest.fixture
def run(tmp_path, files):
  """A run folder whose statement, run.json and ledger belong together."""
  path = conftest.write_run(tmp_path / "run", files)
  ledger = privacy.Ledger.open(path / "ledger.jsonl", {"method": "DPSGD"})
  ledger.settle(_PLAN, None)
  ledger.charge(_STEPS)
  ledger.close()
  names = {"run_id": ledger.run, "weights": "ab12"}
  _change(path / "run.json", steps=_STEPS, **names)
  _change(path / "privacy.json", **names)
  return path


def _change(path, **fields):
  known = json.loads(path.read_text())
  path.write_text(json.dumps({**known, **fields}))


def _statement(path):
  return results_lib.read(report.RunFolder(path)).privacy


def _charge(path, count):
  with privacy.Ledger.open(
    path / "ledger.jsonl", {"method": "DPSGD"}, resume=True
  ) as ledger:
    ledger.settle(_PLAN, None)
    ledger.charge(count)


def test_a_ledger_that_agrees_changes_nothing(run):
  assert _statement(run).proven.dp_epsilon == 2.987


@pytest.mark.parametrize(
  ("dp_epsilon", "accountant", "stands"),
  [
    (2.987, {}, True),
    (2.9, {}, False),
    (0.3, {"pld": "Infinity"}, False),
    (3.2714, {"pld": "Infinity"}, True),
    (0.3, {"pld": None}, False),
    (3.2714, {"pld": None}, True),
    (3.0, {"name": "rdp"}, False),
  ],
)
def test_no_less_is_proven_than_was_accounted(
  run, files, dp_epsilon, accountant, stands
):
  """One figure of privacy.json is another one by now."""
  stated = files["privacy.json"]
  _change(
    run / "privacy.json",
    proven={"dp_epsilon": dp_epsilon, "dp_delta": 1e-5},
    accountant={**stated["accountant"], **accountant},
  )
  found = _statement(run)
  assert (found.proven is not None) == stands
  if not stands:
    assert "and its accountant found" in found.caveats[0]


def test_without_a_ledger_the_statement_stands(run):
  (run / "ledger.jsonl").unlink()
  assert _statement(run).proven is not None


@pytest.fixture
def noted(run):
  """The same run, whose statement was written when its training ended."""
  text = (run / "privacy.json").read_text()
  statement = privacy.PrivacyStatement.from_json(text)
  statement = statement.replace(condition="only on Sundays", gaussian_mu=0.9)
  (run / "privacy.json").unlink()
  stated.state(report.RunFolder(run), statement)
  assert _statement(run) == statement
  return run


_LESS = {"dp_epsilon": 0.5, "dp_delta": 1e-5}
_ACCOUNTANT = conftest.PRIVACY["accountant"]


@pytest.mark.parametrize(
  "edit",
  [
    {"proven": {"dp_epsilon": 2.987, "dp_delta": 1e-12}},
    {"proven": {"dp_epsilon": 2.987, "dp_delta": 0}},
    {"neighbouring": "replace_one"},
    {"gaussian_mu": 0.01},
    {"caveats": []},
    {"assumptions": []},
    {"releases": []},
    {"condition": ""},
    {"unit": "one hospital"},
    {"proven": _LESS, "accountant": {**_ACCOUNTANT, "pld": 0.5, "rdp": 0.5}},
    {"proven": _LESS, "accountant": {**_ACCOUNTANT, "pld": "3", "rdp": "3"}},
    {"proven": _LESS, "accountant": {}},
    {"text": "nothing leaks"},
  ],
)
def test_no_edit_of_the_statement_leaves_a_proof(noted, edit):
  """Nor does an audit of the run, which writes the statement anew."""
  _change(noted / "privacy.json", **edit)
  for _ in range(2):
    found = _statement(noted)
    assert found.proven is None
    assert "hash of another text" in found.caveats[0]
    stated.caution(report.RunFolder(noted), stated.REFERENCES)


def test_a_key_that_stands_twice_leaves_no_statement(noted):
  text = (noted / "privacy.json").read_text()
  key = '"gaussian_mu": '
  text = text.replace(key, f"{key}0.01, {key}")
  (noted / "privacy.json").write_text(text)
  found = results_lib.read(report.RunFolder(noted))
  assert found.privacy is None
  assert "'gaussian_mu' stands in one object twice" in found.problems[0]


def test_what_was_put_back_is_proven_again(noted, tmp_path):
  before = (noted / "privacy.json").read_bytes()
  _change(noted / "privacy.json", condition="")
  stated.caution(report.RunFolder(noted), stated.REFERENCES)
  (noted / "privacy.json").write_bytes(before)
  assert _statement(noted).proven is not None
  copy = shutil.copytree(noted, tmp_path / "copy")
  stated.caution(report.RunFolder(copy), stated.REFERENCES)
  assert _statement(copy).proven is not None


def test_a_kill_between_ledger_and_statement_takes_no_proof(noted, monkeypatch):
  """Also one after the other: the file has its first text all the while."""

  def killed(*unused):
    raise KeyboardInterrupt

  folder = report.RunFolder(noted)
  with monkeypatch.context() as patched:
    patched.setattr(files_lib, "write_text", killed)
    for caveat in (stated.REFERENCES, stated.BEGUN, "a third"):
      with pytest.raises(KeyboardInterrupt):
        stated.caution(folder, caveat)
  found = _statement(noted)
  assert found.proven is not None
  assert "a third" not in found.caveats
  stated.caution(folder, "a third")
  found = _statement(noted)
  assert found.proven is not None
  assert "a third" in found.caveats


def test_a_statement_that_counts_too_little_is_noted_in_vain(noted):
  """A resumed run was stopped before it could write its own."""
  _charge(noted, 1)
  assert "counted 641 steps" in _statement(noted).caveats[0]


@pytest.mark.usefixtures("no_plots")
def test_one_step_more_and_nothing_may_be_promised(run):
  _charge(run, 1)
  found = _statement(run)
  assert found.proven is None
  assert found.claimed is not None
  assert "counted 641 steps, and the statement is for 640" in found.caveats[0]
  report.write(run)
  page = (run / "report.html").read_text()
  assert "no finite bound known" in page
  assert "2.987" not in page


def test_facts_against_a_proof_are_seen(run):
  """A session that ended by an error left the statement of the one before."""
  with privacy.Ledger.open(
    run / "ledger.jsonl", {"method": "DPSGD"}, resume=True
  ) as ledger:
    ledger.note_fact("ended_by_error")
  found = _statement(run)
  assert found.proven is None
  assert "ended_by_error" in found.caveats[0]


def test_a_ledger_of_another_run_is_seen(run):
  for name in ("run.json", "privacy.json"):
    _change(run / name, run_id="another")
  found = _statement(run)
  assert found.proven is None
  assert "another run" in found.caveats[0]


def test_a_damaged_ledger_is_seen(run):
  path = run / "ledger.jsonl"
  path.write_bytes(path.read_bytes().replace(b'"count": 640', b'"count": 540'))
  found = _statement(run)
  assert found.proven is None
  assert "cannot be believed" in found.caveats[0]


def test_steps_that_nobody_wrote_down_prove_nothing(run):
  _change(run / "run.json", steps=None)
  assert _statement(run).proven is None


@pytest.mark.parametrize("name", ["run.json", "privacy.json"])
@pytest.mark.parametrize("field", ["run_id", "weights"])
@pytest.mark.parametrize("value", ["another", None])
def test_statement_and_run_name_one_run_and_one_model(run, name, field, value):
  _change(run / name, **{field: value})
  found = _statement(run)
  assert found.proven is None
  assert "another run" in found.caveats[0]


def test_a_run_that_cannot_be_read_proves_nothing(run):
  (run / "run.json").write_text("{")
  assert _statement(run).proven is None


_POISSON = {"kind": "poisson", "sampling_prob": 0.064}


@pytest.mark.parametrize(
  ("plan", "expected"),
  [
    ({"noise_multiplier": 1.2207, "sampler": _POISSON}, None),
    ({"noise_multiplier": 1.22, "sampler": _POISSON}, "more noise"),
    ({"noise_multiplier": 0.0}, "more noise"),
    ({"noise_multiplier": 1.2207, "sampler": {"kind": "shuffle"}}, "sampler"),
    (
      {**_PLAN, "sampler": {**_POISSON, "sampling_prob": 0.07}},
      "sampling_prob",
    ),
    ({"dp_epsilon": 1.0}, None),
  ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_statement_accounts_the_plan_of_its_ledger(
  tmp_path, files, plan, expected, named
):
  """Also where both name one run; without names there must be a plan."""
  path = conftest.write_run(tmp_path, files)
  with privacy.Ledger.open(path / "ledger.jsonl", {"method": "a"}) as ledger:
    ledger.settle(plan, None)
    ledger.charge(_STEPS)
  names = {"run_id": ledger.run, "weights": "ab12"}
  release = dict(files["privacy.json"]["releases"][0])
  release["parameters"] = {
    "noise_multiplier": 1.2207,
    "sampling_probability": 0.064,
  }
  _change(path / "run.json", **names)
  _change(path / "privacy.json", releases=[release], **(names if named else {}))
  if expected is None and not named and "noise_multiplier" not in plan:
    expected = "names no run"
  found = _statement(path)
  assert (found.proven is None) == (expected is not None)
  if expected:
    assert expected in found.caveats[0]
  release["count"] = _STEPS - 1
  _change(path / "privacy.json", releases=[release])
  assert _statement(path).proven is None
