"""Law: a layer of ours is saved and loaded as it was. Noise: noise_test.py."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import layers

_SCATTERING = {"size": 5, "orientations": 2, "scales": ((1.5, 4.0),)}
_LAYERS = {
  "batch statistics": lambda: layers.BatchStandardization(0.5, name="mine"),
  "bounded": lambda: layers.BoundedActivation(0.1, name="mine"),
  "conv": lambda: layers.NormalizedConv2D(3, 2, activation="relu"),
  "dense": lambda: layers.NormalizedDense(4, use_bias=False),
  "features": lambda: layers.RandomFourierFeatures(5, 2.0, seed=3),
  "scattering": lambda: layers.Scattering(**_SCATTERING),
  "temperature": lambda: layers.Temperature(2.5, name="mine"),
}


@pytest.mark.parametrize("name", _LAYERS)
def test_a_loaded_layer_is_the_one_that_was_saved(tmp_path, name):
  layer, shape = _LAYERS[name](), (5,) if name == "features" else (8, 8, 1)
  model = tf.keras.Sequential([tf.keras.layers.Input(shape), layer])
  for weight in layer.weights:  # not those of the start
    weight.assign(0.5 * weight + 0.1)
  model.save(tmp_path / "x.keras")
  loaded = tf.keras.models.load_model(tmp_path / "x.keras")
  x = np.random.default_rng(0).random((3, *shape), np.float32)
  np.testing.assert_array_equal(loaded(x), model(x))
  again = loaded.layers[-1]
  assert type(again) is type(layer)
  assert again.get_config() == layer.get_config()
  assert len(again.trainable_weights) == len(layer.trainable_weights)
  expected = tf.TensorShape((None, *model.output_shape[1:]))
  assert layer.compute_output_shape((None, *shape)) == expected
