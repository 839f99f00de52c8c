"""Law: a layer of ours is saved and loaded as it was. Noise: noise_test.py."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import layers

# Each layer with settings that are not its defaults.
_LAYERS = {
  layers.BatchStandardization: {"variance_floor": 0.5},
  layers.BoundedActivation: {"bound": 0.1},
  layers.NormalizedConv2D: {"filters": 3, "kernel_size": (2, 2)},
  layers.NormalizedDense: {"units": 4, "use_bias": False},
  layers.RandomFourierFeatures: {
    "num_features": 5,
    "length_scale": 2.0,
    "normalize": True,
  },
  layers.Scattering: {"size": 5, "orientations": 2, "strides": 1},
  layers.Temperature: {"temperature": 2.5},
}


@pytest.mark.parametrize("kind", _LAYERS)
def test_a_loaded_layer_is_the_one_that_was_saved(tmp_path, kind):
  settings = {**_LAYERS[kind], "name": "mine"}
  layer = kind(**settings)
  flat = kind is layers.RandomFourierFeatures
  shape = (5,) if flat else (8, 8, 1)
  model = tf.keras.Sequential([tf.keras.layers.Input(shape), layer])
  for weight in layer.weights:  # not those of the start
    weight.assign(0.5 * weight + 0.1)
  model.save(tmp_path / "x.keras")
  loaded = tf.keras.models.load_model(tmp_path / "x.keras")
  x = np.random.default_rng(0).random((3, *shape), np.float32)
  np.testing.assert_array_equal(loaded(x), model(x))
  again = loaded.layers[-1]
  assert type(again) is kind
  assert settings.items() <= again.get_config().items()
  assert len(again.trainable_weights) == len(layer.trainable_weights)
  expected = tf.TensorShape((None, *model.output_shape[1:]))
  assert layer.compute_output_shape((None, *shape)) == expected
