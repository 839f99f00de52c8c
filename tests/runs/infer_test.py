"""The binary that infers membership, and what it does without flags."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import data
from tf_privrob import files
from tf_privrob import membership
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import run_folder
from tf_privrob.methods import identity
from tf_privrob.runs import infer as inferring
from tf_privrob.runs import references


@pytest.fixture(scope="module")
def dataset():
  rng = np.random.default_rng(0)
  x = rng.random((130, 5), dtype=np.float32)
  y = np.arange(130) % 2
  x[100] = x[7]  # one test example is a training example
  return data.from_arrays(
    "toy", x[:100], y[:100], x[100:], y[100:], 2, (0.0, 1.0)
  )


@pytest.mark.parametrize(
  ("most", "members", "others"),
  [(None, 100, 29), (5_000, 100, 29), (50, 50, 29), (10, 10, 10)],
)
def test_all_members_are_judged_where_non_members_are_fewer(
  dataset, most, members, others
):
  """Rates are of either kind: Yale has 1,900 members, and 514 others."""
  found, left, shared = inferring.chosen_points(dataset, most)
  assert (len(found[0]), len(left[0])) == (members, others)
  assert shared == 1
  membership.require_disjoint(found[0], left[0])
  again, _, _ = inferring.chosen_points(dataset, most)
  np.testing.assert_array_equal(found[0], again[0])


def test_points_have_all_classes_where_these_take_turns(dataset):
  """Every second one of classes 0, 1, 0, 1, ... would be of one class."""
  for _, labels in inferring.chosen_points(dataset, 20)[:2]:
    assert 4 <= labels.sum() <= 16


def test_the_training_set_is_that_of_the_run(dataset, tmp_path):
  folder = run_folder.RunFolder(tmp_path)
  assert inferring.training_data(folder, dataset).num_train == 100
  folder.write_json("run.json", {"dataset": {"num_train": 60}})
  assert inferring.training_data(folder, dataset).num_train == 60
  folder.write_json("run.json", {"dataset": {"num_train": 101}})
  with pytest.raises(ValueError, match="the 101 training examples"):
    inferring.training_data(folder, dataset)
  folder.write_json("run.json", {"dataset": {"num_train": 50}})
  folder.write_json("config.json", {"flags": {"public_share": 0.5}})
  private = inferring.training_data(folder, dataset)
  expected = data.split_public(dataset, 0.5)[1]
  np.testing.assert_array_equal(private.x_train, expected.x_train)


def _state(folder, dp_epsilon, dp_delta, **fields):
  proven = privacy.Budget(dp_epsilon, dp_delta)
  stated = privacy.PrivacyStatement(None, proven, **fields)
  folder.write_text("privacy.json", stated.to_json())


def test_what_one_row_changes_is_all_under_nonprivate(dataset, tmp_path):
  """The model is the same: only what the inference looks at has one more."""
  model, seen = models.mlp((5,), 2, seed=1), []
  added = dataclasses.replace(
    dataset,
    x_train=np.concatenate([dataset.x_train, dataset.x_test[5:6]]),
    y_train=np.append(dataset.y_train, dataset.y_test[5]),
  )
  for part in (dataset, added):
    place = tmp_path / str(len(seen))
    inferring.infer(
      run_folder.RunFolder(place), model, part, attack_eps=None, num=None
    )
    left = (path for path in place.rglob("*") if path.is_file())
    seen.append({str(p.relative_to(place)): p.read_bytes() for p in left})
  first, second = seen
  changed = {name for name in first if first[name] != second.get(name)}
  assert "nonprivate/membership.json" in changed
  assert all(name.startswith("nonprivate/") for name in {*first, *second})


def test_a_run_is_written_down(dataset, tmp_path):
  folder = run_folder.RunFolder(tmp_path)
  _state(folder, 1.0, 1e-3)
  model = models.mlp((5,), 2, seed=1)
  found = inferring.infer(
    folder, model, dataset, attack_eps=0.1, num=20, targeted=True
  )
  written = json.loads((tmp_path / "nonprivate/membership.json").read_text())
  assert written["num_members"] == written["num_nonmembers"] == 20
  assert written["attack"].startswith("PGD(attack_eps=0.1")
  assert (
    tmp_path / "nonprivate/membership" / f"{written['outputs']}.npz"
  ).is_file()
  labels = [row["label"] for row in written["strategies"]]
  for expected in ("I_B, oracle", "I_A, oracle", "model-infer (targeted)"):
    assert any(label.startswith(expected) for label in labels)
  bound = membership.advantage_bound(1.0, 1e-3, fixed_size=True)
  assert written["bound"]["advantage"] == pytest.approx(bound.advantage)
  table = inferring.table(found["strategies"])
  assert len(table.splitlines()) == len(labels) + 1
  assert "too few points" in table


@pytest.mark.parametrize(
  ("objective", "ball"),
  [
    (methods.DiffAI(attack_eps=0.1), None),
    (methods.IBP(attack_eps=0.1), (0.0, 1.0)),
  ],
)
def test_worst_cases_are_rounded_outward_and_in_the_ball_of_the_training(
  dataset, tmp_path, objective, ball
):
  """DiffAI's ball is not cut to the value range, IBP's is: as certified."""
  model = methods.Trainer(
    models.mlp((5,), 2, seed=1), methods.TrainingConfig(objective=objective)
  )
  folder = run_folder.RunFolder(tmp_path)
  found = inferring.infer(folder, model, dataset, attack_eps=0.1, num=None)
  path = tmp_path / f"nonprivate/membership/{found['outputs']}.npz"
  worst = membership.Outputs.load(path).worst_case[0].astype(np.float64)
  x, y = dataset.x_train, dataset.y_train
  exact = objective.sound_domain.worst_case_logits(
    model.network, tf.constant(x), tf.constant(y), 0.1, ball
  )
  np.testing.assert_allclose(worst, exact, rtol=1e-3)
  outward = dataclasses.replace(objective.sound_domain, arithmetic="outward")
  bound = outward.worst_case_logits(model.network, x, y, 0.1, ball).numpy()
  assert (worst >= bound).all()
  assert (worst > exact.numpy())[:, 0].any()


def test_data_that_took_the_place_of_the_run_s_are_refused(dataset, tmp_path):
  """A salted hash of what was trained on is kept below nonprivate/."""
  folder, model = run_folder.RunFolder(tmp_path), models.mlp((5,), 2, seed=1)
  given = {"attack_eps": None, "num": 20}
  found = inferring.infer(folder, model, dataset, **given)
  assert "was not checked" in found["unchecked"]
  data_of_run = dataset.x_train, dataset.y_train
  identity.bind(tmp_path, "run", data_of_run, None, resume=False)
  assert "unchecked" not in inferring.infer(folder, model, dataset, **given)
  other = dataclasses.replace(dataset, x_train=dataset.x_train[::-1].copy())
  before = (tmp_path / inferring.OUTPUT).read_bytes()
  with pytest.raises(ValueError, match="their hash differs"):
    inferring.infer(folder, model, other, **given)
  assert (tmp_path / inferring.OUTPUT).read_bytes() == before


def test_one_inference_at_a_time(dataset, tmp_path):
  """Of both commands, which write one file."""
  folder, model = run_folder.RunFolder(tmp_path), models.mlp((5,), 2, seed=1)
  with files.locked(folder.file(inferring.LOCK), "this test"):
    with pytest.raises(ValueError, match="Expected to be alone with the infer"):
      inferring.infer(folder, model, dataset, attack_eps=None, num=20)
    with pytest.raises(ValueError, match="Expected to be alone with the infer"):
      references.lira(folder, None, 4)


def test_a_bound_stands_with_its_condition_and_is_not_rounded_down(tmp_path):
  folder = run_folder.RunFolder(tmp_path)
  proven = 0.99962901, 1.00001e-5
  _state(folder, *proven, condition="only on Sundays")
  bound = inferring.bound_of(folder)
  assert bound["condition"] == "only on Sundays"
  text = inferring.bound_text(bound)
  assert text.startswith(
    "Proven (dp_epsilon=0.9997, dp_delta=1.001e-05) (only on Sundays) allows"
  )
  # (1 + tanh(0.99962901)) / 2 = 0.88072 and a little for dp_delta
  assert "a balanced accuracy of 0.8808 at most" in text
  _state(folder, *proven)
  bound = inferring.bound_of(folder)
  assert bound["condition"] == ""
  assert "dp_delta=1.001e-05) allows" in inferring.bound_text(bound)
  assert "nothing bounds it" in inferring.bound_text(None)


def test_nothing_proven_bounds_nothing(tmp_path):
  folder = run_folder.RunFolder(tmp_path)
  assert inferring.bound_of(folder) is None
  stated = privacy.PrivacyStatement(privacy.Budget(1.0, 0.0), None)
  folder.write_text("privacy.json", stated.to_json())
  assert inferring.bound_of(folder) is None


def _stored(path, **changes):
  """Predictions on two classes; members 0.9, 0.8, 0.6, 0.5 of the true one."""
  p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.5, 0.5]], np.float32)
  arrays = {
    "member_predictions": p,
    "nonmember_predictions": p[::-1],
    "member_labels": np.array([0, 1, 0, 1]),
    "nonmember_labels": np.array([1, 0, 1, 0]),
    **changes,
  }
  np.savez(path, **arrays)
  return path


def test_stored_predictions_need_no_model(tmp_path, command):
  path = _stored(tmp_path / "p.npz")
  done = command("infer", f"--predictions={path}")
  assert done.code == 0, done.err
  # Members 0.9, 0.8, 0.6, 0.5; non-members 0.5, 0.6, 0.8, 0.9 with labels
  # 1, 0, 1, 0: 0.5, 0.6, 0.8, 0.9. Nothing to tell apart.
  line = next(row for row in done.out.splitlines() if "I_B, orac" in row)
  assert " 0.5000 " in line


def test_stored_predictions_leave_what_a_run_does(tmp_path, command):
  """membership.json, with the curves, and a page, in Markdown and JSON too."""
  worse = np.full((4, 2), 0.5, np.float32)
  path = _stored(
    tmp_path / "p.npz",
    nonmember_labels=np.array([0, 1, 0, 1]),
    adversarial_member_predictions=worse,
    adversarial_nonmember_predictions=worse,
    verified_member_predictions=worse,
    verified_nonmember_predictions=worse,
    targeted_member_predictions=worse[:, None],
    targeted_nonmember_predictions=worse[:, None],
  )
  done = command("infer", f"--predictions={path}", "--num_fit=1")
  assert done.code == 0, done.err
  written = json.loads((tmp_path / "p/nonprivate/membership.json").read_text())
  assert written["predictions"] == "p.npz"
  assert (written["num_members"], written["num_nonmembers"]) == (4, 4)
  labels = [row["label"] for row in written["strategies"]]
  for expected in ("I_B", "I_A", "I_V", "model-infer (targeted)"):
    assert any(label.startswith(expected) for label in labels), expected
  assert all(row["roc"]["fpr"] for row in written["strategies"])
  page = (tmp_path / "p/report.html").read_text()
  assert "ROC curves" in page
  assert "Predictions in p.npz" in page
  assert "Train one first" not in page
  assert "tf_privrob train" not in page
  assert "I\\_V" in (tmp_path / "p/report.md").read_text()
  figures = json.loads((tmp_path / "p/report.json").read_text())["membership"]
  assert figures["num_members"] == 4
  assert f"Report: {(tmp_path / 'p/report.html').resolve()}" in done.out
  again = command("report", f"--run_dir={tmp_path / 'p'}")
  assert again.code == 0, again.err


def test_verdicts_on_predictions_do_not_go_into_a_run(tmp_path, command):
  (tmp_path / "run").mkdir()
  (tmp_path / "run/config.json").write_text("{}")
  path = _stored(tmp_path / "p.npz")
  done = command(
    "infer", f"--predictions={path}", f"--out_dir={tmp_path / 'run'}"
  )
  assert done.code == 2
  assert "Expected --out_dir without a run" in done.err


def test_help_and_readme_name_the_keys_of_a_predictions_file(command):
  text = " ".join(command("infer", "--help").out.split())
  readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
  for name in membership.PREDICTION_KEYS:
    assert name in text, name
  for name in ("member_predictions", "verified_member_", "output_train_benign"):
    assert name in readme, name


@pytest.mark.parametrize(
  ("words", "message"),
  [
    ([], "Expected --run_dir"),
    (["--run_dir=nowhere"], "python -m tf_privrob train"),
    (["--predictions=none.npz"], "there is no file"),
  ],
)
def test_bad_flags_end_in_one_sentence(words, message, command):
  done = command("infer", *words)
  assert done.code == 2
  assert message in done.err
  assert "Traceback" not in done.err
