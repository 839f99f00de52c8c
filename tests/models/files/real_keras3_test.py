"""Files of a real Keras 3, and ours in a real Keras 3.

A Python that has Keras 3 and TensorFlow is that of `TF_PRIVROB_KERAS3`, or a
virtual environment that is made for these tests and kept in pytest's cache.
"""

import json
import os
import pathlib
import subprocess
import sys
import venv

import pytest

from tests.models.files import exporting_test
from tests.models.files import keras3_files
from tf_privrob import models
from tf_privrob.models.files import keras3_settings

_WRITE = keras3_files.FOLDER / "write.py"
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "0"}
# Cases that no single file of both Keras can hold.
_NOT_EXPORTED = frozenset(
  """AdditiveAttention Attention ConvLSTM1D ConvLSTM2D ConvLSTM3D
  MultiHeadAttention SpectralNormalization TimeDistributed""".split()
) | {"LSTM with states"}
pytestmark = pytest.mark.slow


def _has_keras_3(python):
  code = "import tensorflow as tf; assert hasattr(tf.keras, 'ops')"
  found = subprocess.run(
    [python, "-c", code],
    capture_output=True,
    check=False,
    env={**os.environ, **_QUIET},
  )
  return found.returncode == 0


@pytest.fixture(name="python", scope="module")
def _python(request):
  """The interpreter; where none can be made the tests are skipped."""
  given = os.environ.get("TF_PRIVROB_KERAS3")
  if given:
    if not _has_keras_3(given):
      pytest.skip(f"TF_PRIVROB_KERAS3={given} has no Keras 3 and TensorFlow")
    return given
  folder = pathlib.Path(request.config.cache.mkdir("keras3"))
  python = folder / "bin" / "python"
  if not python.exists() or not _has_keras_3(str(python)):
    venv.create(folder, clear=True, with_pip=True)
    made = subprocess.run(
      [str(python), "-m", "pip", "install", "-q", "tensorflow-cpu>=2.17"],
      capture_output=True,
      text=True,
      check=False,
    )
    if made.returncode or not _has_keras_3(str(python)):
      last = (made.stderr.strip().splitlines() or ["no reason given"])[-1]
      pytest.skip(f"no environment with Keras 3 can be made: {last[:200]}")
  return str(python)


@pytest.fixture(name="written", scope="module")
def _written(python, tmp_path_factory):
  """A folder with every case of `keras3/cases.py`."""
  folder = tmp_path_factory.mktemp("keras3")
  subprocess.run(
    [python, str(_WRITE), str(folder)],
    check=True,
    capture_output=True,
    env={**os.environ, **_QUIET},
  )
  return folder


def test_every_layer_that_is_read_is_tried(written):
  """A layer that `keras3_settings` takes has a case of its own."""
  cases = {path.stem for path in written.glob("*.keras")}
  assert keras3_settings.LAYERS - cases == {"InputLayer"}


def test_files_of_keras_3_compute_the_same(written):
  paths = sorted(written.glob("*.keras")) + sorted(written.glob("*.h5"))
  assert len(paths) > 200
  wrong = {}
  for path in paths:
    x, y = keras3_files.arrays(path)
    found = keras3_files.differences(models.load_model(path), x, y)
    if not max(found) <= 1e-6:
      wrong[path.name] = found
  assert wrong == {}


def test_what_keras_3_wrote_is_exported_to_both(python, written, tmp_path):
  """Read here, exported, and read by plain Keras 3 and by plain Keras 2."""
  refused = set()
  for path in sorted(written.glob("*.keras")):
    for suffix in (".keras", ".h5"):
      try:
        models.export(
          models.load_model(path), tmp_path / f"{path.stem}{suffix}"
        )
      except ValueError:
        refused.add(path.stem)
  assert refused == _NOT_EXPORTED
  _require_same(exporting_test.read(python, written, tmp_path, **_QUIET), 3)
  _require_same(exporting_test.read(sys.executable, written, tmp_path), 2)


def test_networks_of_the_library_are_the_same_in_keras_3(python, tmp_path):
  folders = tmp_path / "cases", tmp_path / "files"
  for folder in folders:
    folder.mkdir()
  exporting_test.write(folders[1], folders[0])
  _require_same(exporting_test.read(python, *folders, **_QUIET), 3)


def _require_same(found, keras):
  assert found["keras"] == keras
  assert found["files"]
  wrong = {
    name: difference
    for name, difference in found["files"].items()
    if not (isinstance(difference, float) and difference <= 1e-6)
  }
  assert wrong == {}, json.dumps(wrong, indent=2)
