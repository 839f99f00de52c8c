"""Classifiers from files: logits come out, and no code of a file runs."""

import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import models

_layers = tf.keras.layers
X = np.random.default_rng(0).random((5, 4), np.float32)


def _network(*ending):
  return tf.keras.Sequential([_layers.Input((4,)), _layers.Dense(6), *ending])


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_file_gives_the_same_logits(tmp_path, suffix, compiled):
  network = _network(_layers.Dense(3))
  if compiled:
    network.compile("adam", lambda y, p: p)  # a loss that no file can hold
  path = tmp_path / f"model{suffix}"
  network.save(path)
  for given in (path, str(path), network):
    np.testing.assert_array_equal(models.load_classifier(given)(X), network(X))
  assert models.load_classifier(network) is network


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_softmax_is_taken_off(tmp_path, suffix):
  network = _network(_layers.Dense(3, "softmax"))
  network.save(tmp_path / f"model{suffix}")
  loaded = models.load_classifier(tmp_path / f"model{suffix}")
  assert not models.returns_probabilities(loaded)
  np.testing.assert_allclose(tf.nn.softmax(loaded(X)), network(X), rtol=1e-5)


def test_registered_layers_and_branches_are_welcome(tmp_path):
  for network in (models.dpal_mnist(), models.residual_mnist(width=2)):
    network.save(tmp_path / "model.keras")
    x = np.random.default_rng(0).random((2, 28, 28, 1), np.float32)
    loaded = models.load_classifier(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(x), network(x))


def _hidden_softmax():
  inputs = tf.keras.Input((4,))
  return tf.keras.Model(inputs, tf.nn.softmax(_layers.Dense(3)(inputs)))


def _nested_softmax():
  return _network(tf.keras.Sequential([_layers.Dense(3, "softmax")]))


@pytest.mark.parametrize(
  ("build", "message"),
  [
    (lambda: _network(_layers.Dense(3, "sigmoid")), "returns probabilities"),
    (_hidden_softmax, "returns probabilities by other means"),
    (_nested_softmax, "without the softmax"),
  ],
)
def test_probabilities_that_cannot_be_taken_back_are_refused(build, message):
  with pytest.raises(ValueError, match=message):
    models.load_classifier(build())


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_lambda_is_refused_in_every_format(tmp_path, suffix):
  network = _network(_layers.Lambda(lambda x: 2 * x), _layers.Dense(3))
  network.save(tmp_path / f"model{suffix}")
  with pytest.raises(ValueError, match=r"needs code: .*Lambda.* If you trust"):
    models.load_classifier(tmp_path / f"model{suffix}")


@tf.keras.saving.register_keras_serializable("loading_test")
class _Doubled(_layers.Layer):
  def call(self, inputs):
    return 2 * inputs


def _rewritten(path, change):
  """The .keras file with another description of its layers."""
  with zipfile.ZipFile(path) as archive:
    files = {name: archive.read(name) for name in archive.namelist()}
  files["config.json"] = change(files["config.json"].decode()).encode()
  with zipfile.ZipFile(path, "w") as archive:
    for name, content in files.items():
      archive.writestr(name, content)


def test_a_registered_class_may_be_in_a_file_and_others_not(tmp_path):
  path = tmp_path / "model.keras"
  _network(_Doubled(), _layers.Dense(3)).save(path)
  models.load_classifier(path)
  _rewritten(path, lambda text: text.replace("_Doubled", "_Tripled"))
  with pytest.raises(ValueError, match=r"needs code: .*\._Tripled"):
    models.load_classifier(path)


def test_no_module_that_a_file_names_is_imported(tmp_path, monkeypatch):
  """Keras' safe mode would import it."""
  (tmp_path / "intruder_of_test.py").write_text("raise SystemExit('ran')\n")
  monkeypatch.syspath_prepend(str(tmp_path))
  path = tmp_path / "model.keras"
  _network(_Doubled(), _layers.Dense(3)).save(path)
  registered = "loading_test>_Doubled"

  def layer(text):
    description = json.loads(text)
    intruder = description["config"]["layers"][2]
    assert intruder["registered_name"] == registered
    intruder.update(module="intruder_of_test", registered_name="x>y")
    return json.dumps(description)

  def function(text):
    description = json.loads(text)
    description["config"]["layers"][1]["config"]["activation"] = {
      "class_name": "function",
      "config": "anything",
      "module": "intruder_of_test",
      "registered_name": registered,
    }
    return json.dumps(description)

  for change in (function, layer):
    _rewritten(path, change)
    with pytest.raises(ValueError, match=r"needs code: intruder_of_test\."):
      models.load_classifier(path)


def test_an_archive_behind_an_hdf5_file_does_not_hide_it(tmp_path):
  path = tmp_path / "model.h5"
  _network(_layers.Lambda(lambda x: 2 * x), _layers.Dense(3)).save(path)
  with zipfile.ZipFile(path, "a") as archive:
    archive.writestr("config.json", "{}")
  with pytest.raises(ValueError, match="needs code: Lambda"):
    models.load_classifier(path)


def test_files_that_are_none(tmp_path):
  with pytest.raises(ValueError, match=r"there is no file '.*missing\.keras'"):
    models.load_classifier(tmp_path / "missing.keras")
  for suffix in (".keras", ".h5"):
    (tmp_path / f"text{suffix}").write_text("no model")
    with pytest.raises(ValueError, match="with a whole model, received"):
      models.load_classifier(tmp_path / f"text{suffix}")
  path = tmp_path / "model.keras"
  _network(_layers.Dense(3)).save(path)
  _rewritten(path, lambda text: text.replace('"Dense"', '"Dens"'))
  with pytest.raises(ValueError, match=r"cannot be loaded: .*Dens"):
    models.load_classifier(path)
