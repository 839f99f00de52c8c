"""Affine maps against their own matrices, read off the Keras layer."""

import numpy as np
import pytest
import tensorflow as tf

from tests.bounds import networks
from tf_privrob.bounds import program as program_lib

_layers = tf.keras.layers
IMAGE = (5, 4, 2)
MAPS = {
  "dense": (_layers.Dense(3), (4,)),
  "dense_of_rows": (_layers.Dense(3, use_bias=False), (2, 4)),
  "conv_same": (_layers.Conv2D(3, 3, padding="same"), IMAGE),
  "conv_stride": (_layers.Conv2D(3, (3, 2), (2, 1), "same"), IMAGE),
  "conv_stride_valid": (_layers.Conv2D(2, 2, (2, 3), use_bias=False), IMAGE),
  "conv_dilated": (_layers.Conv2D(2, (2, 2), dilation_rate=(3, 2)), IMAGE),
  "conv_dilated_same": (
    _layers.Conv2D(2, 3, padding="same", dilation_rate=2),
    IMAGE,
  ),
  "average": (_layers.AveragePooling2D(2), IMAGE),
  "average_same": (_layers.AveragePooling2D(3, 2, padding="same"), IMAGE),
  "global_average": (_layers.GlobalAveragePooling2D(), IMAGE),
  "flatten": (_layers.Flatten(), IMAGE),
  "reshape": (_layers.Reshape((4, -1)), IMAGE),
  "padding": (_layers.ZeroPadding2D(((1, 2), (0, 1))), IMAGE),
  "rescaling": (_layers.Rescaling([0.5, -2.0], 1.0), IMAGE),
  "rescaling_by_place": (
    _layers.Rescaling(-0.5, np.arange(40.0).reshape(IMAGE)),
    IMAGE,
  ),
  "batch_norm": (_layers.BatchNormalization(), IMAGE),
  "batch_norm_bare": (
    _layers.BatchNormalization(center=False, scale=False),
    IMAGE,
  ),
}


def built(name):
  layer, shape = MAPS[name]
  network = tf.keras.Sequential([tf.keras.Input(shape), layer])
  rng = np.random.RandomState(1)
  for weight in network.weights:
    weight.assign(rng.randn(*weight.shape))
    if "variance" in weight.name:
      weight.assign(0.3 + rng.rand(*weight.shape))
  (step,) = program_lib.read(network).steps
  return network, step.operation


@pytest.mark.parametrize("name", MAPS)
def test_against_the_matrix(name):
  network, operation = built(name)
  size = int(np.prod(operation.input_shape))
  units = np.eye(size, dtype=np.float32).reshape(-1, *operation.input_shape)
  offset = network(0 * units[:1]).numpy()
  matrix = (network(units).numpy() - offset).reshape(size, -1)
  rng = np.random.RandomState(2)
  h = rng.randn(3, *operation.input_shape).astype(np.float32)
  z = rng.randn(3, *operation.output_shape).astype(np.float32)
  flat_h, flat_z = h.reshape(3, -1), z.reshape(3, -1)

  def same(found, expected, shape):
    assert tuple(found.shape) == (3, *shape)
    np.testing.assert_allclose(
      found.numpy().reshape(3, -1), expected, atol=2e-5
    )

  same(
    operation.linear(tf.constant(h)), flat_h @ matrix, operation.output_shape
  )
  same(
    operation.absolute(tf.constant(h)),
    flat_h @ np.abs(matrix),
    operation.output_shape,
  )
  same(
    operation.adjoint(tf.constant(z)), flat_z @ matrix.T, operation.input_shape
  )
  same(
    operation.apply(tf.constant(h)),
    flat_h @ matrix + offset.reshape(1, -1),
    operation.output_shape,
  )
  bias = operation.bias(tf.float32)
  bias = 0.0 if bias is None else bias.numpy()
  np.testing.assert_allclose(
    np.broadcast_to(bias, offset.shape), offset, atol=1e-5
  )
  magnitude = operation.magnitude(tf.abs(h)).numpy().reshape(3, -1)
  least = np.abs(flat_h) @ np.abs(matrix) + np.abs(offset).reshape(1, -1)
  assert np.all(magnitude >= least - 1e-4)
  # One value alone: its column has a single entry.
  if not operation.mixes:
    assert np.max(np.sum(matrix != 0, axis=0)) == 1


def test_weights_are_read_when_used():
  network, operation = built("conv_same")
  h = tf.random.stateless_normal([2, *IMAGE], [0, 1])
  for weight in network.weights:
    weight.assign(2 * weight)
  np.testing.assert_allclose(operation.apply(h), network(h), atol=1e-5)


@pytest.mark.parametrize("name", networks.NAMES)
def test_steps_compute_the_network(name):
  network = networks.build(name)
  x, _ = networks.inputs(name)
  program = program_lib.read(network)
  values = [tf.constant(x)]
  for step in program.steps:
    inputs = [values[value] for value in step.inputs]
    if step.is_affine:
      values.append(step.operation.apply(inputs[0]))
    elif step.is_activation:
      values.append(step.operation.function(inputs[0]))
    else:
      values.append(tf.add_n(inputs))
    assert tuple(values[-1].shape[1:]) == step.shape
  np.testing.assert_allclose(values[-1], network(x), atol=2e-6)
