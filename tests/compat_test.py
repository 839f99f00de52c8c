"""Which versions are accepted, what is said of others, and that one file knows.

What only one stack can show is tried in processes of their own.
"""

import ast
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import types
import zipfile

import pytest

import tf_privrob
from tf_privrob import compat

_ROOT = pathlib.Path(tf_privrob.__file__).parents[1]
_OLD = {"tensorflow": "2.15.1", "dp-accounting": "0.4.3"}
_NEW = {"tensorflow": "2.21.0", "tf-keras": "2.21.0", "dp-accounting": "0.6.0"}


@pytest.fixture
def installed(monkeypatch):
  """Pretends that these versions are installed, and no TensorFlow loaded."""

  def pretend(versions):
    def version(name):
      if name not in versions:
        raise importlib.metadata.PackageNotFoundError(name)
      return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")

  return pretend


def _python(code, **environment):
  kept = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
  return subprocess.run(
    [sys.executable, "-c", code],
    cwd=_ROOT,
    env={**kept, **environment},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


# Versions.


@pytest.mark.parametrize(
  "versions",
  [
    _OLD,
    _NEW,
    {**_OLD, "dp-accounting": "0.4.4"},
    {**_OLD, "dp-accounting": "0.6.1"},
    {"tensorflow-cpu": "2.15.0", "dp-accounting": "0.5.1"},
    {"tensorflow-macos": "2.15.0.post1", "dp-accounting": "0.5.1"},
    {**_NEW, "tensorflow": "2.16.2", "tf-keras": "2.16.0"},
  ],
)
def test_both_stacks_are_accepted(installed, versions):
  installed(versions)
  compat.check()


@pytest.mark.parametrize(
  "version", ["2.14.0", "2.22.0", "3.0.0", "2.150.0", "1.15", "none"]
)
def test_another_tensorflow_is_refused_in_one_sentence(installed, version):
  installed({**_NEW, "tensorflow": version})
  with pytest.raises(ImportError) as error:
    compat.check()
  said = str(error.value)
  assert said.startswith(
    f"tf_privrob needs TensorFlow 2.15 to 2.21, found {version}; run: pip"
  )
  old = 'pip install "tensorflow>=2.15,<2.16"'
  new = 'pip install "tensorflow>=2.16,<2.22" "tf-keras>=2.16,<2.22"'
  assert said.endswith(old if sys.version_info < (3, 12) else new)


def test_no_tensorflow_is_refused_too(installed):
  installed({})
  with pytest.raises(ImportError, match=r"needs TensorFlow .* found none"):
    compat.check()


@pytest.mark.parametrize("version", ["2.20.1", "2.15.1", None])
def test_another_tf_keras_is_refused(installed, version):
  installed({k: v for k, v in {**_NEW, "tf-keras": version}.items() if v})
  with pytest.raises(ImportError) as error:
    compat.check()
  assert str(error.value) == (
    "tf_privrob runs on Keras 2, which is the package tf-keras 2.21 next to"
    f" TensorFlow 2.21, found {version or 'none'}; run: pip install"
    ' "tf-keras==2.21.*"'
  )


@pytest.mark.parametrize("version", ["0.4.2", "0.7.0", "1.0.0", None])
def test_another_dp_accounting_is_refused(installed, version):
  installed({k: v for k, v in {**_NEW, "dp-accounting": version}.items() if v})
  with pytest.raises(ImportError) as error:
    compat.check()
  assert str(error.value) == (
    f"tf_privrob needs dp-accounting 0.4.3 to 0.6, found {version or 'none'};"
    ' run: pip install "dp-accounting>=0.4.3,<0.7"'
  )


def test_keras_3_by_the_environment_is_refused(installed, monkeypatch):
  installed(_NEW)
  monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
  with pytest.raises(ImportError, match=r"_KERAS=0 .*set it to 1, or unset it"):
    compat.check()
  installed(_OLD)
  monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
  compat.check()  # where Keras is 2 anyway


def test_keras_3_before_is_refused(installed, monkeypatch):
  installed(_NEW)
  layer = type("Layer", (), {"__module__": "keras.src.layers.layer"})
  loaded = types.ModuleType("tensorflow")
  loaded.keras = types.SimpleNamespace(
    layers=types.SimpleNamespace(Layer=layer)
  )
  monkeypatch.setitem(sys.modules, "tensorflow", loaded)
  compat.keras_package.cache_clear()
  try:
    with pytest.raises(
      ImportError, match="has used Keras 3 already: import tf"
    ):
      compat.check()
  finally:
    compat.keras_package.cache_clear()


def test_tensorflow_may_be_imported_first():
  """All ways to Keras lead to the same one."""
  found = _python(
    "import tensorflow as tf, tf_privrob;"
    "from tensorflow.keras import layers;"
    "import tensorflow.keras as keras;"
    "assert layers.Layer is keras.layers.Layer is tf.keras.layers.Layer;"
    "print(tf.keras.layers.Layer.__module__)",
    TF_CPP_MIN_LOG_LEVEL="3",
  )
  assert found.returncode == 0, found.stderr
  assert found.stdout.strip().endswith("keras.src.engine.base_layer")


def test_keras_used_first_is_keras_2_or_refused():
  found = _python("import tensorflow as tf; tf.keras.layers; import tf_privrob")
  if compat.keras_package() == "keras":
    assert found.returncode == 0, found.stderr
  else:
    assert found.returncode == 1
    last = found.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: tf_privrob runs on Keras 2, and this")


# Keras.


def test_keras_is_found_under_its_own_name():
  import tensorflow as tf

  dense = tf.keras.layers.Dense
  assert compat.is_of_keras(dense.__module__)
  assert not compat.is_of_keras("kerastuner.engine")
  assert not compat.is_of_keras(None)
  assert compat.qualified_name(dense) == "keras.src.layers.core.dense.Dense"
  assert compat.qualified_name(pathlib.Path).startswith("pathlib")
  found = compat.keras_module("src.layers.core.dense")
  assert found.Dense is dense


def _network():
  import numpy as np
  import tensorflow as tf

  inputs = tf.keras.Input((4, 4, 1), name="a")
  hidden = tf.keras.layers.Conv2D(2, 3, activation="relu", name="b")(inputs)
  hidden = tf.keras.layers.Flatten(name="c")(hidden)
  outputs = tf.keras.layers.Dense(3, name="d")(hidden)
  network = tf.keras.Model(inputs, outputs, name="e")
  network.set_weights([np.full(w.shape, 0.5) for w in network.get_weights()])
  return network


def test_the_hash_of_a_model_is_the_same_on_every_stack():
  from tf_privrob import models

  assert models.model_hash(_network()).startswith("ab8722c57ef3466c")


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.parametrize("optional", [True, False])
def test_a_file_of_either_keras_2_is_read(tmp_path, package, optional):
  """They differ in their name, and in a setting that the newer one writes."""
  from tf_privrob import models

  network = _network()
  network.save(tmp_path / "first.keras")
  with zipfile.ZipFile(tmp_path / "first.keras") as source:
    parts = {name: source.read(name) for name in source.namelist()}
  config = json.loads(parts["config.json"])
  config["module"] = f"{package}.src.engine.functional"
  settings = config["config"]["layers"][0]["config"]
  settings.pop("optional", None)
  if optional:
    settings["optional"] = False
  parts["config.json"] = json.dumps(config).encode()
  with zipfile.ZipFile(tmp_path / "second.keras", "w") as target:
    for name, content in parts.items():
      target.writestr(name, content)
  found = models.load_model(tmp_path / "second.keras")
  assert models.model_hash(found) == models.model_hash(network)


# Packages that only some need.


def test_a_missing_extra_is_one_sentence(monkeypatch):
  monkeypatch.setitem(sys.modules, "cleverhans", None)
  with pytest.raises(compat.MissingPackageError) as error:
    compat.optional("cleverhans.tf2")
  said = str(error.value)
  assert said.startswith("cleverhans cannot be imported (")
  assert said.endswith(
    'run: pip install "cleverhans==4.0.0" (the extra [attacks] has it).'
  )
  assert compat.optional("json.decoder").JSONDecoder


def test_extras_are_those_of_setup_py():
  setup = (_ROOT / "setup.py").read_text(encoding="utf-8")
  for package in ("cleverhans", "tensorflow_datasets"):
    found = re.search(r'"(.+)" \(the extra \[(\w+)\]', compat.remedy(package))
    requirement, extra = found.groups()
    assert f'"{requirement}"' in setup
    assert f'"{extra}":' in setup


# Quiet logs.

_FAKE = """
import os, sys
os.write(2, b"WARNING: All log messages before absl::InitializeLog() is\\n")
os.write(2, b"I0000 00:00:17 21909 port.cc:153] oneDNN custom operations\\n")
os.write(2, b"E0000 00:00:17 21909 cuda_dnn.cc:8579] Unable to register\\n")
print("something else", file=sys.stderr)
"""


def _start(tmp_path, end="", **environment):
  folder = tmp_path / "tensorflow"
  folder.mkdir()
  (folder / "__init__.py").write_text(_FAKE + end)
  code = (
    "from tf_privrob import compat; compat.quiet(); import sys;"
    f"sys.path.insert(0, {str(tmp_path)!r}); import tensorflow;"
    "print('later', file=sys.stderr)"
  )
  return _python(code, **environment)


def test_start_up_is_quiet_and_hides_nothing_else(tmp_path):
  assert _start(tmp_path).stderr == "something else\nlater\n"


def test_an_error_at_start_up_is_shown(tmp_path):
  found = _start(tmp_path, "raise ImportError('no wings')")
  assert found.returncode == 1
  assert found.stderr.startswith("something else\nTraceback")
  assert found.stderr.endswith("ImportError: no wings\n")


def test_who_asks_for_logs_gets_them(tmp_path):
  found = _start(tmp_path, TF_CPP_MIN_LOG_LEVEL="0").stderr
  assert "port.cc" in found
  assert "cuda_dnn" in found


def test_a_binary_writes_nothing_to_stderr():
  found = _python(
    "from tf_privrob.console import command; command.prepare_tensorflow();"
    "import tensorflow as tf;"
    "tf.config.list_physical_devices();"
    "tf.keras.layers.Dense(1)(tf.ones([1, 1]))"
  )
  assert (found.returncode, found.stderr) == (0, "")


# One place.

# Model files name modules of any Keras: there these are words of a format.
_FILES = re.compile(r"(tf_privrob|tests)/models/files/")
_WORDS = re.compile(r"tf_keras|keras\.src|TF_USE_LEGACY_KERAS")
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_HERE = ("tf_privrob/compat.py", "tests/compat_test.py")
_OF_KERAS_3 = "tests/models/files/keras3/"  # what a real Keras 3 runs


def _knows_versions(tree):
  """What a syntax tree says of versions or of the homes of Keras."""
  for node in ast.walk(tree):
    names = []
    if isinstance(node, ast.Import):
      names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
      names = [node.module]
    for name in names:
      if name.split(".")[0] in ("keras", "tf_keras"):
        yield f"import {name}"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
      if _WORDS.search(node.value):
        yield "a home of Keras"
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], _ORDERS):
      for part in ast.walk(node):
        if getattr(part, "attr", None) in ("__version__", "version_info"):
          yield part.attr


def test_one_file_knows_versions():
  found = {
    f"{name}: {what}"
    for top in ("tf_privrob", "experiments", "benchmarks", "tests")
    for path in sorted((_ROOT / top).rglob("*.py"))
    for name in [path.relative_to(_ROOT).as_posix()]
    if name not in _HERE and not name.startswith(_OF_KERAS_3)
    for what in _knows_versions(ast.parse(path.read_text(encoding="utf-8")))
    if not (_FILES.match(name) and what == "a home of Keras")
  }
  assert found == set()


@pytest.mark.parametrize(
  ("line", "seen"),
  [
    ("from keras.src import backend", "import keras.src"),
    ("import tf_keras", "import tf_keras"),
    ("sys.modules.get('keras.src.backend')", "a home of Keras"),
    ("os.environ['TF_USE_LEGACY_KERAS'] = '1'", "a home of Keras"),
    ("if tf.__version__ < '2.16': pass", "__version__"),
    ("old = sys.version_info < (3, 12)", "version_info"),
  ],
)
def test_another_place_is_seen(line, seen):
  assert list(_knows_versions(ast.parse(line))) == [seen]
  assert list(_knows_versions(ast.parse("{'tf': tf.__version__}"))) == []
