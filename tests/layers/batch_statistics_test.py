import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import layers


def test_by_hand():
  """Columns (1, 3) and (2, 2): means 2, 2; variances 1, 0."""
  layer = layers.BatchStandardization(variance_floor=0.21)
  found = layer(tf.constant([[1.0, 2.0], [3.0, 2.0]]))
  np.testing.assert_allclose(found, [[-1 / 1.1, 0], [1 / 1.1, 0]], rtol=1e-6)


def test_equals_a_loop_over_channels():
  x = np.random.default_rng(0).normal(2, 3, (5, 4, 3, 2)).astype("float32")
  found = layers.BatchStandardization()(x)
  for channel in range(2):
    values = x[..., channel].astype(float)
    wanted = (values - values.mean()) / np.sqrt(values.var() + 1e-3)
    np.testing.assert_allclose(found[..., channel], wanted, atol=1e-5)


def test_training_and_inference_use_the_batch_and_keep_no_state():
  layer = layers.BatchStandardization()
  model = tf.keras.Sequential([tf.keras.layers.Input((2,)), layer])
  x = np.random.default_rng(1).normal(5, 2, (30, 2)).astype("float32")
  np.testing.assert_array_equal(model(x, training=True), model(x))
  np.testing.assert_allclose(np.mean(model(x), axis=0), 0, atol=1e-5)
  np.testing.assert_allclose(np.std(model(x[:7]), axis=0), 1, atol=2e-3)
  assert model.weights == []


def test_bypassed_while_tracing():
  layer = layers.BatchStandardization()
  x = tf.constant([[1.0], [3.0]])
  layer.bypassed = True
  np.testing.assert_array_equal(layer(x), x)
  layer.bypassed = False
  assert np.abs(layer(x) - x).max() > 1


@pytest.mark.parametrize("floor", [0.0, -1.0, float("nan"), "1"])
def test_floor_must_be_positive(floor):
  with pytest.raises(ValueError, match=r"variance_floor=.* > 0"):
    layers.BatchStandardization(variance_floor=floor)
