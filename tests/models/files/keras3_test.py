"""Files of Keras 3 compute the same here, and none of their code runs."""

import json
import sys

import pytest
import tensorflow as tf

from tests.models.files import hostile_files
from tests.models.files import keras3_files
from tf_privrob import models
from tf_privrob.models.files import keras3

_SUFFIXES = (".keras", ".h5")


@pytest.mark.parametrize("name", keras3_files.written())
def test_models_of_keras_3_compute_the_same(name):
  path = keras3_files.FOLDER / name
  x, y = keras3_files.arrays(path)
  model = models.load_model(path)
  assert max(keras3_files.differences(model, x, y)) < 1e-6


def test_there_are_files_of_both_formats_and_they_are_small():
  paths = [keras3_files.FOLDER / name for name in keras3_files.written()]
  assert {path.suffix for path in paths} == set(_SUFFIXES)
  found = [path for path in keras3_files.FOLDER.rglob("*") if path.is_file()]
  fixtures = [path for path in found if path.suffix != ".py"]
  assert sum(path.stat().st_size for path in fixtures) < 200_000


def test_a_model_of_keras_3_is_one_of_keras_2_from_then_on(tmp_path):
  path = keras3_files.FOLDER / "stack.keras"
  x, y = keras3_files.arrays(path)
  models.load_classifier(path).save(tmp_path / "again.keras")
  model = models.load_model(tmp_path / "again.keras")
  assert max(keras3_files.differences(model, x, y)) < 1e-6


def test_what_is_trained_and_what_is_not_stays():
  model = models.load_model(keras3_files.FOLDER / "frozen.h5")
  inner, outer, last = model.layers[1:]
  assert [layer.trainable for layer in inner.layers] == [False, True, True]
  assert not any(layer.trainable for layer in outer.layers)
  assert last.trainable


@pytest.fixture(name="folder")
def _folder(tmp_path, monkeypatch):
  """With a module that shows when it is imported."""
  marker = str(tmp_path / hostile_files.MARKER)
  (tmp_path / f"{hostile_files.INTRUDER}.py").write_text(
    f"open({marker!r}, 'w').close()\n"
  )
  monkeypatch.syspath_prepend(str(tmp_path))
  yield tmp_path
  sys.modules.pop(hostile_files.INTRUDER, None)


@pytest.mark.parametrize("suffix", _SUFFIXES)
@pytest.mark.parametrize("name", keras3_files.DESCRIBED)
def test_hostile_descriptions_are_refused_by_name(folder, name, suffix):
  write, named = keras3_files.DESCRIBED[name]
  path = write(folder, suffix)
  with pytest.raises(ValueError, match=named) as caught:
    models.load_model(path)
  assert str(path) in str(caught.value)
  assert type(caught.value) is ValueError
  assert str(caught.value).count("\n") == 0
  assert not (folder / hostile_files.MARKER).exists()
  assert hostile_files.INTRUDER not in sys.modules


@pytest.mark.parametrize("suffix", _SUFFIXES)
def test_what_is_not_used_is_not_read(folder, suffix):
  """Optimizer and loss may be of any module: nobody looks them up."""
  stranger = {"module": hostile_files.INTRUDER, "class_name": "X", "config": {}}

  def change(content, layer):
    content["compile_config"] = {"optimizer": stranger, "loss": stranger}
    layer["build_config"] = {"input_shape": stranger}
    layer["compile_config"] = stranger

  models.load_model(keras3_files.changed(change)(folder, suffix))
  assert not (folder / hostile_files.MARKER).exists()


def test_versions_are_not_mixed(tmp_path):
  """A file that names another version than its own is of neither."""
  path = keras3_files.small(tmp_path, ".keras")
  files = hostile_files.entries(path)
  files["metadata.json"] = json.dumps({"keras_version": "2.15.0"}).encode()
  hostile_files.write_entries(path, files)
  with pytest.raises(ValueError, match="needs code"):
    models.load_model(path)
  path = hostile_files.honest(tmp_path, ".keras")
  files = hostile_files.entries(path)
  files["metadata.json"] = json.dumps({"keras_version": "3.0.0"}).encode()
  hostile_files.write_entries(path, files)
  with pytest.raises(ValueError, match="needs code"):
    models.load_model(path)


@pytest.mark.parametrize("version", [None, 3, ["3."], {"3.": 1}, "2.15.0", ""])
def test_other_versions_are_not_keras_3(version):
  assert not keras3.wrote(version)


def test_calls_of_models_are_counted_as_keras_2_does():
  """Keras 3 counts a functional model's own call for outputs only."""
  path = keras3_files.FOLDER / "shared.keras"
  value = json.loads(hostile_files.entries(path)["config.json"])
  config = keras3.translated(value)["config"]
  nodes = {part["name"]: part["inbound_nodes"] for part in config["layers"]}
  assert nodes["inner"][2] == [["inner", 2, 0, {}]]
  assert config["output_layers"]["p"] == ["inner", 3, 0]
  assert config["output_layers"]["q"] == ["stack", 4, 0]


def test_a_model_that_is_not_trained_has_no_layer_that_is(tmp_path):
  def change(content, layer):
    content["config"]["trainable"] = False

  path = keras3_files.changed(change)(tmp_path, ".keras")
  assert models.load_model(path).trainable_weights == []


def test_the_library_works_with_a_network_of_keras_3():
  network = models.load_classifier(keras3_files.FOLDER / "stack.keras")
  folded = models.folded(network)
  x = tf.random.stateless_normal((2, 8, 8, 3), [1, 2])
  tf.debugging.assert_near(network(x), folded(x), atol=1e-5)
