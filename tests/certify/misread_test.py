"""Models that certifiers misread, each from an attacker's script."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import bounds
from tf_privrob import certify
from tf_privrob import models
from tf_privrob.certify import gate
from tf_privrob.models import graph
from tf_privrob.models import precision
from tf_privrob.models import untouched

_layers = tf.keras.layers
X = np.ones((2, 2), np.float32)


def _sequential(shape, *layers, **kwargs):
  return tf.keras.Sequential([tf.keras.Input(shape, **kwargs), *layers])


def _normalized(variance, gamma=1.0, epsilon=1e-3, dtype="float32"):
  layer = _layers.BatchNormalization(epsilon=epsilon, dtype=dtype)
  network = _sequential((2,), layer, _layers.Dense(2, dtype=dtype), dtype=dtype)
  gamma, mean = np.broadcast_to(gamma, 2), np.zeros(2)
  layer.set_weights([gamma, mean, mean, np.full(2, variance)])
  return network


# The statement of bounds.


@pytest.mark.parametrize(
  ("variance", "epsilon", "dtype"),
  [(-0.001 + 1e-12, 0.001, "float64"), (-1e-34, 1e-34, "float32")],
)
def test_statistics_that_are_no_variance_are_refused(variance, epsilon, dtype):
  network = _normalized(variance, epsilon=epsilon, dtype=dtype)
  with pytest.raises(ValueError, match="moving variance >= 0"):
    certify.VerifiedBound(0.1).certify(network, X.astype(dtype))


def test_a_quotient_that_is_taken_for_zero_is_paid_for():
  # gamma / sqrt(variance) is 1e-38, which float32 takes for 0, times 1e30.
  network = _normalized(1e38, gamma=1e-19)
  network.layers[-1].set_weights([np.array([[1e8, 0], [0, 1e8]]), np.zeros(2)])
  x = np.array([[1e30, 0.9e30]], np.float32)
  (row,) = certify.VerifiedBound(1.0).certify(network, x)
  assert row.radius == 0


def test_settings_that_repeat_an_input_are_refused():
  scale = _layers.Rescaling(np.full((3, 3, 1), 0.5))
  network = _sequential((1, 1, 1), scale, _layers.Flatten(), _layers.Dense(2))
  with pytest.raises(ValueError, match="but Keras makes"):
    certify.VerifiedBound(0.1).certify(network, np.ones((1, 1, 1, 1), "f4"))


def test_a_change_of_precision_inside_is_refused():
  network = _sequential((2,), _layers.ReLU(dtype="float32"), dtype="float64")
  with pytest.raises(ValueError, match="float64 everywhere"):
    certify.VerifiedBound(0.1).certify(network, X)


# Linear models.


def _scaled(*scales):
  dense = _layers.Dense(2, use_bias=False)
  rescaled = [_layers.Rescaling(scale) for scale in scales]
  network = _sequential((1,), *rescaled, dense)
  back = 1 / np.prod(np.array(scales, np.float64))
  dense.set_weights([np.array([[0.0, back]])])
  return network


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_numbers_that_are_taken_for_zero_behind_a_scale_are_paid_for(norm):
  network = _scaled(1e-34)
  (row,) = certify.LinearMargin(norm).certify(network, np.ones((1, 1), "f4"))
  # Within about 2^-126 / 1e-34 of 0 the logit itself is taken for 0.
  assert 0.5 < row.radius < 1 - 1e-4


def test_scales_that_are_themselves_taken_for_zero_are_refused():
  with pytest.raises(ValueError, match="may take for 0"):
    certify.LinearMargin().certify(_scaled(1e-39), np.ones((1, 1), "f4"))


# What a layer holds.


class _Counting(tf.keras.regularizers.Regularizer):
  def __call__(self, x):
    return 0.0


def test_a_regulariser_that_every_call_runs_is_code_of_the_caller():
  own = _sequential((2,), _layers.Dense(2, activity_regularizer=_Counting()))
  assert not graph.is_plain(own)
  known = _sequential((2,), _layers.Dense(2, activity_regularizer="l2"))
  at_rest = _sequential((2,), _layers.Dense(2, kernel_regularizer=_Counting()))
  assert graph.is_plain(known)
  assert graph.is_plain(at_rest)


@pytest.mark.parametrize("what", ["kernel", "bias", "_is_causal"])
def test_a_layer_that_was_changed_has_no_name(what):
  layer = _layers.Conv2D(2, 2)
  network = _sequential((3, 3, 1), layer, _layers.GlobalAveragePooling2D())
  assert models.model_hash(network)
  assert untouched.exchanged(layer) is None
  value = {
    "kernel": layer.kernel.numpy().tolist(),
    "bias": [0.0, 1.0],
    "_is_causal": True,
  }[what]
  object.__setattr__(layer, what, value)
  assert untouched.exchanged(layer) == what
  assert not models.model_hash(network)


# Graphs.


def _cancelling():
  there, back = _layers.Rescaling(1.0, 3e7), _layers.Rescaling(1.0, -3e7)
  return _sequential((2,), there, back)


def test_a_graph_folds_no_constants_while_it_is_certified():
  model = _cancelling()
  traced = tf.function(lambda x: model(x, training=False))
  x = tf.constant([[0.7, 0.3]])
  with precision.as_written():
    np.testing.assert_array_equal(traced(x), model(x))
  options = tf.config.optimizer.get_experimental_options()
  assert options.get("constant_folding", True)


def test_what_is_certified_is_what_the_model_returns():
  (row,) = certify.RandomizedSmoothing(0.5, num_estimation=2000).certify(
    _cancelling(), np.array([[0.7, 0.3]], np.float32)
  )
  assert row.abstained  # all logits are 0


def test_one_pass_is_run_without_the_graph():
  def other(x):
    inside = tf.inside_function()
    return x + (1.0 if inside else 0.0) * tf.constant([[0.0, 1.0]])

  with pytest.raises(ValueError, match="for equal inputs"):
    gate.check_rows(other, [X], "", plain=True)


def test_far_inputs_excuse_no_difference():
  batch = np.array([[1e5, 0.0], [-1e5, 0.0], [0.5, 0.4]], np.float32)

  def coupled(x):
    company = tf.reduce_mean(x, axis=0, keepdims=True)
    return tf.where(tf.abs(x) < 1, x + 1e-6 * company, x)

  with pytest.raises(ValueError, match="further inputs"):
    gate.check_rows(coupled, [batch], "")


def test_a_global_learning_phase_is_refused(monkeypatch):
  # Keras forgets a phase that was set only with everything else.
  monkeypatch.setattr(tf.keras.backend, "learning_phase", lambda: 1)
  with pytest.raises(ValueError, match="global learning phase"):
    certify.VerifiedBound(0.1).certify(_normalized(1.0), X)


def test_two_threads_leave_the_options_as_they_were():
  first, second = precision.as_written(), precision.as_written()
  options = tf.config.optimizer.get_experimental_options
  first.__enter__()
  second.__enter__()
  first.__exit__(None, None, None)
  assert not options()["constant_folding"]
  second.__exit__(None, None, None)
  assert options()["constant_folding"]


def test_autocast_is_part_of_the_name():
  def network(autocast):
    layer = _layers.Activation("relu", name="a", autocast=autocast)
    inputs = tf.keras.Input((2,), name="i", dtype="float64")
    return tf.keras.Model(inputs, layer(inputs), name="m")

  one, other = (
    models.model_hash(network(True)),
    models.model_hash(network(False)),
  )
  assert one != other


@pytest.mark.parametrize(
  "layer",
  [
    _layers.Normalization(mean=0.5, variance=2.0),
    _layers.BatchNormalization(synchronized=True),
    _layers.SeparableConv2D(2, 2, pointwise_regularizer=_Counting()),
    _layers.Conv2D(2, 2, kernel_regularizer=_Counting()),
  ],
  ids=lambda layer: type(layer).__name__,
)
def test_ordinary_layers_are_as_keras_makes_them(layer):
  network = _sequential((3, 3, 1), layer, _layers.Flatten(), _layers.Dense(2))
  assert untouched.exchanged(layer) is None
  assert graph.is_plain(network)


# Numbers below 2^-126, which the processor takes for 0.


def _leaning(layer, share):
  """A margin that the slope of `layer` keeps above 0, if it is no zero."""
  inputs = tf.keras.Input((1,))
  wide = _layers.Dense(1)
  behind, beside = _layers.Dense(2), _layers.Dense(2)
  leaning = behind(layer(wide(inputs)))
  network = tf.keras.Model(inputs, _layers.Add()([leaning, beside(inputs)]))
  wide.set_weights([np.array([[-1e36]]), np.array([-1.01e36])])
  behind.set_weights([np.array([[0, -1e3 * share]]), np.zeros(2)])
  beside.set_weights([np.array([[0, -1.0]]), np.array([0, 0.5])])
  return network


_SLOPE = 1e-39


@pytest.mark.parametrize("relu", ["box", "switch", "smooth"])
@pytest.mark.parametrize(
  "make",
  [
    lambda: _layers.LeakyReLU(_SLOPE),
    lambda: _layers.ReLU(negative_slope=_SLOPE),
    lambda: _layers.ReLU(1e30, negative_slope=_SLOPE),
    lambda: _layers.Activation(_layers.LeakyReLU(_SLOPE)),
  ],
)
def test_a_slope_that_is_taken_for_zero_is_refused(make, relu):
  """The bounds believed in it: rows of radius 1 fell at a distance of 1."""
  network = _leaning(make(), 0.4)
  for domain in (bounds.HybridZonotope(relu), bounds.Interval(), bounds.Dual()):
    with pytest.raises(ValueError, match=r"slope .*processor may take for 0"):
      certify.VerifiedBound(1.0, domain=domain).certify(
        network, np.zeros((1, 1), "f4")
      )


def test_the_smallest_normal_slope_is_certified():
  network = _leaning(_layers.LeakyReLU(2.0**-126), 0.4)
  (row,) = certify.VerifiedBound(1.0, domain=bounds.HybridZonotope()).certify(
    network, np.zeros((1, 1), "f4")
  )
  found = network(np.ones((1, 1), "f4")).numpy().argmax()
  assert not row.radius or found == row.prediction


@pytest.mark.parametrize("name", ["alpha", "negative_slope"])
def test_norms_refuse_such_a_slope_too(name):
  layer = {
    "alpha": _layers.LeakyReLU(_SLOPE),
    "negative_slope": _layers.ReLU(negative_slope=_SLOPE),
  }[name]
  with pytest.raises(ValueError, match=r"slope .*processor may take for 0"):
    certify.prefix_norms([layer], (3,))
