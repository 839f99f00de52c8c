"""What is read of a run folder: the run's own results, fit to be shown."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.report import conftest
from tf_privrob import report
from tf_privrob.report import results as results_lib

_STEER = "\x1b[2J\u202e\x9bPROVEN"


def _read(path, files):
  return results_lib.read(report.RunFolder(conftest.write_run(path, files)))


def _membership(**about):
  return {"strategies": [{"balanced_accuracy": 0.6}], **about}


@pytest.mark.parametrize(
  ("dataset", "expected"),
  [("mnist_5k", True), (None, True), ("fashion_mnist", False)],
)
def test_results_on_another_data_set_are_not_shown(
  tmp_path, files, dataset, expected
):
  files["metrics.json"]["dataset"] = dataset
  files["nonprivate/membership.json"] = _membership(dataset=dataset)
  found = _read(tmp_path, files)
  assert bool(found.clean and found.attacks and found.smoothed) == expected
  assert (found.membership is not None) == expected
  told = [text for text in found.problems if "fashion_mnist" in text]
  assert len(told) == (0 if expected else 2)


def test_results_on_other_test_data_of_one_name_are_not_mixed(tmp_path, files):
  files["metrics.json"]["data"] = "ab"
  files["nonprivate/membership.json"] = _membership(data="cd")
  path = conftest.write_run(tmp_path, files)
  with np.load(path / "examples.npz") as arrays:
    np.savez(path / "examples.npz", **arrays, data=np.array("cd"))
  found = results_lib.read(report.RunFolder(path))
  assert found.clean is not None
  assert found.examples is None
  assert found.membership is None
  assert len(found.problems) == 2


@pytest.mark.usefixtures("no_plots")
def test_no_file_and_no_folder_steers_a_terminal(tmp_path, files):
  """Whatever names stand in files, and whatever the folder is called."""
  files["config.json"].update(method=_STEER, dataset=_STEER, network=_STEER)
  files["run.json"].update(device=_STEER)
  files["metrics.json"]["attacks"][0].update(name=_STEER, warnings=[_STEER])
  files["metrics.json"]["commands"] = [_STEER]
  files["privacy.json"].update(caveats=[_STEER], condition=_STEER)
  path = conftest.write_run(tmp_path / f"run {_STEER}", files)
  plain = conftest.write_run(tmp_path / "plain", conftest.contents())
  for written in (
    report.write(path),
    report.compare([path, plain], tmp_path / "compared.html"),
  ):
    for file in (written.html, written.markdown, written.json):
      text = file.read_text(encoding="utf-8")
      assert not set(_STEER) & set(text) - set(" [2JPROVEN")
      assert "\ufffd\ufffdPROVEN" in text
    assert not set("\x1b\u202e\x9b") & set(written.summary)
  assert json.loads(written.json.read_text())
