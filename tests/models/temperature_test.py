import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import models


def _x():
  return np.random.default_rng(0).random((9, 5), dtype=np.float32)


def test_the_logits_are_divided_and_predictions_stay():
  network = models.mlp((5,), 4, seed=3)
  cooled = models.with_temperature(network, 3.0)
  np.testing.assert_allclose(cooled(_x()) * 3, network(_x()), rtol=1e-6)
  np.testing.assert_array_equal(
    np.argmax(cooled(_x()), 1), np.argmax(network(_x()), 1)
  )
  confidence = tf.nn.softmax(cooled(_x())).numpy().max(1)
  assert (confidence < tf.nn.softmax(network(_x())).numpy().max(1)).all()


def test_saved_and_loaded(tmp_path):
  cooled = models.with_temperature(models.mlp((5,), 4, seed=3), 7)
  cooled.save(tmp_path / "c.keras")
  loaded = models.load_classifier(tmp_path / "c.keras")
  np.testing.assert_array_equal(loaded(_x()), cooled(_x()))


def test_a_softmax_is_taken_off_before():
  network = models.mlp((5,), 4, seed=3)
  probabilities = tf.keras.layers.Softmax()(network.output)
  soft = tf.keras.Model(network.input, probabilities)
  np.testing.assert_allclose(
    models.with_temperature(soft, 2)(_x()) * 2, network(_x()), atol=1e-6
  )


def test_weights_are_shared():
  network = models.mlp((5,), 4, seed=3)
  cooled = models.with_temperature(network, 2.0)
  network.set_weights([0 * w for w in network.get_weights()])
  np.testing.assert_array_equal(cooled(_x()), np.zeros((9, 4)))


def test_failures():
  with pytest.raises(ValueError, match="temperature=0 > 0"):
    models.with_temperature(models.mlp((5,), 4), 0)

  class Custom(tf.keras.Model):
    def call(self, inputs):
      return inputs

  with pytest.raises(ValueError, match="one input of known shape"):
    models.with_temperature(Custom(), 2)
