"""What tells one run from another: its network, its data, its folder."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import methods
from tf_privrob import models
from tf_privrob.methods import identity

_NORMALIZED = "fashion_mnist_cnn_diffai"  # saved with what it was built for


def test_a_network_is_known_by_its_layers_after_loading(tmp_path):
  """Whatever the seeds of its weights were, and under whatever names."""
  found = set()
  for name in ("tutorial_cnn", "tutorial_cnn_tanh", _NORMALIZED):
    own = set()
    for seed in (None, 3):
      model = methods.Trainer(models.by_name(name, (28, 28, 1), 10, seed))
      model.save(tmp_path / "model.keras")
      loaded = models.load_model(tmp_path / "model.keras")
      own |= {identity.network_hash(m.network) for m in (model, loaded)}
    assert len(own) == 1
    found |= own
  assert len(found) == 3


def _network(*layers):
  return tf.keras.Sequential([tf.keras.Input((4,)), *layers])


@pytest.mark.parametrize(
  "make",
  [
    lambda: [tf.keras.layers.Dense(3, "tanh"), tf.keras.layers.Dense(2)],
    lambda: [tf.keras.layers.Dense(3, trainable=False), _dense(2)],
    lambda: [_dense(3), tf.keras.layers.Dropout(0.5), _dense(2)],
  ],
)
def test_networks_of_the_same_shapes_differ_by_their_layers(make):
  plain = identity.network_hash(_network(_dense(3), _dense(2)))
  assert plain == identity.network_hash(_network(_dense(3), _dense(2)))
  assert plain != identity.network_hash(_network(*make()))


def _dense(units):
  return tf.keras.layers.Dense(units)


@pytest.mark.parametrize(
  "name", ["ledger.jsonl", "run.json", "privacy.json", "model.keras"]
)
def test_no_run_begins_where_another_left_its_results(tmp_path, name):
  identity.require_fresh(tmp_path)
  (tmp_path / name).touch()
  with pytest.raises(ValueError, match=f"found {name} of an earlier run"):
    identity.require_fresh(tmp_path)


def test_training_data_are_known_again_as_long_as_their_hash_is_kept(tmp_path):
  data = np.ones([3, 2], np.float32), np.arange(3)
  assert identity.trained_on(tmp_path, data) is None
  identity.bind(tmp_path, "run", data, seed=1, resume=False)
  assert identity.trained_on(tmp_path, data) is True
  assert identity.trained_on(tmp_path, (data[0], data[1][::-1])) is False
  (tmp_path / "nonprivate" / "resume.json").write_text("{}")
  assert identity.trained_on(tmp_path, data) is None
