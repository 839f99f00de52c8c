"""The binaries as a user runs them, each in a process of its own."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).parents[2]


def _run(*words):
  return subprocess.run(
    [sys.executable, "-m", *words],
    cwd=_ROOT,
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    capture_output=True,
    text=True,
    check=False,
  )


_TRAIN = (
  "experiments.train",
  "--dataset=digits",
  "--network=mlp",
  "--config.epochs=1",
  "--config.dp_delta=1e-4",
  "--config.learning_rate=1",
)


@pytest.mark.slow
def test_train_evaluate_report(tmp_path):
  run = f"--run_dir={tmp_path / 'run'}"
  trained = _run(*_TRAIN, run)
  assert trained.returncode == 0, trained.stderr
  assert "/ proven dp_epsilon=" in trained.stdout
  assert "ETA" in trained.stderr
  evaluated = _run(
    "experiments.evaluate",
    run,
    "--attacks=fgsm:linf,pgd:l2",
    "--linf_eps=0.1",
    "--l2_eps=0.5",
    "--num_attacked=16",
    "--num_certified=8",
    "--num_estimation=100",
    "--steps=2",
  )
  assert evaluated.returncode == 0, evaluated.stderr
  reported = _run("experiments.report", run)
  assert reported.returncode == 0, reported.stderr
  assert "claimed (3, 0.0001) | proven (3, 0.0001) | audited" in reported.stdout

  folder = tmp_path / "run"
  metrics = json.loads((folder / "metrics.json").read_text())
  assert [row["name"] for row in metrics["attacks"]] == ["fgsm", "pgd"]
  accuracy = metrics["clean"]["accuracy"]
  assert all(row["accuracy"] <= accuracy + 0.15 for row in metrics["attacks"])
  assert metrics["certified"]["count"] == 8
  page = (folder / "report.html").read_text()
  assert f"{100 * accuracy:.1f}" in page
  privacy = json.loads((folder / "privacy.json").read_text())
  ledger = (folder / "ledger.jsonl").read_text().splitlines()
  charges = sum(json.loads(line)["type"] == "charge" for line in ledger)
  assert privacy["releases"][0]["count"] == charges

  path = tmp_path / "other.keras"
  path.write_bytes((folder / "model.keras").read_bytes())
  other = _run(
    "experiments.evaluate", run, f"--model={path}", "--num_certified=0"
  )
  assert other.returncode == 2
  assert "Expected a folder without a run" in other.stderr
  assert json.loads((folder / "metrics.json").read_text()) == metrics

  again = _run(*_TRAIN, run)
  assert again.returncode == 2
  assert "Expected a fresh run_dir" in again.stderr
  assert "choose another folder" in again.stderr


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (["--datset=digits"], "Did you mean: dataset ?"),
    pytest.param(
      ["--config.noise_multiplyer=2"],
      "Did you mean: config.noise_multiplier",
      marks=pytest.mark.slow,
    ),
    pytest.param(
      ["--method=dpsgd"], "Did you mean 'dp_sgd'?", marks=pytest.mark.slow
    ),
    pytest.param(
      ["--public_share=0.5", "--run_dir=x"],
      "Expected --classifier with",
      marks=pytest.mark.slow,
    ),
    pytest.param(
      ["--config.noise_multiplier=abc"],
      "Expected float or None",
      marks=pytest.mark.slow,
    ),
    (["--dataset=digit", "--run_dir=x"], "Did you mean 'digits'?"),
  ],
)
def test_misspelt_flags_get_the_nearest_name(words, message):
  done = _run("experiments.train", *words)
  assert done.returncode == 2
  assert message in done.stderr
  assert "Traceback" not in done.stderr


def test_help_lists_every_setting():
  text = _run("experiments.train", "--help").stdout
  assert "--config.l2_clip_norm" in text
  assert "over all variables" in text


def test_evaluating_nothing_says_what_to_do(tmp_path):
  done = _run("experiments.evaluate", f"--run_dir={tmp_path}")
  assert done.returncode == 2
  assert "python -m tf_privrob train" in done.stderr
