"""What is refused, and in which words."""

import numpy as np
import pytest
import tensorflow as tf

from tests.bounds import networks
from tf_privrob import bounds
from tf_privrob.bounds import activations
from tf_privrob.bounds import program as program_lib

_layers = tf.keras.layers
IMAGE = (6, 6, 2)


def sequential(*layers, shape=IMAGE):
  return tf.keras.Sequential([tf.keras.Input(shape), *layers])


@pytest.mark.parametrize(
  ("layer", "message"),
  [
    (
      _layers.MaxPooling2D(name="top"),
      "'top' of type MaxPooling2D. Use AveragePooling2D or a conv",
    ),
    (_layers.LayerNormalization(name="ln"), "'ln' of type LayerNormalization"),
    (_layers.Conv2D(2, 3, groups=2), "in one group, received groups=2"),
    (_layers.BatchNormalization(axis=1), r"received axis=\[1\]"),
    (_layers.Dense(2, "swish"), "never decreases .*received 'swish'"),
    (_layers.Activation(tf.sin, name="s"), "layer 's' .*received 'sin'"),
    (_layers.ReLU(threshold=1.0), "threshold=0, received 1.0"),
    (_layers.LeakyReLU(1.5), r"slope in \[0, 1\] .*received 1.5"),
    (_layers.ELU(-1.0), "alpha >= 0, received -1.0"),
    (_layers.Dense(2, dtype="mixed_bfloat16"), "float64, received bfloat16"),
    (_layers.Softmax(axis=1), "ends in a softmax .*as_logits"),
  ],
)
def test_a_layer_without_rules_is_named(layer, message):
  with pytest.raises(ValueError, match=message):
    program_lib.read(sequential(layer))


def test_a_softmax_at_the_end_is_seen():
  message = r"ends in a softmax \(Dense 'out'\)\. Pass models.as_logits"
  inner = sequential(_layers.Dense(3, "softmax", name="out"), shape=(4,))
  with pytest.raises(ValueError, match=message):
    bounds.Interval().output_bounds(inner, np.zeros((1, 4), np.float32), 0.1)
  with pytest.raises(ValueError, match=message):
    program_lib.read(sequential(inner, shape=(4,)))
  with pytest.raises(ValueError, match=r"Softmax\. Take the softmax off"):
    program_lib.read(
      sequential(_layers.Softmax(), _layers.Dense(2), shape=(4,))
    )


def test_a_sum_written_as_an_operation_is_refused():
  x = tf.keras.Input((4,))
  network = tf.keras.Model(x, _layers.Dense(4)(x) + x)
  with pytest.raises(ValueError, match=r"TFOpLambda.*layers.Add\(\)"):
    program_lib.read(network)


def test_models_that_cannot_be_read():
  class Own(tf.keras.Model):
    def call(self, x):
      return x

  for network in (Own(), tf.keras.Sequential([_layers.Dense(2)]), lambda x: x):
    with pytest.raises(
      ValueError, match="functional or sequential Keras model"
    ):
      program_lib.read(network)
  free = tf.keras.Sequential([tf.keras.Input((None, None, 1))])
  free.add(_layers.Conv2D(1, 3))
  with pytest.raises(ValueError, match="input of known shape"):
    program_lib.read(free)
  x = tf.keras.Input((4,))
  with pytest.raises(ValueError, match=r"one output .*received 2"):
    program_lib.read(tf.keras.Model(x, [x, _layers.ReLU()(x)]))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_must_be_finite(value):
  network = sequential(_layers.Dense(3, name="d"), shape=(4,))
  kernel = network.layers[0].kernel
  kernel.assign(tf.tensor_scatter_nd_update(kernel, [[1, 2]], [value]))
  message = "received 1 NaN or infinite values in 'd/kernel:0'"
  x = tf.zeros([1, 4])
  with pytest.raises(ValueError, match=message):
    bounds.Interval().output_bounds(network, x, 0.1)

  @tf.function
  def traced(x):
    return bounds.Interval().output_bounds(network, x, 0.1)

  with pytest.raises(ValueError, match=message):
    traced(x)


