"""A preset is the whole recipe, and a flag still wins."""

import pytest

from tf_privrob import console
from tf_privrob import data
from tf_privrob import methods
from tf_privrob import models
from tf_privrob.console import command
from tf_privrob.console import train
from tf_privrob.methods import registry
from tf_privrob.runs import recipes
from tf_privrob.runs import train as training

_PRESETS = [
  (name, preset) for name in registry.NAMES for preset in registry.presets(name)
]


@pytest.mark.parametrize(("method", "preset"), _PRESETS)
def test_every_preset_names_what_exists(method, preset):
  found = recipes.recipe(method, preset)
  assert found.network in (*models.NAMES, *models.DENOISERS)
  assert found.dataset in data.NAMES
  if preset.startswith("mnist") and found.network in models.NAMES:
    network = models.by_name(found.network, (28, 28, 1), 10, seed=0)
    methods.build(method, network, methods.preset(method, preset))


@pytest.mark.parametrize(
  ("preset", "network"),
  [
    ("cifar10_paper", "dpal_cifar10_3x3_bn"),
    ("cifar10_narrow", "dpal_cifar10_narrow_bn"),
    ("cifar10_released", "dpal_cifar10_released"),
    ("cifar10_stobatch", "dpal_cifar10_released"),
  ],
)
def test_first_patches_of_dpal_are_those_of_paper_or_code(preset, network):
  assert recipes.recipe("dpal", preset).network == network


def _trained(monkeypatch, tmp_path, *words):
  """What `train` would build, without training it."""
  found = {}

  def fit(model, dataset, network, folder, resume, flag_values):
    found.update(model=model, dataset=dataset, network=network)
    raise ValueError("enough")

  monkeypatch.setattr(training, "fit", fit)
  words = ["--dataset=mnist_5k", f"--run_dir={tmp_path / 'run'}", *words]
  options, call = command.parse("train", console.module("train"), words)
  with pytest.raises(ValueError, match="enough"):
    train.main(options, call)
  return found


def test_a_preset_brings_its_network_and_range(monkeypatch, tmp_path):
  found = _trained(monkeypatch, tmp_path, "--method=dpal", "--preset=mnist")
  assert found["network"] == "dpal_mnist_bn"
  assert found["dataset"].value_range == (-1.0, 1.0)


def test_a_flag_wins_over_the_preset(monkeypatch, tmp_path):
  words = ["--network=dpal_mnist", "--value_range=0,1"]
  found = _trained(
    monkeypatch, tmp_path, "--method=dpal", "--preset=mnist", *words
  )
  assert found["network"] == "dpal_mnist"
  assert found["dataset"].value_range == (0.0, 1.0)


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (["--network=smooth_denoiser"], "--network=smooth_denoiser needs --class"),
    (["--method=transdenoiser", "--preset=mnist_sound"], "needs --classifier"),
    (["--network=mlp", "--classifier=x.keras"], "Expected a denoiser with"),
    (["--preset=mnst"], "Did you mean 'mnist'?"),
    (["--network=tutorial_cn"], "Did you mean 'tutorial_cnn'?"),
    (["--dataset=minst"], "Did you mean 'mnist'?"),
  ],
)
def test_contradictions_and_misspellings_are_a_sentence(
  words, message, tmp_path, capsys
):
  with pytest.raises(SystemExit):
    console.main(["train", f"--run_dir={tmp_path / 'run'}", *words])
  assert message in capsys.readouterr().err
  assert not (tmp_path / "run").exists()
