"""TensorBoard gets the report's figures, and nothing that stands alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.report import conftest
from tests.report import leaks
from tf_privrob import report
from tf_privrob.report import results as results_lib
from tf_privrob.report import scalars


@pytest.fixture
def everything(files):
  files.update(leaks.files())
  files["privacy.json"]["audited"] = 0.4321
  return files


def _results(path, files):
  return results_lib.read(report.RunFolder(conftest.write_run(path, files)))


def test_figures_are_those_of_the_report(tmp_path, everything):
  found = scalars.figures(_results(tmp_path, everything))
  assert found["report/clean_accuracy"] == 0.934
  assert found["report/attacked_accuracy"] == 0.505
  assert found["report/certified_accuracy"] == 0.71
  assert found["report/radius_violations"] == 0
  assert found["attacked/pgd_linf_0.05"] == 161 / 200
  assert found["certified/l2_0.5"] == 0.33
  assert found["privacy/dp_epsilon_proven"] == 2.987
  assert found["privacy/dp_epsilon_audited"] == 0.4321
  assert found["nonprivate/membership_advantage"] == 0.21
  assert found["nonprivate/loss"] == pytest.approx(1 / 3)


def test_all_of_the_training_data_is_under_nonprivate(tmp_path, everything):
  with_all = scalars.figures(_results(tmp_path / "a", everything))
  del everything["nonprivate/membership.json"]
  path = conftest.write_run(tmp_path / "b", everything)
  (path / "history.jsonl").unlink()
  without = scalars.figures(results_lib.read(report.RunFolder(path)))
  private = set(with_all) - set(without)
  assert private
  assert all(name.startswith("nonprivate/") for name in private)
  assert not [name for name in without if name.startswith("nonprivate/")]


def test_a_condition_is_part_of_the_name(tmp_path, everything):
  everything["privacy.json"].update(condition="only on Sundays")
  found = scalars.figures(_results(tmp_path, everything))
  assert found["privacy/dp_epsilon_proven_only_on_Sundays"] == 2.987
  assert "privacy/dp_epsilon_proven" not in found


def test_nothing_claimed_is_a_scalar(tmp_path, everything):
  everything["metrics.json"]["certified"]["kind"] = "claimed"
  everything["privacy.json"].update(proven=None)
  found = scalars.figures(_results(tmp_path, everything))
  assert not [name for name in found if "certified" in name or "claim" in name]
  assert 3.0 not in found.values()


def test_settings_are_flat_and_keep_the_seed_out(tmp_path, everything):
  everything["config.json"]["config"]["seed"] = 1234
  found = scalars.settings(_results(tmp_path, everything))
  assert found == {
    "method": "dp_sgd",
    "dataset": "mnist_5k",
    "network": "tutorial_cnn",
    "config.l2_clip_norm": 1.5,
    "config.epochs": 3,
    "config.sampler": "poisson",
    "privacy": "claimed (3, 1e-5), proven (2.99, 1e-5), audited >= 0.432",
  }


def _events(folder):
  from tensorboard.backend.event_processing import event_accumulator

  events = event_accumulator.EventAccumulator(str(folder))
  events.Reload()
  return events


@pytest.mark.usefixtures("no_plots")
def test_tensorboard_reads_scalars_and_settings(tmp_path, everything):
  import tensorflow as tf
  from tensorboard.plugins.hparams import metadata

  path = conftest.write_run(tmp_path / "run", everything)
  for _ in range(2):  # a second report replaces the first
    report.write(path, tensorboard=True)
  folders = [path / "tb" / "report", path / "nonprivate" / "tb" / "report"]
  assert [len(list(folder.iterdir())) for folder in folders] == [1, 1]
  events, private = map(_events, folders)
  expected = scalars.figures(results_lib.read(report.RunFolder(path)))
  hidden = {name for name in expected if name.startswith("nonprivate/")}
  tags = {*expected, metadata.SESSION_START_INFO_TAG} - hidden
  assert set(events.Tags()["tensors"]) == tags
  assert set(private.Tags()["tensors"]) == hidden
  for name, value in expected.items():
    (event,) = (private if name in hidden else events).Tensors(name)
    assert event.step == 640
    assert tf.make_ndarray(event.tensor_proto) == pytest.approx(value)
  content = events.PluginTagToContent("hparams")
  start = metadata.parse_session_start_info_plugin_data(
    content[metadata.SESSION_START_INFO_TAG]
  )
  assert start.hparams["config.l2_clip_norm"].number_value == 1.5
  assert start.hparams["method"].string_value == "dp_sgd"
  assert not [name for name in start.hparams if "seed" in name]


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("old", [True, False])
def test_what_cannot_be_replaced_is_one_sentence(
  tmp_path, everything, monkeypatch, old
):
  """As on a disk that can only be read, also where nothing is to go."""
  import tensorflow as tf

  def refuse(*unused):
    raise tf.errors.PermissionDeniedError(None, None, "no")

  path = conftest.write_run(tmp_path, everything)
  if old:  # a folder is not removed like a file
    (path / "tb/report/events.out.tfevents.1").mkdir(parents=True)
  else:
    monkeypatch.setattr(tf.summary, "create_file_writer", refuse)
  with pytest.raises(ValueError, match=r"^Expected to .*tb/report.*this user"):
    report.write(path, tensorboard=True)


def test_tensorflow_is_not_imported_unless_asked_for(tmp_path):
  code = (
    "import sys; from tf_privrob import report;"
    f"report.write({str(tmp_path)!r}); sys.exit('tensorflow' in sys.modules)"
  )
  assert subprocess.run([sys.executable, "-c", code]).returncode == 0
  assert not (tmp_path / "tb").exists()
