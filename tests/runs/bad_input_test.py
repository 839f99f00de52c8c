"""Bad input of commands and of Python: one sentence, before anything is paid.

Each case was a traceback, a hang or silence.
"""

import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import console
from tf_privrob import methods

_layers = tf.keras.layers
_TRAIN = (
  *("train", "--dataset=digits", "--network=mlp", "--config.epochs=1"),
  *("--config.dp_delta=1e-4", "--config.accountant=rdp"),
)


def _refused(words, capsys):
  """What a command says that ends with code 2."""
  with pytest.raises(SystemExit) as error:
    console.main([str(word) for word in words])
  assert error.value.code == 2
  said = capsys.readouterr().err.strip()
  assert "Traceback" not in said
  return said


@pytest.mark.parametrize(
  ("setting", "message"),
  [
    ("dp_epsilon=1e9", "Expected dp_epsilon <= 10000"),
    ("noise_multiplier=1e-9", "Expected a budget for at least one step"),
    ("noise_multiplier=1e9", "Expected noise_multiplier <= 1e+06, received 1e"),
    ("epochs=1e12", "Expected at most 10,000,000 steps, received epochs=1e+12"),
    ("physical_batch_size=1000000000", "Expected chunks that fit into memory"),
    ("l2_clip_norm=1e30", "l2_clip_norm=1e+30. Lower them."),
    ("learning_rate=1e30", "overflow with learning_rate=1e+30"),
  ],
)
def test_settings_out_of_all_bounds(setting, message, tmp_path, capsys):
  folder = tmp_path / "run"
  words = [*_TRAIN, f"--run_dir={folder}", f"--config.{setting}"]
  assert message in _refused(words, capsys)
  assert not folder.exists()


def test_a_run_dir_that_is_a_file(tmp_path, capsys):
  path = tmp_path / "file"
  path.write_text("mine")
  said = _refused([*_TRAIN, f"--run_dir={path}"], capsys)
  assert "Expected run_dir to be a folder that can be made" in said
  assert path.read_text() == "mine"


@pytest.mark.parametrize("name", ["train", "evaluate", "audit", "report"])
def test_a_run_dir_that_is_too_long(name, tmp_path, capsys):
  said = _refused([name, f"--run_dir={tmp_path / ('a' * 300)}"], capsys)
  assert "Expected --run_dir to be a folder that can be made" in said


def test_a_keras_file_with_a_list_for_a_model(tmp_path, capsys):
  path = tmp_path / "list.keras"
  with zipfile.ZipFile(path, "w") as archive:
    archive.writestr("config.json", "[1, 2]")
    archive.writestr("metadata.json", "{}")
    archive.writestr("model.weights.h5", "")
  words = [*_TRAIN, f"--run_dir={tmp_path / 'run'}", f"--network={path}"]
  assert "Expected a model that is built of known" in _refused(words, capsys)


@pytest.fixture(name="trained", scope="module")
def _trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("trained") / "run"
  console.main([*_TRAIN, f"--run_dir={folder}"])
  return folder


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (["evaluate", "--linf_eps=0"], "Expected attack_eps=0.0 > 0"),
    (["evaluate", "--linf_eps="], "sizes for fgsm:linf in --linf_eps"),
    (["evaluate", "--steps=0"], "Expected steps=0 to be a whole number >= 1"),
    (["evaluate", "--attacks="], "Expected --attacks=name:norm, received none"),
    (["evaluate", "--attacks=pdg:linf"], "Did you mean 'pgd'?"),
    (["audit", "--dp_delta=2"], "Expected 0 <= dp_delta < 1, received 2.0"),
    (["audit", "--dp_delta=2", "--kind=one_run"], "Expected 0 <= dp_delta < 1"),
    (["certify", "--num_certified=0"], "Expected num_certified=0"),
    (["evaluate", "--dataset=mnist_5k"], "received mnist_5k with (28, 28, 1)"),
    (["infer", "--dataset=mnist_5k"], "was trained on, digits, received mnist"),
    (["infer", "--seed=-1"], "Expected seed=-1"),
    (["lira", "--seed=-1"], "Expected seed=-1"),
    (["audit", "--kind=one_run", "--guesses="], "at least one number of gues"),
  ],
)
def test_bad_flags_about_a_run(trained, words, message, capsys):
  words = [*words, f"--run_dir={trained}"]
  assert message in _refused(words, capsys)
  assert not (trained / "metrics.json").exists()


# From Python.

_CONFIG = methods.DPSGDConfig(batch_size=16, epochs=1, dp_delta=1e-3)


def _network(*layers):
  return tf.keras.Sequential([_layers.Input((4,)), *layers])


def _fit(network, config=_CONFIG, **changes):
  model = methods.DPSGD(network, config)
  model.compile()
  x = np.random.default_rng(0).uniform(size=[64, 4]).astype(np.float32)
  model.fit(x, np.arange(64) % 2, verbose=0, **changes)


@pytest.mark.parametrize(
  "value_range", [(float("nan"), 1.0), None, (0.0, 0.5, 1.0), "ab", 3]
)
def test_a_value_range_that_is_none(value_range):
  with pytest.raises(ValueError, match=r"Expected value_range=.* two numbers"):
    _fit(_network(_layers.Dense(2)), value_range=value_range)


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("epochs", r"Set DPSGDConfig\(epochs=\.\.\.\)"),
    ("shuffle", "has the sett"),
  ],
)
def test_arguments_of_keras_fit(name, message):
  with pytest.raises(ValueError, match="Expected fit without") as said:
    _fit(_network(_layers.Dense(2)), **{name: 3})
  assert said.match(message)


def _two_inputs():
  first, second = _layers.Input((4,)), _layers.Input((4,))
  joined = _layers.Concatenate()([first, second])
  return tf.keras.Model([first, second], _layers.Dense(2)(joined))


def _two_outputs():
  first = _layers.Input((4,))
  return tf.keras.Model(first, [_layers.Dense(2)(first) for _ in range(2)])


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (_two_inputs, "Expected a network with one input, .* with 2"),
    (_two_outputs, "Expected a network with one output, .* with 2"),
    (lambda: _network(_layers.Dense(1)), "Expected one logit per class"),
    (lambda: _network(_layers.Dense(2, "sigmoid")), "softmax or sigmoid"),
    (
      lambda: _network(_layers.Dense(2, dtype="float64")),
      "Expected a network that computes in float32, received float64",
    ),
  ],
)
def test_networks_that_are_no_classifiers(make, message):
  with pytest.raises(ValueError, match=message):
    _fit(make())


@pytest.mark.parametrize("config", [{"epochs": 1}, methods.DPSGDConfig, 3])
def test_settings_that_are_none(config):
  with pytest.raises(ValueError, match=r"Expected settings, DPSGDConfig\("):
    _fit(_network(_layers.Dense(2)), config)
