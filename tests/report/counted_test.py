"""A statement that counts less than the ledger proves nothing."""

import json

import pytest

from tests.report import conftest
from tf_privrob import privacy
from tf_privrob import report
from tf_privrob.report import results as results_lib

_STEPS = 640


@pytest.fixture
def run(tmp_path, files):
  """A run folder with a ledger of as many steps as run.json says."""
  path = conftest.write_run(tmp_path / "run", files)
  ledger = privacy.Ledger.open(path / "ledger.jsonl", {"method": "DPSGD"})
  ledger.settle({"noise_multiplier": 1.0}, None)
  ledger.charge(_STEPS)
  ledger.close()
  _write_run_json(path, steps=_STEPS, run_id=ledger.run)
  return path


def _write_run_json(path, **fields):
  known = json.loads((path / "run.json").read_text())
  (path / "run.json").write_text(json.dumps({**known, **fields}))


def _statement(path):
  return results_lib.read(report.RunFolder(path)).privacy


def _charge(path, count):
  with privacy.Ledger.open(
    path / "ledger.jsonl", {"method": "DPSGD"}, resume=True
  ) as ledger:
    ledger.settle({"noise_multiplier": 1.0}, None)
    ledger.charge(count)


def test_a_ledger_that_agrees_changes_nothing(run):
  assert _statement(run).proven.dp_epsilon == 2.987


def test_without_a_ledger_the_statement_stands(run):
  (run / "ledger.jsonl").unlink()
  assert _statement(run).proven is not None


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


def test_a_ledger_of_another_run_is_seen(run):
  _write_run_json(run, run_id="another")
  assert "another run" in _statement(run).caveats[0]


def test_a_damaged_ledger_is_seen(run):
  path = run / "ledger.jsonl"
  path.write_bytes(path.read_bytes().replace(b'"count": 640', b'"count": 540'))
  found = _statement(run)
  assert found.proven is None
  assert "cannot be believed" in found.caveats[0]


def test_steps_that_nobody_wrote_down_prove_nothing(run):
  _write_run_json(run, steps=None)
  assert _statement(run).proven is None
