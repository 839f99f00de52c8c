"""A .keras file tells what it was trained on, and is a model file still."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import models

SEEN = {"hashes": "AAAA", "value_range": [0.0, 1.0], "dataset": "small"}


@pytest.fixture
def network():
  return models.mlp((6,), 3, hidden=(4,), seed=0)


def test_a_file_tells_it_and_both_readers_load_the_model(network, tmp_path):
  path = tmp_path / "told.keras"
  models.write_trained(path, network, SEEN)
  assert models.trained_on(path) == SEEN
  x = np.random.default_rng(0).random((4, 6), np.float32)
  for loaded in (models.load_model(path), tf.keras.models.load_model(path)):
    np.testing.assert_array_equal(loaded(x), network(x))


def test_other_files_tell_nothing(network, tmp_path):
  told = tmp_path / "told.keras"
  models.write_trained(told, network, SEEN)
  again = tmp_path / "again.keras"
  models.load_model(told).save(again)  # the note belongs to the file
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that the format is an old one
    network.save(tmp_path / "network.h5")
  for name in ("again.keras", "network.h5", "missing.keras"):
    assert models.trained_on(tmp_path / name) is None


def test_a_broken_file_is_refused(network, tmp_path):
  path = tmp_path / "told.keras"
  models.write_trained(path, network, SEEN)
  path.write_bytes(path.read_bytes()[:-40])
  with pytest.raises(ValueError, match="archive"):
    models.trained_on(path)
