"""config.json, run.json and rows of the history, also of earlier versions."""

from __future__ import annotations

import pytest

from tests.report import conftest
from tf_privrob import records


def test_files_of_an_earlier_version_are_read():
  files = conftest.contents()
  config = records.Config.from_json(files["config.json"])
  assert (config.method, config.dataset) == ("dp_sgd", "mnist_5k")
  assert config.config["epochs"] == 3
  assert config.to_json() == files["config.json"]
  run = records.Run.from_json(files["run.json"])
  assert run.run_id is None  # earlier versions named no run
  assert run.weights is None
  assert (run.steps, run.dataset.num_train) == (640, 4000)
  assert run.dataset.value_range == (0, 1)


def test_all_that_is_missing_is_unknown():
  for kind in (records.Config, records.Data, records.Run, records.Metrics):
    assert kind.from_json({}) == kind()
  assert records.Run.from_json({"versions": None}) == records.Run()
  assert records.Epoch.from_json({"epoch": 1}) == records.Epoch(1)


def test_a_model_from_elsewhere_has_neither_settings_nor_flags():
  given = {"method": "imported", "dataset": "digits", "network": "my.keras"}
  assert records.Config.from_json(given).to_json() == given


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"method": 7}, "expected method to be text, received 7"),
    ({"config": [1]}, "expected config to be an object"),
    ({"flags": "none"}, "expected flags to be an object"),
  ],
)
def test_a_damaged_config_is_told(change, message):
  with pytest.raises(ValueError, match=message):
    records.Config.from_json({**conftest.contents()["config.json"], **change})


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"steps": "many"}, "expected steps >= 0, a whole number"),
    ({"train_seconds": -1}, "expected train_seconds >= 0, received -1"),
    ({"dataset": [1]}, "expected dataset to be an object"),
    ({"dataset": {"value_range": [1, 0]}}, "expected dataset value_range to"),
  ],
)
def test_a_damaged_run_is_told(change, message):
  with pytest.raises(ValueError, match=message):
    records.Run.from_json({**conftest.contents()["run.json"], **change})


def test_a_row_of_the_history_is_flat():
  row = {"epoch": 2, "dp_epsilon": 0.5, "nonprivate/loss": None}
  epoch = records.Epoch.from_json(row)
  assert epoch.to_json() == row
  assert epoch.number("dp_epsilon") == 0.5
  assert epoch.number("nonprivate/loss") is None
  assert epoch.number("never") is None
  with pytest.raises(ValueError, match="expected epoch to be a number"):
    records.Epoch.from_json({"dp_epsilon": 0.5})