@pytest.mark.parametrize(
  "domain", [bounds.Interval(), bounds.HybridZonotope(), bounds.Dual()]
)
def test_arguments(domain):
  network = networks.build("mlp")
  x, y = networks.inputs("mlp")
  with pytest.raises(ValueError, match=r"attack_eps=-0.1 >= 0"):
    domain.output_bounds(network, x, -0.1)
  with pytest.raises(ValueError, match=r"one for each input.*least -0.1"):
    domain.output_bounds(network, x, np.array([0.1, -0.1, 0.1]))
  with pytest.raises(ValueError, match="attack_eps=nan >= 0"):
    domain.output_bounds(network, x, float("nan"))
  with pytest.raises(ValueError, match="Expected labels y"):
    domain.worst_case_logits(network, x, None, 0.1)
  with pytest.raises(ValueError, match="received max 3 in y"):
    domain.worst_case_logits(network, x, np.array([0, 3, 1]), 0.1)
  with pytest.raises(ValueError, match=r"shape \(4,\), received x of shape"):
    domain.output_bounds(network, x[:, :3], 0.1)
  with pytest.raises(ValueError, match=r"Expected x in \[0, 0.5\]"):
    domain.output_bounds(network, x, 0.1, (0, 0.5))
  with pytest.raises(ValueError, match="increasing"):
    domain.output_bounds(network, x, 0.1, (1.0, 0.0))
  with pytest.warns(UserWarning, match="attack_eps=0.6 is more than half"):
    domain.output_bounds(network, x, 0.6, (0.0, 1.0))
  one = sequential(_layers.Dense(1), shape=(4,))
  with pytest.raises(ValueError, match="at least 2 classes"):
    domain.worst_case_logits(one, x, 0 * y, 0.1)
  image = sequential(_layers.Conv2D(2, 3))
  with pytest.raises(ValueError, match="one vector of logits"):
    domain.worst_case_logits(image, np.zeros((1, *IMAGE), "float32"), y, 0.1)


def test_settings():
  with pytest.raises(ValueError, match="Unknown arithmetic='float16'"):
    bounds.Interval(arithmetic="float16")
  with pytest.raises(ValueError, match="Did you mean 'smooth'"):
    bounds.HybridZonotope("smoth")
  with pytest.raises(ValueError, match="Unknown norm='l2'"):
    bounds.Dual(norm="l2")
  with pytest.raises(ValueError, match="an estimate is not a bound"):
    bounds.Dual(norm="l1_median", arithmetic="outward")
  x, _ = networks.inputs("smooth")
  with pytest.raises(ValueError, match=r"and ReLUs for Dual, received .*tanh"):
    bounds.Dual().output_bounds(networks.build("smooth"), x, 0.1)


@pytest.mark.parametrize(
  ("layer", "name", "slope"),
  [
    (_layers.ReLU(), "relu", 0.0),
    (_layers.Dense(2, tf.nn.relu), "relu", 0.0),
    (_layers.Activation("relu"), "relu", 0.0),
    (_layers.ReLU(6.0), "clipped_relu", None),
    (_layers.ReLU(negative_slope=0.25), "leaky_relu", 0.25),
    (_layers.Activation(tf.nn.leaky_relu), "leaky_relu", 0.2),
    (_layers.Dense(2, _layers.LeakyReLU(0.5)), "leaky_relu", 0.5),
    (_layers.Activation(tf.nn.relu6), "relu6", None),
    (_layers.ELU(0.5), "elu", None),
    *((_layers.Activation(n), n, None) for n in ("tanh", "selu", "softsign")),
  ],
)
def test_activations_are_what_keras_computes(layer, name, slope):
  found = activations.of_layer(layer)
  assert (found.name, found.slope) == (name, slope)
  z = tf.linspace(-9.0, 9.0, 301)
  function = layer if activations.is_activation(layer) else layer.activation
  expected = function(z).numpy()
  np.testing.assert_allclose(found.function(z), expected, atol=1e-6)
  assert np.all(np.diff(expected) >= -1e-6)  # but for rounding
