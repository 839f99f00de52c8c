"""Every command and every study: help, flags, and how they are called."""

import dataclasses
import importlib
import pathlib
import runpy
import subprocess
import sys
from importlib import metadata

import pytest
import setuptools

from tf_privrob import console
from tf_privrob.console import command
from tf_privrob.methods import registry

_ROOT = pathlib.Path(__file__).parents[2]
STUDIES = (
  "audits",
  "dpal",
  "halfspaces",
  "privacy_risks.membership",
  "privacy_risks.training",
  "smoothing",
  "transdenoiser",
)


_OF_ALL = ("grid.queue", "grid.results")  # about all studies at once


def study(name):
  return importlib.import_module(f"experiments.{name}.__main__")


def _modules():
  found = {name: console.module(name) for name in console.COMMANDS}
  for name in _OF_ALL:
    found[name] = importlib.import_module(f"experiments.{name}")
  return {**found, **{name: study(name) for name in STUDIES}}


@pytest.mark.parametrize("name", [*console.COMMANDS, *STUDIES, *_OF_ALL])
def test_help_shows_every_flag(name):
  module = _modules()[name]
  text = command.help_text(name, module)
  assert module.__doc__.splitlines()[0] in text
  for field in dataclasses.fields(module.Options):
    kind = "[no]" if field.type == "bool" else ""
    assert f"--{kind}{field.name}:" in text, field.name
    meaning = command.meaning_of(module.Options, field.name)
    assert meaning.endswith("."), f"{field.name} is not explained"


@pytest.mark.parametrize("name", STUDIES)
def test_help_of_a_study_shows_scales_data_sets_and_cells(name):
  module = study(name)
  text = command.help_text(name, module)
  for scale in module.STUDY.scales:
    assert f"--scale={scale}: " in text
    assert module.STUDY.minutes(scale) in text
    datasets = module.STUDY.experiment.datasets_of(scale)
    assert set(datasets) <= set(text.replace(",", " ").split())
    for cell in module.STUDY.cells(scale):
      assert cell.name in text


def test_every_study_and_binary_of_the_checkout_is_known():
  folder = _ROOT / "experiments"
  mains = folder.rglob("__main__.py")
  found = {".".join(p.parent.relative_to(folder).parts) for p in mains}
  assert found == set(STUDIES)
  binaries = {p.stem for p in folder.glob("*.py")} - {"__init__"}
  assert binaries == set(console.COMMANDS)


def test_help_of_train_has_the_settings_of_the_method():
  text = command.help_text("train", console.module("train"), ["--method=dpal"])
  assert "--config.dp_epsilon_features:" in text


def test_help_of_train_names_methods_and_flags_of_an_objective():
  train = console.module("train")
  words = ["--method=dp_sgd", "--objective=trades"]
  text = command.help_text("train", train, words)
  for name in (*registry.NAMES, *registry.OBJECTIVES):
    assert f" {name}" in text
  assert "--objective.beta" in text
  assert "--objective.ramp.warmup" in text
  words += ["--objective.beta=6", "--objective.ramp.warmup=2e"]
  objective = command.parse("train", train, words)[1].settings.objective
  assert (objective.beta, objective.ramp.warmup) == (6.0, "2e")


def test_the_package_runs_as_a_program():
  done = subprocess.run(
    [sys.executable, "-m", "tf_privrob", "report", "--help"],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert "--compare:" in done.stdout


def test_the_wheel_has_the_console_command_and_no_experiments(monkeypatch):
  path, given = _ROOT / "setup.py", {}
  monkeypatch.setattr(
    setuptools, "setup", lambda **kwargs: given.update(kwargs)
  )
  monkeypatch.chdir(_ROOT)
  runpy.run_path(str(path))
  assert {name.split(".")[0] for name in given["packages"]} == {"tf_privrob"}
  (script,) = given["entry_points"]["console_scripts"]
  name, value = script.split(" = ")
  assert name == "tf-privrob"
  found = metadata.EntryPoint(name, value, "console_scripts").load()
  assert found is console.main


def test_without_a_command_all_are_listed(capsys):
  console.main([])
  shown = capsys.readouterr().out
  assert all(f"  {name} " in shown for name in console.COMMANDS)


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (["trian"], "Did you mean 'train'?"),
    (["report", "--run_dri=x"], "Did you mean: run_dir"),
    (["report", "x"], "Expected flags, which start with --, received 'x'"),
    (["report"], "Expected --run_dir"),
    (["train", "--method=dpsgd"], "Did you mean 'dp_sgd'?"),
    (["train", "--config.noise_multiplyer=2"], "Did you mean: config.noise_"),
    (["train", "--config.noise_multiplier=abc"], "Expected float or None"),
    (["evaluate", "--linf_eps=0.1,x"], "Expected floats with commas, rec"),
    (["evaluate", "--claimed=maybe"], "Expected true or false"),
    (["evaluate", "--run_dir=nowhere"], "python -m tf_privrob train"),
  ],
)
def test_a_bad_command_line_is_one_sentence_and_code_2(words, message, capsys):
  with pytest.raises(SystemExit) as error:
    console.main(words)
  assert error.value.code == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", console.COMMANDS)
def test_an_interruption_advises_what_the_command_has(name, monkeypatch):
  module = console.module(name)

  def interrupted(*unused):
    raise KeyboardInterrupt

  monkeypatch.setattr(module, "main", interrupted)
  with pytest.raises(SystemExit) as error:
    console.main([name])
  fields = {field.name for field in dataclasses.fields(module.Options)}
  assert ("--resume" in error.value.code) == ("resume" in fields)
  assert "same command" in error.value.code


def test_an_error_shows_no_control_characters(capsys):
  with pytest.raises(SystemExit):
    console.main(["report", "--run_dir=\x1b[2Jnowhere\u202e"])
  said = capsys.readouterr().err
  assert "\ufffd[2Jnowhere\ufffd" in said
  assert not {"\x1b", "\u202e"} & set(said)


def test_a_call_knows_its_flags_and_its_line():
  module = console.module("train")
  words = ["--run_dir=a b", "--config.dp_epsilon=2", "--noresume"]
  options, call = command.parse("python -m tf_privrob train", module, words)
  assert options.run_dir == "a b"
  assert call.settings.dp_epsilon == 2.0
  assert call.given == {"run_dir", "config.dp_epsilon", "resume"}
  assert call.line.startswith("python -m tf_privrob train '--run_dir=a b' ")
