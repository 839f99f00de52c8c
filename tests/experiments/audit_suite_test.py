"""The suite of audits: its cells, its page, and two of its verdicts."""

import pytest

from experiments.audits import __main__ as audit_suite
from experiments.audits import cells as audits_cells
from experiments.audits import measure as audits_measure
from experiments.audits import page as audits_page
from experiments.grid import engine as grid
from tf_privrob import run_folder
from tf_privrob.privacy import run_facts


def test_cells_are_the_cases():
  every = audits_cells.cells()
  assert [cell.part for cell in every] == list(audits_cells.CASES)
  chosen = grid.select(every, "dp_sgd")
  assert [cell.part for cell in chosen] == ["dp_sgd-1", "dp_sgd-3", "dp_sgd-8"]


def test_page_never_shows_a_claim_alone(tmp_path):
  experiment = audit_suite.Experiment.described("test", "", str(tmp_path))
  experiment.open(resume=False)
  result = {
    "label": "DPAL as published",
    "scope": "one step",
    "canary": "a record",
    "claimed": {"dp_epsilon": 0.2, "dp_delta": 0.0},
    "proven": None,
    "audited": 3.49,
    "gaussian": None,
    "caught": 294,
    "false_alarms": 3,
    "runs": 300,
    "reachable": 4.39,
    "statistic": "projection",
    "seconds": 34.0,
    "verdict": "refutes claimed",
  }
  experiment.folder.write_json("audits/dpal-paper.json", result)
  result = {
    **result,
    "proven": {"dp_epsilon": 3.5, "dp_delta": 0.0},
    "condition": "only on Sundays",
  }
  experiment.folder.write_json("audits/dpal-sound.json", result)
  experiment.write()
  table = (tmp_path / "table.md").read_text()
  expected = "| 0.2 | none known | >= 3.49 | - | 294 / 3 of 300 | 4.39 |"
  assert expected in table
  assert "| 0.2 | 3.5 (only on Sundays) | >= 3.49 |" in table
  summary = audits_page.summary(experiment.results())
  rows = {row[0]: row[2:5] for row in summary.rows}
  assert rows["DPAL as published"] == ["0.2", "none known", ">= 3.49"]
  assert rows["SoundAdLM"] == ["not run"] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "verdict"),
  [
    ("dpal-paper", "refutes claimed"),
    ("secure_sgd-released", "refutes claimed"),
    ("transdenoiser-paper", "refutes claimed"),
    ("transdenoiser-branch", "refutes claimed"),
    ("halfspaces-paper", "refutes claimed"),
    ("halfspaces-sound", "below proven"),
    ("secure_sgd-sound", "below proven"),
    ("transdenoiser-sound", "below proven"),
    ("adlm-paper", "refutes claimed"),
    ("dpal-sound", "below proven"),
    ("adlm-sound", "below proven"),
  ],
)
def test_verdicts(tmp_path, name, verdict):
  folder = run_folder.RunFolder(tmp_path)
  found = audits_measure.audit(
    audits_cells.CASES[name], audits_cells.SCALES["test"], folder, 1
  )
  assert found["verdict"] == verdict


@pytest.mark.slow
def test_what_is_shown_of_dp_sgd_rises_with_its_budget(tmp_path):
  """It stays below what is proven; at 8 it shows at least a third of it."""
  shown = []
  for dp_epsilon in (1, 3, 8):
    found = audits_measure.audit(
      audits_cells.CASES[f"dp_sgd-{dp_epsilon}"],
      audits_cells.SCALES["test"],
      run_folder.RunFolder(tmp_path),
      2,
    )
    shown.append(found["audited"])
    assert found["audited"] <= found["proven"]["dp_epsilon"]
    assert found["condition"] == run_facts.CONDITION
  assert shown == sorted(shown)
  assert shown[-1] > 8 / 3


@pytest.mark.parametrize("kind", ["SoundAdLM", "SoundDPAL"])
def test_sound_heirs_are_found_among_the_papers(kind):
  assert type(audits_cells.sound_heir(kind).method).__name__ == kind
