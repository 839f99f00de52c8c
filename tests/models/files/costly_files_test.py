"""Small files that would take gigabytes or minutes are refused."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import data
from tf_privrob import files
from tf_privrob import models

_layers = tf.keras.layers


def _saved(path, *layers):
  model = tf.keras.Sequential(layers)
  model.save(path)
  return path


@pytest.mark.parametrize(
  ("shape", "layer"),
  [
    ((1, 1), _layers.Conv1D(1, 3, dilation_rate=2**28, padding="causal")),
    ((1, 1, 1), _layers.Conv2D(1, 3, dilation_rate=9_000, padding="same")),
    (
      (1, 1, 1),
      _layers.DepthwiseConv2D(3, dilation_rate=9_000, padding="same"),
    ),
    ((1, 1, 1, 1), _layers.Conv3D(1, 3, dilation_rate=400, padding="same")),
  ],
)
def test_dilation_that_pads_a_pixel_to_gigabytes(tmp_path, shape, layer):
  """12 kB took 6 GB; with a rate of 450 all memory of a machine."""
  path = tmp_path / "m.json"
  first = {"batch_input_shape": [None, *shape], "name": "in"}
  config = {
    "name": "s",
    "layers": [
      {"class_name": "InputLayer", "config": first},
      {
        "class_name": type(layer).__name__,
        "config": {**layer.get_config(), "name": "wide"},
      },
    ],
  }
  path = _with_config(tmp_path, {"class_name": "Sequential", "config": config})
  with pytest.raises(ValueError, match="'wide' that computes"):
    models.load_model(path)


def _with_config(folder, config):
  """A .keras file with another description than its own."""
  path = _saved(folder / "m.keras", _layers.Input((4,)), _layers.Dense(2))
  with zipfile.ZipFile(path) as archive:
    entries = {name: archive.read(name) for name in archive.namelist()}
  entries["config.json"] = json.dumps(config).encode()
  with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
    for name, content in entries.items():
      archive.writestr(name, content)
  return path


def test_ordinary_dilation_is_read(tmp_path):
  path = _saved(
    tmp_path / "m.keras",
    _layers.Input((64, 64, 3)),
    _layers.Conv2D(4, 3, dilation_rate=16, padding="same"),
  )
  models.load_model(path)


@pytest.mark.parametrize(
  ("count", "message"), [(1_000, "a stack of 1001"), (30_000, "20000 classes")]
)
def test_stacks_that_take_minutes_to_build(tmp_path, count, message):
  """1 kB took a minute, and 24 kB were refused after 10 seconds."""
  first = {
    "class_name": "InputLayer",
    "config": {"batch_input_shape": [None, 4]},
  }
  one = {"class_name": "ReLU", "config": {}}
  config = {"name": "s", "layers": [first, *[one] * count]}
  path = _with_config(tmp_path, {"class_name": "Sequential", "config": config})
  with pytest.raises(ValueError, match=message):
    models.load_model(path)


def _bomb(path, names, megabytes=300):
  """Zeros under these names, which a thousandth of their size holds."""
  header = io.BytesIO()
  np.lib.format.write_array_header_1_0(
    header,
    {
      "descr": "<f4",
      "fortran_order": False,
      "shape": (megabytes * 2**18,),
    },
  )
  with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
    for name in names:
      with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
        entry.write(header.getvalue())
        for _ in range(megabytes):
          entry.write(bytes(2**20))
  return path


def test_arrays_that_expand_to_far_more_are_not_read(tmp_path, monkeypatch):
  """1.5 MB took 1.5 GB, of which a network needed 24 bytes."""
  path = _bomb(tmp_path / "w.npz", ["kernel"])
  network = tf.keras.Sequential([_layers.Input((2,)), _layers.Dense(2)])
  with pytest.raises(ValueError, match="more than 100 times its size"):
    models.import_weights(network, path)
  with pytest.raises(ValueError, match="more than 100 times its size"):
    files.read_arrays(path)
  monkeypatch.setenv("TF_PRIVROB_DATA", str(tmp_path))
  path.rename(tmp_path / "usps.npz")
  with pytest.raises(ValueError, match="more than 100 times its size"):
    data.load("usps")


def test_arrays_that_compress_well_are_read(tmp_path):
  path = tmp_path / "w.npz"
  np.savez_compressed(path, a=np.zeros(2**22, np.float32))
  assert len(files.read_arrays(path)["a"]) == 2**22
