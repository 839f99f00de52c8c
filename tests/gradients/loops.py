"""The transformation matrix by loops over examples, and networks to try."""

import numpy as np
import tensorflow as tf

_layers = tf.keras.layers


def random(shape, seed=0, low=0.0, high=1.0):
  return np.random.default_rng(seed).uniform(low, high, shape)


def chain(shape, *layers, skip=False):
  inputs = _layers.Input(shape)
  outputs = inputs
  for layer in layers:
    outputs = layer(outputs)
  if skip:
    outputs = _layers.Add()([outputs, inputs])
  return filled(tf.keras.Model(inputs, outputs))


def filled(model, seed=100, scale=1.0):
  for index, variable in enumerate(model.weights):
    fan_in = np.prod(variable.shape[:-1]) if variable.shape.rank > 1 else 4
    bound = scale * np.sqrt(3 / fan_in)
    variable.assign(random(variable.shape, seed + index, -bound, bound) + 0.01)
  return model


def double(model):
  """The same network in float64, made without any code of the library."""
  copy = type(model).from_config(_with_float64(model.get_config()))
  copy.set_weights(model.get_weights())
  return copy


def _with_float64(config):
  if isinstance(config, dict):
    return {key: _with_float64(value) for key, value in config.items()}
  if isinstance(config, (list, tuple)):
    return type(config)(_with_float64(value) for value in config)
  return "float64" if config == "float32" else config


def naive(model, x, fixed=True):
  """A_i = d/dtheta grad_x l(x_i) for each example, [B, w, v]."""
  model = double(model)

  @tf.function
  def one(image):
    with tf.GradientTape(persistent=True) as outer:
      with tf.GradientTape() as inner:
        inner.watch(image)
        target = tf.stop_gradient(image) if fixed else image
        loss = tf.reduce_sum((model(image) - target) ** 2)
      slope = tf.reshape(inner.gradient(loss, image), [-1])
    return outer.jacobian(
      slope,
      model.trainable_variables,
      experimental_use_pfor=False,
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )

  found = []
  for row in np.asarray(x, "float64"):
    parts = one(tf.constant(row[None]))
    flat = [np.reshape(part, [row.size, -1]) for part in parts]
    found.append(np.concatenate(flat, 1).T)
  return np.stack(found)


def by_differences(model, x):
  """The same from first derivatives, by quotients of order 4."""
  model = double(model)

  @tf.function
  def gradient(image, target):
    with tf.GradientTape() as tape:
      loss = tf.reduce_sum((model(image) - target) ** 2)
    parts = tape.gradient(loss, model.trainable_variables)
    return tf.concat([tf.reshape(part, [-1]) for part in parts], 0)

  found, step = [], 3e-4
  for row in np.asarray(x, "float64"):
    columns = []
    for unit in step * np.eye(row.size).reshape(-1, *row.shape):
      at = {
        k: gradient((row + k * unit)[None], row[None]) for k in (-2, -1, 1, 2)
      }
      columns.append((8 * (at[1] - at[-1]) - at[2] + at[-2]) / (12 * step))
    found.append(np.stack(columns, axis=1))
  return np.stack(found)


def expected(model, jacobians, slices, coefficients):
  """sum_i c_i^2 A_i A_i^T of each slice."""
  rows, start = {}, 0
  for variable in model.trainable_variables:
    size = int(np.prod(variable.shape))
    rows[variable.ref()], start = np.arange(start, start + size), start + size
  matrices = []
  for column, part in zip(np.transpose(coefficients), slices):
    picked = jacobians[:, np.concatenate([rows[v.ref()] for v in part])]
    factor = np.concatenate(list(picked * column[:, None, None]), axis=1)
    matrices.append(factor @ factor.T)
  return matrices


def assert_same(found, expected, rtol=1e-12):
  for matrix, reference in zip(found, expected):
    assert matrix.dtype == tf.float64
    scale = np.abs(reference).max()
    np.testing.assert_allclose(matrix, reference, rtol=0, atol=rtol * scale)
