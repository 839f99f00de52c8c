import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import layers
from tf_privrob import models


def test_by_hand():
  logits = tf.constant([[2.0, -4.0]])
  np.testing.assert_array_equal(layers.Temperature(4)(logits), [[0.5, -1.0]])


def test_a_temperature_must_be_positive():
  for bad in (0, -1.0, float("nan")):
    with pytest.raises(ValueError, match="temperature="):
      layers.Temperature(bad)


def test_a_classifier_with_a_temperature_is_saved_and_loaded(tmp_path):
  x = np.random.default_rng(0).random((9, 5), dtype=np.float32)
  network = models.mlp((5,), 4, seed=3)
  logits = layers.Temperature(7)(network.output)
  cooled = tf.keras.Model(network.input, logits)
  cooled.save(tmp_path / "c.keras")
  loaded = models.load_classifier(tmp_path / "c.keras")
  np.testing.assert_array_equal(loaded(x), cooled(x))
  np.testing.assert_allclose(cooled(x) * 7, network(x), rtol=1e-6)
